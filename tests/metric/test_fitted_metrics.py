"""Fitted metrics against their definitions, within a span of the space and without."""

import numpy as np
import pytest

import judge
from plml.metric.basis_metric import BasisMetric
from plml.metric.case_metric import CaseMetric
from plml.metric.feature_split import split_distances
from plml.metric.query_metric import QueryMetric
from plml.metric.remembered_weights import with_memory
from plml.metric.weight_rules import NearestCenter, NearestRow, NewPoint, SingleMetric
from plml.ops.span import inside, inward, span_of
from plml.stages.graph import local_scales, query_similarity
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.own_metric_search import OwnMetricIndex
from plml.stages.weights import NewPointRule, query_problem

K = 5


@pytest.fixture(params=["whole space", "span"])
def rows(request, rng):
    """Training rows, queries, and the span of the rows."""
    X, Q = rng.normal(size=(60, 4)) + 3.0, rng.normal(size=(12, 4)) + 3.0
    if request.param == "span":
        embedding = rng.normal(size=(4, 7))
        X, Q = X @ embedding, Q @ embedding
    return X, Q, span_of(X)


@pytest.fixture
def bases(rows, rng):
    """Basis metrics and weights of the training rows."""
    d = rows[0].shape[1]
    A = rng.normal(size=(3, d, 3))
    return A @ A.swapaxes(1, 2), rng.dirichlet(np.ones(3), size=len(rows[0]))


def combined(weights, M):
    return np.einsum("qm,mde->qde", weights, M)


def naive_neighbors(X, points, metrics, own=False):
    found = []
    for i, (x, M) in enumerate(zip(points, metrics, strict=True)):
        d2 = np.einsum("nd,de,ne->n", X - x, M, X - x)
        if own:
            d2[i] = np.inf
        found.append(np.argsort(d2, kind="stable")[:K])
    return np.array(found)


