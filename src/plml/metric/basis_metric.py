"""M(x) = sum_b w_b(x) M_b (equation 2), ready to be asked."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from plml.backend.arrays import Array, device, like, namespace, on_host, to_available_device
from plml.metric.weight_rules import WeightRule
from plml.ops.distances import combine_bases, local_pairs, reconstruction_weights
from plml.ops.span import Span, inside, inward
from plml.ops.topk import share_found
from plml.stages.neighbors import ApproximateIndex, EuclideanIndex, can_approximate
from plml.stages.search import (
    ApproximateMetricIndex,
    LocalMetricIndex,
    index_vectors,
    query_vectors,
)

#: Rows on which the recall of an approximate index is measured.
_SAMPLE = 256


class SearchIndexes:
    """Training rows and their indexes on one device, in the coordinates of the search."""

    def __init__(self, weights: Array, index: LocalMetricIndex, approximate: bool) -> None:
        self.X = index.X
        self.exact = index
        self.weights = weights
        self._approximate = approximate and can_approximate(index.X)
        self.metric_index: LocalMetricIndex | ApproximateMetricIndex = (
            ApproximateMetricIndex(index) if self._approximate else index
        )

    @cached_property
    def euclidean_index(self) -> EuclideanIndex | ApproximateIndex:
        """For the weights of new points."""
        return ApproximateIndex(self.X) if self._approximate else EuclideanIndex(self.X)

    def recall(self, k: int) -> float:
        """Share of the true neighbours that the index finds for a sample of its own rows."""
        index = self.metric_index
        if isinstance(index, LocalMetricIndex):
            return 1.0
        rows = np.arange(len(self.X))[:: -(-len(self.X) // _SAMPLE)]
        arguments = (self.X[rows], self.weights[rows], k, rows)
        found, truth = (which.search(*arguments)[1] for which in (index, index.exact))
        return share_found(truth, found)


@dataclass(eq=False)
class BasisMetric:
    """A convex combination of basis metrics at every point; neighbours are training rows.

    Points are (n, d) arrays in the coordinates of the data, or None for the training rows.
    """

    X: np.ndarray  # (n, d), the training rows
    training_weights: np.ndarray  # (n, m)
    M: np.ndarray  # (m, d, d)
    rule: WeightRule  # for new points
    _: KW_ONLY
    span: Span | None = None  # in which the rows lie, where that is less than the whole space
    device: str = "cpu"  # where the work is done
    approximate: bool = False  # whether the search is

    searches_on_gpu = True

    def __post_init__(self) -> None:
        self._indexes: dict[str, SearchIndexes] = {}

    def search(self, Q: Array | None, k: int) -> tuple[Array, Array]:
        """Squared distances and numbers of the k nearest, nearest first."""
        if Q is None:
            return self.search_rows(np.arange(len(self.X)), k)
        points = self._placed(Q)
        indexes = self.indexes_on(points)
        return indexes.metric_index.search(points, self.rule.weights(points, indexes), k)

    def search_rows(self, rows: np.ndarray, k: int) -> tuple[Array, Array]:
        """``search`` of training rows, each left out of its own neighbours."""
        points = self._placed(self.X[rows])
        indexes, own = self.indexes_on(points), like(rows, points)
        return indexes.metric_index.search(points, indexes.weights[own], k, own)

    def quick_search(self, Q: Array, k: int) -> tuple[Array, Array]:
        """As ``search``, but neighbours that rounding cannot tell apart are in any order."""
        points = self._placed(Q)
        indexes = self.indexes_on(points)
        return indexes.exact.quick_search(points, self.rule.weights(points, indexes), k)

    def nearest_labels(self, Q: Array, k: int, labels: np.ndarray) -> Array:
        """(q, k) labels of the k nearest in any order, given those of the training rows."""
        points = self._placed(Q)
        indexes = self.indexes_on(points)
        nearest = indexes.metric_index.nearest(points, self.rule.weights(points, indexes), k)
        return like(labels, nearest)[nearest]

    def reconstruction(
        self, Q: Array | None, cases: Array, ridge: float, sizes: Sequence[int]
    ) -> list[Array]:
        """Weights that make up points from training rows (``ops.distances``)."""
        points = self._placed(self.X if Q is None else Q)
        weights, M = self._weights_with(points, Q is None, cases)

        def metrics(block: slice) -> Array:
            return M if len(M) == 1 else combine_bases(weights[block], M)

        X = self.indexes_on(points).X
        return reconstruction_weights(points, X, cases, metrics, ridge, sizes)

    def _weights_with(self, points: Array, own: bool, cases: Array) -> tuple[Array, Array]:
        """The weights and the metrics between placed points and some cases of each."""
        indexes = self.indexes_on(points)
        weights = indexes.weights if own else self.rule.weights(points, indexes)
        return weights, like(inward(self.M, self.span), points)

    def weights(self, Q: Array | None) -> Array:
        """(q, m) weights of the basis metrics."""
        if Q is None:
            return self.training_weights
        points = self._placed(Q)
        return self.rule.weights(points, self.indexes_on(points))

    def matrix(self, Q: Array | None) -> Array:
        """(q, d, d) metrics; a read-only view where there is one for all."""
        if len(self.M) == 1:
            n = len(self.X if Q is None else Q)
            return np.broadcast_to(self.M[0], (n, *self.M.shape[1:]))
        weights = self.weights(Q)
        return combine_bases(weights, like(self.M, weights))

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances between rows, under the metrics at the first ones."""
        rows = np.arange(len(second))[:, None]
        return local_pairs(first, on_host(self.weights(first)), self.M, second, rows)[:, 0]

    def index_vectors(self) -> np.ndarray:
        """(x_j, q_j) of the training rows about their mean, q_jb = x_j^T M_b x_j."""
        return index_vectors(self._about_the_mean(self.X), self.M)

    def query_vectors(self, Q: Array | None) -> Array:
        """(2 M(x) x, -w(x)) of points about the mean of the training rows."""
        weights = self.weights(Q)
        points = like(self._about_the_mean(self.X if Q is None else Q), weights)
        return query_vectors(points, weights, like(self.M, weights))

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """The metrics between points and training rows, (q, 1, d, d), see ``feature_split``."""
        weights = on_host(self.weights(Q)) if own is None else self.training_weights[own]
        return combine_bases(weights, self.M)[:, None]

    def recall(self, k: int) -> float:
        """Share of the true neighbours that the search finds for a sample of training rows."""
        return self.indexes_on(self._placed(self.X[:1])).recall(k)

    def indexes_on(self, like_x: Array) -> SearchIndexes:
        """What a search needs, on the device of an array; made once per device."""
        key = f"{type(like_x).__module__} {device(like_x)}"
        if key not in self._indexes:
            weights, index = like(self.training_weights, like_x), self._make_index(like_x)
            self._indexes[key] = SearchIndexes(weights, index, self.approximate)
        return self._indexes[key]

    def _make_index(self, like_x: Array) -> LocalMetricIndex:
        """The index of the training rows, on the device of an array."""
        X, M = inside(self.X, self.span), inward(self.M, self.span)
        return LocalMetricIndex(like(X, like_x), like(M, like_x))

    def _placed(self, Q: Array) -> Array:
        """Points where the work is done, in the coordinates of the search."""
        return inside(to_available_device(Q, self.device), self.span)

    def _about_the_mean(self, X: Array) -> Array:
        xp = namespace(X)
        center = self.X.mean(axis=0, dtype=np.float64)
        return xp.astype(X - like(center, X, xp.float64), X.dtype)
