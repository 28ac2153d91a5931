"""The similarity graph of the data manifold and its Laplacian (self-tuning similarities)."""

from typing import Any

import numpy as np
from scipy import sparse

from plml.backend.arrays import Array, device, is_tensor, like, namespace, segment_sum
from plml.backend.sparse import entries_of, sparse_tensor
from plml.stages.neighbors import euclidean_neighbors

#: A point's own scale is its distance to this neighbour (Zelnik-Manor and Perona, 2004).
SCALE_NEIGHBOR = 7
#: A row this much farther away than the scale of a point, relative, may be what it was made from.
_ROUNDING = 1e-4


def n_nearest(n_graph_neighbors: int) -> int:
    """How many neighbours of a point its edges and its scale are made from."""
    return max(n_graph_neighbors, SCALE_NEIGHBOR)


def local_scales(squared_distances: Array) -> Array:
    """s_i, the distance to the 7th neighbour, or to the last one if there are fewer, from (n, k)
    squared distances, nearest first.
    """
    last = min(SCALE_NEIGHBOR, squared_distances.shape[1]) - 1
    return namespace(squared_distances).sqrt(squared_distances[:, last])


def scales_without(
    scales: np.ndarray, X: np.ndarray, gone: np.ndarray, moved: np.ndarray
) -> np.ndarray:
    """s_i after some rows have gone: a scale that was the distance to one of them is found again.

    Parameters
    ----------
    scales : (n,) array
    X : (n, d) the rows that stay
    gone : (r, d) places where no row is any more
    moved : numbers of rows that were elsewhere when their scale was found
    """
    if not len(gone):
        return scales
    nearest = np.sqrt(euclidean_neighbors(gone, 1, X)[0][:, 0])
    again = np.union1d(np.flatnonzero(nearest <= scales * (1.0 + _ROUNDING)), moved)
    squared, _ = euclidean_neighbors(X, SCALE_NEIGHBOR, X[again], again)
    result = scales.copy()
    result[again] = local_scales(squared) if squared.shape[1] else 0.0
    return result


def self_tuning_similarity(squared_distances: Array, scale_i: Array, scale_j: Array) -> Array:
    """S_ij = exp(-d_ij^2 / (s_i s_j)).

    The scale of a row with seven or more duplicates is zero. Then the limit is taken: similarity
    one to a duplicate, zero to everything else.
    """
    xp = namespace(squared_distances)
    scale = scale_i * scale_j
    positive = scale > 0
    ratio = squared_distances / xp.where(positive, scale, xp.ones_like(scale))
    limit = xp.astype(squared_distances == 0, squared_distances.dtype)
    return xp.where(positive, xp.exp(-ratio), limit)


def similarity_graph(
    squared_distances: np.ndarray, neighbors: np.ndarray, n_graph_neighbors: int
) -> sparse.csr_array:
    """S on the union of the k-NN graph: an edge where either end is a neighbour of the other.

    Parameters
    ----------
    squared_distances, neighbors : (n, k) arrays, nearest first, without the point itself
    n_graph_neighbors : how many of them make edges
    """
    S = query_similarity(
        squared_distances, neighbors, local_scales(squared_distances), n_graph_neighbors
    )
    S = S.maximum(S.T).tocsr()
    S.eliminate_zeros()
    return S


def query_similarity(
    squared_distances: np.ndarray,
    neighbors: np.ndarray,
    scales: np.ndarray,
    n_graph_neighbors: int,
) -> sparse.csr_array:
    """S_xj of points to their nearest neighbours among rows, a (q, n) array.

    Parameters
    ----------
    squared_distances, neighbors : (q, k) arrays, nearest first
    scales : (n,) array, s_j of the rows
    n_graph_neighbors : how many of the neighbours make edges
    """
    similarity, columns = _similarities(squared_distances, neighbors, scales, n_graph_neighbors)
    n_queries, k = columns.shape
    rows = np.repeat(np.arange(n_queries), k)
    shape = (n_queries, len(scales))
    return sparse.csr_array((similarity.ravel(), (rows, columns.ravel())), shape=shape)


