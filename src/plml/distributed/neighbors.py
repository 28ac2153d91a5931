"""Euclidean neighbours across shards: exact, or in the nearest cells only.

A row's candidates in a shard are found class by class, so that one pass serves the graph, the
targets and the impostors; the nearest over all shards are a merge.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.distributed.cluster import Cluster
from plml.distributed.shards import Scaling, Shard, Shards, nearest_cells
from plml.stages.approximate import TARGET_RECALL
from plml.stages.neighbors import EuclideanIndex

#: Rows on which the recall is measured.
_SAMPLE = 256
#: Queries at a time.
_QUERY_BLOCK = 4096


class Wanted(NamedTuple):
    """How many neighbours there should be."""

    graph: int
    targets: int
    impostors: int


class Near(NamedTuple):
    """Some near rows of every query, nearest first; -1 and infinity where there are fewer."""

    squared: np.ndarray  # (q, k)
    numbers: np.ndarray  # (q, k), in the order of the fit
    rows: np.ndarray  # (q, k), in the order of the user, which decides between equals


class Candidates(NamedTuple):
    """Near rows of some queries for every purpose."""

    queries: np.ndarray  # numbers within their shard
    graph: Near
    targets: Near
    impostors: Near


class Found(NamedTuple):
    """Neighbours of the rows of one shard, numbers in the order of the fit."""

    squared: np.ndarray  # (n, k) of the graph
    graph: np.ndarray
    targets: np.ndarray
    impostors: np.ndarray


class Queries(NamedTuple):
    """Rows that look for neighbours."""

    X: np.ndarray
    codes: np.ndarray
    numbers: np.ndarray  # within their shard
    own: np.ndarray  # numbers in the order of the fit
    probes: np.ndarray  # (q, n_cells) cells to look into; empty for all


def find_neighbors(
    cluster: Cluster,
    shards: Shards,
    class_sizes: np.ndarray,
    wanted: Wanted,
    exact: bool,
    seed: int,
) -> tuple[list[Future], dict[str, float]]:
    """``Found`` of every shard, and the share of true neighbours found, by purpose."""
    wanted = wanted._replace(graph=min(wanted.graph, shards.n_rows - 1))
    if exact:
        everything = [
            cluster.submit(_all_of, part, int(offset))
            for part, offset in zip(shards.parts, shards.offsets[:-1], strict=True)
        ]
        recall = dict.fromkeys(Wanted._fields, 1.0)
        return _exactly(cluster, shards, everything, wanted), recall
    n_cells, recall = _calibrated(cluster, shards, wanted, seed)
    probing = cluster.put((shards.centers, shards.shard_of_cell, shards.scaling, n_cells))
    places = [cluster.submit(_indexed, part, probing) for part in shards.parts]
    found: list[Future] = []
    for wave in cluster.waves(len(shards)):
        queries = [
            cluster.submit(_probing, shards.parts[s], int(shards.offsets[s]), probing) for s in wave
        ]
        looked_into = cluster.gather([cluster.submit(_shards_of, q, probing) for q in queries])
        for s, its, numbers in zip(wave, queries, looked_into, strict=True):
            candidates = []
            for r in numbers:
                sent = cluster.submit(_sent, its, probing, r)
                offset = int(shards.offsets[r])
                candidates.append(cluster.submit(_search_cells, sent, places[r], offset, wanted))
            n_rows = int(shards.offsets[s + 1] - shards.offsets[s])
            found.append(cluster.submit(_merged, n_rows, candidates, wanted))
        cluster.wait(
            found[wave.start :]
        )  # or what all shards send would be in memory at the same time
    return _completed(cluster, shards, found, class_sizes, wanted), recall


def _exactly(
    cluster: Cluster, shards: Shards, queries: list[Future], wanted: Wanted
) -> list[Future]:
    """``Found`` of some queries of every shard."""
    found: list[Future] = []
    for wave in cluster.waves(len(queries)):
        for s in wave:
            candidates = [
                cluster.submit(_search_exactly, queries[s], part, int(offset), wanted)
                for part, offset in zip(shards.parts, shards.offsets[:-1], strict=True)
            ]
            found.append(cluster.submit(_merged, None, candidates, wanted))
        cluster.wait(found[wave.start :])
    return found


def _completed(
    cluster: Cluster,
    shards: Shards,
    found: list[Future],
    class_sizes: np.ndarray,
    wanted: Wanted,
) -> list[Future]:
    """With exact neighbours for the rows whose cells hold too few."""
    expected = cluster.put((class_sizes, wanted))
    short = [
        cluster.submit(_short, part, its, int(offset), expected)
        for part, its, offset in zip(shards.parts, found, shards.offsets[:-1], strict=True)
    ]
    sizes = cluster.gather([cluster.submit(_n_queries, some) for some in short])
    open_shards = [s for s, size in enumerate(sizes) if size]
    exact = _exactly(cluster, shards, [short[s] for s in open_shards], wanted)
    for s, its in zip(open_shards, exact, strict=True):
        found[s] = cluster.submit(_patched, found[s], short[s], its)
    return found


def _n_queries(queries: Queries) -> int:
    return len(queries.X)


def _short(shard: Shard, found: Found, offset: int, expected: Any) -> Queries:
    """The rows that should have more neighbours than were found."""
    class_sizes, wanted = expected
    own = class_sizes[shard.codes]
    limits = (wanted.graph, own - 1, class_sizes.sum() - own)
    lists = (found.graph, found.targets, found.impostors)
    is_short = np.zeros(len(shard.X), dtype=bool)
    for numbers, limit in zip(lists, limits, strict=True):
        is_short |= (numbers >= 0).sum(axis=1) < np.minimum(limit, numbers.shape[1])
    chosen = np.flatnonzero(is_short)
    return Queries(*(part[chosen] for part in _all_of(shard, offset)))


def _patched(found: Found, queries: Queries, exact: Found) -> Found:
    whole = Found(*(part.copy() for part in found))
    for here, there in zip(whole, exact, strict=True):
        here[queries.numbers] = there
    return whole


def _all_of(shard: Shard, offset: int) -> Queries:
    numbers = np.arange(len(shard.X))
    nothing = np.empty((len(numbers), 0), dtype=np.int64)
    return Queries(shard.X, shard.codes, numbers, offset + numbers, nothing)


def _search_exactly(queries: Queries, shard: Shard, offset: int, wanted: Wanted) -> Candidates:
    """The nearest rows of a shard, by definition; equals by the order of the user."""
    k = max(wanted)
    by_class = []
    for code in np.unique(shard.codes):
        members = np.flatnonzero(shard.codes == code)
        members = members[np.argsort(shard.rows[members])]
        index = EuclideanIndex(shard.X[members])
        squared = np.full((len(queries.X), k), np.inf)
        numbers = np.full((len(queries.X), k), -1, dtype=np.int64)
        place = np.full(len(shard.X) + 1, -1)
        place[members] = np.arange(len(members))
        inside = (queries.own >= offset) & (queries.own < offset + len(shard.X))
        own = place[np.where(inside, queries.own - offset, -1)]
        for chosen, its in ((np.flatnonzero(own >= 0), own), (np.flatnonzero(own < 0), None)):
            found = min(k, len(members) - (its is not None))
            if found > 0 and len(chosen):
                d2, at = index.search(
                    queries.X[chosen], found, None if its is None else its[chosen]
                )
                squared[chosen, :found], numbers[chosen, :found] = d2, members[at]
        by_class.append((int(code), squared, numbers))
    return _by_purpose(queries, shard.rows, offset, by_class, wanted)


def _by_purpose(
    queries: Queries,
    rows: np.ndarray,
    offset: int,
    by_class: Iterable[tuple[int, np.ndarray, np.ndarray]],
    wanted: Wanted,
) -> Candidates:
    """The nearest of all classes, of the query's own and of the others."""
    purposes: dict[str, list[Near]] = {"graph": [], "targets": [], "impostors": []}
    for code, squared, numbers in by_class:
        absent = numbers < 0
        near = Near(
            np.where(absent, np.inf, squared),
            np.where(absent, -1, offset + numbers),
            np.where(absent, np.iinfo(np.int64).max, rows[numbers]),
        )
        own = (queries.codes == code)[:, None]
        purposes["graph"].append(near)
        purposes["targets"].append(near._replace(squared=np.where(own, near.squared, np.inf)))
        purposes["impostors"].append(near._replace(squared=np.where(own, np.inf, near.squared)))
    merged = {
        name: nearest_of(parts, k, len(queries.X))
        for (name, parts), k in zip(purposes.items(), wanted, strict=True)
    }
    return Candidates(queries.numbers, **merged)


