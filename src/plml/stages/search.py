"""Prediction: neighbours under the local metric as a maximum inner product search, and the vote.

d^2_i(x_i, x_j) = x_i^T M_i x_i - <(2 M_i x_i, -W_i), (x_j, q_j)>,     q_jb = x_j^T M_b x_j

X are the training instances, an (n, d) array, Q queries (q, d), weights (q, m) those of the
queries, and M basis metrics (m, d, d). Where the cases have metrics as well, N_j = sum_c V_jc N_c
with case weights V (n, m') and case metrics N (m', d, d), the squared distance has a second part,

    x^T N_j x - 2 x^T N_j x_j + x_j^T N_j x_j = -<(2 x, -p(x), -1), (N_j x_j, V_j, x_j^T N_j x_j)>

with p_c(x) = x^T N_c x.
"""

from collections.abc import Sequence

import numpy as np

from plml.backend.arrays import (
    Array,
    device,
    largest_of_rows,
    like,
    namespace,
    on_host,
    row_dot,
    segment_sum,
)
from plml.ops.distances import case_pairs, euclidean_pairs, local_pairs, measured
from plml.ops.hnsw import SPARE_CANDIDATES, NavigableGraph
from plml.ops.reduction import EuclideanReduction
from plml.ops.topk import InnerProductIndex, Measured, PairwiseDistances, row_blocks, sorted_prefix
from plml.stages.neighbors import euclidean_neighbors

#: One in this many eigenvectors makes the lower bound on distances under a query's own metric.
_SHARE_OF_DIRECTIONS = 8
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

    ``squares`` are x_j^T M_b x_j relative to the mean of X, an (n, m) float64 array, if known.
    """

    def __init__(self, X: Array, M: Array, squares: Array | None = None) -> None:
        xp = namespace(X)
        self.X = X
        self.M = M
        self.center = xp.mean(xp.astype(X, xp.float64), axis=0)
        self._M64 = xp.astype(M, xp.float64)
        self._traces = xp.sum(xp.linalg.diagonal(self._M64), axis=1)
        if squares is None:
            vectors = self._vectors()
        else:
            vectors = xp.concat([X - self.center, squares], axis=1)
        self._scales = _column_scales(vectors, self._widths())
        self.index = InnerProductIndex(vectors / self._scales)

    def _widths(self) -> tuple[int, ...]:
        """How many columns of the vectors are of one kind."""
        return self.X.shape[1], len(self.M)

    def _vectors(self) -> Array:
        return index_vectors(self.X - self.center, self._M64)

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
            near = xp.take_along_axis(products, indices[block], axis=1)
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

    def __init__(self, X: Array, M: Array, case_weights: Array, N: Array) -> None:
        xp = namespace(X)
        self.case_weights = xp.astype(case_weights, xp.float64, copy=False)
        self.N = xp.astype(N, xp.float64, copy=False)
        self._case_traces = self.case_weights @ xp.sum(xp.linalg.diagonal(self.N), axis=1)
        super().__init__(X, M)

    def _widths(self) -> tuple[int, ...]:
        d = self.X.shape[1]
        return d, len(self.M), d, len(self.N), 1

    def _vectors(self) -> Array:
        return two_sided_index_vectors(self.X - self.center, self._M64, self.case_weights, self.N)

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


class TrainingMetricIndex:
    """Training instances ready for exact search under their own metrics, M_g of their group g.

    The roles are reversed: d^2 = q_g(x) - <(2 M_g x_j, -x_j^T M_g x_j), (x, 1)> with
    q_g(x) = x^T M_g x, so the index vectors are (2 M_g x_j, -e_g, -x_j^T M_g x_j) and the query
    vectors (x, q(x), 1). The groups are an (n,) integer array.
    """

    def __init__(self, X: np.ndarray, groups: np.ndarray, M: np.ndarray) -> None:
        self.X = X
        self.M = M
        self.center = X.mean(axis=0, dtype=np.float64)
        self._own = np.eye(len(M))[groups]
        vectors = query_vectors(X - self.center, self._own, M.astype(np.float64))
        square = 0.5 * np.einsum("nd,nd->n", vectors[:, : X.shape[1]], X - self.center)
        self.index = InnerProductIndex(np.column_stack([vectors, -square]))
        self._traces = np.trace(M, axis1=1, axis2=2, dtype=np.float64)[groups]

    def search(
        self, Q: np.ndarray, n_neighbors: int, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the nearest instances, as in ``LocalMetricIndex``."""
        vectors = index_vectors(Q - self.center, self.M.astype(np.float64))
        vectors = np.column_stack([vectors, np.ones(len(Q))])

        def distances(rows: np.ndarray, columns: np.ndarray) -> Measured:
            return measured(
                case_pairs(Q[rows], self._own, self.M, self.X, columns),
                euclidean_pairs(Q[rows], self.X, columns),
                Q[rows] - self.center,
                self._traces[columns],
            )

        return self.index.search(vectors, n_neighbors, distances, own)


