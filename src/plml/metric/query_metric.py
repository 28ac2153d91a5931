"""A metric of its own at every query, made when it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plml.backend.threads import thread_team
from plml.ops.distances import reconstruction_weights
from plml.ops.span import Span, inside, outward, placed_after
from plml.ops.topk import rows_per_block
from plml.stages.own_metric_search import OwnMetricIndex

#: (q, r) queries in the coordinates of the search, and the training rows that they are or None
#: -> (q, r, r) metrics. The metric of a query does not depend on the others.
Matrices = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(eq=False)
class QueryMetric:
    """Blocks of queries, one per thread: metrics, then the search under them.

    Memory does not grow with the queries, and the threads of the linear algebra do not multiply
    ours.
    """

    X: np.ndarray  # (n, d), the training rows
    index: OwnMetricIndex  # training rows in the coordinates of the search
    matrices: Matrices
    elements_per_query: int  # numbers that one query needs while its metric is made
    span: Span | None  # in which the rows lie, where that is less than the whole space

    searches_on_gpu = False

    def index_after(self, X: np.ndarray, left_out: np.ndarray) -> OwnMetricIndex:
        """The index of other cases: some are left out, or more follow.

        Parameters
        ----------
        X : (n', d), all of them
        left_out : numbers of cases of this metric that are not there any more
        """
        if len(left_out):
            return self.index.without(left_out)
        return self.index.extended(placed_after(self.index.rows, X, self.span, left_out))

    def search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As in ``BasisMetric``."""
        return self._search(*self._points(Q), k)

    def search_rows(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As in ``BasisMetric``."""
        return self._search(self.index.rows[rows], rows, k)

    def _search(
        self, points: np.ndarray, own: np.ndarray | None, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        squared = np.empty((len(points), k))
        indices = np.empty((len(points), k), dtype=np.int64)

        def search(block: slice) -> None:
            of_block = None if own is None else own[block]
            metrics = self.matrices(points[block], of_block)
            squared[block], indices[block] = self.index.search(points[block], metrics, k, of_block)

        self._in_blocks(search, len(points))
        return squared, indices

    def nearest_labels(self, Q: np.ndarray, k: int, labels: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``."""
        return labels[self.search(Q, k)[1]]

    def reconstruction(
        self,
        Q: np.ndarray | None,
        cases: np.ndarray,
        ridge: float,
        sizes: Sequence[int],
        sample_weight: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """As in ``BasisMetric``."""
        points, own = self._points(Q)
        result = [np.empty((len(points), c)) for c in sizes]

        def fill(block: slice) -> None:
            metrics = self.matrices(points[block], None if own is None else own[block])
            rows, near = points[block], cases[block]
            of_block: tuple[Any, ...] = (lambda part: metrics[part], ridge, sizes, sample_weight)
            found = reconstruction_weights(rows, self.index.rows, near, *of_block)
            for weights, part in zip(result, found, strict=True):
                weights[block] = part

        self._in_blocks(fill, len(points))
        return result

    def matrix(self, Q: np.ndarray | None) -> np.ndarray:
        """As in ``BasisMetric``."""
        points, own = self._points(Q)
        d = points.shape[1] if self.span is None else len(self.span.center)
        result = np.empty((len(points), d, d))

        def fill(block: slice) -> None:
            metrics = self.matrices(points[block], None if own is None else own[block])
            result[block] = outward(metrics, self.span)

        self._in_blocks(fill, len(points))
        return result

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``."""
        return outward(self.matrices(inside(Q, self.span), own), self.span)[:, None]

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``."""
        first, second = inside(first, self.span), inside(second, self.span)
        difference = (first - second).astype(np.float64)
        result = np.empty(len(first))

        def measure(block: slice) -> None:
            metrics, part = self.matrices(first[block], None), difference[block]
            result[block] = np.einsum("qd,qde,qe->q", part, metrics, part)

        self._in_blocks(measure, len(first))
        return np.maximum(result, 0.0)

    def _in_blocks(self, work: Callable[[slice], None], n_queries: int) -> None:
        with thread_team() as threads:
            largest = rows_per_block(self.elements_per_query * threads.size)
            threads.map(work, threads.cut(n_queries, largest, smallest=1))

    def _points(self, Q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        if Q is None:
            return self.index.rows, np.arange(len(self.index.rows))
        return inside(Q, self.span), None
