"""Prediction: neighbours under the local metric as a maximum inner product search, and the vote.

d^2_i(x_i, x_j) = x_i^T M_i x_i - <(2 M_i x_i, -W_i), (x_j, q_j)>,     q_jb = x_j^T M_b x_j

X are the training instances, an (n, d) array, Q queries (q, d), weights (q, m) those of the
queries, and M basis metrics (m, d, d). Where the cases have metrics as well, N_j = sum_c V_jc N_c
with case weights V (n, m') and case metrics N (m', d, d), the squared distance has a second part,

    x^T N_j x - 2 x^T N_j x_j + x_j^T N_j x_j = -<(2 x, -p(x), -1), (N_j x_j, V_j, x_j^T N_j x_j)>

with p_c(x) = x^T N_c x.
"""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np

from plml.backend.arrays import (
    Array,
    at_columns,
    device,
    largest_of_rows,
    like,
    namespace,
    on_host,
    row_dot,
    segment_sum,
)
from plml.ops.distances import case_pairs, euclidean_pairs, local_pairs, measured
from plml.ops.growing import without_rows
from plml.ops.hnsw import SPARE_CANDIDATES, NavigableGraph
from plml.ops.reduction import EuclideanReduction
from plml.ops.topk import InnerProductIndex, Measured, PairwiseDistances, row_blocks, sorted_prefix
from plml.stages.neighbors import euclidean_neighbors

#: A metric is zero up to rounding if its trace is this small, relative to the largest one.
VANISHING = 1e-13


def vanishing(weights: Array, traces: Array) -> Array:
    """Where sum_b W_ib M_b is zero up to rounding: (n, m) weights, (m,) traces of the M_b."""
    xp = namespace(weights)
    return xp.astype(weights, xp.float64, copy=False) @ traces <= VANISHING * xp.max(traces)


def index_vectors(X: Array, M: Array) -> Array:
    """(x_j, q_j): (n, d) instances, (m, d, d) basis metrics -> (n, d + m)."""
    xp = namespace(X)
    q = xp.stack([row_dot(X @ M[b, ...], X) for b in range(len(M))], axis=1)
    return xp.concat([X, q], axis=1)


def query_vectors(X: Array, weights: Array, M: Array) -> Array:
    """(2 M_i x_i, -W_i): (n, d) queries, (n, m) weights, (m, d, d) basis metrics -> (n, d + m)."""
    xp = namespace(X)
    MX = xp.zeros(X.shape, dtype=xp.result_type(X, M), device=device(X))
    for b in range(len(M)):
        rows = xp.nonzero(weights[:, b])[0]
        MX[rows] += weights[rows, b][:, None] * (X[rows] @ M[b, ...])
    return xp.concat([2.0 * MX, -xp.astype(weights, MX.dtype, copy=False)], axis=1)


def two_sided_index_vectors(X: Array, M: Array, case_weights: Array, N: Array) -> Array:
    """(x_j, q_j, N_j x_j, V_j, x_j^T N_j x_j), an (n, 2 d + m + m' + 1) array."""
    xp, d = namespace(X), X.shape[1]
    cases = query_vectors(X, case_weights, N)  # (2 N_j x_j, -V_j)
    mapped = 0.5 * cases[:, :d]
    square = row_dot(mapped, X)[:, None]
    return xp.concat([index_vectors(X, M), mapped, -cases[:, d:], square], axis=1)


def two_sided_query_vectors(X: Array, weights: Array, M: Array, N: Array) -> Array:
    """(2 M(x) x, -w(x), 2 x, -p(x), -1), a (q, 2 d + m + m' + 1) array."""
    xp, d = namespace(X), X.shape[1]
    points = index_vectors(X, N)  # (x, p(x))
    ones = xp.ones_like(points[:, :1])
    return xp.concat(
        [query_vectors(X, weights, M), 2.0 * points[:, :d], -points[:, d:], -ones], axis=1
    )


def _column_scales(vectors: Array, widths: tuple[int, ...]) -> Array:
    """What brings groups of columns to the scale of the first one: that tightens the rounding
    bound of their inner products.
    """
    largest = on_host(namespace(vectors).max(namespace(vectors).abs(vectors), axis=0))
    sizes = [float(group.max()) for group in np.split(largest, np.cumsum(widths)[:-1])]
    scales = [size / (sizes[0] or 1.0) or 1.0 for size in sizes]
    return like(np.repeat(scales, widths), vectors)


