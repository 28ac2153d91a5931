"""Rows sorted by where they lie: the cells of a coarse quantiser, and runs of cells as shards.

Neighbours then live mostly in the same shard, so little has to be exchanged.
"""

from collections.abc import Sequence
from functools import partial
from operator import getitem
from typing import NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cluster import Cluster, offsets_of
from plml.dask.reading import Block, Table
from plml.dask.sums import RunningSum, rows_of, stacked

#: Rows per cell, on average, that the quantiser is trained on.
_ROWS_PER_CELL = 40
_MOST_TRAINING_ROWS = 2**17
#: Rows below which a shard makes no sense, and below which it is not worth its messages.
_FEWEST_ROWS = 32
_FEWEST_ROWS_BY_DEFAULT = 256
#: What an entry of a row takes in the busiest task: six copies in float64, whatever its own type.
_WORKING_BYTES = 48


class Shard(NamedTuple):
    """Rows of neighbouring cells, cell by cell, in each cell in the order of the user."""

    X: np.ndarray
    codes: np.ndarray  # class numbers
    rows: np.ndarray  # numbers in the order of the user
    cells: np.ndarray  # cell of every row


class Shards(NamedTuple):
    """All rows; row ``offsets[s] + i`` of the fit is row i of shard s."""

    parts: list[Future]  # of Shard
    workers: list[str]  # where each should be
    offsets: np.ndarray  # (n_shards + 1,)
    quantizer: "Quantizer"
    cell_starts: np.ndarray  # (n_cells + 1,) rows of the fit, cells in the order of the shards

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def sizes(self) -> list[int]:
        """Rows of every shard."""
        return np.diff(self.offsets).tolist()

    @property
    def n_rows(self) -> int:
        """Rows of all shards together."""
        return int(self.offsets[-1])


class Scaling(NamedTuple):
    """float32 coordinates for searches: about the mean, in units of the largest entry."""

    mean: np.ndarray
    unit: float

    def single(self, X: np.ndarray) -> np.ndarray:
        """Rows in these coordinates."""
        return np.ascontiguousarray((X - self.mean) / self.unit, dtype=np.float32)


class Quantizer(NamedTuple):
    """Where a row belongs: to the shard of the cell with the nearest centre."""

    centers: np.ndarray  # (n_cells, d), in the coordinates of searches
    shard_of_cell: np.ndarray  # (n_cells,), increasing
    scaling: Scaling


