import numpy as np
import pytest

import judge
from backend_devices import DEVICES
from plml.backend.arrays import on_host, to_device
from plml.ops import topk
from plml.ops.distances import case_pairs
from plml.stages.own_metric_search import OwnMetricIndex, TrainingMetricIndex
from plml.stages.search import (
    ApproximateMetricIndex,
    LocalMetricIndex,
    index_vectors,
    query_vectors,
    vote,
)


@pytest.fixture
def local_model(rng):
    X = rng.normal(size=(80, 4)) + 3.0
    A = rng.normal(size=(3, 4, 2))
    M = A @ A.swapaxes(1, 2)
    Q = rng.normal(size=(25, 4)) + 3.0
    weights = rng.dirichlet(np.ones(3), size=25)
    weights[:5] = np.eye(3)[[0, 1, 2, 0, 1]]
    return X, M, Q, weights


def test_identity_of_the_inner_product(local_model):
    X, M, Q, weights = local_model
    inner = query_vectors(Q, weights, M) @ index_vectors(X, M).T
    for i in range(len(Q)):
        metric = np.tensordot(weights[i], M, axes=1)
        for j in range(len(X)):
            expected = judge.local_distance(Q[i], X[j], weights[i], M)
            assert Q[i] @ metric @ Q[i] - inner[i, j] == pytest.approx(expected, abs=1e-9)


def test_neighbors_of_the_definition(local_model):
    X, M, Q, weights = local_model
    d2, indices = LocalMetricIndex(X, M).search(Q, weights, 5)
    for i in range(len(Q)):
        expected, expected_d2 = judge.local_neighbors(X, Q[i], weights[i], M, 5)
        np.testing.assert_array_equal(indices[i], expected)
        np.testing.assert_allclose(d2[i], expected_d2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [12, 400])
@pytest.mark.parametrize("index", ["local", "training", "own"])
def test_equal_distances_go_to_the_euclidean_order(rng, index, n):
    """On a grid under a singular metric most distances are equal, and so are many rows."""
    X, Q = (rng.integers(0, 3, size=(rows, 4)).astype(float) for rows in (n, 30))
    M = np.diag([1.0, 2.0, 0.0, 0.0])
    if index == "local":
        squared, found = LocalMetricIndex(X, M[None]).search(Q, np.ones((len(Q), 1)), 5)
    elif index == "training":
        squared, found = TrainingMetricIndex(X, np.zeros(n, int), M[None]).search(Q, 5)
    else:
        squared, found = OwnMetricIndex(X).search(Q, np.stack([M] * len(Q)), 5)
    for i, x in enumerate(Q):
        d2, euclidean = ((X - x) ** 2) @ np.diag(M), ((X - x) ** 2).sum(axis=1)
        expected = np.lexsort((np.arange(n), euclidean, d2))[:5]
        np.testing.assert_array_equal(found[i], expected)
        np.testing.assert_allclose(squared[i], d2[expected], atol=1e-12)


def test_training_instances_leave_themselves_out(local_model, rng):
    X, M, _, _ = local_model
    X[1] = X[0]  # a duplicate is a neighbour, the point itself is not
    weights = rng.dirichlet(np.ones(3), size=len(X))
    _, indices = LocalMetricIndex(X, M).search(X, weights, 3, np.arange(len(X)))
    assert (indices != np.arange(len(X))[:, None]).all()
    assert indices[0, 0] == 1
    assert indices[1, 0] == 0
    for i in range(len(X)):
        expected, _ = judge.local_neighbors(X, X[i], weights[i], M, 3, leave_out=i)
        np.testing.assert_array_equal(indices[i], expected)


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_where_the_metric_vanishes_the_euclidean_order_decides(rng, copies, exclude_self):
    X = np.repeat(rng.normal(size=(30, 2)), copies, axis=0)
    M = np.stack([np.eye(2), np.zeros((2, 2))])
    weights = np.eye(2)[np.arange(len(X)) % 2]  # every other query has a zero metric
    own = np.arange(len(X)) if exclude_self else None
    d2, indices = LocalMetricIndex(X, M).search(X, weights, 2, own)
    assert (d2[1::2] == 0).all()
    for i in range(len(X)):
        others = [j for j in range(len(X)) if not (exclude_self and j == i)]
        np.testing.assert_array_equal(indices[i], judge.nearest(X, X[i], others, 2))