class LocalMetricIndex:
    """Training instances ready for exact search under the queries' local metrics.

    Vectors are relative to a center, by default the mean of X. ``squares`` are x_j^T M_b x_j
    relative to it, an (n, m) float64 array, if known.
    """

    def __init__(
        self, X: Array, M: Array, squares: Array | None = None, center: Array | None = None
    ) -> None:
        xp = namespace(X)
        self.X = X
        self.M = M
        self.center = xp.mean(xp.astype(X, xp.float64), axis=0) if center is None else center
        self._M64 = xp.astype(M, xp.float64)
        self._traces = xp.sum(xp.linalg.diagonal(self._M64), axis=1)
        if squares is None:
            vectors = self._vectors(slice(None))
        else:
            vectors = xp.concat([X - self.center, squares], axis=1)
        self._scales = _column_scales(vectors, self._widths())
        self.index = InnerProductIndex(vectors / self._scales)

    def _widths(self) -> tuple[int, ...]:
        """How many columns of the vectors are of one kind."""
        return self.X.shape[1], len(self.M)

    def _vectors(self, rows: slice) -> Array:
        return index_vectors(self.X[rows] - self.center, self._M64)

    def extended(self, X: Array) -> Self:
        """Another index, of instances that begin with those of this one."""
        grown = copy(self)
        grown.X = X
        return grown._grown_by(slice(len(self.X), None))

    def _grown_by(self, rows: slice) -> Self:
        """With the vectors of new rows behind the others."""
        self.index = self.index.extended(self._vectors(rows) / self._scales)
        return self

    def without(self, rows: np.ndarray, X: Array | None = None) -> Self:
        """Another index, without some of the instances; X are those that stay, if known."""
        rest = copy(self)
        rest.X = without_rows(self.X, rows) if X is None else X
        rest.index = self.index.without(rows)
        return rest

    def _query_vectors(self, Q: Array, weights: Array) -> Array:
        return query_vectors(Q - self.center, weights, self._M64)

    def search(
        self, Q: Array, weights: Array, n_neighbors: int, own: Array | None = None
    ) -> tuple[Array, Array]:
        """Squared distances and indices of the nearest instances under each query's own metric.

        Equal distances are in Euclidean order; where the metric vanishes, all are equal. The
        other arguments are those of ``InnerProductIndex.search``.
        """
        xp = namespace(Q)
        curved = self.curved(weights)
        if xp.all(curved):
            return self.index.search(*self.inner_products(Q, weights, n_neighbors), own)
        squared = xp.zeros((len(Q), n_neighbors), dtype=xp.float64, device=device(Q))
        indices = xp.empty((len(Q), n_neighbors), dtype=xp.int64, device=device(Q))
        if xp.any(curved):
            products = self.inner_products(Q[curved], weights[curved], n_neighbors)
            found = self.index.search(*products, _take(own, curved))
            squared[curved], indices[curved] = found
        flat = ~curved
        _, indices[flat] = euclidean_neighbors(self.X, n_neighbors, Q[flat], _take(own, flat))
        return squared, indices

    def nearest(self, Q: Array, weights: Array, n_neighbors: int) -> Array:
        """The neighbours of ``search`` in any order."""
        if not namespace(Q).all(self.curved(weights)):
            return self.search(Q, weights, n_neighbors)[1]
        return self.index.nearest(*self.inner_products(Q, weights, n_neighbors))

    def quick_search(self, Q: Array, weights: Array, n_neighbors: int) -> tuple[Array, Array]:
        """The neighbours of ``search`` up to rounding, from one product of matrices."""
        if not namespace(Q).all(self.curved(weights)):
            return self.search(Q, weights, n_neighbors)
        xp, vectors = namespace(Q), self._query_vectors(Q, weights)
        constant = 0.5 * row_dot(vectors[:, : Q.shape[1]], Q - self.center)[:, None]
        vectors = vectors * self._scales * self.index.radius
        squared = xp.empty((len(Q), n_neighbors), dtype=xp.float64, device=device(Q))
        indices = xp.empty((len(Q), n_neighbors), dtype=xp.int64, device=device(Q))
        for block in row_blocks(len(Q), len(self.X), Q):
            products = vectors[block] @ self.index.vectors.T
            indices[block] = largest_of_rows(products, n_neighbors)
            near = at_columns(products, indices[block])
            squared[block] = constant[block] - near
        return xp.clip(squared, 0.0, None), indices

    def curved(self, weights: Array) -> Array:
        """Where the metric does not vanish."""
        return ~vanishing(weights, self._traces)

    def inner_products(
        self, Q: Array, weights: Array, n_neighbors: int
    ) -> tuple[Array, int, PairwiseDistances]:
        """The arguments of the index: query vectors, number of neighbours, exact distances."""
        vectors = self._query_vectors(Q, weights) * self._scales

        def distances(rows: Array, columns: Array) -> Measured:
            return self.distances(Q[rows], weights[rows], columns)

        return vectors, n_neighbors, distances

    def distances(self, Q: Array, weights: Array, columns: Array) -> Measured:
        """Exact distances between each query and (q, c) instances."""
        xp = namespace(Q)
        traces = xp.astype(weights, self._traces.dtype, copy=False) @ self._traces
        squared = local_pairs(Q, weights, self.M, self.X, columns)
        return measured(
            xp.where(self.curved(weights)[:, None], squared, xp.zeros_like(squared)),
            euclidean_pairs(Q, self.X, columns),
            Q - self.center,
            traces[:, None],
        )


