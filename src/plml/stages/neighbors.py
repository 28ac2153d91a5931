"""Exact Euclidean neighbours."""

from math import ceil, log2

from plml.backend.arrays import Array, device, namespace, row_dot
from plml.ops.distances import euclidean_pairs
from plml.ops.topk import InnerProductIndex


def euclidean_neighbors(
    X: Array,
    n_neighbors: int,
    queries: Array | None = None,
    own: Array | None = None,
) -> tuple[Array, Array]:
    """The nearest rows of X, nearest first, equal distances by index.

    Parameters
    ----------
    X : (n, d) array
    n_neighbors : int; fewer are returned where X has fewer
    queries : (q, d) array, or None for the rows of X, each left out of its own neighbours
    own : (q,) integer array; query i is row own[i] of X, and that row is left out

    Returns
    -------
    squared_distances : (q, k) float64 array
    indices : (q, k) integer array
    """
    xp, place = namespace(X), device(X)
    if queries is None:
        queries, own = X, xp.arange(len(X), device=place)
    Q = queries
    k = min(n_neighbors, len(X) - (own is not None))
    if k < 1 or len(Q) == 0:
        shape = (len(Q), 0)
        nothing = xp.empty(shape, dtype=xp.float64, device=place)
        return nothing, xp.empty(shape, dtype=xp.int64, device=place)
    # ||q - x||^2 = ||q||^2 - <(2q, -1), (x, ||x||^2)>, about the mean and in units that keep the
    # terms near one; a power of two, so that scaling a distance is exact.
    center = xp.mean(xp.astype(X, xp.float64), axis=0)
    largest = max(float(xp.max(xp.abs(points - center))) for points in (X, Q))
    unit = 2.0 ** ceil(log2(largest)) if largest > 0 else 1.0
    X_c, Q_c = (X - center) / unit, (Q - center) / unit
    index = InnerProductIndex(xp.concat([X_c, row_dot(X_c, X_c)[:, None]], axis=1))
    query_vectors = xp.concat([2.0 * Q_c, -xp.ones_like(Q_c[:, :1])], axis=1)
    squared, indices = index.search(
        query_vectors,
        k,
        lambda rows, candidates: euclidean_pairs(Q[rows], X, candidates) / unit / unit,
        own,
    )
    return squared * unit * unit, indices
