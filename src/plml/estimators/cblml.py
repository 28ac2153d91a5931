"""Cluster-Based Local Metric Learning: PLML without weight learning."""

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import NearestCenter
from plml.stages.pipeline import ClusterWeighting


class CBLML(LargeMarginClassifier):
    """Nearest-neighbour classification under one metric M_b >= 0 per k-means cluster,

        min_{M_b >= 0} regularization sum_b ||M_b||_F^2 + pull sum_ij d^2_i(x_i, x_j)
                       + sum_ijk [1 + d^2_i(x_i, x_j) - d^2_i(x_i, x_k)]_+ ,

    with d_i the distance under the metric of the cluster that contains x_i: PLML with weight one
    on the instance's own cluster, so nothing ties neighbouring metrics together. A new point
    belongs to the cluster with the nearest mean.

    Parameters
    ----------
    n_bases : int
        The number of clusters and metrics.
    regularization, pull : float
        alpha_1, alpha_2.
    n_targets, n_impostors : int
        Same-class and other-class neighbours that make the triplets of an instance.
    n_neighbors : int
        Neighbours that vote.
    tol, max_iter, solver, neighbor_search, search_backend, device, n_jobs, working_memory
        As in ``PLML``.
    random_state, verbose
        As in ``PLML``.

    Attributes
    ----------
    anchors_ : (m, d) array
        Cluster means.
    weights_ : (n_samples, m) array
        One for the instance's own cluster.
    basis_metrics_ : (m, d, d) array
    objective_, dual_gap_, n_iter_, history_
        As in ``PLML``.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    References
    ----------
    J. Wang, A. Woznica, A. Kalousis. Parametric Local Metric Learning for Nearest Neighbor
    Classification. NIPS 2012, section 4.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import CBLML
    >>> X, y = load_iris(return_X_y=True)
    >>> CBLML(n_bases=3, random_state=0).fit(X, y).score(X, y)
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LargeMarginClassifier._parameter_constraints,
        "n_bases": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_bases: int = 20,
        regularization: float = 1.0,
        pull: float = 1.0,
        n_targets: int = 3,
        n_impostors: int = 3,
        n_neighbors: int = 1,
        tol: float = 1e-3,
        max_iter: int = 1000,
        solver: str = "auto",
        neighbor_search: str = "auto",
        search_backend: str = "exact",
        device: str = "cpu",
        n_jobs: int | None = None,
        working_memory: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bases = n_bases
        self.regularization = regularization
        self.pull = pull
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.n_neighbors = n_neighbors
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.neighbor_search = neighbor_search
        self.search_backend = search_backend
        self.device = device
        self.n_jobs = n_jobs
        self.working_memory = working_memory
        self.random_state = random_state
        self.verbose = verbose

    def _weighting(self) -> ClusterWeighting:
        return ClusterWeighting(self.n_bases, self.random_state)

    def _rule_maker(self) -> RuleMaker:
        return _nearest_center


def _nearest_center(anchors: Any, scales: Any, X: np.ndarray) -> NearestCenter:
    return NearestCenter(anchors)
