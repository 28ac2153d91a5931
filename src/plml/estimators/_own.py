"""Classifiers with a metric matrix of its own at every query."""

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np

from plml.backend.threads import crew
from plml.estimators._base import NeighborClassifier
from plml.ops.topk import rows_per_block
from plml.stages.search import OwnMetricIndex


class OwnMetricClassifier(NeighborClassifier):
    """Blocks of queries, one per thread: metrics, then the search under them.

    Memory does not grow with the queries, and the threads of the linear algebra do not multiply
    ours.
    """

    _made_again: ClassVar[tuple[str, ...]] = ("_index",)

    @abstractmethod
    def _matrices(self, Q: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        """(q, r, r) metrics at queries in the coordinates of the index, row by row.

        ``own`` are the training rows that the queries are, or None. The metric of a query does not
        depend on the others.
        """

    @property
    def _elements_per_query(self) -> int:
        """Numbers that one query needs while its metric is made."""
        return 4 * self.n_features_in_**2

    @cached_property
    def _index(self) -> OwnMetricIndex:
        return OwnMetricIndex(self._inside(self._fit_X))

    def _search(self, X: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        points, own = self._points(X)
        squared = np.empty((len(points), k))
        indices = np.empty((len(points), k), dtype=np.int64)
        index = self._index

        def search(block: slice) -> None:
            of_block = None if own is None else own[block]
            metrics = self._matrices(points[block], of_block)
            squared[block], indices[block] = index.search(points[block], metrics, k, of_block)

        self._in_blocks(search, len(points))
        return squared, indices

    def _squared_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        first, second = self._inside(first), self._inside(second)
        difference = (first - second).astype(np.float64)
        result = np.empty(len(first))

        def measure(block: slice) -> None:
            metrics, part = self._matrices(first[block], None), difference[block]
            result[block] = np.einsum("qd,qde,qe->q", part, metrics, part)

        self._in_blocks(measure, len(first))
        return np.maximum(result, 0.0)

    def _metrics_at(self, X: np.ndarray | None) -> np.ndarray:
        points, own = self._points(X)
        d = self.n_features_in_
        result = np.empty((len(points), d, d))

        def fill(block: slice) -> None:
            metrics = self._matrices(points[block], None if own is None else own[block])
            result[block] = metrics if self._span is None else self._span.outward(metrics)

        self._in_blocks(fill, len(points))
        return result

    def _in_blocks(self, work: Callable[[slice], None], n_queries: int) -> None:
        with crew() as threads:
            largest = rows_per_block(self._elements_per_query * threads.size)
            threads.map(work, threads.cut(n_queries, largest, smallest=1))

    def _points(self, X: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        if X is None:
            return self._inside(self._fit_X), np.arange(len(self._fit_X))
        return self._inside(X), None