@pytest.mark.parametrize("device", DEVICES)
def test_a_quick_search_finds_the_same_up_to_rounding(local_model, device):
    X, M, Q, weights = (to_device(part, device) for part in local_model)
    index = LocalMetricIndex(X, M)
    exact, quick = index.search(Q, weights, 5), index.quick_search(Q, weights, 5)
    np.testing.assert_array_equal(on_host(quick[1]), on_host(exact[1]))
    np.testing.assert_allclose(on_host(quick[0]), on_host(exact[0]), atol=1e-9)


def test_a_quick_search_where_the_metric_vanishes(local_model):
    X, M, Q, weights = local_model
    index = LocalMetricIndex(X, 0.0 * M)
    np.testing.assert_array_equal(
        index.quick_search(Q, weights, 5)[1], index.search(Q, weights, 5)[1]
    )


def test_vote_counts_shares():
    labels = np.array([[0, 2, 2], [1, 1, 1]])
    np.testing.assert_allclose(vote(labels, 3), [[1 / 3, 0, 2 / 3], [0, 1, 0]])


@pytest.mark.parametrize("spectrum", ["flat", "steep", "singular"])
def test_own_metric_neighbors_against_the_definition(rng, spectrum):
    n, d, k = 80, 24, 3
    X = rng.normal(size=(n, d))
    X[5] = X[4]  # a tie
    Q = np.concatenate([rng.normal(size=(6, d)), X[[4, 9]]])
    decay = {"flat": 0.0, "steep": 3.0, "singular": 8.0}[spectrum]
    values = np.exp(-decay * np.arange(d))
    if spectrum == "singular":
        values[2:] = 0.0
    axes = np.linalg.qr(rng.normal(size=(len(Q), d, d)))[0]
    metrics = (axes * values) @ axes.transpose(0, 2, 1)
    squared, indices = OwnMetricIndex(X).search(Q, metrics, k)
    for q, M, found, nearest in zip(Q, metrics, squared, indices, strict=True):
        exact = np.array([(x - q) @ M @ (x - q) for x in X])
        np.testing.assert_allclose(found, np.sort(exact)[:k], atol=1e-10)
        np.testing.assert_allclose(exact[nearest], found, atol=1e-10)
    assert indices[6].tolist()[:2] == [4, 5]
    left_out = OwnMetricIndex(X).search(X[[4]], metrics[6:7], 1, np.array([4]))[1]
    assert left_out.tolist() == [[5]]


class TestTrainingMetrics:
    """Distances measured with the metric of the training point."""

    @pytest.fixture
    def grouped(self, rng):
        X, Q = rng.normal(size=(60, 4)) + 5.0, rng.normal(size=(15, 4)) + 5.0
        A = rng.normal(size=(3, 4, 4))
        return X, rng.integers(3, size=60), A @ A.swapaxes(1, 2), Q

    def expected(self, X, groups, M, q):
        return np.array([(q - x) @ M[g] @ (q - x) for x, g in zip(X, groups, strict=True)])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_neighbors_of_the_definition(self, grouped, dtype):
        X, groups, M, Q = (part.astype(dtype) if part.ndim > 1 else part for part in grouped)
        d2, found = TrainingMetricIndex(X, groups, M).search(Q, 5)
        for i, q in enumerate(Q.astype(float)):
            truth = self.expected(X.astype(float), groups, M.astype(float), q)
            np.testing.assert_array_equal(found[i], np.argsort(truth, kind="stable")[:5])
            rtol = 1e-4 if dtype == np.float32 else 1e-9
            np.testing.assert_allclose(d2[i], np.sort(truth)[:5], rtol=rtol)

    def test_instances_leave_themselves_out(self, grouped):
        X, groups, M, _ = grouped
        d2, found = TrainingMetricIndex(X, groups, M).search(X, 4, np.arange(len(X)))
        for i in range(len(X)):
            truth = self.expected(X, groups, M, X[i])
            truth[i] = np.inf
            np.testing.assert_array_equal(found[i], np.argsort(truth, kind="stable")[:4])
        assert (d2 > 0).all()

    def test_distances_of_given_pairs(self, grouped, rng, monkeypatch):
        X, groups, M, Q = grouped
        candidates = rng.integers(60, size=(15, 6))
        whole = case_pairs(Q, np.eye(len(M))[groups], M, X, candidates)
        for i in range(15):
            truth = self.expected(X, groups, M, Q[i])[candidates[i]]
            np.testing.assert_allclose(whole[i], truth, rtol=1e-12)
        monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", 1)
        blocked = case_pairs(Q, np.eye(len(M))[groups], M, X, candidates)
        np.testing.assert_allclose(blocked, whole, rtol=1e-12)
        assert (
            case_pairs(X[:2], np.eye(len(M))[groups], -1e-20 * M, X, np.array([[0], [5]])) >= 0
        ).all()


