"""Training data on a cluster: what stands for it here, and its order."""

import numpy as np
import pytest

from plml.dask.block_queries import told_by
from plml.dask.fitting import _check_count, searches_exactly
from plml.dask.landmarks import extended_weights
from plml.dask.sharded_metric import Nearest
from plml.dask.sharded_neighbors import NeighborLists
from plml.dask.shards import Shard
from plml.dask.training_shards import RemoteRows, TrainingShards, cut_by_block, sorted_by_row
from plml.ops.topk import Measured
from plml.stages.graph import local_scales
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.weights import NewPointRule


class Gathering:
    """A client whose futures are values."""

    status = "running"

    def gather(self, futures):
        return futures


@pytest.fixture
def training():
    rng = np.random.default_rng(0)
    rows = np.array_split(rng.permutation(20), 3)
    shards = [Shard(r[:, None] + 0.5, r % 2, r, np.zeros(len(r))) for r in rows]
    weights, scales = [np.column_stack([r, -r]) for r in rows], [2.0 * r for r in rows]
    return TrainingShards(Gathering(), shards, weights, scales, (12, 3, 5))


def test_all_of_it_in_the_order_of_the_user(training):
    assert len(training.rows) == 20
    X, codes, weights, scales = training.collected()
    np.testing.assert_array_equal(X[:, 0], np.arange(20) + 0.5)
    np.testing.assert_array_equal(codes, np.arange(20) % 2)
    np.testing.assert_array_equal(weights[:, 1], -np.arange(20))
    np.testing.assert_array_equal(scales, 2.0 * np.arange(20))


def test_weights_in_the_blocks_of_the_user(training):
    offsets = np.array([0, 12, 15, 20])
    known = zip(training.shards, training.weights, strict=True)
    cut = [cut_by_block(shard, weights, offsets) for shard, weights in known]
    for b in range(3):
        block = sorted_by_row([pieces[b] for pieces in cut])
        np.testing.assert_array_equal(block[:, 0], np.arange(offsets[b], offsets[b + 1]))
    lazy = training.weights_in_order(2, np.dtype(float))
    assert lazy.chunks == ((12, 3, 5), (2,))
    np.testing.assert_array_equal(lazy.compute(scheduler="sync")[:, 0], np.arange(20))


def test_a_cluster_that_is_gone(training):
    training.client.status = "closed"
    for use in (training.collected, training.check_current):
        with pytest.raises(RuntimeError, match="is gone; fit it again"):
            use()


def test_remote_rows_have_a_length_and_say_how_to_get_the_rest():
    rows = RemoteRows(7)
    assert len(rows) == 7
    for use in (
        lambda: rows[0],
        lambda: np.asarray(rows),
        lambda: rows.dtype,
        lambda: rows.__array_namespace__(),
    ):
        with pytest.raises(ValueError, match=r"plml\.dask\.collect"):
            use()
    assert not hasattr(rows, "__len_hint__")


def test_what_voters_tell():
    distances = Measured(np.array([[1.0, 4.0, 9.0]]))
    voters = Nearest(distances, np.array([[30, 10, 20]]), (np.array([[1, 0, 0]]),))
    classes = np.array(["a", "b"])
    assert told_by(voters, "predict", classes).tolist() == ["a"]
    np.testing.assert_allclose(told_by(voters, "predict_proba", classes), [[2 / 3, 1 / 3]])
    assert told_by(voters, "kneighbors", classes).tolist() == [[1.0, 2.0, 3.0, 30.0, 10.0, 20.0]]


def test_weights_follow_from_those_of_landmarks():
    rng = np.random.default_rng(0)
    X, chosen = rng.normal(size=(40, 3)), np.arange(0, 40, 3)
    weights = rng.dirichlet(np.ones(2), size=5 + len(chosen))  # five are of another shard
    marks = np.concatenate([10.0 + rng.normal(size=(5, 3)), X[chosen]])
    scales = local_scales(euclidean_neighbors(marks, 7)[0])
    rule = NewPointRule(X[:2], 1.0, 100.0, 6, 1e-3, 1000)
    squared, near = euclidean_neighbors(marks, 7, X)
    nothing = np.empty((40, 0), dtype=int)
    shard = Shard(X, np.zeros(40), np.arange(40), np.zeros(40))
    lists = NeighborLists(squared, near, nothing, nothing)
    W = extended_weights(shard, lists, chosen, 5, weights, scales, rule)
    np.testing.assert_array_equal(W[chosen], weights[5:])
    others = np.delete(np.arange(40), chosen)
    expected, gap = rule.weights(X[others], squared[others], near[others], weights, scales)
    assert gap <= 1e-3
    np.testing.assert_allclose(W[others], expected, atol=1e-12)
    everyone = extended_weights(shard, lists, np.arange(40), 0, np.ones((40, 1)), scales, rule)
    np.testing.assert_array_equal(everyone, 1.0)


@pytest.mark.parametrize(
    ("how", "n_rows", "n_classes", "exact"),
    [
        ("exact", 10**7, 2, True),
        ("approximate", 10, 2, False),
        ("auto", 199_999, 2, True),
        ("auto", 200_000, 100, False),
        ("auto", 200_000, 101, True),
    ],
)
def test_when_all_cells_are_searched(how, n_rows, n_classes, exact):
    assert searches_exactly(how, n_rows, n_classes) is exact


@pytest.mark.parametrize("value", [0, True, 1.5, "two"])
def test_a_count_that_makes_no_sense(value):
    with pytest.raises(ValueError, match="n_shards must be an integer of at least 1"):
        _check_count("n_shards", value, 1)
    _check_count("n_shards", None, 1)
    _check_count("n_shards", 1, 1)
