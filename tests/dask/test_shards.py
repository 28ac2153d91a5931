"""Rows that are sorted into shards, and what shards read of each other."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from cluster_at_once import ClusterAtOnce
from plml.dask.halo import local_numbers, outside, rows_between, shards_reached
from plml.dask.reading import Block
from plml.dask.shards import (
    Quantizer,
    Scaling,
    Shard,
    _route,
    _runs,
    n_shards_for,
    rows_of_a_task,
    sampled_numbers,
    sampled_rows,
    some_numbers,
)
from plml.dask.sums import stacked


def test_runs_of_cells_are_compact_and_alike():
    rng = np.random.default_rng(0)
    centers, sizes = rng.normal(size=(64, 2)), rng.integers(5, 15, size=64)
    order, shard = _runs(centers, sizes, 4)
    assert sorted(order) == list(range(64))
    assert (np.diff(shard) >= 0).all()
    filled = np.bincount(shard, sizes[order])
    assert len(filled) == 4
    assert filled.max() < 1.3 * filled.min()
    spread = sum(centers[order[shard == s]].var(axis=0).sum() for s in range(4)) / 4
    assert spread < 0.5 * centers.var(axis=0).sum()


def test_every_row_goes_to_the_shard_of_its_nearest_centre():
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(50, 3)), rng.normal(size=(6, 3))
    scaling = Scaling(np.ones(3), 2.0)
    quantizer = Quantizer(scaling.single(centers), np.array([0, 0, 1, 1, 1, 2]), scaling)
    pieces = _route(Block(X, np.arange(50) % 4), 100, quantizer)
    nearest = np.square(X[:, None] - centers).sum(axis=2).argmin(axis=1)
    whole = stacked(pieces)
    assert sorted(whole.rows) == list(range(100, 150))
    for number, piece in enumerate(pieces):
        np.testing.assert_array_equal(piece.X, X[piece.rows - 100])
        np.testing.assert_array_equal(piece.codes, (piece.rows - 100) % 4)
        np.testing.assert_array_equal(piece.cells, nearest[piece.rows - 100])
        assert (quantizer.shard_of_cell[piece.cells] == number).all()


def test_samples():
    sizes = [30, 0, 30]
    sample = sampled_numbers(sizes, 24, seed=0)
    assert sum(len(part) for part in sample) == 24
    assert len(sample[1]) == 0
    assert set(sample[0]) != set(sample[2])  # every part draws for itself
    chosen = some_numbers(30, 12, 3)
    assert len(np.unique(chosen)) == 12
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) < set(range(30))
    parts = [
        Shard(np.arange(n)[:, None] + 0.5, np.arange(n), np.arange(n) + 7, np.zeros(n))
        for n in sizes
    ]
    some = sampled_rows(ClusterAtOnce(), parts, sizes, 24, seed=0)
    for part, numbers in zip(some, sample, strict=True):
        np.testing.assert_array_equal(part.X[:, 0], numbers + 0.5)
        np.testing.assert_array_equal(part.rows, numbers + 7)


def test_rows_that_a_task_has_room_for():
    assert rows_of_a_task(ClusterAtOnce(memory=48.0 * 10 * 123), 10, 1000) == 123
    assert rows_of_a_task(ClusterAtOnce(memory=1e12), 10, 1000) == 1000


def test_as_many_shards_as_threads_or_as_memory_asks_for():
    """Of 10 features and 64 numbers that come with a row, 48 bytes each; at least 256 rows."""
    table = SimpleNamespace(n_features=10)
    for bytes_of_a_task, n_rows, n_shards in (
        (1e12, 100_000, 2),  # one per thread
        (1000 * 48 * 74, 100_000, 100),
        (1000 * 48 * 74, 100_001, 101),
        (1.0, 100_000, 390),
        (1.0, 100, 1),
    ):
        cluster = ClusterAtOnce(n_workers=2, memory=bytes_of_a_task)
        assert n_shards_for(cluster, table, n_rows) == n_shards
    assert n_shards_for(ClusterAtOnce(n_workers=9), table, 1000) == 3
    assert n_shards_for(ClusterAtOnce(n_workers=9), table, 1000, fewest=500) == 2


@pytest.mark.parametrize("s", [0, 1, 2])
def test_the_halo_of_a_shard(s):
    """Own rows and those of others, by the numbers that the shard gives them."""
    rng = np.random.default_rng(s)
    X, offsets = rng.normal(size=(90, 2)), np.array([0, 20, 55, 90])
    ranges = list(pairwise(offsets))
    parts = [Shard(X[a:b], *[np.arange(a, b)] * 3) for a, b in ranges]
    wanted = rng.integers(-1, 90, size=(35, 3))
    halo = outside(wanted, *ranges[s])
    assert not ((halo >= ranges[s][0]) & (halo < ranges[s][1])).any()
    reached = shards_reached(halo, offsets)
    assert s not in reached
    others = [rows_between(parts[r], halo, *ranges[r]) for r in reached]
    here = np.concatenate([parts[s].X, *others])
    local = local_numbers(wanted, *ranges[s], halo)
    np.testing.assert_array_equal(local < 0, wanted < 0)
    np.testing.assert_array_equal(here[local[wanted >= 0]], X[wanted[wanted >= 0]])
    assert shards_reached(np.empty(0, dtype=int), offsets) == []