class TestApproximate:
    @pytest.fixture(autouse=True)
    def _faiss(self):
        pytest.importorskip("faiss")

    @pytest.fixture
    def larger(self, rng):
        X, Q = rng.normal(size=(400, 5)) + 2.0, rng.normal(size=(50, 5)) + 2.0
        A = rng.normal(size=(3, 5, 5))
        return X, A @ A.swapaxes(1, 2), Q, rng.dirichlet(np.ones(3), size=50)

    def test_finds_most_and_measures_exactly(self, larger):
        X, M, Q, weights = larger
        index = ApproximateMetricIndex(LocalMetricIndex(X, M))
        d2, found = index.search(Q, weights, 4)
        expected_d2, expected = index.exact.search(Q, weights, 4)
        same = found == expected
        assert same.mean() > 0.97
        np.testing.assert_allclose(d2[same], expected_d2[same], rtol=1e-9)
        assert (np.diff(d2, axis=1) >= 0).all()
        np.testing.assert_array_equal(index.nearest(Q, weights, 4), found)

    def test_instances_leave_themselves_out(self, larger, rng):
        X, M, _, _ = larger
        weights = rng.dirichlet(np.ones(3), size=400)
        index = ApproximateMetricIndex(LocalMetricIndex(X, M))
        _, found = index.search(X, weights, 3, np.arange(400))
        assert not (found == np.arange(400)[:, None]).any()
        assert np.mean(found == index.exact.search(X, weights, 3, np.arange(400))[1]) > 0.97

    def test_where_the_metric_vanishes_it_is_exact(self, larger):
        X, M, Q, weights = larger
        M[0] = 0.0
        weights[:10] = [1.0, 0.0, 0.0]
        index = ApproximateMetricIndex(LocalMetricIndex(X, M))
        for got, expected in zip(
            index.search(Q, weights, 3), index.exact.search(Q, weights, 3), strict=True
        ):
            np.testing.assert_array_equal(got, expected)

    def test_a_query_at_the_center_has_neighbors(self, larger):
        X, M, _, weights = larger
        d2, found = ApproximateMetricIndex(LocalMetricIndex(X, M)).search(
            X.mean(axis=0)[None], weights[:1], 3
        )
        assert np.isfinite(d2).all()
        assert found.shape == (1, 3)


def test_votes_on_tensors(rng):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    labels = rng.integers(4, size=(20, 3))
    found = vote(to_device(labels, "torch"), 4)
    np.testing.assert_array_equal(on_host(found), vote(labels, 4))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float64", "float64")])
def test_vectors_have_the_dtype_of_their_parts(local_model, device, dtypes):
    X, M, Q, weights = local_model
    X, Q, weights = (to_device(part.astype(dtypes[0]), device) for part in (X, Q, weights))
    M = to_device(M.astype(dtypes[1]), device)
    for vectors in (index_vectors(X, M), query_vectors(Q, weights, M)):
        assert str(vectors.dtype).endswith(max(dtypes))
    inner = on_host(query_vectors(Q, weights, M)) @ on_host(index_vectors(X, M)).T
    exact = [on_host(part).astype(float) for part in (Q, weights, M, X)]
    expected = query_vectors(*exact[:3]) @ index_vectors(exact[3], exact[2]).T
    np.testing.assert_allclose(inner, expected, rtol=1e-4)


@pytest.mark.parametrize("n_features", [15, 16, 24, 40])
def test_own_metrics_exclude_what_is_far_and_nothing_else(rng, n_features):
    """The bound from leading directions leaves a fraction of the points to measure."""
    X, Q = (rng.normal(size=(n, n_features)) for n in (300, 12))
    A = rng.normal(size=(12, n_features, 3)) * [8.0, 4.0, 2.0]
    metrics = A @ A.swapaxes(1, 2) + 1e-3 * np.eye(n_features)
    for dtype in (np.float32, np.float64):
        d2, found = OwnMetricIndex(X.astype(dtype)).search(Q.astype(dtype), metrics, 4)
        for i in range(12):
            differences = X.astype(dtype).astype(float) - Q[i].astype(dtype).astype(float)
            truth = np.einsum("nd,de,ne->n", differences, metrics[i], differences)
            np.testing.assert_array_equal(found[i], np.lexsort((np.arange(300), truth))[:4])
            np.testing.assert_allclose(d2[i], np.sort(truth)[:4], rtol=1e-3)
    others = np.arange(300)
    left = OwnMetricIndex(X)._not_excluded(Q[0] - X.mean(axis=0), metrics[0], 4, others)
    assert (len(left) < 150) == (n_features >= 16)
