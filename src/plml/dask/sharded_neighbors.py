"""Euclidean neighbours across shards: exact, or in the nearest cells only.

A row's candidates in a shard are found class by class, so that one pass serves the graph, the
targets and the impostors; the nearest over all shards are a merge.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cells import CellIndex
from plml.dask.cluster import Cluster
from plml.dask.shards import Quantizer, Shard, Shards, nearest_cells, shares_of, some_rows
from plml.dask.sums import RunningSum, rows_of, stacked
from plml.ops.topk import share_found
from plml.stages.approximate import TARGET_RECALL
from plml.stages.neighbors import EuclideanIndex

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

    queries: np.ndarray  # (q,) numbers within their shard
    near: Near  # (2, q, k): in the query's own class, and in the others


class NeighborLists(NamedTuple):
    """Neighbours of the rows of one shard, numbers in the order of the fit."""

    squared: np.ndarray  # (n, k) of the graph
    graph: np.ndarray
    targets: np.ndarray
    impostors: np.ndarray


class Partners(NamedTuple):
    """The part of these that triplets are made from."""

    targets: np.ndarray
    impostors: np.ndarray


class SearchRows(NamedTuple):
    """Rows that look for neighbours."""

    X: np.ndarray
    codes: np.ndarray
    numbers: np.ndarray  # within their shard
    own: np.ndarray  # numbers among the rows searched, -1 for strangers
    probes: np.ndarray  # (q, n_cells) cells to look into; empty for all


def partners_of(lists: NeighborLists) -> Partners:
    """What is left when the graph has been made."""
    return Partners(lists.targets, lists.impostors)


def find_neighbors(
    cluster: Cluster,
    shards: Shards,
    class_sizes: np.ndarray,
    wanted: Wanted,
    exact: bool,
    seed: int,
    among: Shards | None = None,
) -> tuple[list[Future], dict[str, float]]:
    """``NeighborLists`` of every shard, and the share of true neighbours found, by purpose.

    Neighbours are rows of the shards themselves, or of others with the same cells.
    """
    if among is None:
        among, wanted = shards, wanted._replace(graph=min(wanted.graph, shards.n_rows - 1))
    search = _Search(cluster, shards, among, wanted)
    if exact:
        queries = [cluster.submit(_all_of, *its) for its in search.asking]
        return search.exactly(queries), dict.fromkeys(Wanted._fields, 1.0)
    sample = search.sample(seed)
    found = search.in_cells(_n_cells_needed(among, sample))
    found = search.completed(found, class_sizes)
    return found, search.recall(found, sample)


class _Search:
    """Rows of shards that look for neighbours among those of others, or among themselves."""

    def __init__(self, cluster: Cluster, shards: Shards, among: Shards, wanted: Wanted) -> None:
        self.cluster = cluster
        self.shards = shards
        self.among = among
        self.wanted = wanted
        inside = among is shards
        starts = [int(start) if inside else None for start in shards.offsets[:-1]]
        #: Every shard, and the number of its first row among those searched.
        self.asking = list(zip(shards.parts, starts, strict=True))
        self.searched = list(zip(among.parts, among.offsets[:-1].tolist(), strict=True))

    def exactly(self, queries: list[Future]) -> list[Future]:
        """``NeighborLists`` of some queries, by definition."""
        found: list[Future] = []
        for wave in self.cluster.waves(len(queries)):
            found += [self._exactly_for(queries[number]) for number in wave]
            self.cluster.wait(found[wave.start :])
        return found

    def _exactly_for(self, queries: Future) -> Future:
        submit = self.cluster.submit
        return self._merged(
            submit(_search_exactly, queries, *its, max(self.wanted)) for its in self.searched
        )

    def _merged(self, candidates: Iterable[Future], n_rows: int | None = None) -> Future:
        """``NeighborLists`` of what shards propose, a few of them in memory at a time."""
        running = RunningSum(self.cluster, candidates, _nearest_candidates)
        return self.cluster.submit(_lists_of, running.parts, n_rows, self.wanted)

    def in_cells(self, n_cells: int) -> list[Future]:
        """``NeighborLists`` of every shard, in its rows' nearest cells."""
        submit, shards = self.cluster.submit, self.among
        quantizer = self.cluster.put(shards.quantizer)
        places = [submit(_indexed, part, quantizer) for part in shards.parts]
        n_rows = np.diff(self.shards.offsets).tolist()
        found: list[Future] = []
        for wave in self.cluster.waves(len(self.asking)):
            queries = [submit(_probing, *self.asking[s], quantizer, n_cells) for s in wave]
            looked_into = self.cluster.gather([submit(_shards_of, q, quantizer) for q in queries])
            for s, its, numbers in zip(wave, queries, looked_into, strict=True):
                looks = ((submit(_sent, its, quantizer, r), r) for r in numbers)
                candidates = (
                    submit(_search_cells, sent, places[r], int(shards.offsets[r]), max(self.wanted))
                    for sent, r in looks
                )
                found.append(self._merged(candidates, n_rows[s]))
            # Or what all shards send would be in memory at the same time.
            self.cluster.wait(found[wave.start :])
        return found

    def completed(self, found: list[Future], class_sizes: np.ndarray) -> list[Future]:
        """With exact neighbours for the rows whose cells hold too few."""
        submit = self.cluster.submit
        expected = self.cluster.put((class_sizes, self.wanted))
        short = [
            submit(_short, *its, near, expected)
            for its, near in zip(self.asking, found, strict=True)
        ]
        sizes = self.cluster.gather([submit(_n_queries, some) for some in short])
        open_shards = [s for s, size in enumerate(sizes) if size]
        exact = self.exactly([short[s] for s in open_shards])
        for s, its in zip(open_shards, exact, strict=True):
            found[s] = submit(_patched, found[s], short[s], its)
        return found

    def sample(self, seed: int) -> "_Sample":
        """Some rows, and what an exact search finds for them."""
        submit, shards = self.cluster.submit, self.shards
        n_rows = min(2 * _SAMPLE, shards.n_rows)
        shares, seeds = shares_of(np.diff(shards.offsets), n_rows, np.random.default_rng(seed))
        samples = [
            submit(_some_of, *its, share, its_seed)
            for its, share, its_seed in zip(self.asking, shares, seeds, strict=True)
        ]
        joined = submit(stacked, samples)
        queries, truth = self.cluster.gather((joined, self._exactly_for(joined)))
        return _Sample(queries, np.repeat(np.arange(len(shards)), shares), truth)

    def recall(self, found: list[Future], sample: "_Sample") -> dict[str, float]:
        """The share of true neighbours found, of the rows that did not choose the cells."""
        measured = np.arange(1, len(sample.shards), 2)  # shard by shard
        looks = [
            self.cluster.submit(rows_of, found[s], sample.queries.numbers[its])
            for s in np.unique(sample.shards[measured])
            for its in [measured[sample.shards[measured] == s]]
        ]
        _, *lists = stacked(self.cluster.gather(looks))
        return {
            purpose: share_found(truth[measured], there)
            for (purpose, truth), there in zip(sample.neighbors().items(), lists, strict=True)
        }