class TwoSidedIndex(LocalMetricIndex):
    """Training instances ready for exact search where they have metrics of their own, too."""

    def __init__(
        self, X: Array, M: Array, case_weights: Array, N: Array, center: Array | None = None
    ) -> None:
        xp = namespace(X)
        self.N = xp.astype(N, xp.float64, copy=False)
        self._set_case_weights(case_weights)
        super().__init__(X, M, center=center)

    def _set_case_weights(self, case_weights: Array) -> None:
        xp = namespace(case_weights)
        self.case_weights = xp.astype(case_weights, xp.float64, copy=False)
        self._case_traces = self.case_weights @ xp.sum(xp.linalg.diagonal(self.N), axis=1)

    def extended(self, X: Array, case_weights: Array | None = None) -> Self:
        """As in ``LocalMetricIndex``, with the weights of all instances."""
        grown = copy(self)
        grown.X = X
        grown._set_case_weights(case_weights)
        return grown._grown_by(slice(len(self.X), None))

    def without(self, rows: np.ndarray, X: Array | None = None) -> Self:
        """As in ``LocalMetricIndex``."""
        rest = super().without(rows, X)
        rest._set_case_weights(without_rows(self.case_weights, rows))
        return rest

    def _widths(self) -> tuple[int, ...]:
        d = self.X.shape[1]
        return d, len(self.M), d, len(self.N), 1

    def _vectors(self, rows: slice) -> Array:
        X, cases = self.X[rows] - self.center, self.case_weights[rows]
        return two_sided_index_vectors(X, self._M64, cases, self.N)

    def _query_vectors(self, Q: Array, weights: Array) -> Array:
        return two_sided_query_vectors(Q - self.center, weights, self._M64, self.N)

    def curved(self, weights: Array) -> Array:
        """Where the metric does not vanish for all cases."""
        xp = namespace(weights)
        largest = xp.max(self._case_traces)
        traces = xp.astype(weights, xp.float64, copy=False) @ self._traces + largest
        return traces > VANISHING * (xp.max(self._traces) + largest)

    def distances(self, Q: Array, weights: Array, columns: Array) -> Measured:
        """As in ``LocalMetricIndex``."""
        xp = namespace(Q)
        traces = xp.astype(weights, xp.float64, copy=False) @ self._traces
        squared = local_pairs(Q, weights, self.M, self.X, columns)
        squared += case_pairs(Q, self.case_weights, self.N, self.X, columns)
        return measured(
            squared,
            euclidean_pairs(Q, self.X, columns),
            Q - self.center,
            traces[:, None] + self._case_traces[columns],
        )