class TestBasisMetric:
    def test_the_metric_of_a_new_point_is_that_of_its_nearest_row(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        metric = BasisMetric(X, W, M, NearestRow(), span=span)
        nearest = np.array([np.argmin(np.linalg.norm(X - q, axis=1)) for q in Q])
        np.testing.assert_allclose(metric.weights(Q), W[nearest])
        np.testing.assert_allclose(metric.matrix(Q), combined(W[nearest], M), atol=1e-12)

    def test_search_and_distances_are_those_of_the_definition(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        metric = BasisMetric(X, W, M, NearestRow(), span=span)
        squared, found = metric.search(Q, K)
        np.testing.assert_array_equal(found, naive_neighbors(X, Q, metric.matrix(Q)))
        for i, q in enumerate(Q):
            expected = [judge.local_distance(q, X[j], metric.weights(Q)[i], M) for j in found[i]]
            np.testing.assert_allclose(squared[i], expected, rtol=1e-9)
        assert [set(row) for row in metric.nearest_labels(Q, K, np.arange(len(X)))] == [
            set(row) for row in found
        ]
        pairs = metric.pair_distances(Q, X[found[:, 0]])
        np.testing.assert_allclose(pairs, squared[:, 0], rtol=1e-9)

    def test_training_rows_are_left_out_of_their_own_neighbors(self, rows, bases):
        X, _, span = rows
        M, W = bases
        metric = BasisMetric(X, W, M, NearestRow(), span=span)
        expected = naive_neighbors(X, X, combined(W, M), own=True)
        np.testing.assert_array_equal(metric.search(None, K)[1], expected)
        np.testing.assert_array_equal(metric.weights(None), W)

    def test_vectors_serve_the_same_neighbors(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        metric = BasisMetric(X, W, M, NearestRow(), span=span)
        inner = metric.query_vectors(Q) @ metric.index_vectors().T
        np.testing.assert_array_equal(np.argsort(-inner, axis=1)[:, :K], metric.search(Q, K)[1])

    def test_vectors_are_about_the_mean_of_the_training_rows(self, rng):
        """Every column about its own mean, so that no offset costs digits."""
        X = rng.normal(size=(60, 3)) + np.array([1e3, 0.0, -10.0])
        M, W = np.eye(3)[None], np.ones((60, 1))
        metric = BasisMetric(X, W, M, SingleMetric())
        centered = X - X.mean(axis=0)
        stored, asked = metric.index_vectors(), metric.query_vectors(None)
        np.testing.assert_allclose(stored[:, :3], centered, atol=1e-9)
        np.testing.assert_allclose(stored[:, 3], np.square(centered).sum(axis=1))
        np.testing.assert_allclose(asked, np.column_stack([2.0 * centered, -W]), atol=1e-9)
        np.testing.assert_allclose(metric.query_vectors(X), asked)

    def test_a_metric_searches_after_one_that_remembers_its_weights_has_gone(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        metric, other = (BasisMetric(X, W, M, NearestRow(), span=span) for _ in range(2))
        remembering = with_memory(metric)
        remembering.weights(Q)  # makes indexes, which both have
        del remembering
        for ours, theirs in zip(metric.search(Q, K), other.search(Q, K), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_weights_have_the_dtype_of_their_points(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        for rule in (NearestCenter(inside(X[:3], span)), SingleMetric()):
            metric = BasisMetric(X, W, M, rule, span=span)
            assert metric.weights(Q.astype(np.float32)).dtype == np.float32

    def test_metrics_between_points_and_rows(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        metric = BasisMetric(X, W, M, NearestRow(), span=span)
        squared, found = metric.search(Q, K)
        between = metric.between(Q, None, found)
        np.testing.assert_allclose(between[:, 0], combined(metric.weights(Q), M))
        for kind in ("bilinear", "likeness"):
            parts = split_distances(metric, Q, None, found, kind)
            np.testing.assert_allclose(parts.sum(axis=2), squared)
        rows_ = np.array([3, 0, 5])
        np.testing.assert_allclose(
            metric.between(X[rows_], rows_, found[:3])[:, 0], combined(W[rows_], M)
        )
        squared, found = metric.search(None, K)
        for all_rows, some in zip((squared, found), metric.search_rows(rows_, K), strict=True):
            np.testing.assert_allclose(some, all_rows[rows_])

    def test_one_metric_is_one_matrix_for_all(self, rows, bases):
        X, Q, span = rows
        M = bases[0][:1]
        metric = BasisMetric(X, np.ones((len(X), 1)), M, SingleMetric(), span=span)
        np.testing.assert_array_equal(metric.matrix(Q), np.stack([M[0]] * len(Q)))
        np.testing.assert_array_equal(metric.weights(Q), np.ones((len(Q), 1)))
        np.testing.assert_array_equal(
            metric.search(Q, K)[1], naive_neighbors(X, Q, metric.matrix(Q))
        )

    def test_clusters(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        anchors = X[[3, 30, 50]]
        metric = BasisMetric(X, W, M, NearestCenter(inside(anchors, span)), span=span)
        cluster = [np.argmin(np.linalg.norm(anchors - q, axis=1)) for q in Q]
        np.testing.assert_array_equal(metric.weights(Q), np.eye(3)[cluster])

    def test_equation_4_for_a_new_point(self, rows, bases):
        X, Q, span = rows
        M, W = bases
        scales = local_scales(euclidean_neighbors(X, 7)[0])
        gaps = []
        anchors = inside(X[[3, 30, 50]], span)
        rule = NewPoint(NewPointRule(anchors, 0.7, 20.0, 6, 1e-4, 2000), scales, gaps.append)
        weights = BasisMetric(X, W, M, rule, span=span).weights(Q)
        squared, nearest = euclidean_neighbors(inside(X, span), 7, inside(Q, span))
        problem = query_problem(
            inside(Q, span), anchors, 0.7, 20.0, W, query_similarity(squared, nearest, scales, 6)
        )
        gap = float(problem.gaps(weights).max())
        assert gap < 1e-4
        assert gaps == [pytest.approx(gap, abs=1e-6)]
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)

    def test_an_approximate_search_says_what_it_finds(self, rng):
        pytest.importorskip("faiss")
        X = rng.normal(size=(500, 4))
        W, M = np.ones((500, 1)), np.eye(4)[None]
        exact = BasisMetric(X, W, M, SingleMetric())
        walk = BasisMetric(X, W, M, SingleMetric(), approximate=True)
        assert exact.recall(3) == 1.0
        assert 0.9 < walk.recall(3) <= 1.0
        found, truth = (metric.search(X[:50] + 0.01, 3)[1] for metric in (walk, exact))
        assert np.mean(found == truth) > 0.9


class TestCaseMetric:
    def test_distances_are_under_the_metric_of_the_row(self, rows, bases):
        X, Q, span = rows
        M, groups = bases[0], np.arange(len(X)) % 3
        metric = CaseMetric(X, groups, M, span)
        squared, found = metric.search(Q, K)
        for i, q in enumerate(Q):
            d2 = np.array([(x - q) @ M[g] @ (x - q) for x, g in zip(X, groups, strict=True)])
            np.testing.assert_array_equal(found[i], np.argsort(d2)[:K])
            np.testing.assert_allclose(squared[i], np.sort(d2)[:K], rtol=1e-9)
        np.testing.assert_array_equal(metric.nearest_labels(Q, K, np.arange(len(X))), found)

    def test_a_new_point_has_the_metric_of_its_nearest_row(self, rows, bases):
        X, Q, span = rows
        M, groups = bases[0], np.arange(len(X)) % 3
        metric = CaseMetric(X, groups, M, span)
        nearest = metric.nearest_labels(Q, 1, np.arange(len(X)))[:, 0]
        np.testing.assert_array_equal(metric.matrix(Q), M[groups[nearest]])
        np.testing.assert_array_equal(metric.matrix(None), M[groups])
        expected = [
            (q - x) @ M[groups[j]] @ (q - x) for q, x, j in zip(Q, X, nearest, strict=False)
        ]
        np.testing.assert_allclose(metric.pair_distances(Q, X[: len(Q)]), expected)

    def test_training_rows_are_left_out_of_their_own_neighbors(self, rows, bases):
        X, _, span = rows
        metric = CaseMetric(X, np.zeros(len(X), dtype=int), bases[0], span)
        expected = naive_neighbors(X, X, np.stack([bases[0][0]] * len(X)), own=True)
        np.testing.assert_array_equal(metric.search(None, K)[1], expected)


class TestQueryMetric:
    @pytest.fixture
    def metric(self, rows, bases):
        """The matrix of a query depends on its first coordinate, and on whether it is a row."""
        X, _, span = rows
        M = inward(bases[0], span)

        def matrices(Q, own):
            return M[(Q[:, 0] > 0).astype(int)] * (1.0 if own is None else 2.0)

        return QueryMetric(X, OwnMetricIndex(inside(X, span)), matrices, 100, span)

    def test_search_and_distances_are_those_of_the_definition(self, rows, metric):
        X, Q, _ = rows
        squared, found = metric.search(Q, K)
        metrics = metric.matrix(Q)
        np.testing.assert_array_equal(found, naive_neighbors(X, Q, metrics))
        differences = Q - X[found[:, 0]]
        expected = np.einsum("qd,qde,qe->q", differences, metrics, differences)
        np.testing.assert_allclose(squared[:, 0], expected, rtol=1e-9)
        np.testing.assert_allclose(metric.pair_distances(Q, X[found[:, 0]]), expected, rtol=1e-9)
        np.testing.assert_array_equal(metric.nearest_labels(Q, K, np.arange(len(X))), found)

    def test_training_rows_are_left_out_of_their_own_neighbors(self, rows, metric):
        X = rows[0]
        expected = naive_neighbors(X, X, metric.matrix(None), own=True)
        squared, found = metric.search(None, K)
        np.testing.assert_array_equal(found, expected)
        differences = X - X[found[:, 0]]
        nearest = np.einsum("qd,qde,qe->q", differences, metric.matrix(None), differences)
        np.testing.assert_allclose(squared[:, 0], nearest, rtol=1e-9)
        np.testing.assert_allclose(metric.matrix(None), 2.0 * metric.matrix(X))

    def test_blocks_do_not_change_the_answer(self, rows, metric):
        _, Q, span = rows
        small = QueryMetric(
            metric.X, metric.index, metric.matrices, 10**9, span
        )  # one query at a time
        np.testing.assert_array_equal(small.search(Q, K)[1], metric.search(Q, K)[1])