class _Sample(NamedTuple):
    """Rows with their true neighbours; even ones choose the cells, odd ones are measured."""

    queries: SearchRows
    shards: np.ndarray  # of every row
    truth: NeighborLists

    def neighbors(self) -> dict[str, np.ndarray]:
        """By purpose: numbers of the true neighbours, (q, k), -1 where there are fewer.

        A stranger may be among the rows searched; what it finds at no distance does not count.
        """
        itself = (self.queries.own < 0)[:, None] & (self.truth.squared <= 0)
        lists = np.where(itself, -1, self.truth.graph), self.truth.targets, self.truth.impostors
        return dict(zip(Wanted._fields, lists, strict=True))


def _n_cells_needed(shards: Shards, sample: _Sample) -> int:
    """As many nearest cells as hold the wanted share of the true neighbours of a sample."""
    centers, _, scaling = shards.quantizer
    X = scaling.single(sample.queries.X[::2])
    ranks = np.argsort(nearest_cells(X, centers, len(centers)), axis=1)
    n_cells = 1
    for numbers in sample.neighbors().values():
        query, at = np.nonzero(numbers[::2] >= 0)
        cells = np.searchsorted(shards.cell_starts, numbers[::2][query, at], side="right") - 1
        if len(query):
            rank = np.quantile(ranks[query, cells], TARGET_RECALL, method="higher")
            n_cells = max(n_cells, 1 + int(rank))
    return n_cells


