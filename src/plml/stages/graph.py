"""The similarity graph of the data manifold and its Laplacian (self-tuning similarities)."""

import numpy as np
from scipy import sparse

#: A point's own scale is its distance to this neighbour (Zelnik-Manor and Perona, 2004).
SCALE_NEIGHBOR = 7


def n_nearest(n_graph_neighbors: int) -> int:
    """How many neighbours of a point its edges and its scale are made from."""
    return max(n_graph_neighbors, SCALE_NEIGHBOR)


def local_scales(squared_distances: np.ndarray) -> np.ndarray:
    """s_i, the distance to the 7th neighbour, or to the last one if there are fewer, from (n, k)
    squared distances, nearest first.
    """
    return np.sqrt(squared_distances[:, min(SCALE_NEIGHBOR, squared_distances.shape[1]) - 1])


def self_tuning_similarity(
    squared_distances: np.ndarray, scale_i: np.ndarray, scale_j: np.ndarray
) -> np.ndarray:
    """S_ij = exp(-d_ij^2 / (s_i s_j)).

    The scale of a row with seven or more duplicates is zero. Then the limit is taken: similarity
    one to a duplicate, zero to everything else.
    """
    scale = scale_i * scale_j
    positive = scale > 0
    ratio = squared_distances / np.where(positive, scale, 1.0)
    return np.where(positive, np.exp(-ratio), (squared_distances == 0).astype(float))


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
    n_queries, k = len(neighbors), min(n_graph_neighbors, neighbors.shape[1])
    own_scales = local_scales(squared_distances)
    d2, columns = squared_distances[:, :k], neighbors[:, :k]
    similarity = self_tuning_similarity(d2, own_scales[:, None], scales[columns])
    rows = np.repeat(np.arange(n_queries), k)
    shape = (n_queries, len(scales))
    return sparse.csr_array((similarity.ravel(), (rows, columns.ravel())), shape=shape)


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
