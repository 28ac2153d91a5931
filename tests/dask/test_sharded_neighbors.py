"""Neighbours across shards are those of one machine, or the share of them that is said."""

import dask.array as da
import numpy as np
import pytest

from cluster_at_once import ClusterAtOnce
from plml.dask import sharded_neighbors
from plml.dask.cluster import Cluster
from plml.dask.reading import Block, Table, read_table
from plml.dask.sharded_neighbors import (
    Candidates,
    Near,
    NeighborLists,
    Wanted,
    _n_cells_needed,
    _nearest_candidates,
    _patched,
    _search_exactly,
    _short,
    find_neighbors,
    nearest_of,
)
from plml.dask.shards import Quantizer, Scaling, Shard, Shards, make_shards


def blocks(X, y, rows=300):
    return da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)


def test_the_nearest_of_several_lists():
    """Equal distances by the order of the user; -1 where there are too few."""
    first = Near(np.array([[1.0, 2.0]]), np.array([[10, 11]]), np.array([[5, 3]]))
    second = Near(np.array([[1.0, np.inf]]), np.array([[20, 21]]), np.array([[4, 0]]))
    near = nearest_of([first, second], 4)
    assert near.numbers.tolist() == [[20, 10, 11, -1]]
    assert near.squared.tolist() == [[1.0, 1.0, 2.0, np.inf]]
    assert nearest_of([first, second], 1).rows.tolist() == [[4]]


def test_shards_that_were_asked_by_different_queries():
    def proposed(queries, squared, first):
        squared = np.array(squared, dtype=float)[:, :, None]
        numbers = first + np.arange(squared.size).reshape(squared.shape)
        return Candidates(np.array(queries), Near(squared, numbers, numbers))

    one = proposed([0, 2], [[1.0, 4.0], [np.inf, 5.0]], 10)
    two = proposed([2, 5], [[3.0, 7.0], [2.0, 8.0]], 20)
    found = _nearest_candidates([one, two])
    assert found.queries.tolist() == [0, 2, 5]
    assert found.near.squared[..., 0].tolist() == [[1.0, 3.0, 7.0], [np.inf, 2.0, 8.0]]
    assert found.near.numbers[..., 0].tolist() == [[10, 20, 21], [-1, 22, 23]]


@pytest.mark.parametrize("stranger", [True, False])
@pytest.mark.parametrize("rows_at_once", [1024, 7])
def test_the_nearest_rows_of_a_shard_by_side(stranger, rows_at_once, monkeypatch):
    """Against all distances; a row that is in the shard is not its own neighbour."""
    monkeypatch.setattr(sharded_neighbors, "_QUERY_BLOCK", rows_at_once)
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(90, 3)), rng.integers(0, 3, size=90)
    rows = rng.permutation(90)
    shard = Shard(X, codes, rows, np.zeros(90))
    Q = Shard(X[:20], codes[:20], rows[:20] + (1000 if stranger else 0), np.zeros(20))
    found = _search_exactly(Q, shard, 500, 4)
    assert found.queries.tolist() == list(range(20))
    squared = np.square(Q.X[:, None] - X).sum(axis=2)
    squared[Q.rows[:, None] == rows] = np.inf
    is_own = Q.codes[:, None] == codes
    for side, mask in enumerate((is_own, ~is_own)):
        expected = np.argsort(np.where(mask, squared, np.inf), axis=1)[:, :4]
        np.testing.assert_array_equal(found.near.numbers[side], 500 + expected)
        np.testing.assert_array_equal(found.near.rows[side], rows[expected])


def test_rows_whose_cells_hold_too_few_get_the_exact_ones():
    lists = NeighborLists(
        np.ones((3, 2)),
        np.array([[1, 2], [0, -1], [0, 1]]),
        np.array([[1, 2], [0, 2], [-1, -1]]),
        np.array([[3, -1], [3, -1], [3, 0]]),
    )
    codes, sizes = np.array([0, 0, 1]), np.array([3, 1])
    shard = Shard(np.zeros((3, 1)), codes, np.arange(3), np.zeros(3))
    # There is one impostor of the first two rows, and no target of the third.
    short = _short(shard, lists, (sizes, Wanted(2, 2, 2)))
    assert short.tolist() == [1]
    exact = NeighborLists(*(np.full((1, 2), 7) for _ in range(4)))
    whole = _patched(lists, short, exact)
    for before, after in zip(lists, whole, strict=True):
        assert after[1].tolist() == [7, 7]
        np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


def test_as_many_cells_as_hold_the_neighbors():
    """Cells of ten rows around the points 0, 1, 2, ... of a line."""
    cells = np.arange(8)
    quantizer = Quantizer(np.float32(cells[:, None]), np.zeros(8, int), Scaling(np.zeros(1), 1.0))
    shards = Shards([], [], np.array([0, 80]), quantizer, 10 * np.arange(9))
    X, nothing = np.zeros((4, 1)), np.empty((4, 0), dtype=int)
    for cell, expected in ((0, 1), (3, 4)):
        graph = np.full((4, 2), 10 * cell + 5)
        truth = NeighborLists(np.ones((4, 2)), graph, nothing, np.full((4, 1), -1))
        assert _n_cells_needed(shards, X, truth) == expected


