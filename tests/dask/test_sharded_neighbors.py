"""Neighbours across shards are those of one machine, or the share of them that is said."""

import dask.array as da
import numpy as np
import pytest

from plml.dask.cluster import Cluster
from plml.dask.sharded_neighbors import Near, Wanted, find_neighbors, nearest_of
from plml.dask.shards import make_shards
from plml.dask.training_blocks import read_table


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


@pytest.mark.parametrize("n_shards", [3, 12])
def test_the_recall_is_the_share_of_true_neighbors(client, digits, n_shards):
    """The figure that is stored, against a count over all rows."""
    X, y, _, _ = digits
    cluster = Cluster(client)
    table = read_table(cluster, *blocks(X, y))
    shards = make_shards(cluster, table, n_shards, seed=0)
    wanted = Wanted(7, 3, 3)
    exact, all_found = find_neighbors(cluster, shards, table.class_sizes, wanted, True, 0)
    cells, recall = find_neighbors(cluster, shards, table.class_sizes, wanted, False, 0)
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
    _, recall = find_neighbors(cluster, shards, table.class_sizes, Wanted(7, 3, 3), False, 0)
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
    found, _ = find_neighbors(cluster, shards, table.class_sizes, Wanted(7, 3, 3), True, 0)
    found, parts = client.gather((found, shards.parts))
    rows = np.concatenate([part.rows for part in parts])  # of the user, by number of the fit
    truth = ExactNeighbors(X, y)
    squared, graph = truth.graph(7)
    expected = {"graph": graph, "targets": truth.targets(3), "impostors": truth.impostors(3)}
    for part, its in zip(parts, found, strict=True):
        np.testing.assert_allclose(its.squared, squared[part.rows])
        for purpose, numbers in expected.items():
            np.testing.assert_array_equal(rows[getattr(its, purpose)], numbers[part.rows])
