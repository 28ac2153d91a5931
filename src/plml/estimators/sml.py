"""Single Metric Learning: PLML's stage 2 with one basis metric."""

from typing import Any

import numpy as np

from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._linear_map import LinearMap
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import SingleMetric
from plml.stages.pipeline import Learned, SingleWeighting


class SML(LinearMap, LargeMarginClassifier):
    """Nearest-neighbour classification under one large-margin metric M >= 0,

        min_M regularization ||M||_F^2 + pull sum_ij d^2(x_i, x_j)
              + sum_ijk [1 + d^2(x_i, x_j) - d^2(x_i, x_k)]_+ ,

    over same-class neighbours j and other-class neighbours k of every instance i: the baseline
    that PLML is when it has a single basis.

    Parameters
    ----------
    regularization : float
        alpha_1.
    pull : float
        alpha_2, the weight of the distances to same-class neighbours.
    n_targets, n_impostors : int
        Same-class and other-class neighbours that make the triplets of an instance.
    n_neighbors : int
        Neighbours that vote.
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
        Iterations at the most.
    solver, neighbor_search, search_backend, working_memory
        As in ``PLML``.
    device : str
        Where the work is done: ``"cpu"``, or ``"cuda"`` for a GPU through PyTorch. Training tensors
        on a GPU are worked on where they are; predictions go where their queries came from. Fitted
        attributes are NumPy arrays in any case, and a model predicts on any machine.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    verbose : int
        Above zero shows the progress.

    Attributes
    ----------
    components_ : (rank, d) array
        The linear map of the metric, ``M = components_^T components_``.
    basis_metrics_ : (1, d, d) array
        The metric M.
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
    >>> from plml import SML
    >>> X, y = load_iris(return_X_y=True)
    >>> SML().fit(X, y).score(X, y)
    1.0
    """

    def __init__(
        self,
        *,
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
        verbose: int = 0,
    ) -> None:
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
        self.verbose = verbose

    def _weighting(self) -> SingleWeighting:
        return SingleWeighting()

    def _rule_maker(self) -> RuleMaker:
        return _single_metric

    def _set_fitted(self, learned: Learned) -> None:
        super()._set_fitted(learned)
        self._set_components()


def _single_metric(anchors: Any, scales: Any, X: np.ndarray) -> SingleMetric:
    return SingleMetric()