class OwnMetricIndex:
    """Training instances ready for exact search where every query has a matrix of its own.

    No inner product of few dimensions serves all queries at once. With p_l the component of a
    difference along the leading eigenvector l of a query's matrix and lambda the least eigenvalue,

        d^2 >= sum_l (lambda_l - lambda) p_l^2 + lambda ||x_j - x||^2

    is a lower bound on all distances that takes a fraction of n d^2 operations; only instances that
    it cannot exclude are measured.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.rows = X
        self.center = X.mean(axis=0, dtype=np.float64)
        self.X = X - self.center
        self.squares = row_dot(self.X, self.X)
        self.radius = float(np.sqrt(self.squares.max()))

    def search(
        self, Q: np.ndarray, metrics: np.ndarray, n_neighbors: int, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the nearest instances under (q, d, d) metrics."""
        squared = np.empty((len(Q), n_neighbors))
        indices = np.empty((len(Q), n_neighbors), dtype=np.int64)
        all_rows = np.arange(len(self.X))
        for i, (x, M) in enumerate(zip(Q - self.center, metrics, strict=True)):
            others = all_rows if own is None else np.delete(all_rows, own[i])
            near = self._not_excluded(x, M, n_neighbors, others)
            found = sorted_prefix(self._distances(x, M, near), near[None], n_neighbors)
            squared[i], indices[i] = (part[0] for part in found)
        return squared, indices

    def _not_excluded(self, x: np.ndarray, M: np.ndarray, k: int, others: np.ndarray) -> np.ndarray:
        """Those of the others that may be among the k nearest of x."""
        d = len(x)
        rank = d // _SHARE_OF_DIRECTIONS
        if rank < 2 or len(others) <= 2 * k:
            return others
        eigenvalues, vectors = np.linalg.eigh(M)
        least, leading = max(eigenvalues[0], 0.0), vectors[:, -rank:]
        leading = leading * np.sqrt(np.maximum(eigenvalues[-rank:] - least, 0.0))
        projected = self.X @ leading - x @ leading
        euclidean = self.squares - 2.0 * (self.X @ x) + x @ x
        bound = (row_dot(projected, projected) + least * euclidean)[others]
        promising = np.argpartition(bound, k - 1)[:k]
        within = float(self._distances(x, M, others[promising]).squared.max())
        # The terms of the bound are of this size before they cancel, and so is its rounding.
        size = max(eigenvalues[-1], 0.0) * (self.radius + np.sqrt(x @ x)) ** 2
        near = bound <= within + 16.0 * d * float(np.finfo(np.float64).eps) * size
        near[promising] = True
        return others[near]

    def _distances(self, x: np.ndarray, M: np.ndarray, rows: np.ndarray) -> Measured:
        """(x_j - x)^T M (x_j - x) for the given rows j of one query x."""
        squared, euclidean = np.empty((1, len(rows))), np.empty((1, len(rows)))
        for block in row_blocks(len(rows), 2 * len(x)):
            differences = self.X[rows[block]] - x
            squared[0, block] = row_dot(differences @ M, differences)
            euclidean[0, block] = row_dot(differences, differences)
        return measured(np.maximum(squared, 0.0), euclidean, x[None], float(np.trace(M)))


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
