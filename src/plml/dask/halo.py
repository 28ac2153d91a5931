"""Rows of other shards that the triplets of a shard need."""

from typing import NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cluster import Cluster, pick
from plml.dask.shards import Shard, Shards


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


def collected(cluster: Cluster, halo: Halo, parts: list[Future], s: int) -> list[Future]:
    """The rows of others that shard s reads, shard by shard."""
    wanted = halo.wanted[s]
    return [
        cluster.submit(_rows_of, parts[r], cluster.submit(pick, wanted, int(r)))
        for r in np.flatnonzero(halo.sizes[s])
    ]


def _rows_of(shard: Shard, rows: np.ndarray) -> np.ndarray:
    return shard.X[rows]


def _by_shard(numbers: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    cuts = np.searchsorted(numbers, offsets)
    return [
        numbers[first:last] - offset
        for first, last, offset in zip(cuts[:-1], cuts[1:], offsets[:-1], strict=True)
    ]


def _lengths(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]
