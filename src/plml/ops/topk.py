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

#: (rows, candidates) -> squared distances; rows (r,), candidates (r, c) -> (r, c) float64
PairwiseDistances = Callable[[np.ndarray, np.ndarray], np.ndarray]

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

    def __init__(self, vectors: np.ndarray) -> None:
        self.radius = float(np.linalg.norm(vectors, axis=1).max()) or 1.0
        self.vectors = np.ascontiguousarray(vectors / self.radius, dtype=np.float64)
        self.vectors32 = self.vectors.astype(np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    def search(
        self,
        queries: np.ndarray,
        n_neighbors: int,
        distances: PairwiseDistances,
        own: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
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
        norms = np.linalg.norm(queries, axis=1)
        norms[norms == 0] = 1.0
        units = queries / norms[:, None]
        candidates = largest_inner_products(
            np.ascontiguousarray(units, dtype=np.float32), self.vectors32, n_candidates
        )
        rows = np.arange(len(queries))
        d2 = distances(rows, candidates)
        last = d2[:, -1]
        if own is not None:
            d2 = np.where(candidates == own[:, None], np.inf, d2)
        d2, candidates = _sorted_prefix(d2, candidates, k)
        if n_candidates < n:
            # |float32 score - score| <= (D + 3) u |q| |v|, for the last candidate and an outsider.
            bound = 2 * (queries.shape[1] + 3) * _ROUNDOFF_32 * norms * self.radius
            unproven = np.flatnonzero(~(d2[:, -1] < last - bound))
            for block in row_blocks(len(unproven), min(n, _COLUMN_BLOCK)):
                chosen = unproven[block]
                for row, survivors in zip(
                    chosen, self._survivors(units[chosen], k_all), strict=True
                ):
                    if own is not None:
                        survivors = survivors[survivors != own[row]]
                    d2[row], candidates[row] = _nearest_exactly(row, survivors, k, distances)
        return d2, candidates

    def _survivors(self, units: np.ndarray, k: int) -> list[np.ndarray]:
        """For each unit query, all rows that float64 rounding leaves among its k largest."""
        largest = np.full((len(units), k), -np.inf)
        for columns in self._column_blocks():
            scores = np.concatenate([largest, units @ self.vectors[columns].T], axis=1)
            largest = -np.partition(-scores, k - 1, axis=1)[:, :k]
        # Less what rounding may hide in the k-th largest score and in an outsider's.
        threshold = largest.min(axis=1) - 2 * (units.shape[1] + 3) * _ROUNDOFF_64
        found = []
        for columns in self._column_blocks():
            above = np.argwhere(units @ self.vectors[columns].T >= threshold[:, None])
            above[:, 1] += columns.start
            found.append(above)
        rows, members = np.concatenate(found).T
        order = np.argsort(rows, kind="stable")
        return np.split(members[order], np.searchsorted(rows[order], np.arange(1, len(units))))

    def _column_blocks(self) -> list[slice]:
        n = len(self)
        return [slice(i, min(i + _COLUMN_BLOCK, n)) for i in range(0, n, _COLUMN_BLOCK)]


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


def _nearest_exactly(
    row: int, members: np.ndarray, k: int, distances: PairwiseDistances
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of the given index rows to one query, measured one block at a time."""
    blocks = [members[i : i + _COLUMN_BLOCK] for i in range(0, len(members), _COLUMN_BLOCK)]
    exact = np.concatenate([distances(np.array([row]), block[None])[0] for block in blocks])
    best, nearest = _sorted_prefix(exact[None], members[None], k)
    return best[0], nearest[0]
