"""Rows that come and go, and indexes over them, bit for bit as if made anew."""

import pickle
import threading

import numpy as np
import pytest

from plml.backend.arrays import on_host, to_device
from plml.ops.growing import appended, with_room, without_rows
from plml.ops.topk import InnerProductIndex, Measured
from plml.stages.neighbors import ApproximateIndex, EuclideanIndex
from plml.stages.own_metric_search import OwnMetricIndex, TrainingMetricIndex
from plml.stages.search import ApproximateMetricIndex, LocalMetricIndex, TwoSidedIndex


def test_many_appends_copy_rarely_and_disturb_nobody(rng):
    rows = rng.normal(size=(50, 3))
    expected, seen = rows.copy(), [rows]
    for i in range(200):
        more = rng.normal(size=(1 + i % 3, 3))
        expected = np.vstack([expected, more])
        seen.append(appended(seen[-1], more))
        np.testing.assert_array_equal(seen[-1], expected)
    for array in seen:
        np.testing.assert_array_equal(array, expected[: len(array)])
    assert len({array.base.ctypes.data for array in seen[1:]}) < 12
    assert len(pickle.dumps(seen[-1])) < 1.1 * seen[-1].nbytes  # not the room behind
    one, two = appended(seen[-1], rows[:1]), appended(seen[-1], rows[1:2])  # both behind the same
    np.testing.assert_array_equal(one[-1], rows[0])
    np.testing.assert_array_equal(two[-1], rows[1])
    part = appended(seen[-1][10:], rows[:1])  # a view that does not begin where its buffer does
    np.testing.assert_array_equal(part, np.vstack([expected[10:], rows[:1]]))
    roomy = with_room(rows, np.float64)
    for view in (roomy[:, :1], roomy[:, :2]):  # of some columns
        part = appended(view, rows[:1, :1] + np.zeros((1, view.shape[1])))
        assert part.shape == (51, view.shape[1])
        np.testing.assert_array_equal(part[:50], view)
    assert appended(np.zeros((2, 3), np.float32), rows).dtype == np.float32


def test_rows_with_room_grow_where_they_are(rng):
    rows, more = rng.normal(size=(50, 3)), rng.normal(size=(5, 3))
    roomy = with_room(rows, np.float32)
    assert roomy.dtype == np.float32
    np.testing.assert_array_equal(roomy, rows.astype(np.float32))
    grown = appended(roomy, more)
    assert np.shares_memory(grown, roomy)
    np.testing.assert_array_equal(grown, np.vstack([rows, more]).astype(np.float32))
    assert not np.shares_memory(appended(roomy, more), grown)  # the room is taken


def test_threads_that_append_to_the_same_rows(rng):
    rows = appended(rng.normal(size=(1000, 2)), np.zeros((1, 2)))
    found = {}

    def append(i):
        found[i] = appended(rows, np.full((1, 2), float(i)))

    threads = [threading.Thread(target=append, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, array in found.items():
        np.testing.assert_array_equal(array[-1], [i, i])
        np.testing.assert_array_equal(array[:-1], rows)


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_rows_on_a_device(rng, device):
    if device == "torch":
        pytest.importorskip("torch")
    rows, more = rng.normal(size=(8, 3)), rng.normal(size=(2, 3))
    found = without_rows(appended(to_device(rows, device), more), np.array([0, 9]))
    np.testing.assert_array_equal(on_host(found), np.vstack([rows, more])[1:9])


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e4])
def test_vectors_that_are_longer_than_all_before(rng, size):
    """The rounding bound grows with them, so the answers stay exact."""
    old, new, Q = (
        rng.normal(size=(300, 5)),
        size * rng.normal(size=(40, 5)),
        rng.normal(size=(30, 5)),
    )
    index = InnerProductIndex(old).extended(new).without(np.array([3, 310]))
    vectors = np.delete(np.vstack([old, new]), [3, 310], axis=0)

    def distances(rows, columns):
        return Measured(-np.einsum("rd,rcd->rc", Q[rows], vectors[columns]))

    expected = np.argsort(-Q @ vectors.T, axis=1)[:, :4]
    np.testing.assert_array_equal(index.search(Q, 4, distances)[1], expected)
    found = index.nearest(Q, 4, distances)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))