def _n_queries(queries: SearchRows) -> int:
    return len(queries.X)


def _short(shard: Shard, first: int | None, found: NeighborLists, expected: Any) -> SearchRows:
    """The rows that should have more neighbours than were found."""
    class_sizes, wanted = expected
    own = class_sizes[shard.codes]
    limits = (wanted.graph, own - 1, class_sizes.sum() - own)
    lists = (found.graph, found.targets, found.impostors)
    is_short = np.zeros(len(shard.X), dtype=bool)
    for numbers, limit in zip(lists, limits, strict=True):
        is_short |= (numbers >= 0).sum(axis=1) < np.minimum(limit, numbers.shape[1])
    return rows_of(_all_of(shard, first), np.flatnonzero(is_short))


def _patched(found: NeighborLists, queries: SearchRows, exact: NeighborLists) -> NeighborLists:
    whole = NeighborLists(*(part.copy() for part in found))
    for here, there in zip(whole, exact, strict=True):
        here[queries.numbers] = there
    return whole


def _all_of(shard: Shard, first: int | None) -> SearchRows:
    numbers = np.arange(len(shard.X))
    own = np.full(len(numbers), -1) if first is None else first + numbers
    nothing = np.empty((len(numbers), 0), dtype=np.int64)
    return SearchRows(shard.X, shard.codes, numbers, own, nothing)


def _search_exactly(queries: SearchRows, shard: Shard, offset: int, k: int) -> Candidates:
    """The nearest rows of a shard, by definition; equals by the order of the user."""
    classes = []
    for code in np.unique(shard.codes):
        members = np.flatnonzero(shard.codes == code)
        members = members[np.argsort(shard.rows[members])]
        classes.append((int(code), members, EuclideanIndex(shard.X[members])))

    def by_class(some: SearchRows) -> Iterator[FoundInClass]:
        for code, members, index in classes:
            squared, at = index.search(some.X, min(k + 1, len(members)))
            yield code, squared, members[at]

    return _in_blocks(queries, shard.rows, offset, by_class, k)


def _in_blocks(
    queries: SearchRows,
    rows: np.ndarray,
    offset: int,
    by_class: Callable[[SearchRows], Iterator[FoundInClass]],
    k: int,
) -> Candidates:
    """The k nearest of the own class and of the others, some queries at a time."""
    parts = []
    for start in range(0, len(queries.X), _QUERY_BLOCK):
        some = rows_of(queries, slice(start, start + _QUERY_BLOCK))
        parts.append(_nearest_by_side(some, rows, offset, by_class(some), k))
    near = Near(*(np.concatenate(its, axis=1) for its in zip(*parts, strict=True)))
    return Candidates(queries.numbers, near)


def _nearest_by_side(
    queries: SearchRows, rows: np.ndarray, offset: int, by_class: Iterable[FoundInClass], k: int
) -> Near:
    lists: list[Near] = []
    for code, squared, numbers in by_class:
        # A row is not its own neighbour; one more than wanted was asked for.
        there = (numbers >= 0) & (offset + numbers != queries.own[:, None])
        is_own = (queries.codes == code)[:, None]
        apart = np.where([there & is_own, there & ~is_own], squared, np.inf)
        numbers, its_rows = (
            np.broadcast_to(part, apart.shape) for part in (offset + numbers, rows[numbers])
        )
        lists.append(Near(apart, numbers, its_rows))
        if len(lists) == _LISTS:  # there may be many classes
            lists = [nearest_of(lists, k)]
    return nearest_of(lists, k)