def n_shards_for(
    cluster: Cluster, table: Table, n_rows: int, fewest: int = _FEWEST_ROWS_BY_DEFAULT
) -> int:
    """For rows of a table: one per thread, or more where a thread's memory asks for it."""
    n_threads = min(len(cluster.workers()), n_rows // fewest)
    bytes_per_row = _WORKING_BYTES * (table.n_features + 64)
    for_memory = int(np.ceil(n_rows * bytes_per_row / cluster.memory_per_thread()))
    return max(1, min(max(n_threads, for_memory), n_rows // _FEWEST_ROWS_BY_DEFAULT))


def rows_of_a_task(cluster: Cluster, n_features: int, most: int) -> int:
    """How many rows one task can work on, up to a number."""
    return int(min(cluster.memory_per_thread() / (_WORKING_BYTES * n_features), most))


def make_shards(cluster: Cluster, table: Table, n_shards: int | None, seed: int) -> Shards:
    """Train the quantiser on a sample, and send every row to the shard of its cell."""
    n_shards = n_shards or n_shards_for(cluster, table, table.n_rows)
    n_shards = max(1, min(n_shards, table.n_rows // _FEWEST_ROWS))
    scaling = Scaling(table.mean, table.largest or 1.0)
    centers, sizes = _cells(cluster, table, scaling, seed)
    centers, sizes = centers[sizes > 0], sizes[sizes > 0]  # where rows repeat, some cells are empty
    order, shard_of_cell = _runs(centers, sizes, n_shards)
    # Cells are numbered in the order of the shards.
    quantizer = Quantizer(centers[order], shard_of_cell, scaling)
    n_shards = int(shard_of_cell.max()) + 1
    places = cluster.workers()
    workers = [places[s * len(places) // n_shards] for s in range(n_shards)]
    pieces = [RunningSum(partial(cluster.submit, stacked)) for _ in range(n_shards)]
    starts, known = offsets_of(table.sizes)[:-1].tolist(), cluster.put(quantizer)
    for block, start in zip(table.blocks, starts, strict=True):
        routed = cluster.submit(_route, block, start, known)
        for s, of_shard in enumerate(pieces):  # at once, while the block is in memory
            of_shard.add(cluster.submit(getitem, routed, s))
    parts = [
        cluster.submit(_assembled, of_shard.parts, on=worker)
        for of_shard, worker in zip(pieces, workers, strict=True)
    ]
    return laid_out(cluster, parts, workers, quantizer)


def laid_out(
    cluster: Cluster, parts: list[Future], workers: list[str], quantizer: Quantizer
) -> Shards:
    """Shards of rows in the order of their cells."""
    counts = cluster.map(_cell_counts, parts, known=(len(quantizer.centers),))
    cell_starts = offsets_of(sum(cluster.watched(counts)))
    firsts = np.searchsorted(quantizer.shard_of_cell, np.arange(len(parts) + 1))
    return Shards(parts, workers, cell_starts[firsts], quantizer, cell_starts)


def _cells(
    cluster: Cluster, table: Table, scaling: Scaling, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of 2 sqrt(n) cells, and how much of a sample lies in each."""
    n_cells = max(1, int(2 * np.sqrt(table.n_rows)))
    in_memory = max(rows_of_a_task(cluster, table.n_features, _MOST_TRAINING_ROWS), n_cells)
    wanted = min(_ROWS_PER_CELL * n_cells, _MOST_TRAINING_ROWS, table.n_rows, in_memory)
    samples = sampled_rows(cluster, table.blocks, table.sizes, wanted, seed)
    return cluster.gather(cluster.submit(_train, samples, n_cells, scaling))


def sampled_rows(
    cluster: Cluster, parts: list[Future], sizes: Sequence[int], n_rows: int, seed: int
) -> list[Future]:
    """A random sample of all rows: of every part, some."""
    return cluster.map(rows_of, parts, sampled_numbers(sizes, n_rows, seed))


def sampled_numbers(sizes: Sequence[int], n_rows: int, seed: int) -> list[np.ndarray]:
    """Which rows of every part are in a random sample of all rows, increasing."""
    rng = np.random.default_rng(seed)
    shares = rng.multivariate_hypergeometric(sizes, n_rows)
    seeds = rng.integers(2**31, size=len(shares))
    return [some_numbers(*part) for part in zip(sizes, shares, seeds, strict=True)]


def some_numbers(n_rows: int, size: int, seed: int) -> np.ndarray:
    """Some of the numbers 0 to n_rows - 1, increasing."""
    return np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False))


def _train(samples: list[Block], n_cells: int, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    import faiss

    X = scaling.single(stacked(samples).X)
    n_cells = min(n_cells, len(X))
    kmeans = faiss.Kmeans(X.shape[1], n_cells, niter=10, seed=0, min_points_per_centroid=1)
    kmeans.train(X)
    centers = np.asarray(kmeans.centroids)
    return centers, np.bincount(nearest_cells(X, centers, 1)[:, 0], minlength=n_cells)


def nearest_cells(X: np.ndarray, centers: np.ndarray, n_cells: int) -> np.ndarray:
    """Numbers of the nearest centres, (n, n_cells), nearest first."""
    import faiss

    return faiss.knn(X, np.ascontiguousarray(centers), n_cells)[1]


def _runs(centers: np.ndarray, sizes: np.ndarray, n_shards: int) -> tuple[np.ndarray, np.ndarray]:
    """An order of the cells in which neighbours are near, and the shard of each in that order.

    Cells are cut in two halves of like size across the direction in which they spread most, and
    the halves again; a run of cells is then a compact piece of space.
    """
    order = np.concatenate(_halved(centers, np.arange(len(centers))))
    before = np.cumsum(sizes[order]) - sizes[order] / 2
    shards = (before * n_shards / max(sizes.sum(), 1)).astype(np.int64)
    return order, np.unique(shards, return_inverse=True)[1]


def _halved(centers: np.ndarray, cells: np.ndarray) -> list[np.ndarray]:
    if len(cells) <= 2:
        return [cells]
    spread = centers[cells] - centers[cells].mean(axis=0)
    direction = np.linalg.svd(spread, full_matrices=False)[2][0]
    direction *= np.sign(direction[np.abs(direction).argmax()])  # SVD leaves the sign open
    order = cells[np.argsort(spread @ direction, kind="stable")]
    half = len(order) // 2
    return [*_halved(centers, order[:half]), *_halved(centers, order[half:])]


def _route(block: Block, start: int, quantizer: Quantizer) -> list[Shard]:
    """The rows of a block for every shard."""
    centers, shard_of_cell, scaling = quantizer
    cells = nearest_cells(scaling.single(block.X), centers, 1)[:, 0]
    whole, shards = Shard(*block, start + np.arange(len(cells)), cells), shard_of_cell[cells]
    return [rows_of(whole, np.flatnonzero(shards == s)) for s in range(shard_of_cell.max() + 1)]


def _assembled(pieces: list[Shard]) -> Shard:
    whole = stacked(pieces)
    return rows_of(whole, np.lexsort((whole.rows, whole.cells)))


def _cell_counts(shard: Shard, n_cells: int) -> np.ndarray:
    return np.bincount(shard.cells, minlength=n_cells)
