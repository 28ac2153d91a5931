"""Euclidean neighbours across shards: exact, or in the nearest cells only.

A row's candidates in a shard are found class by class, so that one pass serves the graph, the
targets and the impostors; the nearest over all shards are a merge.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cells import CellIndex
from plml.dask.cluster import Cluster
from plml.dask.shards import Quantizer, Shard, Shards, nearest_cells, sampled_numbers
from plml.dask.sums import RunningSum, rows_of, stacked
from plml.ops.topk import share_found
from plml.stages.approximate import TARGET_RECALL
from plml.stages.neighbors import EuclideanIndex, class_members

#: Rows that choose how many cells are searched, and as many others on which the recall is measured.
_SAMPLE = 256
#: Queries at a time, and lists of a query that are merged at a time.
_QUERY_BLOCK = 1024
_LISTS = 8

#: A class, and in it squared distances and rows of near neighbours of some queries, -1 for none.
FoundInClass = tuple[int, np.ndarray, np.ndarray]


class Wanted(NamedTuple):
    """How many neighbours there should be."""

    graph: int
    targets: int
    impostors: int


class Near(NamedTuple):
    """Some near rows of every query, nearest first; -1 and infinity where there are fewer."""

    squared: np.ndarray  # (..., q, k)
    numbers: np.ndarray  # in the order of the fit
    rows: np.ndarray  # in the order of the user, which decides between equals


class Candidates(NamedTuple):
    """Near rows of some queries."""

    queries: np.ndarray  # (q,) numbers, increasing
    near: Near  # (2, q, k): in the query's own class, and in the others


class NeighborLists(NamedTuple):
    """Neighbours of the rows of one shard, numbers in the order of the fit; -1 for none."""

    squared: np.ndarray  # (n, k) of the graph
    graph: np.ndarray
    targets: np.ndarray
    impostors: np.ndarray


def find_neighbors(
    cluster: Cluster,
    class_sizes: np.ndarray,
    exact: bool,
    seed: int,
    shards: Shards,
    wanted: Wanted,
    among: Shards | None = None,
) -> tuple[list[Future], dict[str, float]]:
    """``NeighborLists`` of every shard, and the share of true neighbours found, by purpose.

    Neighbours are rows of the shards themselves, or of others with the same cells.
    """
    among = shards if among is None else among
    wanted = wanted._replace(graph=min(wanted.graph, among.n_rows - 1))
    search = _Search(cluster, shards, among, wanted)
    if exact:
        return search.exactly(shards.parts), dict.fromkeys(Wanted._fields, 1.0)
    sample = sampled_numbers(shards.sizes, min(2 * _SAMPLE, shards.n_rows), seed)
    queries, truth = search.truth(sample)
    # Every other row of the sample chooses the cells, and the rest are measured.
    n_cells = _n_cells_needed(among, queries.X[::2], rows_of(truth, slice(0, None, 2)))
    found = search.completed(search.in_cells(n_cells), class_sizes)
    return found, search.recall(found, sample, truth)


class _Search(NamedTuple):
    """Rows of shards that look for neighbours among those of others, or among themselves."""

    cluster: Cluster
    shards: Shards
    among: Shards
    wanted: Wanted

    def exactly(self, queries: list[Future]) -> list[Future]:
        """``NeighborLists`` of rows of shards, by definition."""
        return self.cluster.in_waves(lambda wave: list(map(self._exactly_for, wave)), queries)

    def _exactly_for(self, queries: Future) -> Future:
        submit, k = self.cluster.submit, max(self.wanted)
        searched = zip(self.among.parts, self.among.offsets[:-1].tolist(), strict=True)
        return self._merged(submit(_search_exactly, queries, *shard, k) for shard in searched)

    def _merged(self, candidates: Iterable[Future]) -> Future:
        """``NeighborLists`` of what shards propose, a few of them in memory at a time."""
        submit = self.cluster.submit
        running = RunningSum(partial(submit, _nearest_candidates), candidates)
        return submit(_lists_of, running.parts, self.wanted)

    def in_cells(self, n_cells: int) -> list[Future]:
        """``NeighborLists`` of every shard, in its rows' nearest cells."""
        cluster, (parts, _, offsets, quantizer, _) = self.cluster, self.among
        indexes = cluster.map(CellIndex, parts, known=(quantizer.scaling,))
        known = cluster.put(quantizer)

        def found_in(number: int, queries: Future) -> Future:
            sent = cluster.submit(_sent, queries, known, number)
            offset = int(offsets[number])
            return cluster.submit(_search_cells, sent, indexes[number], offset, max(self.wanted))

        def found(wave: Sequence[Future]) -> list[Future]:
            queries = cluster.map(_probing, wave, known=(known, n_cells))
            reached = cluster.gather(cluster.map(_shards_of, queries, known=(known,)))
            return [
                self._merged(found_in(number, rows) for number in numbers)
                for rows, numbers in zip(queries, reached, strict=True)
            ]

        return cluster.in_waves(found, self.shards.parts)

    def completed(self, found: list[Future], class_sizes: np.ndarray) -> list[Future]:
        """With exact neighbours for the rows whose cells hold too few."""
        submit, parts = self.cluster.submit, self.shards.parts
        expected = self.cluster.put((class_sizes, self.wanted))
        short = self.cluster.map(_short, parts, found, known=(expected,))
        sizes = self.cluster.gather(self.cluster.map(len, short))
        open_shards = [s for s, size in enumerate(sizes) if size]
        exact = self.exactly([submit(rows_of, parts[s], short[s]) for s in open_shards])
        for s, lists in zip(open_shards, exact, strict=True):
            found[s] = submit(_patched, found[s], short[s], lists)
        return found

    def truth(self, sample: list[np.ndarray]) -> tuple[Shard, NeighborLists]:
        """Some rows of every shard, and their exact neighbours."""
        rows = self.cluster.map(rows_of, self.shards.parts, sample)
        joined = self.cluster.submit(stacked, rows)
        return self.cluster.gather((joined, self._exactly_for(joined)))

    def recall(
        self, found: list[Future], sample: list[np.ndarray], truth: NeighborLists
    ) -> dict[str, float]:
        """The share of true neighbours found, of the rows that did not choose the cells."""
        looks = self.cluster.map(rows_of, found, sample)
        there: NeighborLists = stacked(self.cluster.gather(looks))
        return {
            purpose: share_found(getattr(truth, purpose)[1::2], getattr(there, purpose)[1::2])
            for purpose in Wanted._fields
        }