@pytest.mark.parametrize("n_of_a_class", [2, 200])
@pytest.mark.parametrize("exact", [True, False])
def test_neighbors_without_a_cluster(exact, n_of_a_class):
    """The share that is said to be found is; nothing else is, and no row for itself.

    The two rows of a small class are far apart, so their cells do not hold them both.
    """
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(600, 3)), rng.integers(0, 2, size=600)
    y[:n_of_a_class] = 2
    X[:2] = [[-3.0, 0.0, 0.0], [3.0, 0.0, 0.0]]
    cluster, sizes, mean = ClusterAtOnce(), np.bincount(y), X.mean(axis=0)
    largest = float(np.abs(X - mean).max())
    table = Table([Block(X, y)], [600], np.unique(y), sizes, None, X.dtype, mean, largest)
    shards = make_shards(cluster, table, 4, seed=0)
    rows = np.concatenate([part.rows for part in shards.parts])
    np.testing.assert_array_equal(np.cumsum([0, *shards.sizes]), shards.offsets)
    assert sorted(rows) == list(range(600))
    lists, recall = find_neighbors(cluster, sizes, exact, 0, shards, Wanted(5, 1, 3))
    squared = np.square(X[:, None] - X).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    same = y[:, None] == y
    for purpose, mask, k in (
        ("graph", same | ~same, 5),
        ("targets", same, 1),
        ("impostors", ~same, 3),
    ):
        found = rows[np.concatenate([getattr(part, purpose) for part in lists])]
        truth = np.argsort(np.where(mask, squared, np.inf), axis=1)[rows, :k]
        share = np.mean((truth[:, :, None] == found[:, None]).any(axis=2))
        assert share == 1.0 if exact else share == pytest.approx(recall[purpose], abs=0.05)
        assert (found != rows[:, None]).all()
        assert mask[rows[:, None], found].all()


@pytest.mark.parametrize("n_shards", [3, 12])
def test_the_recall_is_the_share_of_true_neighbors(client, digits, n_shards):
    """The figure that is stored, against a count over all rows."""
    X, y, _, _ = digits
    cluster = Cluster(client)
    table = read_table(cluster, *blocks(X, y))
    shards = make_shards(cluster, table, n_shards, seed=0)
    wanted = Wanted(7, 3, 3)
    exact, all_found = find_neighbors(cluster, table.class_sizes, True, 0, shards, wanted)
    cells, recall = find_neighbors(cluster, table.class_sizes, False, 0, shards, wanted)
    assert all_found == dict.fromkeys(Wanted._fields, 1.0)
    exact, cells = client.gather((exact, cells))
    for purpose in Wanted._fields:
        hits = [
            (getattr(truth, purpose)[:, :, None] == getattr(found, purpose)[:, None, :]).any(axis=2)
            for truth, found in zip(exact, cells, strict=True)
        ]
        assert np.mean(np.concatenate(hits)) == pytest.approx(recall[purpose], abs=0.04)
        assert recall[purpose] > 0.9


def test_the_recall_of_a_search_that_fails(client):
    """One value so large that float32 loses all differences between the others."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 3, size=600)
    X[0, 0] = 1e30
    cluster = Cluster(client)
    table = read_table(cluster, *blocks(X, y))
    shards = make_shards(cluster, table, 2, seed=0)
    _, recall = find_neighbors(cluster, table.class_sizes, False, 0, shards, Wanted(7, 3, 3))
    assert max(recall.values()) < 0.5


@pytest.mark.parametrize("n_shards", [3, 12])
def test_exact_neighbors_are_those_of_one_machine(client, n_shards):
    """With many equal distances: the order of the user decides. With many classes and shards,
    whose lists are merged a few at a time.
    """
    from plml.stages.neighbors import ExactNeighbors

    rng = np.random.default_rng(3)
    X, y = rng.integers(0, 4, size=(400, 3)).astype(float), rng.integers(0, 20, size=400)
    cluster = Cluster(client)
    table = read_table(cluster, *blocks(X, y, 90))
    shards = make_shards(cluster, table, n_shards, seed=0)
    assert len(shards) == n_shards
    found, _ = find_neighbors(cluster, table.class_sizes, True, 0, shards, Wanted(7, 3, 3))
    found, parts = client.gather((found, shards.parts))
    rows = np.concatenate([part.rows for part in parts])  # of the user, by number of the fit
    truth = ExactNeighbors(X, y)
    squared, graph = truth.graph(7)
    expected = {"graph": graph, "targets": truth.targets(3), "impostors": truth.impostors(3)}
    for part, near in zip(parts, found, strict=True):
        np.testing.assert_allclose(near.squared, squared[part.rows])
        for purpose, numbers in expected.items():
            np.testing.assert_array_equal(rows[getattr(near, purpose)], numbers[part.rows])
