"""Single Metric Learning: PLML's stage 2 with one basis metric."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._linear_map import LinearMap
from plml.estimators._parameters import POSITIVE, parameter
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import SingleMetric
from plml.stages.pipeline import Learned, SingleWeighting, Weighting


@dataclass(kw_only=True, eq=False, repr=False)
class SML(LinearMap, LargeMarginClassifier):
    """Nearest-neighbour classification under a single large-margin metric.

    The metric M >= 0 solves

        min_M regularization ||M||_F^2 + pull sum_ij d^2(x_i, x_j)
              + sum_ijk [1 + d^2(x_i, x_j) - d^2(x_i, x_k)]_+ ,

    over same-class neighbours j and other-class neighbours k of every instance i. It is the
    baseline that PLML reduces to when it has a single basis.

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
    vote, class_weight, weigh_votes, rescale, prior, n_directions
        As in ``PLML``.
    tol : float
        Relative duality gap at which to stop.
    max_iter, solver, neighbor_search, search_backend, device, n_jobs, working_memory, verbose
        As in ``PLML``.
    warm_start : bool
        As in ``PLML``.

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

    See Also
    --------
    PLML : A metric that varies over the data.
    LMNN : One metric by another loss.

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

    regularization: float = parameter(1.0, POSITIVE)

    def _weighting(self) -> SingleWeighting:
        return SingleWeighting()

    def _rule_maker(self, weighting: Weighting) -> RuleMaker:
        return _single_metric

    def _set_fitted(self, learned: Learned) -> None:
        super()._set_fitted(learned)
        self._set_components()


def _single_metric(
    anchors: Any, scales: Any, X: np.ndarray, sample_weight: np.ndarray | None
) -> SingleMetric:
    return SingleMetric()
