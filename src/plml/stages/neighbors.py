"""Exact Euclidean neighbours."""

import numpy as np

from plml.ops.distances import euclidean_pairs
from plml.ops.topk import InnerProductIndex


def euclidean_neighbors(
    X: np.ndarray,
    n_neighbors: int,
    queries: np.ndarray | None = None,
    own: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
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
    if queries is None:
        queries, own = X, np.arange(len(X))
    Q = queries
    k = min(n_neighbors, len(X) - (own is not None))
    if k < 1 or len(Q) == 0:
        return np.empty((len(Q), 0)), np.empty((len(Q), 0), dtype=np.int64)
    # ||q - x||^2 = ||q||^2 - <(2q, -1), (x, ||x||^2)>, about the mean and in units that keep the
    # terms near one; a power of two, so that scaling a distance is exact.
    center = X.mean(axis=0, dtype=np.float64)
    largest = max(np.abs(X - center).max(), np.abs(Q - center).max())
    unit = 2.0 ** np.ceil(np.log2(largest)) if largest > 0 else 1.0
    X_c, Q_c = (X - center) / unit, (Q - center) / unit
    index = InnerProductIndex(np.column_stack([X_c, np.einsum("nd,nd->n", X_c, X_c)]))
    query_vectors = np.column_stack([2.0 * Q_c, np.full(len(Q), -1.0)])
    squared, indices = index.search(
        query_vectors,
        k,
        lambda rows, candidates: euclidean_pairs(Q[rows], X, candidates) / unit / unit,
        own,
    )
    return squared * unit * unit, indices