def _similarities(
    squared_distances: Array, neighbors: Array, scales: Array, n_graph_neighbors: int
) -> tuple[Array, Array]:
    """S_xj and j of the neighbours that make edges, (q, k) both."""
    k = min(n_graph_neighbors, neighbors.shape[1])
    own_scales = local_scales(squared_distances)
    d2, columns = squared_distances[:, :k], neighbors[:, :k]
    return self_tuning_similarity(d2, own_scales[:, None], scales[columns]), columns


def weighted_edges(
    S: sparse.csr_array, rows: np.ndarray | None, columns: np.ndarray | None
) -> sparse.csr_array:
    """v_i S_ij v_j: an edge counts once for every pair of rows that its ends stand for.

    Parameters
    ----------
    S : (q, n) sparse array
    rows, columns : (q,) and (n,) sample weights, or None where all are one
    """
    if rows is not None:
        S = sparse.diags_array(rows) @ S
    if columns is not None:
        S = S @ sparse.diags_array(columns)
    return S.tocsr()


def graph_laplacian(S: sparse.csr_array) -> sparse.csr_array:
    """L = D - S with D_ii = sum_k S_ik."""
    degrees = np.asarray(S.sum(axis=1)).ravel()
    return (sparse.diags_array(degrees) - S).tocsr()


def laplacian_of_neighbors(
    squared_distances: np.ndarray,
    neighbors: np.ndarray,
    n_graph_neighbors: int,
    like_x: Array,
    sample_weight: np.ndarray | None = None,
) -> Any:
    """L of ``similarity_graph``, its edges counted as ``weighted_edges`` does, where x is.

    Parameters
    ----------
    squared_distances, neighbors, n_graph_neighbors : as in ``similarity_graph``
    like_x : an array of the namespace and device of the products; for a tensor L is a sparse tensor
    sample_weight : (n,) array or None
    """
    if not is_tensor(like_x):
        S = similarity_graph(squared_distances, neighbors, n_graph_neighbors)
        return graph_laplacian(weighted_edges(S, sample_weight, sample_weight))
    d2, nearest = like(squared_distances, like_x), like(neighbors, like_x)
    rows, columns, S = _union(*_similarities(d2, nearest, local_scales(d2), n_graph_neighbors))
    if sample_weight is not None:
        weights = like(sample_weight, S, S.dtype)
        S = S * weights[rows] * weights[columns]
    xp, n = namespace(S), len(nearest)
    degrees, diagonal = segment_sum(S, rows, n), xp.arange(n, device=device(S))
    rows, columns = (xp.concat([part, diagonal]) for part in (rows, columns))
    return sparse_tensor(rows, columns, xp.concat([-S, degrees]), n)


def _union(similarity: Array, neighbors: Array) -> tuple[Array, Array, Array]:
    """The edges i, j and S_ij of a graph in which either end is a neighbour of the other."""
    xp, (n, k) = namespace(similarity), neighbors.shape
    own = xp.repeat(xp.arange(n, device=device(neighbors)), k)
    other = xp.astype(xp.reshape(neighbors, (-1,)), own.dtype)
    places = xp.concat([own * n + other, other * n + own])
    order = xp.argsort(places)
    places, S = places[order], xp.tile(xp.reshape(similarity, (-1,)), (2,))[order]
    # Where both ends know an edge it is there twice, and the rounding of the two may differ.
    again = places[1:] == places[:-1]
    S[:-1] = xp.where(again, xp.maximum(S[:-1], S[1:]), S[:-1])
    kept = xp.concat([xp.ones_like(again[:1]), ~again]) & (S > 0)
    return places[kept] // n, places[kept] % n, S[kept]


def curvature(laplacian: Any) -> Array:
    """The (n,) diagonal of a majoriser of L: L <= 2 D with D its diagonal, L = D without edges."""
    rows, columns, values = entries_of(laplacian)
    xp, off_diagonal = namespace(values), rows != columns
    diagonal = xp.where(off_diagonal, xp.zeros_like(values), values)
    bound = 2.0 if bool(xp.any(off_diagonal)) else 1.0
    return bound * segment_sum(diagonal, rows, laplacian.shape[0])
