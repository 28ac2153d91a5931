"""Exact nearest neighbours by inner products, certified against rounding.

Every distance in this library is, up to a constant of the query, minus an inner product, so the
k nearest are the k largest inner products. A float32 search (faiss where it is installed, blocked
products elsewhere) proposes a few more candidates than needed. Where the scores of the k-th and the
next differ by more than rounding, the first k are the nearest. Elsewhere the exact distances of all
candidates decide, and a rounding bound proves that nothing outside can be nearer. A query without
that proof is searched again with float64 products, and every point that rounding leaves in doubt is
measured exactly. Distances that rounding cannot tell apart are equal, and equal distances are
ordered by index, so the answer depends neither on threads and blocks nor on the coordinates in
which the same points are written down.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from plml.backend.arrays import (
    Array,
    device,
    is_tensor,
    largest_of_rows,
    lost_in_products,
    namespace,
    row_dot,
    share_of_memory,
)

#: (rows, candidates) -> squared distances and what rounding may hide in them; rows (r,), candidates
#: (r, c) -> two (r, c) float64 arrays
PairwiseDistances = Callable[[Array, Array], tuple[Array, Array]]

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
        xp, k = namespace(queries), n_neighbors
        proposal = self._propose(queries, k, own)
        rows = xp.arange(len(queries), device=device(queries))
        nearest = proposal.candidates[:, :k]
        d2, rounding = distances(rows, nearest)
        d2, nearest = sorted_prefix(d2, nearest, k, rounding)
        unproven = xp.nonzero(~proposal.proven)[0]
        if len(unproven):
            d2[unproven], nearest[unproven] = self._measure(proposal, unproven, k, distances, own)
        return d2, nearest

    def nearest(
        self,
        queries: Array,
        n_neighbors: int,
        distances: PairwiseDistances,
        own: Array | None = None,
    ) -> Array:
        """The neighbours of ``search`` in any order: few of them have to be measured."""
        proposal = self._propose(queries, n_neighbors, own)
        nearest = proposal.candidates[:, :n_neighbors]
        unproven = namespace(queries).nonzero(~proposal.proven)[0]
        if len(unproven):
            measured = self._measure(proposal, unproven, n_neighbors, distances, own)
            nearest[unproven] = measured[1]
        return nearest

    def _propose(self, queries: Array, k: int, own: Array | None) -> "_Proposal":
        """Candidates by float32 scores, largest first, an instance itself last."""
        xp = namespace(queries)
        k_all = k if own is None else k + 1
        norms = xp.sqrt(row_dot(queries, queries))
        norms = xp.where(norms == 0, xp.ones_like(norms), norms)
        units = queries / norms[:, None]
        scores, candidates = largest_inner_products(
            xp.astype(units, xp.float32), self.vectors32, min(len(self), k_all + _SPARE_CANDIDATES)
        )
        if own is not None:
            is_own = candidates == own[:, None]
            scores = xp.where(is_own, xp.full_like(scores, -xp.inf), scores)
            last = xp.argsort(xp.astype(is_own, xp.int8), axis=1, stable=True)
            scores, candidates = (
                xp.take_along_axis(part, last, axis=1) for part in (scores, candidates)
            )
        # |float32 score - score| <= (D + 3) u |q| |v|, for the last neighbour and an outsider,
        # and both factors of every product where these are shortened.
        bound = 2 * (queries.shape[1] + 3) * _ROUNDOFF_32 + 5 * lost_in_products(queries)
        if candidates.shape[1] > k:
            proven = scores[:, k - 1] - scores[:, k] > bound
        else:
            proven = xp.zeros(len(queries), dtype=xp.bool, device=device(queries))
        return _Proposal(candidates, proven, units, bound * norms * self.radius)

    def _measure(
        self,
        proposal: "_Proposal",
        rows: Array,
        k: int,
        distances: PairwiseDistances,
        own: Array | None,
    ) -> tuple[Array, Array]:
        """The nearest of some queries by exact distances of all their candidates.

        Where these cannot exclude the points outside, everything is searched in float64.
        """
        xp, n = namespace(rows), len(self)
        candidates = proposal.candidates[rows]
        d2, rounding = distances(rows, candidates)
        # The last candidate is the best of those outside, unless it is the query itself.
        farthest = d2[:, -1] if own is None else d2[:, -2]
        if own is not None:
            farthest = xp.where(candidates[:, -1] == own[rows], farthest, d2[:, -1])
            d2 = xp.where(candidates == own[rows][:, None], xp.full_like(d2, xp.inf), d2)
        d2, nearest = sorted_prefix(d2, candidates, k, rounding)
        if candidates.shape[1] < n:
            unproven = xp.nonzero(~(d2[:, -1] < farthest - proposal.bound[rows]))[0]
            for block in row_blocks(len(unproven), min(n, _COLUMN_BLOCK)):
                chosen = unproven[block]
                survivors = self._survivors(
                    proposal.units[rows[chosen]], k if own is None else k + 1
                )
                for row, members in zip(chosen, survivors, strict=True):
                    if own is not None:
                        members = members[members != own[rows[row]]]
                    d2[row], nearest[row] = _nearest_exactly(rows[row], members, k, distances)
        return d2, nearest

    def _survivors(self, units: Array, k: int) -> list[Array]:
        """For each unit query, all rows that float64 rounding leaves among its k largest."""
        xp = namespace(units)
        largest = xp.full((len(units), k), -xp.inf, dtype=xp.float64, device=device(units))
        for columns in self._column_blocks():
            scores = xp.concat([largest, units @ self.vectors[columns].T], axis=1)
            largest = xp.take_along_axis(scores, largest_of_rows(scores, k), axis=1)
        # Less what rounding may hide in the k-th largest score and in an outsider's.
        threshold = xp.min(largest, axis=1) - 4 * (units.shape[1] + 3) * _ROUNDOFF_64
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


class _Proposal(NamedTuple):
    """What a float32 search says."""

    candidates: Array  # (q, c), largest score first
    proven: Array  # (q,) whether the first k are the k nearest beyond doubt
    units: Array  # (q, D) queries of unit length
    bound: Array  # (q,) what rounding may hide in a difference of two distances


def largest_inner_products(queries: Array, vectors: Array, k: int) -> tuple[Array, Array]:
    """The largest float32 inner products and their indices, (q, k) both, largest first."""
    if is_tensor(queries):
        return _largest_inner_products_blocked(queries, vectors, k)
    try:
        import faiss
    except ImportError:
        return _largest_inner_products_blocked(queries, vectors, k)
    queries, vectors = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
    return faiss.knn(queries, vectors, int(k), metric=faiss.METRIC_INNER_PRODUCT)


def rows_per_block(elements_per_row: int, on: Array = None) -> int:
    """How many rows a block of bounded size holds."""
    return max(1, share_of_memory(on, _BLOCK_ELEMENTS) // max(1, elements_per_row))


def row_blocks(n_rows: int, elements_per_row: int, on: Array = None) -> list[slice]:
    """Slices that cut n_rows so that a block holds a bounded number of elements.

    ``on`` is an array on the device in question; a GPU takes larger blocks.
    """
    size = rows_per_block(elements_per_row, on)
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def _largest_inner_products_blocked(queries: Array, vectors: Array, k: int) -> tuple[Array, Array]:
    xp, place, shape = namespace(queries), device(queries), (len(queries), k)
    scores = xp.empty(shape, dtype=queries.dtype, device=place)
    indices = xp.empty(shape, dtype=xp.int64, device=place)
    for block in row_blocks(len(queries), len(vectors), vectors):
        products = queries[block] @ vectors.T
        indices[block] = largest_of_rows(products, k)
        scores[block] = xp.take_along_axis(products, indices[block], axis=1)
    return scores, indices


def sorted_prefix(
    d2: Array, candidates: Array, k: int, rounding: Array | None = None
) -> tuple[Array, Array]:
    """The k nearest of each row, in ``neighbor_order``: squared distances and candidates."""
    xp = namespace(d2)
    order = neighbor_order(d2, candidates, rounding)[:, :k]
    return xp.take_along_axis(d2, order, axis=1), xp.take_along_axis(candidates, order, axis=1)


def neighbor_order(d2: Array, candidates: Array, rounding: Array | None = None) -> Array:
    """The columns of each row by distance and then by index.

    Parameters
    ----------
    d2 : (q, c) array of squared distances
    candidates : (q, c) integer array
    rounding : (q, c) array; of two in sequence that differ by no more, neither is nearer
    """
    xp = namespace(d2)
    by_index = xp.argsort(candidates, axis=1, stable=True)
    by_distance = xp.argsort(xp.take_along_axis(d2, by_index, axis=1), axis=1, stable=True)
    order = xp.take_along_axis(by_index, by_distance, axis=1)
    if rounding is None or d2.shape[1] < 2:
        return order
    ordered, known_to, numbers = (
        xp.take_along_axis(part, order, axis=1) for part in (d2, rounding, candidates)
    )
    slack = xp.maximum(known_to[:, 1:], known_to[:, :-1])
    farther = xp.astype(ordered[:, 1:] > ordered[:, :-1] + slack, xp.int64)
    groups = xp.cumulative_sum(farther, axis=1, include_initial=True)
    within = xp.argsort(groups * (xp.max(candidates) + 1) + numbers, axis=1)
    return xp.take_along_axis(order, within, axis=1)


def _nearest_exactly(
    row: Array, members: Array, k: int, distances: PairwiseDistances
) -> tuple[Array, Array]:
    """The k nearest of the given index rows to one query, measured one block at a time."""
    xp = namespace(members)
    best: tuple[Array, ...] = ()
    for start in range(0, len(members), _COLUMN_BLOCK):
        block = members[None, start : start + _COLUMN_BLOCK]
        found = (*distances(row[None], block), block)
        if best:
            found = tuple(xp.concat(pair, axis=1) for pair in zip(best, found, strict=True))
        d2, rounding, numbers = found
        order = neighbor_order(d2, numbers, rounding)[:, :k]
        best = tuple(xp.take_along_axis(part, order, axis=1) for part in found)
    return best[0][0], best[2][0]
