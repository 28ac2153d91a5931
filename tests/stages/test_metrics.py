import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import check_grad

import judge
from plml.ops.pairs import PairOperator
from plml.stages.metrics import MetricsDual, learn_metrics
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import cross_triplets, neighbor_triplets


def make_problem(seed, n=18, d=3, m=2, n_targets=2, n_impostors=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 0.8 * np.eye(3, d)[y]
    W = rng.dirichlet(np.full(m, 0.5), size=n)
    triplets = neighbor_triplets(ExactNeighbors(X, y), n_targets, n_impostors)
    return X, y, W, triplets


def convex_optimum(X, y, W, regularization, pull, n_targets=2, n_impostors=2):
    """Equation 5 handed to a general conic solver."""
    n, d = X.shape
    M = [cp.Variable((d, d), PSD=True) for _ in range(W.shape[1])]
    targets, impostors = judge.triplet_lists(X, y, n_targets, n_impostors)

    def distance(i, j):
        outer = np.outer(X[i] - X[j], X[i] - X[j])
        return sum(W[i, b] * cp.trace(outer @ M[b]) for b in range(len(M)))

    value = regularization * sum(cp.sum_squares(M_b) for M_b in M)
    for i in range(n):
        for j in targets[i]:
            value += pull * distance(i, j)
            for k in impostors[i]:
                value += cp.pos(1 + distance(i, j) - distance(i, k))
    return cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("solver", ["fista", "auto"])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("regularization", "pull"), [(1.0, 1.0), (0.1, 0.3), (10.0, 0.0)])
def test_objective_of_a_convex_solver(solver, seed, regularization, pull):
    X, y, W, triplets = make_problem(seed)
    result = learn_metrics(
        X, W, triplets, regularization, pull, solver=solver, tol=1e-6, max_iter=50_000
    )
    best = convex_optimum(X, y, W, regularization, pull)
    assert result.converged
    assert result.objective == pytest.approx(best, rel=1e-5)
    assert np.linalg.eigvalsh(result.M).min() >= -1e-8
    judged = judge.metrics_primal(X, y, W, result.M, regularization, pull, 2, 2)
    assert result.objective == pytest.approx(judged, rel=1e-10)


def test_gradient_against_finite_differences():
    X, _, W, triplets = make_problem(5)
    problem = MetricsDual(PairOperator(X, W, triplets.pairs), triplets, 0.7, 0.9)
    gamma = np.random.default_rng(0).uniform(size=len(triplets.target))

    def value(g):
        return problem.evaluate(g).value

    def gradient(g):
        return problem.gradient(problem.evaluate(g))

    error = check_grad(value, gradient, gamma)
    assert error <= 1e-5 * np.linalg.norm(gradient(gamma))


@pytest.mark.parametrize("seed", [0, 1])
def test_gap_is_a_valid_bound_everywhere(seed):
    X, y, W, triplets = make_problem(seed)
    problem = MetricsDual(PairOperator(X, W, triplets.pairs), triplets, 0.7, 0.9)
    best = convex_optimum(X, y, W, 0.7, 0.9)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        gamma = rng.uniform(size=len(triplets.target))
        evaluation = problem.evaluate(gamma)
        gap = problem.gap(gamma, evaluation, problem.gradient(evaluation))
        primal = problem.primal(problem.metrics(gamma))
        assert -evaluation.value <= best * (1 + 1e-6)  # the dual is a lower bound,
        assert primal >= best * (1 - 1e-6)  # the primal an upper one,
        assert gap == pytest.approx((primal + evaluation.value) / primal, rel=1e-9)


def test_primal_is_equation_5_at_any_metrics(rng):
    X, y, W, triplets = make_problem(3)
    problem = MetricsDual(PairOperator(X, W, triplets.pairs), triplets, 0.7, 0.9)
    A = rng.normal(size=(2, 3, 3))
    M = A @ A.swapaxes(1, 2)
    expected = judge.metrics_primal(X, y, W, M, 0.7, 0.9, 2, 2)
    assert problem.primal(M) == pytest.approx(expected, rel=1e-10)


def test_warm_start_saves_iterations():
    X, _, W, triplets = make_problem(4, n=60, d=5, m=3)
    options = {"solver": "auto", "tol": 1e-4, "max_iter": 2000}
    cold = learn_metrics(X, W, triplets, 0.1, 1.0, **options)
    again = learn_metrics(X, W, triplets, 0.1, 1.0, gamma=cold.gamma, **options)
    assert cold.n_iter > 5
    assert again.n_iter == 1


def test_an_offset_does_not_change_the_metrics():
    X, _, W, triplets = make_problem(4)
    options = {"solver": "auto", "tol": 1e-7, "max_iter": 5000}
    here = learn_metrics(X, W, triplets, 1.0, 1.0, **options)
    there = learn_metrics(X + 1e5, W, triplets, 1.0, 1.0, **options)
    np.testing.assert_allclose(here.M, there.M, atol=1e-4)
    assert there.objective == pytest.approx(here.objective, rel=1e-6)


def test_float32_products_carry_a_float64_certificate():
    X, y, W, triplets = make_problem(6, n=60, d=5, m=3)
    result = learn_metrics(
        X.astype(np.float32), W, triplets, 1.0, 1.0, solver="auto", tol=1e-3, max_iter=1000
    )
    assert result.M.dtype == np.float32
    assert result.converged
    judged = judge.metrics_primal(X.astype(np.float32), y, W, result.M, 1.0, 1.0, 2, 2)
    assert result.objective == pytest.approx(judged, rel=1e-6)


@pytest.mark.parametrize("solver", ["fista", "auto"])
def test_no_triplets_give_a_zero_metric(rng, solver):
    triplets = cross_triplets(np.full((5, 3), -1), np.full((5, 3), -1))
    result = learn_metrics(
        rng.normal(size=(5, 2)),
        np.ones((5, 1)),
        triplets,
        1.0,
        1.0,
        solver=solver,
        tol=1e-3,
        max_iter=10,
    )
    assert not result.M.any()
    assert result.gap == 0