def nearest_of(parts: list[Near], k: int) -> Near:
    """The k nearest of several lists, equals by the order of the user."""
    shape = (*parts[0].squared.shape[:-1], k)
    nothing = np.full(shape, -1, dtype=np.int64)
    padding = Near(np.full(shape, np.inf), nothing, nothing)
    squared, numbers, rows = (
        np.concatenate(its, axis=-1) for its in zip(*parts, padding, strict=True)
    )
    numbers = np.where(np.isinf(squared), -1, numbers)
    order = np.lexsort((rows, squared), axis=-1)[..., :k]
    return Near(*(np.take_along_axis(part, order, axis=-1) for part in (squared, numbers, rows)))


def _nearest_candidates(parts: list[Candidates]) -> Candidates:
    """The nearest of what several shards propose."""
    queries = parts[0].queries
    if not all(np.array_equal(part.queries, queries) for part in parts):
        queries = np.unique(np.concatenate([part.queries for part in parts]))
        parts = [_among(part, queries) for part in parts]
    k = parts[0].near.squared.shape[-1]
    return Candidates(queries, nearest_of([part.near for part in parts], k))


def _among(part: Candidates, queries: np.ndarray) -> Candidates:
    """With nothing for the queries that were not asked."""
    shape = (2, len(queries), part.near.squared.shape[-1])
    whole = Near(np.full(shape, np.inf), np.full(shape, -1), np.full(shape, -1))
    for here, there in zip(whole, part.near, strict=True):
        here[:, np.searchsorted(queries, part.queries)] = there
    return Candidates(queries, whole)


def _lists_of(parts: list[Candidates], n_rows: int | None, wanted: Wanted) -> NeighborLists:
    """Neighbours of a shard's rows, or of the queries alone."""
    nearest = _nearest_candidates(parts)
    if n_rows is not None:
        nearest = _among(nearest, np.arange(n_rows))
    own, others = (Near(*(part[side] for part in nearest.near)) for side in (0, 1))
    graph = nearest_of([own, others], wanted.graph)
    partners = own.numbers[:, : wanted.targets], others.numbers[:, : wanted.impostors]
    return NeighborLists(graph.squared, graph.numbers, *(part.copy() for part in partners))


# --- the nearest cells only ---


def _some_of(shard: Shard, first: int | None, size: int, seed: int) -> SearchRows:
    return rows_of(_all_of(shard, first), some_rows(len(shard.X), size, seed))


def _probing(shard: Shard, first: int | None, quantizer: Quantizer, n_cells: int) -> SearchRows:
    X = quantizer.scaling.single(shard.X)
    probes = nearest_cells(X, quantizer.centers, n_cells)
    return _all_of(shard, first)._replace(X=X, probes=probes)


def _shards_of(queries: SearchRows, quantizer: Quantizer) -> list[int]:
    """The shards that queries look into."""
    return np.unique(quantizer.shard_of_cell[queries.probes]).tolist()


def _sent(queries: SearchRows, quantizer: Quantizer, number: int) -> SearchRows:
    """The queries that look into a shard."""
    there = (quantizer.shard_of_cell[queries.probes] == number).any(axis=1)
    return rows_of(queries, np.flatnonzero(there))


def _indexed(shard: Shard, quantizer: Quantizer) -> CellIndex:
    return CellIndex(shard, quantizer.scaling)


def _search_cells(queries: SearchRows, index: CellIndex, offset: int, k: int) -> Candidates:
    """The nearest rows of a shard in the cells that the queries look into."""

    def by_class(some: SearchRows) -> Iterator[FoundInClass]:
        return index.search(some.X, some.probes, k + 1)

    return _in_blocks(queries, index.rows, offset, by_class, k)
