"""Metrics at the query and at the case, and priors: against a convex solver, loops, differences."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import check_grad

import judge
from backend_devices import DEVICES
from plml.backend.arrays import on_host, to_device
from plml.ops.pairs import PairOperator, SmallPairs, TwoSidedPairs, pair_operator
from plml.ops.projections import PsdMatrices
from plml.stages.metrics import MetricsDual, learn_metrics
from plml.stages.neighbors import ExactNeighbors
from plml.stages.one_machine import case_weights
from plml.stages.priors import prior_metric
from plml.stages.search import TwoSidedIndex, two_sided_index_vectors, two_sided_query_vectors
from plml.stages.triplets import neighbor_triplets


def make_problem(seed, kind="class", n=18, d=3, m=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 0.8 * np.eye(3, d)[y]
    W = rng.dirichlet(np.full(m, 0.5), size=n)
    return X, y, W, case_weights(kind, y, W), neighbor_triplets(ExactNeighbors(X, y), 2, 2)


def two_sided(x, z, w, M, v, N):
    """(x - z)^T (sum_b w_b M_b + sum_c v_c N_c) (x - z)."""
    return judge.local_distance(x, z, w, M) + judge.local_distance(x, z, v, N)


def primal(X, y, W, V, metrics, prior, regularization, pull):
    """The objective by plain loops; half of the prior belongs to either side."""
    M, N = metrics[: W.shape[1]], metrics[W.shape[1] :]
    value = regularization * sum(float(np.sum((A - prior / 2) ** 2)) for A in metrics)
    targets, impostors = judge.triplet_lists(X, y, 2, 2)
    for i in range(len(X)):
        near = [two_sided(X[i], X[j], W[i], M, V[j], N) for j in targets[i]]
        far = [two_sided(X[i], X[k], W[i], M, V[k], N) for k in impostors[i]]
        value += pull * sum(near) + sum(max(0.0, 1.0 + a - b) for a in near for b in far)
    return value


def convex_optimum(X, y, W, V, prior, regularization, pull):
    d = X.shape[1]
    M, N = ([cp.Variable((d, d), PSD=True) for _ in side.T] for side in (W, V))
    targets, impostors = judge.triplet_lists(X, y, 2, 2)

    def distance(i, j):
        outer = np.outer(X[i] - X[j], X[i] - X[j])
        at_query = sum(W[i, b] * cp.trace(outer @ M[b]) for b in range(len(M)))
        return at_query + sum(V[j, c] * cp.trace(outer @ N[c]) for c in range(len(N)))

    value = regularization * sum(cp.sum_squares(A - prior / 2) for A in (*M, *N))
    for i in range(len(X)):
        for j in targets[i]:
            value += pull * distance(i, j)
            for k in impostors[i]:
                value += cp.pos(1 + distance(i, j) - distance(i, k))
    return cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("solver", ["fista", "auto"])
@pytest.mark.parametrize("kind", ["class", "local"])
@pytest.mark.parametrize(("prior", "regularization"), [(None, 0.3), ("identity", 3.0)])
def test_objective_of_a_convex_solver(solver, kind, prior, regularization):
    X, y, W, V, triplets = make_problem(1, kind)
    P = np.zeros((3, 3)) if prior is None else prior_metric(prior, X, y, triplets)
    result = learn_metrics(
        X,
        W,
        triplets,
        regularization,
        0.4,
        solver=solver,
        tol=1e-6,
        max_iter=50_000,
        case_weights=V,
        prior=None if prior is None else P,
    )
    assert result.converged
    assert result.M.shape == (W.shape[1] + V.shape[1], 3, 3)
    best = convex_optimum(X, y, W, V, P, regularization, 0.4)
    assert result.objective == pytest.approx(best, rel=1e-5)
    assert result.objective == pytest.approx(
        primal(X, y, W, V, result.M, P, regularization, 0.4), rel=1e-10
    )
    assert np.linalg.eigvalsh(result.M).min() >= -1e-8


@pytest.mark.parametrize("prior", ["identity", "within"])
def test_one_side_with_a_prior_is_the_optimum_of_a_convex_solver(prior):
    X, y, W, _, triplets = make_problem(2)
    P = prior_metric(prior, X, y, triplets)
    options = {"solver": "auto", "tol": 1e-7, "max_iter": 50_000, "prior": P}
    result = learn_metrics(X, W, triplets, 2.0, 0.4, **options)
    M = [cp.Variable((3, 3), PSD=True) for _ in range(2)]
    value = 2.0 * sum(cp.sum_squares(A - P) for A in M)
    for i, (near, far) in enumerate(zip(*judge.triplet_lists(X, y, 2, 2), strict=True)):
        d2 = {
            j: sum(W[i, b] * cp.quad_form(X[i] - X[j], M[b]) for b in range(2)) for j in near + far
        }
        value += sum(0.4 * d2[j] + sum(cp.pos(1 + d2[j] - d2[k]) for k in far) for j in near)
    best = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    assert result.objective == pytest.approx(best, rel=1e-5)


def test_much_regularization_returns_the_prior():
    X, y, W, V, triplets = make_problem(3)
    P = prior_metric("identity", X, y, triplets)
    options = {"solver": "auto", "tol": 1e-9, "max_iter": 1000, "prior": P}
    one = learn_metrics(X, W, triplets, 1e9, 0.1, **options)
    np.testing.assert_allclose(one.M, np.stack([P] * 2), rtol=1e-6, atol=1e-6)
    both = learn_metrics(X, W, triplets, 1e9, 0.1, case_weights=V, **options)
    np.testing.assert_allclose(both.M, np.stack([P / 2] * 5), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["identity", "within"])
def test_an_average_impostor_is_at_distance_one_under_the_prior(kind):
    X, y, _, _, triplets = make_problem(4)
    P = prior_metric(kind, X, y, triplets)
    pairs = triplets.pairs[triplets.n_target_pairs :]
    apart = [(X[i] - X[k]) @ P @ (X[i] - X[k]) for i, k in pairs]
    assert np.mean(apart) == pytest.approx(1.0)
    if kind == "identity":
        np.testing.assert_allclose(P, P[0, 0] * np.eye(3), atol=1e-12)


def test_gradient_against_finite_differences():
    X, y, W, V, triplets = make_problem(5)
    prior = np.stack([prior_metric("identity", X, y, triplets) / 2] * 5)
    pairs = TwoSidedPairs(X, W, V, triplets.pairs)
    problem = MetricsDual(pairs, triplets, 0.7, 0.9, prior)
    gamma = np.random.default_rng(0).uniform(size=len(triplets.target))

    def gradient(g):
        return problem.gradient(problem.evaluate(g))

    error = check_grad(lambda g: problem.evaluate(g).value, gradient, gamma)
    assert error <= 1e-5 * np.linalg.norm(gradient(gamma))


@pytest.fixture(params=["dense", "sparse"])
def pairs_problem(request, rng):
    n, d = 40, 5
    X, W = rng.normal(size=(n, d)), rng.dirichlet(np.ones(3), size=n)
    V = (
        rng.dirichlet(np.ones(2), size=n)
        if request.param == "dense"
        else np.eye(2)[np.arange(n) % 2]
    )
    pairs = np.array([rng.choice(n, size=2, replace=False) for _ in range(120)])
    A = rng.normal(size=(5, d, d))
    return X, W, V, pairs, A @ A.swapaxes(1, 2), rng.normal(size=120)


def operators(X, W, V, pairs):
    small = SmallPairs(X, np.hstack([W[pairs[:, 0]], V[pairs[:, 1]]]), pairs)
    return TwoSidedPairs(X, W, V, pairs), small


def test_distances_and_scatter_against_naive_loops(pairs_problem):
    X, W, V, pairs, M, s = pairs_problem
    distances = [two_sided(X[i], X[j], W[i], M[:3], V[j], M[3:]) for i, j in pairs]
    scatter = np.zeros_like(M)
    for (i, j), coefficient in zip(pairs, s, strict=True):
        outer = np.outer(X[i] - X[j], X[i] - X[j])
        for b, weight in enumerate([*W[i], *V[j]]):
            scatter[b] += weight * coefficient * outer
    for operator in operators(X, W, V, pairs):
        assert operator.n_bases == 5
        np.testing.assert_allclose(operator.distances(M), distances, rtol=1e-9)
        factored = PsdMatrices(M, list(np.linalg.cholesky(M)))
        np.testing.assert_allclose(operator.distances(factored), distances, rtol=1e-9)
        np.testing.assert_allclose(operator.scatter(s), scatter, atol=1e-9)
        single = operator.astype(np.float32)
        assert single.X.dtype == np.float32
        assert single.distances(M).dtype == single.scatter(s).dtype == np.float64
        np.testing.assert_allclose(single.distances(M), distances, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(single.scatter(s), scatter, rtol=1e-4, atol=1e-3)


def test_the_operator_by_size(rng):
    X = rng.normal(size=(30, 4))
    W, pairs = np.ones((30, 1)), rng.integers(30, size=(50, 2))
    assert isinstance(pair_operator(X, W, None, pairs), SmallPairs)
    assert isinstance(pair_operator(X, W, W, pairs), SmallPairs)
    many = rng.integers(30, size=(2**20, 2))
    assert isinstance(pair_operator(X, W, None, many), PairOperator)
    assert isinstance(pair_operator(X, W, W, many), TwoSidedPairs)


class TestSearch:
    @pytest.fixture(params=["class", "local"])
    def parts(self, request, rng):
        X, W = rng.normal(size=(60, 4)) + 3.0, rng.dirichlet(np.ones(3), size=60)
        V = case_weights(request.param, np.arange(60) % 4, W)
        A, B = rng.normal(size=(3, 4, 4)), rng.normal(size=(V.shape[1], 4, 4))
        Q = rng.normal(size=(15, 4)) + 3.0
        w = rng.dirichlet(np.ones(3), size=15)
        return X, W, V, A @ A.swapaxes(1, 2), B @ B.swapaxes(1, 2), Q, w

    def test_vectors_are_the_distance(self, parts):
        X, _, V, M, N, Q, w = parts
        inner = two_sided_query_vectors(Q, w, M, N) @ two_sided_index_vectors(X, M, V, N).T
        own = np.array(
            [judge.local_distance(q, 0 * q, w_q, M) for q, w_q in zip(Q, w, strict=True)]
        )
        expected = [[two_sided(Q[i], X[j], w[i], M, V[j], N) for j in range(60)] for i in range(15)]
        np.testing.assert_allclose(own[:, None] - inner, expected, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("device", DEVICES)
    def test_neighbours_against_a_naive_loop(self, parts, device):
        X, _, V, M, N, Q, w = parts
        placed = [to_device(part, device) for part in (X, M, V, N)]
        index = TwoSidedIndex(*placed)
        d2, found = index.search(to_device(Q, device), to_device(w, device), 5)
        for i in range(15):
            truth = np.array([two_sided(Q[i], X[j], w[i], M, V[j], N) for j in range(60)])
            order = np.argsort(truth, kind="stable")[:5]
            np.testing.assert_array_equal(on_host(found)[i], order)
            np.testing.assert_allclose(on_host(d2)[i], truth[order], rtol=1e-9)

    def test_a_row_is_left_out_of_its_own_neighbours(self, parts):
        X, W, V, M, N, _, _ = parts
        _, found = TwoSidedIndex(X, M, V, N).search(X, W, 3, np.arange(60))
        assert not (found == np.arange(60)[:, None]).any()

    def test_where_both_sides_vanish_the_euclidean_order_decides(self, parts):
        X, _, V, M, N, Q, w = parts
        d2, found = TwoSidedIndex(X, 0.0 * M, V, 0.0 * N).search(Q, w, 3)
        assert not d2.any()
        truth = ((Q[:, None] - X[None]) ** 2).sum(axis=2)
        np.testing.assert_array_equal(found, np.argsort(truth, axis=1)[:, :3])
        _, found = TwoSidedIndex(X, 0.0 * M, V, N).search(Q, w, 3)
        cases = [[judge.local_distance(q, X[j], V[j], N) for j in range(60)] for q in Q]
        np.testing.assert_array_equal(found, np.argsort(cases, axis=1)[:, :3])


def test_terms_are_as_large_as_the_scatter_is_rounded(pairs_problem):
    X, W, V, pairs, _, s = pairs_problem
    difference, ends = X[pairs[:, 0]] - X[pairs[:, 1]], X[pairs]
    weights = np.hstack([W[pairs[:, 0]], V[pairs[:, 1]]])
    for operator, squares in zip(
        operators(X, W, V, pairs),
        ((ends**2).sum(axis=(1, 2)), (difference**2).sum(axis=1)),
        strict=True,
    ):
        np.testing.assert_allclose(operator.scatter_sizes(s), (np.abs(s) * squares) @ weights)