def nearest_of(parts: list[Near], k: int, n_queries: int) -> Near:
    """The k nearest of several lists, equals by the order of the user."""
    nothing = np.full((n_queries, k), -1, dtype=np.int64)
    padding = Near(np.full((n_queries, k), np.inf), nothing, nothing)
    squared, numbers, rows = (
        np.concatenate(part, axis=1) for part in zip(*parts, padding, strict=True)
    )
    numbers = np.where(np.isinf(squared), -1, numbers)
    order = np.lexsort((rows, squared), axis=1)[:, :k]
    return Near(*(np.take_along_axis(part, order, axis=1) for part in (squared, numbers, rows)))


def _merged(n_rows: int | None, candidates: list[Candidates], wanted: Wanted) -> Found:
    """The neighbours of a shard's rows, or of the queries alone, from what all shards propose."""
    n = len(candidates[0].queries) if n_rows is None else n_rows

    def everywhere(purpose: str, k: int) -> Near:
        parts = []
        for part in candidates:
            near: Near = getattr(part, purpose)
            if len(part.queries) == n:
                parts.append(near)
                continue
            whole = Near(np.full((n, k), np.inf), np.full((n, k), -1), np.full((n, k), -1))
            for here, there in zip(whole, near, strict=True):
                here[part.queries] = there
            parts.append(whole)
        return nearest_of(parts, k, n)

    graph, targets, impostors = (
        everywhere(purpose, k) for purpose, k in zip(Wanted._fields, wanted, strict=True)
    )
    return Found(graph.squared, graph.numbers, targets.numbers, impostors.numbers)


