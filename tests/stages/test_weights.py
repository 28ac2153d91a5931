import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import check_grad

import judge
from plml.backend.threads import SERIAL
from plml.solvers.simplex_rows import minimize_rows
from plml.stages import weights
from plml.stages.graph import graph_laplacian, local_scales, query_similarity, similarity_graph
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.weights import (
    RowWeightProblem,
    WeightProblem,
    learn_weights,
    query_problem,
    row_terms,
)


def make_problem(rng, n=25, d=3, m=4, locality=0.7, smoothness=3.0, offset=0.0):
    X = rng.normal(size=(n, d)) + offset
    U = X[rng.choice(n, m, replace=False)] + 0.1 * rng.normal(size=(m, d))
    S = similarity_graph(*euclidean_neighbors(X, 7), 6)
    return X, U, S, WeightProblem(row_terms(X, U, locality), U, smoothness, graph_laplacian(S))


def convex_optimum(X, U, S, locality, smoothness):
    """Equation 4 handed to a general convex solver, term by term."""
    n, m = len(X), len(U)
    W = cp.Variable((n, m), nonneg=True)
    G = np.array([[np.sum((x - u) ** 2) for u in U] for x in X])
    fit = cp.sum_squares(X - W @ U) + locality * cp.sum(cp.multiply(W, G))
    smooth = sum(
        S[i, j] * cp.sum_squares(W[i] - W[j]) for i in range(n) for j in range(i) if S[i, j] > 0
    )
    problem = cp.Problem(cp.Minimize(fit + smoothness * smooth), [cp.sum(W, axis=1) == 1])
    return problem.solve(solver=cp.CLARABEL), W.value