class ApproximateMetricIndex:
    """A ``LocalMetricIndex`` by a walk along a navigable graph: fast, not exact.

    The inner products become Euclidean distances in one more dimension. What the walk finds is
    measured exactly, so distances are right, but neighbours may be missed.
    """

    def __init__(self, exact: LocalMetricIndex) -> None:
        self.exact = exact
        vectors = self.exact.index.vectors
        self._reduction = EuclideanReduction().fit(vectors)
        self._graph = NavigableGraph(self._reduction.index_vectors(vectors))

    def after(self, exact: LocalMetricIndex, left_out: np.ndarray) -> "ApproximateMetricIndex":
        """Another one, of an index that came from the one of this.

        The graph grows. Where instances were left out it is made anew, so that no link is theirs.
        """
        if len(left_out):
            return ApproximateMetricIndex(exact)
        vectors = exact.index.vectors[len(self.exact.index) :]
        if row_dot(vectors, vectors).max() > self._reduction.radius_**2:  # no room in the reduction
            return ApproximateMetricIndex(exact)
        grown = copy(self)
        grown.exact = exact
        grown._graph = self._graph.extended(self._reduction.index_vectors(vectors))
        return grown

    def search(
        self, Q: np.ndarray, weights: np.ndarray, n_neighbors: int, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As in ``LocalMetricIndex``; exact if a metric vanishes."""
        if not self.exact.curved(weights).all():
            return self.exact.search(Q, weights, n_neighbors, own)
        vectors, _, distances = self.exact.inner_products(Q, weights, n_neighbors)
        norms = np.sqrt(row_dot(vectors, vectors))[:, None]
        units = vectors / np.where(norms > 0.0, norms, 1.0)
        found = self._graph.candidates(
            self._reduction.query_vectors(units), n_neighbors + SPARE_CANDIDATES
        )
        near = distances(np.arange(len(Q)), found)
        if own is not None:
            near.squared[found == own[:, None]] = np.inf
        return sorted_prefix(near, found, n_neighbors)

    def nearest(self, Q: np.ndarray, weights: np.ndarray, n_neighbors: int) -> np.ndarray:
        """The neighbours of ``search``."""
        return self.search(Q, weights, n_neighbors)[1]


def _take(own: np.ndarray | None, mask: np.ndarray) -> np.ndarray | None:
    return None if own is None else own[mask]


def vote(neighbor_labels: Array, n_classes: int, weights: Array | None = None) -> Array:
    """The share of each class in the votes: (q, k) labels -> (q, n_classes) float64.

    The (q, k) weights of the votes are one by default.
    """
    xp, (n_queries, k) = namespace(neighbor_labels), neighbor_labels.shape
    place = device(neighbor_labels)
    flat = xp.arange(n_queries, device=place)[:, None] * n_classes + neighbor_labels
    if weights is None:
        weights = xp.ones((n_queries, k), dtype=xp.float64, device=place)
    labels, votes = (xp.reshape(part, (-1,)) for part in (flat, weights))
    sums = xp.reshape(segment_sum(votes, labels, n_queries * n_classes), (n_queries, n_classes))
    return sums / xp.sum(weights, axis=1)[:, None]


def nested_votes(
    neighbor_labels: Array, n_classes: int, sizes: Sequence[int], weights: Array | None = None
) -> list[Array]:
    """``vote`` of the first neighbours alone, for several numbers of them, from one pass.

    Parameters
    ----------
    neighbor_labels, n_classes, weights : as in ``vote``
    sizes : numbers of neighbours, an array of shares for each
    """
    xp, place, k = namespace(neighbor_labels), device(neighbor_labels), max(sizes)
    n_queries, last = len(neighbor_labels), [size - 1 for size in sizes]
    classes = xp.arange(n_classes, device=place)
    shares = xp.empty((len(sizes), n_queries, n_classes), dtype=xp.float64, device=place)
    for rows in row_blocks(n_queries, 2 * k * (n_classes + 1), neighbor_labels):
        votes = xp.astype(neighbor_labels[rows][:, :k, None] == classes, xp.float64)
        if weights is not None:
            votes = votes * weights[rows][:, :k, None]
        sums = xp.cumulative_sum(votes, axis=1)[:, last]
        shares[:, rows] = xp.moveaxis(sums / xp.sum(sums, axis=2)[:, :, None], 1, 0)
    return [shares[i, ...] for i in range(len(sizes))]


def inverse_distances(squared: Array) -> Array:
    """The weights of votes by distance; neighbours at distance zero outvote all others.

    The squared distances are a (q, k) array.
    """
    xp = namespace(squared)
    here = squared == 0
    somebody = xp.any(here, axis=1)[:, None]
    weights = 1.0 / xp.sqrt(xp.where(here, xp.ones_like(squared), squared))
    return xp.where(somebody, xp.astype(here, squared.dtype), weights)
