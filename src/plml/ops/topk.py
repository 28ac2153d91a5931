"""Exact nearest neighbours by inner products in float32, certified in float64.

Every distance in this library is, up to a constant of the query, minus an inner product,
so the k nearest are the k largest inner products. They are found in two steps: a float32
search (faiss where it is installed, blocked products elsewhere) proposes a few more candidates
than needed; their exact distances decide. A rounding bound proves that nothing outside the
candidates can be among the k nearest; the rare query without that proof is searched in full.
Equal distances are ordered by index, so the answer does not depend on threads or blocks.
"""

from collections.abc import Callable

import numpy as np

#: (rows, candidates) -> squared distances; rows (r,), candidates (r, c) -> (r, c) float64
PairwiseDistances = Callable[[np.ndarray, np.ndarray], np.ndarray]

_SPARE_CANDIDATES = 8
_BLOCK_ELEMENTS = 2**22
_ROUNDOFF = 2.0**-24


class InnerProductIndex:
    """Vectors prepared for a float32 inner-product search.

    Parameters
    ----------
    vectors : (n, D) array
    """

    def __init__(self, vectors: np.ndarray) -> None:
        norms = np.linalg.norm(vectors, axis=1)
        self.radius = float(norms.max()) or 1.0
        self.vectors = np.ascontiguousarray(vectors / self.radius, dtype=np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    def search(
        self,
        queries: np.ndarray,
        n_neighbors: int,
        distances: PairwiseDistances,
        *,
        exclude_self: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ``n_neighbors`` nearest of each query, nearest first.

        Parameters
        ----------
        queries : (q, D) array
        n_neighbors : int, at most ``len(self)`` (less one with ``exclude_self``)
        distances : exact squared distances between query rows and index rows
        exclude_self : query i is index row i and is left out of its own neighbours

        Returns
        -------
        squared_distances : (q, n_neighbors) float64 array
        indices : (q, n_neighbors) integer array
        """
        n, k = len(self), n_neighbors
        n_candidates = min(n, k + exclude_self + _SPARE_CANDIDATES)
        norms = np.linalg.norm(queries, axis=1)
        norms[norms == 0] = 1.0
        unit_queries = np.ascontiguousarray(queries / norms[:, None], dtype=np.float32)
        candidates = largest_inner_products(unit_queries, self.vectors, n_candidates)
        rows = np.arange(len(queries))
        d2 = distances(rows, candidates)
        last = d2[:, -1]
        if exclude_self:
            d2 = np.where(candidates == rows[:, None], np.inf, d2)
        d2, candidates = _sorted_prefix(d2, candidates, k)
        if n_candidates < n:
            # |float32 score - score| <= (D + 3) u |q| |v|, for the last candidate and an outsider.
            bound = 2 * (queries.shape[1] + 3) * _ROUNDOFF * norms * self.radius
            unproven = np.flatnonzero(~(d2[:, -1] < last - bound))
            _search_in_full(unproven, d2, candidates, n, distances, exclude_self)
        return d2, candidates


def largest_inner_products(queries: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Indices (q, k) of the largest float32 inner products, largest first."""
    try:
        import faiss
    except ImportError:
        return _largest_inner_products_blocked(queries, vectors, k)
    return faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)[1]


def row_blocks(n_rows: int, elements_per_row: int) -> list[slice]:
    """Slices that cut n_rows so that a block holds a bounded number of elements."""
    size = max(1, _BLOCK_ELEMENTS // max(1, elements_per_row))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def _largest_inner_products_blocked(queries: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    result = np.empty((len(queries), k), dtype=np.int64)
    for block in row_blocks(len(queries), len(vectors)):
        negative = -(queries[block] @ vectors.T)
        top = np.argpartition(negative, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(negative, top, axis=1), axis=1, kind="stable")
        result[block] = np.take_along_axis(top, order, axis=1)
    return result


def _sorted_prefix(d2: np.ndarray, candidates: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each row, by distance and then by index."""
    order = np.lexsort((candidates, d2), axis=1)[:, :k]
    return np.take_along_axis(d2, order, axis=1), np.take_along_axis(candidates, order, axis=1)


def _search_in_full(
    rows: np.ndarray,
    d2: np.ndarray,
    neighbors: np.ndarray,
    n: int,
    distances: PairwiseDistances,
    exclude_self: bool,
) -> None:
    """Replace the given rows of d2 and neighbors by an exhaustive search."""
    k = d2.shape[1]
    for block in row_blocks(len(rows), n):
        chosen = rows[block]
        everyone = np.broadcast_to(np.arange(n), (len(chosen), n))
        full = distances(chosen, everyone)
        if exclude_self:
            full[np.arange(len(chosen)), chosen] = np.inf
        d2[chosen], neighbors[chosen] = _sorted_prefix(full, everyone, k)
