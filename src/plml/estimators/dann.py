"""Discriminant Adaptive Nearest Neighbour classification."""

from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval

from plml.backend.arrays import Array
from plml.baselines.discriminant import discriminant_metrics
from plml.estimators._neighbor_classifier import NeighborClassifier
from plml.estimators._parameters import COUNT, POSITIVE, parameter
from plml.metric.query_metric import QueryMetric
from plml.ops.span import inside
from plml.stages.own_metric_search import OwnMetricIndex
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class DANN(NeighborClassifier):
    """Nearest-neighbour classification under a discriminant metric around each query.

    The metric is

        M = W^{-1/2} (W^{-1/2} B W^{-1/2} + epsilon I) W^{-1/2},

    where W and B are the pooled within-class and the between-class covariance of the query's
    neighbourhood. The neighbourhood is shrunk across the local decision boundary and stretched
    along it. It is found under the metric of the previous iteration, initially the Euclidean one.

    Parameters
    ----------
    n_local : int or None
        K_M, the size of the neighbourhood; None takes max(n / 5, 50) as in the paper.
    epsilon : float
        Rounds the neighbourhood, so that it does not extend infinitely along the boundary.
    n_iterations : int
        How many times the metric is computed.
    n_neighbors : int
        Neighbours that vote.
    vote : {"uniform", "distance"}
        As in ``PLML``.
    class_weight, weigh_votes
        As in ``PLML``; the covariances are weighted.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.

    Attributes
    ----------
    n_local_ : int
        The size of the neighbourhood used.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    GLML : Local metrics from Gaussian classes.
    PLML : Local metrics that are learned.

    References
    ----------
    T. Hastie, R. Tibshirani. Discriminant Adaptive Nearest Neighbor Classification. IEEE
    Transactions on Pattern Analysis and Machine Intelligence 18, 1996.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import DANN
    >>> X, y = load_iris(return_X_y=True)
    >>> DANN().fit(X, y).score(X, y)
    1.0
    """

    n_local: int | None = parameter(None, Interval(Integral, 2, None, closed="left"), None)
    epsilon: float = parameter(1.0, POSITIVE)
    n_iterations: int = parameter(1, COUNT)

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        asked = max(len(X) // 5, 50) if self.n_local is None else self.n_local
        self.n_local_ = min(asked, len(X) - 1)

    def _metric_parameters(self) -> tuple[Any, ...]:
        return *super()._metric_parameters(), self.epsilon, self.n_iterations

    def _make_metric(self) -> QueryMetric:
        rows, origin = inside(self._fit_X, self._span), self._placed_origin()
        return self._metric_on(OwnMetricIndex(rows, origin))

    def _metric_after(self, before: QueryMetric, left_out: np.ndarray) -> QueryMetric:
        return self._metric_on(before.index_after(self._fit_X, left_out))

    def _metric_on(self, index: OwnMetricIndex) -> QueryMetric:
        n_local = min(self.n_local_, len(index.rows) - 1)
        matrices = partial(
            discriminant_metrics,
            index.rows,
            self._fit_codes,
            n_classes=len(self.classes_),
            n_local=n_local,
            epsilon=self.epsilon,
            n_iterations=self.n_iterations,
            index=index,
            sample_weight=self._fit_weights,
        )
        # The neighbourhood's points, their residuals and class memberships.
        elements = n_local * (3 * self.n_features_in_ + 2 * len(self.classes_))
        return QueryMetric(self._fit_X, index, matrices, elements, self._span)
