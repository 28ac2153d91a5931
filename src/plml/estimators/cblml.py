"""Cluster-Based Local Metric Learning: PLML without weight learning."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._parameters import COUNT, POSITIVE, parameter
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import NearestCenter
from plml.stages.pipeline import ClusterWeighting, Weighting


@dataclass(kw_only=True, eq=False, repr=False)
class CBLML(LargeMarginClassifier):
    """Nearest-neighbour classification under one metric per k-means cluster.

    The metrics M_b >= 0 solve

        min_{M_b >= 0} regularization sum_b ||M_b||_F^2 + pull sum_ij d^2_i(x_i, x_j)
                       + sum_ijk [1 + d^2_i(x_i, x_j) - d^2_i(x_i, x_k)]_+ ,

    where d_i is the distance under the metric of the cluster that contains x_i. This is PLML with
    weight one on the instance's own cluster, so that nothing ties neighbouring metrics together. A
    new point belongs to the cluster with the nearest mean.

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
    vote, class_weight, weigh_votes, rescale, prior, n_directions
        As in ``PLML``.
    tol, max_iter, solver, neighbor_search, search_backend, device, n_jobs, working_memory
        As in ``PLML``.
    random_state, verbose
        As in ``PLML``.
    warm_start : bool
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

    See Also
    --------
    PLML : Metrics that vary smoothly in place of one per cluster.
    SML : One metric for all points.

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

    n_bases: int = parameter(20, COUNT)
    regularization: float = parameter(1.0, POSITIVE)
    random_state: int | np.random.RandomState | None = parameter(None, "random_state")

    def _weighting(self) -> ClusterWeighting:
        return ClusterWeighting(self.n_bases, self.random_state)

    def _rule_maker(self, weighting: Weighting) -> RuleMaker:
        return _nearest_center


def _nearest_center(
    anchors: Any, scales: Any, X: np.ndarray, sample_weight: np.ndarray | None
) -> NearestCenter:
    return NearestCenter(anchors)
