"""Rows of other shards that the triplets of a shard need: its halo, in the order of the fit."""

import numpy as np

from plml.dask.shards import Shard


def outside(numbers: np.ndarray, first: int, last: int) -> np.ndarray:
    """Sorted numbers that are not among first to last - 1; absent ones are -1."""
    return np.setdiff1d(numbers, np.r_[-1, first:last])


def shards_reached(numbers: np.ndarray, offsets: np.ndarray) -> list[int]:
    """The shards that hold these rows; shard s starts at offsets[s]."""
    return np.unique(np.searchsorted(offsets, numbers, side="right") - 1).tolist()


def rows_between(shard: Shard, numbers: np.ndarray, first: int, last: int) -> np.ndarray:
    """Those of the rows with sorted numbers that are in a shard, which has first to last - 1."""
    begin, end = np.searchsorted(numbers, (first, last))
    return shard.X[numbers[begin:end] - first]


def local_numbers(numbers: np.ndarray, first: int, last: int, halo: np.ndarray) -> np.ndarray:
    """Numbers of the fit as rows of the shard (first to last - 1) followed by its halo."""
    inside = (numbers >= first) & (numbers < last)
    there = (last - first) + np.searchsorted(halo, numbers)
    return np.where(numbers < 0, -1, np.where(inside, numbers - first, there))