@pytest.mark.parametrize("solver", ["fista", "auto"])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("locality", "smoothness"), [(1.0, 100.0), (0.3, 0.5), (0.0, 2.0)])
def test_objective_of_a_convex_solver(solver, seed, locality, smoothness):
    rng = np.random.default_rng(seed)
    X, U, S, problem = make_problem(rng, locality=locality, smoothness=smoothness)
    solution = learn_weights(problem, solver=solver, tol=1e-7, max_iter=20_000)
    best, _ = convex_optimum(X, U, S.toarray(), locality, smoothness)
    assert solution.converged
    assert solution.value == pytest.approx(best, rel=1e-5)
    assert solution.x.min() >= 0
    np.testing.assert_allclose(solution.x.sum(axis=1), 1.0, atol=1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_value_is_equation_4(rng, offset):
    X, U, S, problem = make_problem(rng, offset=offset)
    W = rng.dirichlet(np.ones(4), size=len(X))
    expected = judge.weights_primal(X, U, W, S.toarray(), 0.7, 3.0)
    assert problem.evaluate(W).value == pytest.approx(expected, rel=1e-9)


def test_gradient_against_finite_differences(rng):
    _, _, _, problem = make_problem(rng, n=9)
    shape = (9, 4)
    W = rng.dirichlet(np.ones(4), size=9)

    def value(w):
        return problem.evaluate(w.reshape(shape)).value

    def gradient(w):
        return problem.gradient(problem.evaluate(w.reshape(shape))).ravel()

    error = check_grad(value, gradient, W.ravel())
    assert error <= 1e-5 * np.linalg.norm(gradient(W.ravel()))


def test_gap_is_a_valid_bound_everywhere(rng):
    X, U, S, problem = make_problem(rng)
    best, _ = convex_optimum(X, U, S.toarray(), 0.7, 3.0)
    for _ in range(20):
        W = rng.dirichlet(np.full(4, 0.3), size=len(X))
        evaluation = problem.evaluate(W)
        gap = problem.gap(W, evaluation, problem.gradient(evaluation))
        assert evaluation.value - best <= gap * evaluation.value + 1e-6


def test_metric_majorises_the_curvature(rng):
    for n in (10, 60):
        _, _, _, problem = make_problem(rng, n=n)
        metric = RowWeightProblem(problem, np.float64, SERIAL).metric
        for _ in range(20):
            D = rng.normal(size=(n, 4))
            curvature = 2 * np.vdot(D, D @ problem.A + 3.0 * (problem.laplacian @ D))
            assert curvature <= np.vdot(D, metric * D) * (1 + 1e-9)
        # Alternating signs over the heaviest edges come close to the bound.
        _, vectors = np.linalg.eigh(problem.laplacian.toarray())
        D = np.outer(vectors[:, -1], np.linalg.eigh(problem.A)[1][:, -1])
        curvature = 2 * np.vdot(D, D @ problem.A + 3.0 * (problem.laplacian @ D))
        assert curvature >= 0.3 * np.vdot(D, metric * D)


def test_start_is_the_nearest_anchor(rng):
    X, U, _, problem = make_problem(rng)
    nearest = [int(np.argmin([np.sum((x - u) ** 2) for u in U])) for x in X]
    np.testing.assert_array_equal(problem.start(), np.eye(4)[nearest])


def test_all_rows_equal_converges_at_once():
    X = np.ones((6, 2))
    L = graph_laplacian(similarity_graph(*euclidean_neighbors(X, 7), 6))
    solution = learn_weights(
        WeightProblem(row_terms(X, X[:1], 1.0), X[:1], 100.0, L),
        solver="auto",
        tol=1e-3,
        max_iter=10,
    )
    assert solution.converged
    np.testing.assert_array_equal(solution.x, np.ones((6, 1)))


def test_query_weights_solve_equation_4_for_the_new_point(rng):
    """Against a convex solver: the new point joins the graph, the training weights stay fixed."""
    X, U, _, problem = make_problem(rng, smoothness=3.0, locality=0.7)
    W = learn_weights(problem, solver="auto", tol=1e-6, max_iter=5000).x
    squared, _ = euclidean_neighbors(X, 7)
    scales = local_scales(squared)
    Q = rng.normal(size=(5, 3))
    q_squared, q_neighbors = euclidean_neighbors(X, 7, Q)
    similarity = query_similarity(q_squared, q_neighbors, scales, 6)
    queries = query_problem(Q, U, 0.7, 3.0, W, similarity)
    found, gaps = minimize_rows(queries, 1e-8, 20_000)
    assert gaps.max() <= 1e-8
    values = np.sum(found * (queries.product(found) + queries.linear), axis=1) + queries.constant
    total = 0.0
    for i, x in enumerate(Q):
        w = cp.Variable(4, nonneg=True)
        d2 = np.sum((X - x) ** 2, axis=1)
        order = np.argsort(d2)
        own_scale = np.sqrt(d2[order[6]])
        objective = cp.sum_squares(x - U.T @ w) + 0.7 * w @ np.sum((U - x) ** 2, axis=1)
        for j in order[:6]:
            s = np.exp(-d2[j] / (own_scale * scales[j]))
            objective = objective + 3.0 * s * cp.sum_squares(w - W[j])
        one = cp.Problem(cp.Minimize(objective), [cp.sum(w) == 1])
        total += one.solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(found[i], w.value, atol=2e-3)
    assert values.sum() == pytest.approx(total, rel=1e-5)


def test_rows_in_another_order_are_the_same_problem(rng):
    *_, problem = make_problem(rng)
    order = rng.permutation(len(problem.B))
    other = problem.reordered(order)
    W = rng.dirichlet(np.ones(problem.B.shape[1]), size=len(order))
    before, after = problem.evaluate(W), other.evaluate(W[order])
    assert after.value == pytest.approx(before.value)
    np.testing.assert_allclose(other.gradient(after), problem.gradient(before)[order])
    gaps = (
        problem.gap(W, before, problem.gradient(before)),
        other.gap(W[order], after, other.gradient(after)),
    )
    assert gaps[0] == pytest.approx(gaps[1])
    np.testing.assert_array_equal(other.start(), problem.start()[order])


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_large_problems_are_solved_in_the_order_of_their_anchors(rng, monkeypatch, tol):
    *_, problem = make_problem(rng)
    plain = learn_weights(problem, solver="auto", tol=tol, max_iter=5000)
    monkeypatch.setattr(weights, "_WORTH_SHARING", 1)
    reordered = learn_weights(problem, solver="auto", tol=tol, max_iter=5000)
    assert reordered.converged
    assert reordered.value == pytest.approx(plain.value, rel=2 * tol)
    evaluation = problem.evaluate(reordered.x)
    assert evaluation.value == pytest.approx(reordered.value, rel=1e-6)
