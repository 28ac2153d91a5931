"""A scale at every training row; distances are measured under that of the row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from plml.ops.distances import reconstruction_weights
from plml.ops.topk import row_blocks


@dataclass(eq=False)
class TemplateMetric:
    """d^2(q, x_j) = s_j ||q - x_j||^2; the metric at a new point is that of its nearest row.

    Points are (n, d) arrays in the coordinates of the data, or None for the training rows.
    """

    X: np.ndarray  # (n, d), the training rows
    scales: np.ndarray  # (n,), s_j > 0

    searches_on_gpu = False

    def search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and numbers of the k nearest, nearest first."""
        if Q is None:
            return self.search_rows(np.arange(len(self.X)), k)
        return self._nearest(Q, k, None)

    def search_rows(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """``search`` of training rows, each left out of its own neighbours."""
        return self._nearest(self.X[rows], k, rows)

    def _nearest(
        self, points: np.ndarray, k: int, own: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        squared = np.empty((len(points), k))
        nearest = np.empty((len(points), k), dtype=np.int64)
        for block in row_blocks(len(points), 3 * len(self.X), self.X):
            d2 = self.scales * cdist(points[block], self.X, "sqeuclidean")
            if own is not None:
                d2[np.arange(len(d2)), own[block]] = np.inf
            nearest[block] = np.argsort(d2, axis=1, kind="stable")[:, :k]
            squared[block] = np.take_along_axis(d2, nearest[block], axis=1)
        return squared, nearest

    def nearest_labels(self, Q: np.ndarray, k: int, labels: np.ndarray) -> np.ndarray:
        """(q, k) labels of the k nearest in any order, given those of the training rows."""
        return labels[self.search(Q, k)[1]]

    def reconstruction(
        self,
        Q: np.ndarray | None,
        cases: np.ndarray,
        ridge: float,
        sizes: Sequence[int],
        sample_weight: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Weights that make up points from training rows, which do not depend on a scale."""
        points = self.X if Q is None else Q

        def metric(block: slice) -> np.ndarray:
            return np.eye(self.X.shape[1])[None]

        return reconstruction_weights(points, self.X, cases, metric, ridge, sizes, sample_weight)

    def matrix(self, Q: np.ndarray | None) -> np.ndarray:
        """(q, d, d) metrics."""
        return self._scales_of(Q)[:, None, None] * np.eye(self.X.shape[1])

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances between rows, under the metrics at the first ones."""
        return self._scales_of(first) * np.square(first - second).sum(axis=1)

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """The metrics between points and training rows, (q, k, d, d), see ``feature_split``."""
        return self.scales[cases][..., None, None] * np.eye(self.X.shape[1])

    def _scales_of(self, Q: np.ndarray | None) -> np.ndarray:
        return self.scales if Q is None else self.nearest_labels(Q, 1, self.scales)[:, 0]
