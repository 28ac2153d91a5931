import numpy as np
import pytest

from plml.ops.distances import euclidean_pairs
from plml.stages.neighbors import ApproximateIndex

pytest.importorskip("faiss")

from plml.ops.hnsw import NavigableGraph


def test_finds_nearly_all_neighbors_nearest_first(rng):
    X, Q = rng.normal(size=(500, 6)), rng.normal(size=(40, 6))
    found = NavigableGraph(X).candidates(Q, 5)
    truth = np.argsort(((Q[:, None] - X) ** 2).sum(axis=2), axis=1)[:, :5]
    assert found.shape == (40, 5)
    assert np.mean(found == truth) > 0.99


def test_units_and_origin_do_not_matter(rng):
    """Coordinates that float32 cannot tell apart where they are."""
    X = rng.normal(size=(300, 3))
    expected = NavigableGraph(X).candidates(X[:30], 4)
    for moved in (1e-30 * X, 1e30 * X, X + 1e8):
        found = NavigableGraph(moved).candidates(moved[:30], 4)
        assert np.mean(found == expected) > 0.99
    constant = NavigableGraph(np.ones((20, 2)))
    assert constant.scale == 1.0
    assert constant.candidates(np.ones((1, 2)), 3).shape == (1, 3)


@pytest.mark.parametrize("k", [4, 5, 9])
def test_all_rows_where_there_are_no_more(rng, k):
    X = rng.normal(size=(5, 2))
    found = NavigableGraph(X).candidates(X, k)
    assert found.shape == (5, min(k, 5))
    assert all(len(set(row)) == len(row) for row in found.tolist())
    assert found.min() >= 0
    found[0, 0] = 3  # a user of it may write to it
    assert found.max() <= 4


def test_a_walk_that_ends_early_is_filled_with_other_rows(rng, monkeypatch):
    graph = NavigableGraph(rng.normal(size=(30, 2)))
    cut = np.array([[3, 1, -1, -1], [0, 2, 5, 7]])

    class Short:
        ntotal = 30

        def search(self, queries, k):
            return None, cut.copy()

    monkeypatch.setattr(graph, "_index", Short())
    found = graph.candidates(np.zeros((2, 2)), 4)
    np.testing.assert_array_equal(found[0], [3, 1, 0, 2])
    np.testing.assert_array_equal(found[1], cut[1])


def test_what_the_index_finds_is_measured_exactly(rng):
    X, Q = rng.normal(size=(400, 5)), rng.normal(size=(20, 5))
    squared, found = ApproximateIndex(X).search(Q, 3)
    assert found.shape == (20, 3)
    np.testing.assert_array_equal(squared, euclidean_pairs(Q, X, found))
    assert (np.diff(squared, axis=1) >= 0).all()
    np.testing.assert_array_equal(ApproximateIndex(X).nearest(Q, 3), found)
    truth = np.argsort(((Q[:, None] - X) ** 2).sum(axis=2), axis=1)[:, :3]
    assert np.mean(found == truth) > 0.99
