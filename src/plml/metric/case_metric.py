"""A metric at every training row; distances are measured under that of the row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plml.ops.distances import combine_bases, local_pairs, reconstruction_weights
from plml.ops.span import Span, inside, inward
from plml.stages.search import TrainingMetricIndex


@dataclass(eq=False)
class CaseMetric:
    """M_g for the training rows of group g; that of a new point is that of its nearest row."""

    X: np.ndarray  # (n, d), the training rows
    groups: np.ndarray  # (n,), numbers of metrics
    M: np.ndarray  # (m, d, d)
    span: Span | None = None  # in which the rows lie, where that is less than the whole space

    searches_on_gpu = False

    def __post_init__(self) -> None:
        rows, M = inside(self.X, self.span), inward(self.M, self.span)
        self.index = TrainingMetricIndex(rows, self.groups, M)

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
        self, Q: np.ndarray | None, cases: np.ndarray, ridge: float, sizes: Sequence[int]
    ) -> list[np.ndarray]:
        """As in ``BasisMetric``, under the average of the metrics of the cases of a point."""
        points = self.index.X if Q is None else inside(Q, self.span)
        weights = np.eye(len(self.M))[self.groups[cases]].mean(axis=1)

        def metrics(block: slice) -> np.ndarray:
            return combine_bases(weights[block], self.index.M)

        return reconstruction_weights(points, self.index.X, cases, metrics, ridge, sizes)

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
        return self.groups if Q is None else self.nearest_labels(Q, 1, self.groups)[:, 0]
