"""Both stages with weights of the instances: against convex solvers, and against repeated rows."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import check_grad

import judge
from plml.backend.arrays import on_host, to_device
from plml.backend.threads import SERIAL
from plml.ops.distances import mean_radius
from plml.ops.pairs import PairOperator
from plml.stages import metrics, weights
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import graph_laplacian, local_scales, similarity_graph, weighted_edges
from plml.stages.metrics import MetricsDual, learn_metrics
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors
from plml.stages.priors import prior_metric
from plml.stages.triplets import Triplets, neighbor_triplets
from plml.stages.weights import (
    NewPointRule,
    RowWeightProblem,
    WeightProblem,
    learn_weights,
    row_terms,
)


def make_triplets(seed, n=18, d=3, m=2, n_targets=2, n_impostors=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 0.8 * np.eye(3, d)[y]
    W = rng.dirichlet(np.full(m, 0.5), size=n)
    v = rng.choice([0.2, 0.5, 1.0, 3.0, 7.0], size=n)
    return X, y, W, v, neighbor_triplets(ExactNeighbors(X, y), n_targets, n_impostors)


def optimal_metrics(X, y, W, v, regularization, pull):
    """Equation 5 with the terms of instance i taken v_i times, handed to a conic solver."""
    n, d = X.shape
    M = [cp.Variable((d, d), PSD=True) for _ in range(W.shape[1])]
    targets, impostors = judge.triplet_lists(X, y, 2, 2)

    def distance(i, j):
        outer = np.outer(X[i] - X[j], X[i] - X[j])
        return sum(W[i, b] * cp.trace(outer @ M[b]) for b in range(len(M)))

    value = regularization * sum(cp.sum_squares(M_b) for M_b in M)
    for i in range(n):
        for j in targets[i]:
            value += v[i] * pull * distance(i, j)
            for k in impostors[i]:
                value += v[i] * cp.pos(1 + distance(i, j) - distance(i, k))
    return cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("solver", ["fista", "auto"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("regularization", "pull"), [(1.0, 1.0), (0.1, 0.3), (10.0, 0.0)])
def test_metrics_of_a_convex_solver(solver, seed, regularization, pull):
    X, y, W, v, triplets = make_triplets(seed)
    found = learn_metrics(
        X,
        W,
        triplets,
        regularization,
        pull,
        sample_weight=v,
        solver=solver,
        tol=1e-6,
        max_iter=50_000,
    )
    assert found.converged
    assert found.objective == pytest.approx(
        optimal_metrics(X, y, W, v, regularization, pull), rel=1e-5
    )
    judged = judge.metrics_primal(X, y, W, found.M, regularization, pull, 2, 2, v)
    assert found.objective == pytest.approx(judged, rel=1e-10)
    upper = v[triplets.pairs[triplets.target, 0]]
    assert (found.gamma >= 0).all()
    assert (found.gamma <= upper).all()
    assert (found.gamma > 1.5).any()  # beyond the box of no weights


def test_gradient_of_the_dual_against_finite_differences():
    X, _, W, v, triplets = make_triplets(5)
    problem = MetricsDual(PairOperator(X, W, triplets.pairs), triplets, 0.7, 0.9, sample_weight=v)
    gamma = problem.upper * np.random.default_rng(0).uniform(size=len(triplets.target))

    def value(g):
        return problem.evaluate(g).value

    def gradient(g):
        return problem.gradient(problem.evaluate(g))

    assert check_grad(value, gradient, gamma) <= 1e-5 * np.linalg.norm(gradient(gamma))


@pytest.mark.parametrize("seed", [0, 1])
def test_gap_bounds_the_distance_to_the_optimum_everywhere(seed):
    X, y, W, v, triplets = make_triplets(seed)
    problem = MetricsDual(PairOperator(X, W, triplets.pairs), triplets, 0.7, 0.9, sample_weight=v)
    best = optimal_metrics(X, y, W, v, 0.7, 0.9)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        gamma = problem.project(10.0 * rng.normal(size=len(triplets.target)))
        evaluation = problem.evaluate(gamma)
        gap = problem.gap(gamma, evaluation, problem.gradient(evaluation))
        primal = problem.primal(problem.metrics(gamma))
        assert -evaluation.value <= best * (1 + 1e-6)
        assert primal >= best * (1 - 1e-6)
        assert gap == pytest.approx((primal + evaluation.value) / primal, rel=1e-9)


def repeated_triplets(triplets, counts):
    """The triplets of rows that are there several times, each copy with those of the original.

    Targets and impostors are the first copies.
    """
    first = np.cumsum(counts) - counts
    groups = triplets.pairs, np.arange(len(triplets.pairs)) < triplets.n_target_pairs
    pairs, numbers = [], {}
    for own in (True, False):
        for p in np.flatnonzero(groups[1] == own):
            i, j = triplets.pairs[p]
            for copy in range(counts[i]):
                numbers[p, copy] = len(pairs)
                pairs.append((first[i] + copy, first[j]))
    n_targets = sum(int(counts[i]) for i, _ in triplets.pairs[: triplets.n_target_pairs])
    ends = [
        (numbers[t, copy], numbers[k, copy])
        for t, k in zip(triplets.target, triplets.impostor, strict=True)
        for copy in range(counts[triplets.pairs[t, 0]])
    ]
    return Triplets(np.array(pairs), n_targets, *np.array(ends).T)


@pytest.mark.parametrize("prior", [None, "identity", "within"])
@pytest.mark.parametrize("two_sided", [False, True])
def test_a_weight_is_as_many_rows_in_stage_2(prior, two_sided):
    X, y, W, _, triplets = make_triplets(3)
    counts = np.random.default_rng(0).integers(1, 4, size=len(X))
    again, copies = repeated_triplets(triplets, counts), np.repeat(np.arange(len(X)), counts)
    priors = [None, None]
    if prior is not None:
        v = counts.astype(float)
        priors = [
            prior_metric(prior, X, y, triplets, sample_weight=v),
            prior_metric(prior, X[copies], y[copies], again),
        ]
        np.testing.assert_allclose(*priors, rtol=1e-12)
        assert not np.allclose(priors[0], prior_metric(prior, X, y, triplets), rtol=1e-3)
    options = {"solver": "auto", "tol": 1e-10, "max_iter": 5000}
    cases = [np.eye(3)[y], np.eye(3)[y[copies]]] if two_sided else [None, None]
    weighted = learn_metrics(
        X, W, triplets, 0.5, 0.8, sample_weight=counts.astype(float), case_weights=cases[0],
        prior=priors[0], **options,
    )  # fmt: skip
    repeated = learn_metrics(
        X[copies], W[copies], again, 0.5, 0.8, case_weights=cases[1],
        prior=priors[1], **options,
    )  # fmt: skip
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)
    np.testing.assert_allclose(weighted.M, repeated.M, atol=1e-5)


def test_weights_of_one_are_no_weights():
    X, _, W, _, triplets = make_triplets(4)
    options = {"solver": "auto", "tol": 1e-4, "max_iter": 2000}
    plain = learn_metrics(X, W, triplets, 0.1, 1.0, **options)
    ones = learn_metrics(X, W, triplets, 0.1, 1.0, sample_weight=np.ones(len(X)), **options)
    np.testing.assert_allclose(ones.M, plain.M, rtol=1e-10, atol=1e-12)
    assert ones.n_iter == plain.n_iter


def test_single_precision_carries_the_certificate_of_weights_of_all_sizes(monkeypatch):
    monkeypatch.setattr(metrics, "_SMALL", 0)
    X, y, W, _, triplets = make_triplets(6, n=60, d=5, m=3)
    v = 10.0 ** np.random.default_rng(1).uniform(-3, 3, size=len(X))
    found = learn_metrics(
        X.astype(np.float32), W, triplets, 1.0, 1.0, sample_weight=v, solver="auto", tol=1e-3,
        max_iter=5000,
    )  # fmt: skip
    assert found.converged
    judged = judge.metrics_primal(X.astype(np.float32), y, W, found.M, 1.0, 1.0, 2, 2, v)
    assert found.objective == pytest.approx(judged, rel=1e-6)


def make_graph(rng, n=25, d=3, m=4):
    X = rng.normal(size=(n, d))
    U = X[rng.choice(n, m, replace=False)] + 0.1 * rng.normal(size=(m, d))
    return X, U, similarity_graph(*euclidean_neighbors(X, 7), 6)


def weight_problem(X, U, S, v, locality=0.7, smoothness=3.0):
    terms, laplacian = row_terms(X, U, locality), graph_laplacian(weighted_edges(S, v, v))
    return WeightProblem(terms, U, smoothness, laplacian, v)


def optimal_weights(X, U, S, v, locality, smoothness):
    """Equation 4 with weights, term by term, handed to a general convex solver."""
    n, m = len(X), len(U)
    W = cp.Variable((n, m), nonneg=True)
    value = 0.0
    for i in range(n):
        near = locality * W[i] @ np.sum((X[i] - U) ** 2, axis=1)
        value += v[i] * (cp.sum_squares(X[i] - W[i] @ U) + near)
        for j in range(i):
            value += v[i] * v[j] * S[i, j] * smoothness * cp.sum_squares(W[i] - W[j])
    return cp.Problem(cp.Minimize(value), [cp.sum(W, axis=1) == 1]).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("solver", ["fista", "auto"])
@pytest.mark.parametrize(("locality", "smoothness"), [(1.0, 100.0), (0.3, 0.5), (0.0, 2.0)])
def test_weights_of_a_convex_solver(rng, solver, locality, smoothness):
    X, U, S = make_graph(rng)
    v = rng.choice([0.1, 1.0, 2.5, 6.0], size=len(X))
    problem = weight_problem(X, U, S, v, locality, smoothness)
    solution = learn_weights(problem, solver=solver, tol=1e-7, max_iter=20_000)
    assert solution.converged
    best = optimal_weights(X, U, S.toarray(), v, locality, smoothness)
    assert solution.value == pytest.approx(best, rel=1e-5)
    judged = judge.weights_primal(X, U, solution.x, S.toarray(), locality, smoothness, v)
    assert solution.value == pytest.approx(judged, rel=1e-9)


def test_gradient_of_stage_1_against_finite_differences(rng):
    X, U, S = make_graph(rng, n=9)
    problem = weight_problem(X, U, S, rng.uniform(0.1, 5.0, size=9))
    W = rng.dirichlet(np.ones(4), size=9)

    def value(w):
        return problem.evaluate(w.reshape(9, 4)).value

    def gradient(w):
        return problem.gradient(problem.evaluate(w.reshape(9, 4))).ravel()

    assert check_grad(value, gradient, W.ravel()) <= 1e-5 * np.linalg.norm(gradient(W.ravel()))


def test_gap_of_stage_1_bounds_the_distance_to_the_optimum(rng):
    X, U, S = make_graph(rng)
    v = rng.uniform(0.1, 5.0, size=len(X))
    problem, best = weight_problem(X, U, S, v), optimal_weights(X, U, S.toarray(), v, 0.7, 3.0)
    for _ in range(20):
        W = rng.dirichlet(np.full(4, 0.3), size=len(X))
        evaluation = problem.evaluate(W)
        gap = problem.gap(W, evaluation, problem.gradient(evaluation))
        assert evaluation.value - best <= gap * evaluation.value + 1e-6


def test_steps_of_stage_1_majorise_the_curvature(rng):
    X, U, S = make_graph(rng, n=60)
    v = 10.0 ** rng.uniform(-2, 2, size=60)
    problem = weight_problem(X, U, S, v)
    metric = RowWeightProblem(problem, np.float64, SERIAL).metric
    for scale in (1.0, v[:, None] ** -0.5):
        for _ in range(20):
            D = scale * rng.normal(size=(60, 4))
            half = v[:, None] * (D @ problem.A) + 3.0 * (problem.laplacian @ D)
            assert 2 * np.vdot(D, half) <= np.vdot(D, metric * D) * (1 + 1e-9)
    W = rng.dirichlet(np.ones(4), size=60)
    rows = RowWeightProblem(problem, np.float64, SERIAL)
    product = rows.product(W, slice(0, 60))
    np.testing.assert_allclose(product, problem.evaluate(W).cache, rtol=1e-12)


def test_a_weight_is_as_many_rows_in_stage_1(rng, monkeypatch):
    X, U, S = make_graph(rng)
    counts = rng.integers(1, 4, size=len(X))
    copies = np.repeat(np.arange(len(X)), counts)
    S_again = S.toarray()[np.ix_(copies, copies)]
    S_again[copies[:, None] == copies] = 1.0  # between copies, whatever it is
    np.fill_diagonal(S_again, 0.0)
    options = {"solver": "auto", "tol": 1e-9, "max_iter": 50_000}
    weighted = learn_weights(weight_problem(X, U, S, counts.astype(float)), **options)
    plain = WeightProblem(row_terms(X[copies], U, 0.7), U, 3.0, graph_laplacian(type(S)(S_again)))
    repeated = learn_weights(plain, **options)
    assert weighted.value == pytest.approx(repeated.value, rel=1e-8)
    np.testing.assert_allclose(weighted.x[copies], repeated.x, atol=1e-3)
    monkeypatch.setattr(weights, "_WORTH_SHARING", 1)  # in another order, by threads
    shared = learn_weights(weight_problem(X, U, S, counts.astype(float)), **options)
    assert shared.value == pytest.approx(weighted.value, rel=1e-8)


def test_a_new_point_is_drawn_to_its_neighbours_by_their_weights(rng):
    X, U, S = make_graph(rng)
    counts = rng.integers(1, 5, size=len(X))
    W = learn_weights(weight_problem(X, U, S, counts.astype(float)), solver="auto", tol=1e-6,
                      max_iter=5000).x  # fmt: skip
    scales, Q = local_scales(euclidean_neighbors(X, 7)[0]), rng.normal(size=(5, 3))
    squared, near = euclidean_neighbors(X, 7, Q)
    rule = NewPointRule(U, 0.7, 3.0, 6, 1e-5, 20_000)
    found, gap = rule.weights(Q, squared, near, W, scales, counts.astype(float))
    assert gap <= 1e-5
    for x, w, d2, rows in zip(Q, found, squared, near, strict=True):
        v = cp.Variable(4, nonneg=True)
        objective = cp.sum_squares(x - U.T @ v) + 0.7 * v @ np.sum((U - x) ** 2, axis=1)
        for j, square in zip(rows[:6], d2[:6], strict=True):
            similarity = np.exp(-square / (np.sqrt(d2[6]) * scales[j]))
            objective += 3.0 * counts[j] * similarity * cp.sum_squares(v - W[j])
        cp.Problem(cp.Minimize(objective), [cp.sum(v) == 1]).solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(w, v.value, atol=2e-3)
    plain, _ = rule.weights(Q, squared, near, W, scales)
    assert np.abs(plain - found).max() > 1e-3


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_a_weight_is_as_many_rows_in_k_means(rng, device):
    if device == "torch":
        pytest.importorskip("torch")
    X = rng.normal(size=(40, 3)) + 4.0 * np.eye(3)[np.arange(40) % 3]
    counts = rng.integers(1, 5, size=40)
    weighted = kmeans_anchors(to_device(X, device), 4, 0, counts.astype(float))
    repeated = kmeans_anchors(to_device(np.repeat(X, counts, axis=0), device), 4, 0)
    np.testing.assert_allclose(on_host(weighted.centers), on_host(repeated.centers), atol=1e-8)
    np.testing.assert_array_equal(np.repeat(weighted.labels, counts), repeated.labels)
    plain = kmeans_anchors(to_device(X, device), 4, 0)
    assert not np.allclose(on_host(plain.centers), on_host(weighted.centers), atol=1e-3)


def test_a_weight_is_as_many_rows_in_the_unit(rng):
    X, counts = rng.normal(size=(20, 3)) + 50.0, rng.integers(1, 5, size=20)
    expected = mean_radius(np.repeat(X, counts, axis=0))
    assert mean_radius(X, counts.astype(float)) == pytest.approx(expected, rel=1e-12)
    assert mean_radius(X) != pytest.approx(expected, rel=1e-3)
    assert mean_radius(np.ones((3, 2)), np.array([1.0, 2.0, 3.0])) == 1.0


def test_rows_of_new_points_stay_independent(rng):
    """The weights of stored rows do not couple the queries."""
    X, U, _ = make_graph(rng)
    W = rng.dirichlet(np.ones(4), size=len(X))
    scales, Q = local_scales(euclidean_neighbors(X, 7)[0]), rng.normal(size=(6, 3))
    rule, v = NewPointRule(U, 0.7, 3.0, 6, 1e-4, 5000), rng.uniform(0.2, 4.0, size=len(X))
    together, _ = rule.weights(Q, *euclidean_neighbors(X, 7, Q), W, scales, v)
    alone, _ = rule.weights(Q[2:3], *euclidean_neighbors(X, 7, Q[2:3]), W, scales, v)
    np.testing.assert_array_equal(together[2:3], alone)


@pytest.mark.parametrize("prior", [None, "within"])
def test_tensors_find_what_arrays_find(rng, prior):
    pytest.importorskip("torch")
    X, y, W, v, triplets = make_triplets(2, n=40, d=5, m=3)
    P = None if prior is None else prior_metric(prior, X, y, triplets, sample_weight=v)
    options = {"solver": "auto", "tol": 1e-8, "max_iter": 5000}
    here = learn_metrics(X, W, triplets, 0.5, 0.8, sample_weight=v, prior=P, **options)
    X_there, W_there, v_there = (to_device(part, "torch") for part in (X, W, v))
    if prior is not None:
        P = prior_metric(prior, X_there, y, triplets, sample_weight=v)
    there = learn_metrics(
        X_there, W_there, triplets, 0.5, 0.8, sample_weight=v_there, prior=P, **options
    )
    assert there.objective == pytest.approx(here.objective, rel=1e-7)
    np.testing.assert_allclose(on_host(there.M), here.M, atol=1e-5)
    X, U, S = make_graph(rng)
    v = rng.uniform(0.2, 4.0, size=len(X))
    one, other = weight_problem(X, U, S, v), weight_problem_of_tensors(X, U, S, v)
    found = [learn_weights(problem, **options) for problem in (one, other)]
    assert found[1].value == pytest.approx(found[0].value, rel=1e-7)
    np.testing.assert_allclose(on_host(found[1].x), found[0].x, atol=1e-3)


def weight_problem_of_tensors(X, U, S, v):
    laplacian = graph_laplacian(weighted_edges(S, v, v))
    X, U, v = (to_device(part, "torch") for part in (X, U, v))
    return WeightProblem(row_terms(X, U, 0.7), U, 3.0, laplacian, v)