def _n_cells_needed(shards: Shards, X: np.ndarray, truth: NeighborLists) -> int:
    """As many nearest cells as hold the wanted share of the true neighbours of some rows."""
    centers, _, scaling = shards.quantizer
    ranks = np.argsort(nearest_cells(scaling.single(X), centers, len(centers)), axis=1)
    n_cells = 1
    for numbers in truth[1:]:
        query, at = np.nonzero(numbers >= 0)
        cells = np.searchsorted(shards.cell_starts, numbers[query, at], side="right") - 1
        if len(query):
            rank = np.quantile(ranks[query, cells], TARGET_RECALL, method="higher")
            n_cells = max(n_cells, 1 + int(rank))
    return n_cells


def _short(shard: Shard, found: NeighborLists, expected: tuple[np.ndarray, Wanted]) -> np.ndarray:
    """The rows that should have more neighbours than were found."""
    class_sizes, wanted = expected
    own = class_sizes[shard.codes]
    limits = (wanted.graph, own - 1, class_sizes.sum() - own)
    is_short = np.zeros(len(shard.X), dtype=bool)
    for numbers, limit in zip(found[1:], limits, strict=True):
        is_short |= (numbers >= 0).sum(axis=1) < np.minimum(limit, numbers.shape[1])
    return np.flatnonzero(is_short)


def _patched(found: NeighborLists, rows: np.ndarray, exact: NeighborLists) -> NeighborLists:
    whole = NeighborLists(*(part.copy() for part in found))
    for here, there in zip(whole, exact, strict=True):
        here[rows] = there
    return whole


def _search_exactly(queries: Shard, shard: Shard, offset: int, k: int) -> Candidates:
    """The nearest rows of a shard, by definition; equals by the order of the user."""
    order = np.argsort(shard.rows)
    groups = [order[members] for members in class_members(shard.codes[order])]
    indexes = [EuclideanIndex(shard.X[members]) for members in groups]

    def by_class(some: Shard) -> Iterator[FoundInClass]:
        for members, index in zip(groups, indexes, strict=True):
            squared, at = index.search(some.X, min(k + 1, len(members)))
            yield shard.codes[members[0]], squared, members[at]

    near = _nearest_by_side(queries, shard.rows, offset, by_class, k)
    return Candidates(np.arange(len(queries.X)), near)


