"""What a shard needs of other shards, and the exchange of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cluster import Cluster, pick
from plml.dask.shards import Shards


class Halo(NamedTuple):
    """Rows of other shards that each shard reads: its own rows come first, these after them."""

    numbers: list[Future]  # of every shard: sorted numbers in the order of the fit
    wanted: list[Future]  # of every shard: the same, as a list of rows of each other shard
    sizes: np.ndarray  # (n_shards, n_shards): how many rows the first wants of the second


def plan_halo(cluster: Cluster, shards: Shards, numbers: list[Future]) -> Halo:
    """From the sorted numbers of rows of shards that each reader wants."""
    wanted = [cluster.submit(_by_shard, its, shards.offsets) for its in numbers]
    sizes = cluster.gather([cluster.submit(_lengths, its) for its in wanted])
    return Halo(numbers, wanted, np.array(sizes, dtype=np.int64).reshape(len(numbers), len(shards)))


def outside(numbers: np.ndarray, first: int, last: int) -> np.ndarray:
    """Sorted numbers that are not among first to last - 1; absent ones are below zero."""
    numbers = np.unique(numbers)
    return numbers[(numbers >= 0) & ((numbers < first) | (numbers >= last))]


def local_numbers(numbers: np.ndarray, first: int, last: int, halo: np.ndarray) -> np.ndarray:
    """Numbers of the fit as rows of the shard (first to last - 1) followed by its halo."""
    inside = (numbers >= first) & (numbers < last)
    there = (last - first) + np.searchsorted(halo, numbers)
    return np.where(numbers < 0, -1, np.where(inside, numbers - first, there))


def collected(
    cluster: Cluster,
    halo: Halo,
    fields: list[Future],
    s: int,
    take: Callable[[Any, np.ndarray], np.ndarray] | None = None,
) -> list[Future]:
    """The rows of a field that shard s reads, shard by shard."""
    wanted = halo.wanted[s]
    return [
        cluster.submit(take or taken, fields[r], cluster.submit(pick, wanted, int(r)))
        for r in np.flatnonzero(halo.sizes[s])
    ]


class Exchange:
    """The repeated exchange of a field that changes.

    A shard hands out one array, the rows that any other shard reads.

    Parameters
    ----------
    cluster : Cluster
    halo : Halo
    """

    def __init__(self, cluster: Cluster, halo: Halo) -> None:
        self.cluster = cluster
        self.neighbors = [np.flatnonzero(row).tolist() for row in halo.sizes]
        readers = [np.flatnonzero(column) for column in halo.sizes.T]
        self.exports = [
            cluster.submit(_union, [cluster.submit(pick, halo.wanted[s], r) for s in its])
            for r, its in enumerate(readers)
        ]
        self.positions = [
            cluster.submit(_positions, wanted, its, [self.exports[r] for r in its])
            for wanted, its in zip(halo.wanted, self.neighbors, strict=True)
        ]

    def read_by(self, s: int, handed_out: list[Future]) -> list[Future]:
        """What a task of shard s needs for ``with_halo``."""
        return [handed_out[r] for r in self.neighbors[s]]


def with_halo(x: np.ndarray, positions: list[np.ndarray], handed: list[np.ndarray]) -> np.ndarray:
    """Own rows, and after them those that others handed out."""
    if not handed:
        return x
    parts = [part[at] for part, at in zip(handed, positions, strict=True)]
    return np.concatenate([x, *parts])


def taken(field: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows."""
    return field[rows]


def _by_shard(numbers: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    cuts = np.searchsorted(numbers, offsets)
    return [
        numbers[first:last] - offset
        for first, last, offset in zip(cuts[:-1], cuts[1:], offsets[:-1], strict=True)
    ]


def _lengths(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


def _union(parts: list[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


def _positions(
    wanted: list[np.ndarray], neighbors: list[int], exports: list[np.ndarray]
) -> list[np.ndarray]:
    return [
        np.searchsorted(export, wanted[r]) for r, export in zip(neighbors, exports, strict=True)
    ]
