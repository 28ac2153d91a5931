"""Classifiers with a metric matrix of its own at every query."""

from abc import abstractmethod

import numpy as np

from plml.estimators._base import NeighborClassifier
from plml.ops.topk import row_blocks
from plml.stages.search import own_metric_neighbors


class OwnMetricClassifier(NeighborClassifier):
    """Computes metrics one block of queries at a time, so memory does not grow with them."""

    @abstractmethod
    def _matrices(self, Q: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        """(q, d, d) metrics at queries; ``own`` are the training rows that they are, or None."""

    @property
    def _elements_per_query(self) -> int:
        """Numbers that one query needs while its metric is made."""
        return 4 * self.n_features_in_**2

    def _search(self, X: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        points, own = self._points(X)
        squared = np.empty((len(points), k))
        indices = np.empty((len(points), k), dtype=np.int64)
        for block in row_blocks(len(points), self._elements_per_query):
            of_block = None if own is None else own[block]
            metrics = self._matrices(points[block], of_block)
            found = own_metric_neighbors(self._fit_X, points[block], metrics, k, of_block)
            squared[block], indices[block] = found
        return squared, indices

    def _squared_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        difference = (first - second).astype(np.float64)
        result = np.empty(len(first))
        for block in row_blocks(len(first), self._elements_per_query):
            metrics = self._matrices(first[block], None)
            part = difference[block]
            result[block] = np.einsum("qd,qde,qe->q", part, metrics, part)
        return np.maximum(result, 0.0)

    def _metrics_at(self, X: np.ndarray | None) -> np.ndarray:
        points, own = self._points(X)
        d = self.n_features_in_
        result = np.empty((len(points), d, d))
        for block in row_blocks(len(points), self._elements_per_query):
            result[block] = self._matrices(points[block], None if own is None else own[block])
        return result

    def _points(self, X: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        return (self._fit_X, np.arange(len(self._fit_X))) if X is None else (X, None)