# --- the nearest cells only ---


def _calibrated(
    cluster: Cluster, shards: Shards, wanted: Wanted, seed: int
) -> tuple[int, dict[str, float]]:
    """As many cells as a sample needs for the recall wanted, and its recall with them.

    Inside a cell the search misses nothing, so a true neighbour is found if its cell is among the
    nearest ones of the query: no search is needed to know the recall.
    """
    rng = np.random.default_rng(seed)
    sizes = np.diff(shards.offsets)
    shares = rng.multivariate_hypergeometric(sizes, min(_SAMPLE, shards.n_rows))
    samples = [
        cluster.submit(_some_of, part, int(offset), int(share), int(rng.integers(2**31)))
        for part, offset, share in zip(shards.parts, shards.offsets[:-1], shares, strict=True)
    ]
    sample = cluster.submit(_joined, samples)
    truth = [
        cluster.submit(_search_exactly, sample, part, int(offset), wanted)
        for part, offset in zip(shards.parts, shards.offsets[:-1], strict=True)
    ]
    queries, truth = cluster.gather((sample, truth))
    order = nearest_cells(shards.scaling.single(queries.X), shards.centers, len(shards.centers))
    rank = np.argsort(order, axis=1)
    needed = {}
    for purpose, k in zip(Wanted._fields, wanted, strict=True):
        near = nearest_of([getattr(part, purpose) for part in truth], k, len(queries.X))
        query, at = np.nonzero(near.numbers >= 0)
        cells = np.searchsorted(shards.cell_starts, near.numbers[query, at], side="right") - 1
        needed[purpose] = rank[query, cells]
    n_cells = 1 + max(
        int(np.quantile(ranks, TARGET_RECALL, method="higher")) if len(ranks) else 0
        for ranks in needed.values()
    )
    recall = {
        purpose: float(np.mean(ranks < n_cells)) if len(ranks) else 1.0
        for purpose, ranks in needed.items()
    }
    return n_cells, recall