def _nearest_by_side(
    queries: Shard,
    rows: np.ndarray,
    offset: int,
    by_class: Callable[[Shard], Iterator[FoundInClass]],
    k: int,
) -> Near:
    """The k nearest of the own class and of the others, some queries at a time."""
    parts = []
    for start in range(0, len(queries.X), _QUERY_BLOCK):
        some = rows_of(queries, slice(start, start + _QUERY_BLOCK))
        lists: list[Near] = []
        for code, squared, at in by_class(some):
            # A row is not its own neighbour; one more than wanted was asked for.
            there = (at >= 0) & (rows[at] != some.rows[:, None])
            is_own = (some.codes == code)[:, None]
            apart = np.where([there & is_own, there & ~is_own], squared, np.inf)
            both = (np.broadcast_to(part, apart.shape) for part in (offset + at, rows[at]))
            lists.append(Near(apart, *both))
            if len(lists) == _LISTS:  # there may be many classes
                lists = [nearest_of(lists, k)]
        parts.append(nearest_of(lists, k))
    return Near(*(np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)))


def nearest_of(parts: list[Near], k: int) -> Near:
    """The k nearest of several lists, equals by the order of the user."""
    padding = _nothing((*parts[0].squared.shape[:-1], k))
    squared, numbers, rows = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*parts, padding, strict=True)
    )
    numbers = np.where(np.isinf(squared), -1, numbers)
    order = np.lexsort((rows, squared), axis=-1)[..., :k]
    return Near(*(np.take_along_axis(part, order, axis=-1) for part in (squared, numbers, rows)))


def _nothing(shape: tuple[int, ...]) -> Near:
    return Near(np.full(shape, np.inf), np.full(shape, -1), np.full(shape, -1))


def _nearest_candidates(parts: list[Candidates]) -> Candidates:
    """The nearest of what several shards propose, each of them to some of the queries."""
    queries = np.unique(np.concatenate([part.queries for part in parts]))
    k = parts[0].near.squared.shape[-1]
    lists = []
    for part in parts:
        lists.append(_nothing((2, len(queries), k)))
        at = np.searchsorted(queries, part.queries)
        for here, there in zip(lists[-1], part.near, strict=True):
            here[:, at] = there
    return Candidates(queries, nearest_of(lists, k))


def _lists_of(parts: list[Candidates], wanted: Wanted) -> NeighborLists:
    """Neighbours of the queries."""
    near = _nearest_candidates(parts).near
    own, others = (Near(*(part[side] for part in near)) for side in (0, 1))
    graph = nearest_of([own, others], wanted.graph)
    partners = own.numbers[:, : wanted.targets], others.numbers[:, : wanted.impostors]
    return NeighborLists(graph.squared, graph.numbers, *(part.copy() for part in partners))


# --- the nearest cells only ---


def _probing(shard: Shard, quantizer: Quantizer, n_cells: int) -> Shard:
    """In the coordinates of searches, with the (n, n_cells) cells that the rows look into."""
    X = quantizer.scaling.single(shard.X)
    return shard._replace(X=X, cells=nearest_cells(X, quantizer.centers, n_cells))


def _shards_of(queries: Shard, quantizer: Quantizer) -> list[int]:
    """The shards that queries look into."""
    return np.unique(quantizer.shard_of_cell[queries.cells]).tolist()


def _sent(queries: Shard, quantizer: Quantizer, number: int) -> tuple[np.ndarray, Shard]:
    """The queries that look into a shard, after their numbers."""
    there = np.flatnonzero((quantizer.shard_of_cell[queries.cells] == number).any(axis=1))
    return there, rows_of(queries, there)


def _search_cells(
    sent: tuple[np.ndarray, Shard], index: CellIndex, offset: int, k: int
) -> Candidates:
    """The nearest rows of a shard in the cells that the queries look into."""

    def by_class(some: Shard) -> Iterator[FoundInClass]:
        return index.search(some.X, some.cells, k + 1)

    numbers, queries = sent
    return Candidates(numbers, _nearest_by_side(queries, index.rows, offset, by_class, k))
