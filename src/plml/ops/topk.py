"""Exact nearest neighbours by inner products, certified against rounding.

Every distance in this library is, up to a constant of the query, minus an inner product, so the
k nearest are the k largest inner products. A float32 search (faiss if it is installed, otherwise
blocked products) proposes a few more candidates than needed. Where the scores of the k-th and the
next differ by more than rounding, the first k are the nearest. Otherwise the exact distances of all
candidates decide, and a rounding bound proves that nothing outside can be nearer. A query without
that proof is searched again with float64 products, and every point that rounding leaves in doubt is
measured exactly. Distances that rounding cannot tell apart are equal. Equal distances are ordered
by a second distance (the Euclidean one) and then by index, so the answer depends neither on threads
and blocks nor on the coordinates in which the points are given.
"""

from collections.abc import Callable
from contextlib import suppress
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
from plml.backend.threads import slices


class Measured(NamedTuple):
    """Squared distances between queries and their candidates, and how to order equal ones."""

    squared: Array  # (q, c) float64
    #: (q, c); neighbours in the order that differ by no more count as equal. None: exact.
    rounding: Array | None = None
    #: What decides between equals, before the index does.
    then: "Measured | None" = None

    def take(self, order: Array) -> "Measured":
        """The given columns of each row, (q, k) of them."""
        return self._each(lambda part: namespace(part).take_along_axis(part, order, axis=1))

    def joined_with(self, other: "Measured") -> "Measured":
        """The candidates of both, for the same queries."""
        return self._each(lambda a, b: namespace(a).concat([a, b], axis=1), other)

    def _each(self, change: Callable[..., Array], *others: "Measured") -> "Measured":
        """Every array changed, together with its counterparts in the others."""
        squared, rounding, then = zip(self, *others, strict=True)
        return Measured(
            change(*squared),
            None if self.rounding is None else change(*rounding),
            None if self.then is None else self.then._each(change, *then[1:]),
        )


#: From rows (r,) and candidates (r, c) to their exact distances.
PairwiseDistances = Callable[[Array, Array], Measured]

_SPARE_CANDIDATES = 8
_BLOCK_ELEMENTS = 2**22
_COLUMN_BLOCK = 2**14
_ROUNDOFF_32 = 2.0**-24
_ROUNDOFF_64 = 2.0**-53


class InnerProductIndex:
    """Vectors (n, D) prepared for a float32 inner-product search."""

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
        """Squared distances and indices of the nearest of each query, nearest first.

        Parameters
        ----------
        queries : (q, D) array
        n_neighbors : int, at most ``len(self)`` (less one with ``own``)
        distances : exact squared distances between query rows and index rows
        own : (q,) integer array; query i is index row own[i], and that row is left out
        """
        xp, k = namespace(queries), n_neighbors
        proposal = self._propose(queries, k, own)
        rows = xp.arange(len(queries), device=device(queries))
        nearest = proposal.candidates[:, :k]
        d2, nearest = sorted_prefix(distances(rows, nearest), nearest, k)
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
        """The neighbours of ``search`` in any order; few of them have to be measured."""
        proposal = self._propose(queries, n_neighbors, own)
        nearest = proposal.candidates[:, :n_neighbors]
        unproven = namespace(queries).nonzero(~proposal.proven)[0]
        if len(unproven):
            measured = self._measure(proposal, unproven, n_neighbors, distances, own)
            nearest[unproven] = measured[1]
        return nearest

    def _propose(self, queries: Array, k: int, own: Array | None) -> "_Proposal":
        """Candidates by float32 scores, largest first; the query itself comes last."""
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
        # |float32 score - score| <= (D + 3) u |q| |v|, for the last neighbour and for an outsider,
        # and for both factors of every product if products are computed in a shorter format.
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
        """The nearest of some queries, from the exact distances of all their candidates.

        Where these cannot exclude the points outside, all points are searched in float64.
        """
        xp, n, k_all = namespace(rows), len(self), k if own is None else k + 1
        candidates = proposal.candidates[rows]
        measured = distances(rows, candidates)
        d2 = measured.squared
        # The last candidate is the best of those outside, unless it is the query itself.
        farthest = d2[:, -1] if own is None else d2[:, -2]
        if own is not None:
            farthest = xp.where(candidates[:, -1] == own[rows], farthest, d2[:, -1])
            d2 = xp.where(candidates == own[rows][:, None], xp.full_like(d2, xp.inf), d2)
        d2, nearest = sorted_prefix(measured._replace(squared=d2), candidates, k)
        if candidates.shape[1] < n:
            unproven = xp.nonzero(~(d2[:, -1] < farthest - proposal.bound[rows]))[0]
            for block in row_blocks(len(unproven), min(n, _COLUMN_BLOCK)):
                chosen = unproven[block]
                survivors = self._survivors(proposal.units[rows[chosen]], k_all)
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
        # Lowered by the rounding of the k-th largest score and of an outsider's.
        threshold = xp.min(largest, axis=1) - 4 * (units.shape[1] + 3) * _ROUNDOFF_64
        rows, members = [], []
        for columns in self._column_blocks():
            above = xp.nonzero(units @ self.vectors[columns].T >= threshold[:, None])
            rows.append(above[0])
            members.append(above[1] + columns.start)
        all_rows, all_members = xp.concat(rows), xp.concat(members)
        return [all_members[all_rows == row] for row in range(len(units))]

    def _column_blocks(self) -> list[slice]:
        return slices(len(self), _COLUMN_BLOCK)


