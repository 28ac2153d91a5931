"""A metric at every case; distances are measured under that of the case."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plml.ops.distances import (
    combine_bases,
    local_pairs,
    mean_of_cases,
    reconstruction_weights,
)
from plml.ops.span import Span, inside, inward, placed_after
from plml.stages.own_metric_search import TrainingMetricIndex


def with_mean_metrics(M: np.ndarray, places: np.ndarray, n_metrics: int) -> np.ndarray:
    """Metrics (m, d, d) at their places among more of them; the others are their mean."""
    result = np.repeat(M.mean(axis=0, dtype=np.float64)[None].astype(M.dtype), n_metrics, axis=0)
    result[places] = M
    return result


@dataclass(eq=False)
class CaseMetric:
    """M_g for the cases of group g.

    That of a new point is that of the nearest of the first cases, the rows that were learned from:
    cases that are added after them change no distance between points.
    """

    X: np.ndarray  # (n, d), the cases
    groups: np.ndarray  # (n,), numbers of metrics
    M: np.ndarray  # (m, d, d)
    span: Span | None = None  # in which the rows lie, where that is less than the whole space
    n_learned: int | None = None  # how many of the cases were learned from; by default all
    center: np.ndarray | None = None  # (d,) that vectors are about; by default the mean of X

    searches_on_gpu = False

    @cached_property
    def index(self) -> TrainingMetricIndex:
        """Of all cases."""
        return self._index_of(slice(None))

    @cached_property
    def _learned(self) -> TrainingMetricIndex:
        """Of the rows that were learned from."""
        if self.n_learned in (None, len(self.X)):
            return self.index
        return self._index_of(slice(self.n_learned))

    def _index_of(self, rows: slice) -> TrainingMetricIndex:
        cases, M = inside(self.X[rows], self.span), inward(self.M, self.span)
        center = None if self.center is None else inside(self.center[None], self.span)[0]
        return TrainingMetricIndex(cases, self.groups[rows], M, center)

    def adopt(self, before: "CaseMetric", left_out: np.ndarray) -> None:
        """As in ``BasisMetric``."""
        if "index" not in vars(before):
            return
        if len(left_out):
            self.index = before.index.without(left_out)
        else:
            cases = placed_after(before.index.X, self.X, self.span, left_out)
            self.index = before.index.extended(cases, self.groups)

    def search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As in ``BasisMetric``."""
        if Q is None:
            return self.search_rows(np.arange(len(self.groups)), k)
        return self.index.search(inside(Q, self.span), k)

    def search_rows(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As in ``BasisMetric``."""
        return self.index.search(self.index.X[rows], k, rows)

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
        """As in ``BasisMetric``, under the average of the metrics of the cases of a point."""
        points = self.index.X if Q is None else inside(Q, self.span)
        weights = mean_of_cases(np.eye(len(self.M))[self.groups], cases, sample_weight)

        def metrics(block: slice) -> np.ndarray:
            return combine_bases(weights[block], self.index.M)

        X = self.index.X
        return reconstruction_weights(points, X, cases, metrics, ridge, sizes, sample_weight)

    def matrix(self, Q: np.ndarray | None) -> np.ndarray:
        """As in ``BasisMetric``."""
        return self.M[self._groups_of(Q)]

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``."""
        weights = np.eye(len(self.M))[self._groups_of(first)]
        rows = np.arange(len(second))[:, None]
        return local_pairs(first, weights, self.M, second, rows)[:, 0]

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``: those of the cases, (q, k, d, d)."""
        return self.M[self.groups[cases]].astype(np.float64)

    def _groups_of(self, Q: np.ndarray | None) -> np.ndarray:
        return self.groups if Q is None else self.groups_at(Q)

    def groups_at(self, Q: np.ndarray) -> np.ndarray:
        """(q,) the groups of new points."""
        return self.groups[self._learned.search(inside(Q, self.span), 1)[1][:, 0]]
