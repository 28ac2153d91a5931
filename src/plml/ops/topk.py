"""Exact nearest neighbours by inner products, certified against rounding.

Every distance in this library is, up to a constant of the query, minus an inner product, so the
k nearest are the k largest inner products. A float32 search (faiss where it is installed, blocked
products elsewhere) proposes a few more candidates than needed; their exact distances decide. A
rounding bound proves that nothing outside the candidates can be among the k nearest. A query
without that proof is searched again with float64 products, and every point that rounding leaves
in doubt is measured exactly. Equal distances are ordered by index, so the answer does not depend
on threads or blocks.
"""

from collections.abc import Callable

import numpy as np

from plml.backend.arrays import (
    Array,
    device,
    is_tensor,
    largest_of_rows,
    namespace,
    row_dot,
    share_of_memory,
)

#: (rows, candidates) -> squared distances; rows (r,), candidates (r, c) -> (r, c) float64
PairwiseDistances = Callable[[Array, Array], Array]

_SPARE_CANDIDATES = 8
_BLOCK_ELEMENTS = 2**22
_COLUMN_BLOCK = 2**14
_ROUNDOFF_32 = 2.0**-24
_ROUNDOFF_64 = 2.0**-53


class InnerProductIndex:
    """Vectors prepared for a float32 inner-product search.

    Parameters
    ----------
    vectors : (n, D) array
    """

    def __init__(self, vectors: Array) -> None:
        xp = namespace(vectors)
        self.radius = float(xp.max(xp.sqrt(row_dot(vectors, vectors)))) or 1.0
        self.vectors = xp.astype(vectors / self.radius, xp.float64)
        self.vectors32 = xp.astype(self.vectors, xp.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    def search(
        self,
        queries: Array,
        n_neighbors: int,
        distances: PairwiseDistances,
        own: Array | None = None,
    ) -> tuple[Array, Array]:
        """The ``n_neighbors`` nearest of each query, nearest first.

        Parameters
        ----------
        queries : (q, D) array
        n_neighbors : int, at most ``len(self)`` (less one with ``own``)
        distances : exact squared distances between query rows and index rows
        own : (q,) integer array; query i is index row own[i], and that row is left out

        Returns
        -------
        squared_distances : (q, n_neighbors) float64 array
        indices : (q, n_neighbors) integer array
        """
        n, k = len(self), n_neighbors
        k_all = k if own is None else k + 1
        n_candidates = min(n, k_all + _SPARE_CANDIDATES)
        xp = namespace(queries)
        norms = xp.sqrt(row_dot(queries, queries))
        norms = xp.where(norms == 0, xp.ones_like(norms), norms)
        units = queries / norms[:, None]
        candidates = largest_inner_products(
            xp.astype(units, xp.float32), self.vectors32, n_candidates
        )
        rows = xp.arange(len(queries), device=device(queries))
        d2 = distances(rows, candidates)
        last = d2[:, -1]
        if own is not None:
            d2 = xp.where(candidates == own[:, None], xp.full_like(d2, xp.inf), d2)
        d2, candidates = _sorted_prefix(d2, candidates, k)
        if n_candidates < n:
            # |float32 score - score| <= (D + 3) u |q| |v|, for the last candidate and an outsider.
            bound = 2 * (queries.shape[1] + 3) * _ROUNDOFF_32 * norms * self.radius
            unproven = xp.nonzero(~(d2[:, -1] < last - bound))[0]
            for block in row_blocks(len(unproven), min(n, _COLUMN_BLOCK)):
                chosen = unproven[block]
                for row, survivors in zip(
                    chosen, self._survivors(units[chosen], k_all), strict=True
                ):
                    if own is not None:
                        survivors = survivors[survivors != own[row]]
                    d2[row], candidates[row] = _nearest_exactly(row, survivors, k, distances)
        return d2, candidates

    def _survivors(self, units: Array, k: int) -> list[Array]:
        """For each unit query, all rows that float64 rounding leaves among its k largest."""
        xp = namespace(units)
        largest = xp.full((len(units), k), -xp.inf, dtype=xp.float64, device=device(units))
        for columns in self._column_blocks():
            scores = xp.concat([largest, units @ self.vectors[columns].T], axis=1)
            largest = xp.take_along_axis(scores, largest_of_rows(scores, k), axis=1)
        # Less what rounding may hide in the k-th largest score and in an outsider's.
        threshold = xp.min(largest, axis=1) - 2 * (units.shape[1] + 3) * _ROUNDOFF_64
        rows, members = [], []
        for columns in self._column_blocks():
            above = xp.nonzero(units @ self.vectors[columns].T >= threshold[:, None])
            rows.append(above[0])
            members.append(above[1] + columns.start)
        all_rows, all_members = xp.concat(rows), xp.concat(members)
        return [all_members[all_rows == row] for row in range(len(units))]

    def _column_blocks(self) -> list[slice]:
        n = len(self)
        return [slice(i, min(i + _COLUMN_BLOCK, n)) for i in range(0, n, _COLUMN_BLOCK)]


def largest_inner_products(queries: Array, vectors: Array, k: int) -> Array:
    """Indices (q, k) of the largest float32 inner products, largest first."""
    if is_tensor(queries):
        return _largest_inner_products_blocked(queries, vectors, k)
    try:
        import faiss
    except ImportError:
        return _largest_inner_products_blocked(queries, vectors, k)
    queries, vectors = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
    return faiss.knn(queries, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)[1]


def row_blocks(n_rows: int, elements_per_row: int, on: Array = None) -> list[slice]:
    """Slices that cut n_rows so that a block holds a bounded number of elements.

    ``on`` is an array on the device in question; a GPU takes larger blocks.
    """
    size = max(1, share_of_memory(on, _BLOCK_ELEMENTS) // max(1, elements_per_row))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def _largest_inner_products_blocked(queries: Array, vectors: Array, k: int) -> Array:
    xp = namespace(queries)
    result = xp.empty((len(queries), k), dtype=xp.int64, device=device(queries))
    for block in row_blocks(len(queries), len(vectors), vectors):
        result[block] = largest_of_rows(queries[block] @ vectors.T, k)
    return result


def _sorted_prefix(d2: Array, candidates: Array, k: int) -> tuple[Array, Array]:
    """The k nearest of each row, by distance and then by index."""
    xp = namespace(d2)
    by_index = xp.argsort(candidates, axis=1, stable=True)
    by_distance = xp.argsort(xp.take_along_axis(d2, by_index, axis=1), axis=1, stable=True)
    order = xp.take_along_axis(by_index, by_distance, axis=1)[:, :k]
    return xp.take_along_axis(d2, order, axis=1), xp.take_along_axis(candidates, order, axis=1)


def _nearest_exactly(
    row: Array, members: Array, k: int, distances: PairwiseDistances
) -> tuple[Array, Array]:
    """The k nearest of the given index rows to one query, measured one block at a time."""
    blocks = [members[i : i + _COLUMN_BLOCK] for i in range(0, len(members), _COLUMN_BLOCK)]
    xp = namespace(members)
    exact = xp.concat([distances(row[None], block[None])[0] for block in blocks])
    best, nearest = _sorted_prefix(exact[None], members[None], k)
    return best[0], nearest[0]
