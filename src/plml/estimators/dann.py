"""Discriminant Adaptive Nearest Neighbour classification."""

from dataclasses import dataclass
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
from plml.stages.run import Run
from plml.stages.search import OwnMetricIndex


@dataclass(kw_only=True, eq=False, repr=False)
class DANN(NeighborClassifier):
    """Nearest-neighbour classification under the local discriminant metric around each query,

        M = W^{-1/2} (W^{-1/2} B W^{-1/2} + epsilon I) W^{-1/2},

    with W and B the pooled within-class and the between-class covariance of the query's
    neighbourhood: shrunk across the local decision boundary, stretched along it. The neighbourhood
    is found under the metric of the iteration before, the Euclidean one at first.

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
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.

    Attributes
    ----------
    n_local_ : int
        The size of the neighbourhood used.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

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
        index = OwnMetricIndex(inside(self._fit_X, self._span))

        def matrices(Q: np.ndarray, own: np.ndarray | None) -> np.ndarray:
            return discriminant_metrics(
                index.rows,
                self._fit_codes,
                Q,
                n_classes=len(self.classes_),
                n_local=self.n_local_,
                epsilon=self.epsilon,
                n_iterations=self.n_iterations,
                own=own,
                index=index,
            )

        # The neighbourhood's points, their residuals and class memberships.
        elements = self.n_local_ * (3 * self.n_features_in_ + 2 * len(self.classes_))
        return QueryMetric(self._fit_X, index, matrices, elements, self._span)
