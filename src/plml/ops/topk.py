"""Exact nearest neighbours by inner products, certified against rounding.

Every distance in this library is, up to a constant of the query, minus an inner product, so the
k nearest are the k largest inner products. A float32 search (blocked products; faiss for many rows,
if it is installed) proposes a few more candidates than needed. Where the scores of the k-th and the
next differ by more than rounding, the first k are the nearest. Otherwise the exact distances of all
candidates decide, and a rounding bound proves that nothing outside can be nearer. A query without
that proof is searched again with float64 products, and every point that rounding leaves in doubt is
measured exactly. Distances that rounding cannot tell apart are equal. Equal distances are ordered
by a second distance (the Euclidean one) and then by index, so the answer depends neither on threads
and blocks nor on the coordinates in which the points are given.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from typing import NamedTuple, Self

import numpy as np

from plml.backend.arrays import (
    Array,
    at_columns,
    device,
    is_tensor,
    largest_of_rows,
    lost_in_products,
    namespace,
    row_dot,
    share_of_memory,
)
from plml.backend.threads import SERIAL, slices, thread_team
from plml.ops.growing import appended, with_room, without_rows
from plml.ops.half import halves_pay, largest_by_halves, n_proposals


class Measured(NamedTuple):
    """Squared distances between queries and their candidates, and how to order equal ones."""

    squared: Array  # (q, c) float64
    #: (q, c); neighbours in the order that differ by no more count as equal. None: exact.
    rounding: Array | None = None
    #: What decides between equals, before the index does.
    then: "Measured | None" = None

    def take(self, order: Array) -> "Measured":
        """The given columns of each row, (q, k) of them."""
        return self._each(lambda part: at_columns(part, order))

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
#: Products of a block of queries that stay in the cache until their largest are found.
_CACHED_ELEMENTS = 2**19
#: Up to so many rows such a block has enough queries for a fast product.
_FEW_ROWS = 2**14
#: Up to so many columns finding the largest takes longer than the products: faiss is slower there.
_FEW_COLUMNS = 72
#: Products that are found sooner than faiss is imported.
_FEW_PRODUCTS = 2**20
_ROUNDOFF_32 = 2.0**-24
_ROUNDOFF_64 = 2.0**-53


class Shortlist(NamedTuple):
    """What a float32 search proposes for each query, the best first and the query itself last."""

    scores: Array  # (q, c) inner products of units, -inf for the query itself
    rows: Array  # (q, c)

    @classmethod
    def of_all(cls, parts: Sequence["Shortlist"]) -> "Shortlist":
        """Those of several sets of queries, equally long, one below the other."""
        xp = namespace(parts[0].scores)
        return cls(*(xp.concat(columns) for columns in zip(*parts, strict=True)))

    def take(self, queries: Array) -> "Shortlist":
        """Those of some queries."""
        return Shortlist(self.scores[queries], self.rows[queries])

    def joined_with(self, other: "Shortlist", count: int) -> "Shortlist":
        """The best of both, for the same queries."""
        xp = namespace(self.scores)
        scores = xp.concat([self.scores, other.scores], axis=1)
        rows = xp.concat([self.rows, other.rows], axis=1)
        best = xp.argsort(-scores, axis=1, stable=True)[:, :count]
        return Shortlist(*(at_columns(part, best) for part in (scores, rows)))


class InnerProductIndex:
    """Vectors (n, D) prepared for a float32 inner-product search.

    Parameters
    ----------
    vectors : (n, D) array
    names : (n,) integer array, the numbers that searches return, and that order equals; by default
        the places of the vectors
    """

    def __init__(self, vectors: Array, names: Array | None = None) -> None:
        xp = namespace(vectors)
        self.radius = float(xp.max(xp.sqrt(row_dot(vectors, vectors)))) or 1.0
        self.vectors = with_room(vectors / self.radius, xp.float64)
        self.vectors32 = with_room(self.vectors, xp.float32)
        self.names = names
        self._spans = [slice(0, len(vectors))]
        #: The largest norm in units of the radius; vectors that were added may be longer.
        self.longest = 1.0

    def __len__(self) -> int:
        return sum(span.stop - span.start for span in self._spans)

    def part(self, *spans: slice) -> "InnerProductIndex":
        """Some stretches of the vectors, not copied."""
        found = copy(self)
        found._spans = [span for span in spans if span.stop > span.start]
        return found

    def extended(self, vectors: Array) -> Self:
        """Another index, with more vectors (r, D) behind those of this one."""
        xp, grown = namespace(vectors), copy(self)
        more = xp.astype(vectors / self.radius, xp.float64)
        grown.vectors = appended(self.vectors, more)
        grown.vectors32 = appended(self.vectors32, xp.astype(more, xp.float32))
        grown._spans = [slice(0, len(grown.vectors))]
        grown.longest = max(self.longest, float(xp.max(xp.sqrt(row_dot(more, more)))))
        return grown

    def without(self, rows: np.ndarray) -> Self:
        """Another index, without some of the vectors."""
        rest = copy(self)
        rest.vectors, rest.vectors32 = (
            without_rows(part, rows) for part in (self.vectors, self.vectors32)
        )
        rest._spans = [slice(0, len(rest.vectors))]
        return rest

    def search(
        self,
        queries: Array,
        n_neighbors: int,
        distances: PairwiseDistances,
        own: Array | None = None,
        known: Shortlist | None = None,
    ) -> tuple[Array, Array]:
        """Squared distances and indices of the nearest of each query, nearest first.

        Parameters
        ----------
        queries : (q, D) array
        n_neighbors : int, at most ``len(self)`` (less one with ``own``)
        distances : exact squared distances between query rows and index rows
        own : (q,) integer array; query i is index row own[i], and that row is left out
        known : ``shortlist`` for these queries, at least ``n_candidates`` of them or all
        """
        found = self.proven(queries, n_neighbors, distances, own, known)
        if len(left := found.unproven):
            found.squared[left], found.rows[left] = self._search_in_double(
                left, queries, n_neighbors, distances, own
            )
        return found.squared, found.rows

    def proven(
        self,
        queries: Array,
        n_neighbors: int,
        distances: PairwiseDistances,
        own: Array | None = None,
        known: Shortlist | None = None,
    ) -> "Found":
        """``search`` as far as the exact distances of a shortlist prove it."""
        xp, k = namespace(queries), n_neighbors
        proposal = self._propose(queries, k, own, known)
        rows = xp.arange(len(queries), device=device(queries))
        nearest = proposal.candidates[:, :k]
        d2, nearest = sorted_prefix(distances(rows, nearest), nearest, k)
        left = xp.nonzero(~proposal.proven)[0]
        if len(left):
            measured = self._measure(proposal, left, k, distances, own)
            d2[left], nearest[left] = measured.squared, measured.rows
            left = left[measured.unproven]
        return Found(d2, nearest, left)

    def nearest(
        self,
        queries: Array,
        n_neighbors: int,
        distances: PairwiseDistances,
        own: Array | None = None,
    ) -> Array:
        """The neighbours of ``search`` in any order; few of them have to be measured."""
        k = n_neighbors
        proposal = self._propose(queries, k, own)
        nearest = proposal.candidates[:, :k]
        left = namespace(queries).nonzero(~proposal.proven)[0]
        if len(left):
            measured = self._measure(proposal, left, k, distances, own)
            nearest[left], left = measured.rows, left[measured.unproven]
        if len(left):
            nearest[left] = self._search_in_double(left, queries, k, distances, own)[1]
        return nearest

    def shortlist(self, queries: Array, count: int, own: Array | None = None) -> Shortlist:
        """So many rows with the largest float32 scores, or all.

        Parameters
        ----------
        queries, own : as in ``search``
        count : at least ``n_candidates``, for a search that knows them
        """
        xp = namespace(queries)
        found = self._largest(xp.astype(_unit_rows(queries), xp.float32), count)
        if own is None:
            return found
        is_own = found.rows == own[:, None]
        scores = xp.where(is_own, xp.full_like(found.scores, -xp.inf), found.scores)
        last = xp.argsort(xp.astype(is_own, xp.int8), axis=1, stable=True)
        return Shortlist(*(at_columns(x, last) for x in (scores, found.rows)))

    def _largest(self, units: Array, count: int) -> Shortlist:
        """The largest float32 scores, largest first."""
        xp, place, shape = namespace(units), device(units), (len(units), 0)
        found = Shortlist(
            xp.empty(shape, dtype=xp.float32, device=place),
            xp.empty(shape, dtype=xp.int64, device=place),
        )
        for span in self._spans:
            size = min(span.stop - span.start, count)
            scores, places = largest_inner_products(units, self.vectors32[span], size)
            more = Shortlist(scores, self._names(places + span.start))
            found = found.joined_with(more, count) if found.rows.shape[1] else more
        return found

    def _names(self, places: Array) -> Array:
        return places if self.names is None else self.names[places]

    def _propose(
        self, queries: Array, k: int, own: Array | None, known: Shortlist | None = None
    ) -> "_Proposal":
        """The shortlist, and for which queries its scores prove which rows are the nearest."""
        xp = namespace(queries)
        if known is None:
            known = self.shortlist(queries, n_candidates(k, own is not None), own)
        scores, rows = known
        # |float32 score - score| <= (D + 3) u |q| |v|, for the last neighbour and for an outsider,
        # and for both factors of every product if products are computed in a shorter format.
        bound = 2 * (queries.shape[1] + 3) * _ROUNDOFF_32 + 5 * lost_in_products(queries)
        bound = bound * self.longest
        if rows.shape[1] > k:
            proven = scores[:, k - 1] - scores[:, k] > bound
        else:
            proven = xp.zeros(len(queries), dtype=xp.bool, device=device(queries))
        return _Proposal(rows, proven, bound * _lengths(queries) * self.radius)

    def _measure(
        self,
        proposal: "_Proposal",
        rows: Array,
        k: int,
        distances: PairwiseDistances,
        own: Array | None,
    ) -> "Found":
        """The nearest of some queries, from the exact distances of all their candidates."""
        xp = namespace(rows)
        candidates = proposal.candidates[rows]
        measured = distances(rows, candidates)
        d2 = measured.squared
        # The last candidate is the best of those outside, unless it is the query itself.
        farthest = d2[:, -1] if own is None else d2[:, -2]
        if own is not None:
            farthest = xp.where(candidates[:, -1] == own[rows], farthest, d2[:, -1])
            d2 = xp.where(candidates == own[rows][:, None], xp.full_like(d2, xp.inf), d2)
        d2, nearest = sorted_prefix(measured._replace(squared=d2), candidates, k)
        if candidates.shape[1] == len(self):
            return Found(d2, nearest, xp.zeros(0, dtype=xp.int64, device=device(rows)))
        return Found(d2, nearest, xp.nonzero(~(d2[:, -1] < farthest - proposal.bound[rows]))[0])

    def _search_in_double(
        self,
        rows: Array,
        queries: Array,
        k: int,
        distances: PairwiseDistances,
        own: Array | None,
    ) -> tuple[Array, Array]:
        """The nearest of some queries, from float64 products with all points."""
        xp, place, k_all = namespace(rows), device(rows), k if own is None else k + 1
        d2 = xp.empty((len(rows), k), dtype=xp.float64, device=place)
        nearest = xp.empty((len(rows), k), dtype=xp.int64, device=place)
        units = _unit_rows(queries[rows])
        for block in row_blocks(len(rows), min(len(self), _COLUMN_BLOCK)):
            for i, members in enumerate(self._survivors(units[block], k_all), block.start):
                if own is not None:
                    members = members[members != own[rows[i]]]
                d2[i], nearest[i] = _nearest_exactly(rows[i], members, k, distances)
        return d2, nearest

    def _survivors(self, units: Array, k: int) -> list[Array]:
        """For each unit query, all rows that float64 rounding leaves among its k largest."""
        xp = namespace(units)
        largest = xp.full((len(units), k), -xp.inf, dtype=xp.float64, device=device(units))
        for columns in self._column_blocks():
            scores = xp.concat([largest, units @ self.vectors[columns].T], axis=1)
            largest = at_columns(scores, largest_of_rows(scores, k))
        # Lowered by the rounding of the k-th largest score and of an outsider's.
        rounding = 4 * (units.shape[1] + 3) * _ROUNDOFF_64 * self.longest
        threshold = xp.min(largest, axis=1) - rounding
        rows, members = [], []
        for columns in self._column_blocks():
            above = xp.nonzero(units @ self.vectors[columns].T >= threshold[:, None])
            rows.append(above[0])
            members.append(self._names(above[1] + columns.start))
        all_rows, all_members = xp.concat(rows), xp.concat(members)
        return [all_members[all_rows == row] for row in range(len(units))]

    def _column_blocks(self) -> list[slice]:
        return [
            slice(span.start + block.start, span.start + block.stop)
            for span in self._spans
            for block in slices(span.stop - span.start, _COLUMN_BLOCK)
        ]


class Found(NamedTuple):
    """The nearest of each query, nearest first, and for which queries that is not proven."""

    squared: Array  # (q, k)
    rows: Array  # (q, k)
    unproven: Array  # numbers of queries


class _Proposal(NamedTuple):
    """The outcome of a float32 search."""

    candidates: Array  # (q, c), largest score first
    proven: Array  # (q,) whether the first k are certainly the k nearest
    bound: Array  # (q,) the rounding error of a difference of two distances


def n_candidates(n_neighbors: int, with_own: bool = False) -> int:
    """How many rows have to be proposed to prove which the nearest are, in nearly all cases.

    Parameters
    ----------
    n_neighbors : how many are wanted
    with_own : whether the query may be proposed as well
    """
    return n_neighbors + with_own + _SPARE_CANDIDATES


def _unit_rows(queries: Array) -> Array:
    """Queries of unit length, and those of length zero."""
    return queries / _lengths(queries)[:, None]


def _lengths(queries: Array) -> Array:
    """(q,); one for zero."""
    xp = namespace(queries)
    lengths = xp.sqrt(row_dot(queries, queries))
    return xp.where(lengths == 0, xp.ones_like(lengths), lengths)


def largest_inner_products(queries: Array, vectors: Array, k: int) -> tuple[Array, Array]:
    """The largest float32 inner products and their indices, (q, k) both, largest first."""
    if not is_tensor(queries) and _worth_faiss(len(queries), *vectors.shape):
        with suppress(ImportError):
            import faiss

            queries, vectors = np.ascontiguousarray(queries), np.ascontiguousarray(vectors)
            return faiss.knn(queries, vectors, int(k), metric=faiss.METRIC_INNER_PRODUCT)
    if halves_pay(queries, vectors):
        per_query = max(len(vectors), n_proposals(k, len(vectors)) * queries.shape[1])
        blocks = row_blocks(len(queries), per_query, vectors)
        return largest_by_halves(
            queries, vectors, k, blocks, lambda some: _largest_in_blocks(some, vectors, k)
        )
    return _largest_in_blocks(queries, vectors, k)


def _largest_in_blocks(queries: Array, vectors: Array, k: int) -> tuple[Array, Array]:
    xp, place, shape = namespace(queries), device(queries), (len(queries), k)
    scores = xp.empty(shape, dtype=queries.dtype, device=place)
    indices = xp.empty(shape, dtype=xp.int64, device=place)

    def fill(block: slice) -> None:
        products = queries[block] @ vectors.T
        indices[block] = largest_of_rows(products, k)
        scores[block] = at_columns(products, indices[block])

    if is_tensor(queries):
        SERIAL.map(fill, row_blocks(len(queries), len(vectors), vectors))
        return scores, indices
    in_cache = max(1, _CACHED_ELEMENTS // len(vectors))
    blocks = slices(len(queries), min(in_cache, rows_per_block(len(vectors))))
    with thread_team() if len(blocks) > 1 else nullcontext(SERIAL) as team:
        team.map(fill, blocks)
    return scores, indices


def _worth_faiss(n_queries: int, n_rows: int, n_columns: int) -> bool:
    many = n_rows > _FEW_ROWS or n_columns > _FEW_COLUMNS
    return many and n_queries * n_rows > _FEW_PRODUCTS


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
    order = neighbor_order(measured, candidates)[:, :k]
    return measured.take(order).squared, at_columns(candidates, order)


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
    squared, before = (at_columns(part, order) for part in (measured.squared, ranks))
    reach = squared[:, :-1]
    if measured.rounding is not None:
        rounding = at_columns(measured.rounding, order)
        reach = reach + xp.maximum(rounding[:, 1:], rounding[:, :-1])
    farther = (squared[:, 1:] > reach) | (before[:, 1:] > before[:, :-1])
    after = xp.cumulative_sum(xp.astype(farther, xp.int64), axis=1, include_initial=True)
    return at_columns(after, xp.argsort(order, axis=1)), bool(xp.all(farther))


def _sorted_by(key: Array, order: Array) -> Array:
    """The columns of each row sorted by a key; those with equal keys stay in the given order."""
    xp = namespace(order)
    by_key = xp.argsort(at_columns(key, order), axis=1, stable=True)
    return at_columns(order, by_key)


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
        nearest = xp.concat([at_columns(nearest, order), block], axis=1)
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