def _some_of(shard: Shard, offset: int, size: int, seed: int) -> Queries:
    chosen = np.sort(np.random.default_rng(seed).choice(len(shard.X), size, replace=False))
    return Queries(*(part[chosen] for part in _all_of(shard, offset)))


def _joined(samples: list[Queries]) -> Queries:
    return Queries(*(np.concatenate(parts) for parts in zip(*samples, strict=True)))


def _probing(shard: Shard, offset: int, probing: Any) -> Queries:
    centers, _, scaling, n_cells = probing
    X = scaling.single(shard.X)
    queries = _all_of(shard, offset)
    return queries._replace(X=X, probes=nearest_cells(X, centers, n_cells))


def _shards_of(queries: Queries, probing: Any) -> list[int]:
    """The shards that queries look into."""
    return np.unique(probing[1][queries.probes]).tolist()


def _sent(queries: Queries, probing: Any, number: int) -> Queries:
    """The queries that look into a shard."""
    _, shard_of_cell, _, _ = probing
    there = np.flatnonzero((shard_of_cell[queries.probes] == number).any(axis=1))
    return Queries(*(part[there] for part in queries))


class CellIndex:
    """A shard's rows by class and cell.

    Parameters
    ----------
    shard : Shard
    scaling : of the rows, for searches
    """

    def __init__(self, shard: Shard, scaling: Scaling) -> None:
        self.rows = shard.rows
        self.codes = shard.codes
        self.X = scaling.single(shard.X)
        self.unit = scaling.unit
        self.first_cell = int(shard.cells.min())
        self.cells = shard.cells - self.first_cell

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "files"}

    @cached_property
    def files(self) -> list[tuple[int, Any, Any]]:
        """For every class its number, an inverted file of its rows, and what that borrows."""
        import faiss
        from faiss.contrib.ivf_tools import add_preassigned

        n_cells, d = int(self.cells.max()) + 1, self.X.shape[1]
        files = []
        for code in np.unique(self.codes):
            members = np.flatnonzero(self.codes == code)
            # The cells are known; the index's own quantiser is never asked.
            quantizer = faiss.IndexFlatL2(d)
            file = faiss.IndexIVFFlat(quantizer, d, n_cells)
            file.is_trained = True
            add_preassigned(file, self.X[members], self.cells[members], members)
            files.append((int(code), file, quantizer))
        return files

    def search(self, queries: Queries, k: int) -> Iterable[tuple[int, np.ndarray, np.ndarray]]:
        """Class by class: squared distances and numbers of k near rows."""
        from faiss.contrib.ivf_tools import search_preassigned

        probes = queries.probes - self.first_cell
        probes = np.where((probes >= 0) & (probes <= self.cells.max()), probes, -1)
        for code, file, _ in self.files:
            file.nprobe = probes.shape[1]
            d2, numbers = search_preassigned(file, queries.X, k, probes)
            yield code, d2.astype(np.float64) * self.unit**2, numbers


def _indexed(shard: Shard, probing: Any) -> CellIndex:
    return CellIndex(shard, probing[2])


def _search_cells(queries: Queries, index: CellIndex, offset: int, wanted: Wanted) -> Candidates:
    """The nearest rows of a shard in the cells that the queries look into."""
    parts = []
    for start in range(0, max(len(queries.X), 1), _QUERY_BLOCK):
        some = Queries(*(part[start : start + _QUERY_BLOCK] for part in queries))
        by_class = [
            (code, np.where(numbers + offset == some.own[:, None], np.inf, d2), numbers)
            for code, d2, numbers in index.search(some, max(wanted) + 1)
        ]
        parts.append(_by_purpose(some, index.rows, offset, by_class, wanted))
    nears = {
        purpose: Near(
            *(np.concatenate(p) for p in zip(*(getattr(c, purpose) for c in parts), strict=True))
        )
        for purpose in Wanted._fields
    }
    return Candidates(queries.numbers, **nears)