@pytest.fixture
def cases(rng):
    """Rows, of which 30 are added and some left out; on a grid, so that there are ties."""
    X = rng.integers(0, 4, size=(120, 4)).astype(float)
    A = rng.normal(size=(3, 4, 2))
    return X, A @ A.mT, rng.dirichlet(np.ones(3), size=120), rng.integers(0, 4, size=(25, 4)) + 0.5


OUT = np.array([2, 50, 95])


def same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_indexes_of_one_metric_per_query(cases, rng):
    X, M, V, Q = cases
    W, center, kept = rng.dirichlet(np.ones(3), size=25), np.ones(4), np.delete(X, OUT, axis=0)
    grown = LocalMetricIndex(X[:90], M, center=center).extended(X)
    same(grown.search(Q, W, 7), LocalMetricIndex(X, M, center=center).search(Q, W, 7))
    fresh = LocalMetricIndex(kept, M, center=center)
    same(grown.without(OUT).search(Q, W, 7), fresh.search(Q, W, 7))
    grown = TwoSidedIndex(X[:90], M, V[:90], M, center).extended(X, V)
    same(grown.search(Q, W, 7), TwoSidedIndex(X, M, V, M, center).search(Q, W, 7))
    fresh = TwoSidedIndex(kept, M, np.delete(V, OUT, axis=0), M, center)
    same(grown.without(OUT).search(Q, W, 7), fresh.search(Q, W, 7))


def test_other_indexes(cases):
    X, M, _, Q = cases
    center, kept, groups = np.ones(4), np.delete(X, OUT, axis=0), np.arange(120) % 3
    grown = EuclideanIndex(X[:90], center).extended(X)
    same(grown.search(Q, 7), EuclideanIndex(X, center).search(Q, 7))
    same(grown.without(OUT).search(Q, 7), EuclideanIndex(kept, center).search(Q, 7))
    grown = TrainingMetricIndex(X[:90], groups[:90], M, center).extended(X, groups)
    same(grown.search(Q, 7), TrainingMetricIndex(X, groups, M, center).search(Q, 7))
    fresh = TrainingMetricIndex(kept, np.delete(groups, OUT), M, center)
    same(grown.without(OUT).search(Q, 7), fresh.search(Q, 7))
    metrics = M[np.arange(25) % 3]
    grown = OwnMetricIndex(X[:90], center).extended(X)
    same(grown.search(Q, metrics, 7), OwnMetricIndex(X, center).search(Q, metrics, 7))
    fresh = OwnMetricIndex(kept, center)
    same(grown.without(OUT).search(Q, metrics, 7), fresh.search(Q, metrics, 7))


def test_graphs_grow(rng):
    pytest.importorskip("faiss")
    X, M = rng.normal(size=(400, 4)), np.eye(4)[None]
    Q, W = rng.normal(size=(40, 4)), np.ones((40, 1))
    truth = EuclideanIndex(X).search(Q, 5)[1]
    before = ApproximateIndex(X[:300])
    grown = before.extended(X)
    assert np.mean(grown.search(Q, 5)[1] == truth) > 0.95
    assert before.search(Q, 5)[1].max() < 300  # the old one knows nothing of it
    assert np.mean(grown.without(np.arange(300, 400)).search(Q, 5)[1] < 300) == 1.0
    exact = LocalMetricIndex(X[:300], M, center=np.zeros(4))
    for more in (X, np.vstack([X, 9.0 * X[:20]])):  # also longer ones
        graph = ApproximateMetricIndex(exact).after(exact.extended(more), np.array([], dtype=int))
        found = graph.search(Q, W, 5)[1]
        assert np.mean(found == exact.extended(more).search(Q, W, 5)[1]) > 0.95