class _Proposal(NamedTuple):
    """The outcome of a float32 search."""

    candidates: Array  # (q, c), largest score first
    proven: Array  # (q,) whether the first k are certainly the k nearest
    units: Array  # (q, D) queries of unit length
    bound: Array  # (q,) the rounding error of a difference of two distances


def largest_inner_products(queries: Array, vectors: Array, k: int) -> tuple[Array, Array]:
    """The largest float32 inner products and their indices, (q, k) both, largest first."""
    if not is_tensor(queries):
        with suppress(ImportError):
            import faiss

            queries, vectors = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
            return faiss.knn(queries, vectors, int(k), metric=faiss.METRIC_INNER_PRODUCT)
    xp, place, shape = namespace(queries), device(queries), (len(queries), k)
    scores = xp.empty(shape, dtype=queries.dtype, device=place)
    indices = xp.empty(shape, dtype=xp.int64, device=place)
    for block in row_blocks(len(queries), len(vectors), vectors):
        products = queries[block] @ vectors.T
        indices[block] = largest_of_rows(products, k)
        scores[block] = xp.take_along_axis(products, indices[block], axis=1)
    return scores, indices


def rows_per_block(elements_per_row: int, on: Array = None) -> int:
    """How many rows fit into a block of bounded size."""
    return max(1, share_of_memory(on, _BLOCK_ELEMENTS) // max(1, elements_per_row))


def row_blocks(n_rows: int, elements_per_row: int, on: Array = None) -> list[slice]:
    """Slices of n_rows such that a block holds a bounded number of elements.

    ``on`` is an array on the device in question; a GPU takes larger blocks.
    """
    return slices(n_rows, rows_per_block(elements_per_row, on))


def sorted_prefix(measured: Measured, candidates: Array, k: int) -> tuple[Array, Array]:
    """The k nearest of each row, in ``neighbor_order``: squared distances and candidates."""
    xp = namespace(candidates)
    order = neighbor_order(measured, candidates)[:, :k]
    return measured.take(order).squared, xp.take_along_axis(candidates, order, axis=1)


def neighbor_order(measured: Measured, candidates: Array) -> Array:
    """The columns of each row: by distance, then by the distance for equals, then by index."""
    xp = namespace(candidates)
    by_index = xp.argsort(candidates, axis=1, stable=True)
    ranks = xp.zeros_like(by_index)
    level: Measured | None = measured
    while level is not None:
        ranks, all_differ = _refined(ranks, level, by_index)
        level = None if all_differ else level.then
    return _sorted_by(ranks, by_index)


def _refined(ranks: Array, measured: Measured, order: Array) -> tuple[Array, bool]:
    """Ranks refined by one more distance, the same for equals; whether all of a row differ now."""
    xp = namespace(ranks)
    order = _sorted_by(ranks, _sorted_by(measured.squared, order))
    squared, before = (
        xp.take_along_axis(part, order, axis=1) for part in (measured.squared, ranks)
    )
    reach = squared[:, :-1]
    if measured.rounding is not None:
        rounding = xp.take_along_axis(measured.rounding, order, axis=1)
        reach = reach + xp.maximum(rounding[:, 1:], rounding[:, :-1])
    farther = (squared[:, 1:] > reach) | (before[:, 1:] > before[:, :-1])
    after = xp.cumulative_sum(xp.astype(farther, xp.int64), axis=1, include_initial=True)
    return xp.take_along_axis(after, xp.argsort(order, axis=1), axis=1), bool(xp.all(farther))


def _sorted_by(key: Array, order: Array) -> Array:
    """The columns of each row sorted by a key; those with equal keys stay in the given order."""
    xp = namespace(order)
    by_key = xp.argsort(xp.take_along_axis(key, order, axis=1), axis=1, stable=True)
    return xp.take_along_axis(order, by_key, axis=1)


def _nearest_exactly(
    row: Array, members: Array, k: int, distances: PairwiseDistances
) -> tuple[Array, Array]:
    """The k nearest of the given index rows to one query, measured one block at a time."""
    xp = namespace(members)
    nearest = members[None, :_COLUMN_BLOCK]
    best = distances(row[None], nearest)
    for start in range(_COLUMN_BLOCK, len(members), _COLUMN_BLOCK):
        order = neighbor_order(best, nearest)[:, :k]
        block = members[None, start : start + _COLUMN_BLOCK]
        nearest = xp.concat([xp.take_along_axis(nearest, order, axis=1), block], axis=1)
        best = best.take(order).joined_with(distances(row[None], block))
    d2, nearest = sorted_prefix(best, nearest, k)
    return d2[0], nearest[0]


def share_found(truth: np.ndarray, found: np.ndarray) -> float:
    """Recall: the share of the true neighbours that are among those found.

    Both are (q, k) arrays in any order within a row, -1 where there is none.
    """
    there = truth >= 0
    hits = (truth[:, :, None] == found[:, None, :]).any(axis=2)
    return float(hits[there].mean()) if there.any() else 1.0
