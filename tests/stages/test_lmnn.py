import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import approx_fprime

from plml.solvers.problem import Monitor
from plml.stages.energy import energies
from plml.stages.lmnn import (
    ActiveSet,
    LmnnData,
    dual_bound,
    find_violations,
    learn_lmnn,
    target_distances,
)
from plml.stages.metrics import MetricsDual
from plml.stages.neighbors import ExactNeighbors


def make_data(seed, groups="one", n=24, d=3, k=2, pull=1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 1.0 * np.eye(3, d)[y]
    X = X - X.mean(axis=0)
    g = {"one": np.zeros(n, int), "class": y, "cluster": np.arange(n) // 12}[groups]
    return LmnnData(X, y, g, int(g.max()) + 1, ExactNeighbors(X, y).targets(k), pull)


def naive_objective(data, M):
    """The definition: every target, every other-class point, metric of the second point."""
    value = 0.0

    def distance(i, j):
        difference = data.X[i] - data.X[j]
        return float(difference @ M[data.groups[j]] @ difference)

    for i in range(len(data.X)):
        for j in data.targets[i]:
            if j < 0:
                continue
            value += data.pull * distance(i, j)
            for k in np.flatnonzero(data.y != data.y[i]):
                value += max(0.0, 1.0 + distance(i, j) - distance(i, k))
    return value


def convex_optimum(data):
    d = data.X.shape[1]
    M = [cp.Variable((d, d), PSD=True) for _ in range(data.n_groups)]

    def distance(i, j):
        outer = np.outer(data.X[i] - data.X[j], data.X[i] - data.X[j])
        return cp.trace(outer @ M[data.groups[j]])

    terms = []
    for i in range(len(data.X)):
        for j in data.targets[i]:
            terms.append(data.pull * distance(i, j))
            others = np.flatnonzero(data.y != data.y[i])
            margins = cp.hstack([1 + distance(i, j) - distance(i, k) for k in others])
            terms.append(cp.sum(cp.pos(margins)))
    return cp.Problem(cp.Minimize(sum(terms))).solve(solver=cp.CLARABEL)


def learn(data, solver, tol=1e-4, **options):
    options = {"n_components": None, "max_iter": 20_000, "observe": lambda M: False, **options}
    return learn_lmnn(data, solver=solver, tol=tol, monitor=Monitor(tol), **options)


@pytest.mark.parametrize("groups", ["one", "class", "cluster"])
@pytest.mark.parametrize(("seed", "pull"), [(0, 1.0), (1, 0.25)])
def test_convex_solver_reaches_the_optimum_it_certifies(groups, seed, pull):
    data = make_data(seed, groups, pull=pull)
    tol = 1e-4 if groups == "one" else 2e-3
    result = learn(data, "convex", tol=tol)
    best = convex_optimum(data)
    assert result.gap <= tol
    assert result.objective == pytest.approx(best, rel=tol)
    assert result.objective * (1 - result.gap) <= best * (1 + 1e-6)
    assert result.objective == pytest.approx(naive_objective(data, result.M), rel=1e-9)
    assert np.linalg.eigvalsh(result.M).min() >= -1e-8


@pytest.mark.parametrize("groups", ["one", "class"])
def test_factored_solver_comes_close(groups):
    data = make_data(3, groups)
    result = learn(data, "factored", tol=1e-3)
    assert result.objective == pytest.approx(naive_objective(data, result.M), rel=1e-9)
    assert result.objective <= 1.03 * convex_optimum(data)
    assert result.gap == np.inf


def test_low_rank_factor():
    result = learn(make_data(3, n=60, d=5), "factored", n_components=2)
    assert np.linalg.matrix_rank(result.M[0], tol=1e-8) <= 2


@pytest.mark.parametrize("groups", ["one", "class", "cluster"])
def test_violations_by_the_definition(groups, rng):
    data = make_data(5, groups)
    A = rng.normal(size=(data.n_groups, 3, 3))
    M = 0.3 * A @ A.swapaxes(1, 2)
    found = find_violations(data, M)
    assert found.objective == pytest.approx(naive_objective(data, M), rel=1e-9)
    near = target_distances(data, M).max(axis=1)
    expected = set()
    for i in range(len(data.X)):
        for k in np.flatnonzero(data.y != data.y[i]):
            difference = data.X[i] - data.X[k]
            if difference @ M[data.groups[k]] @ difference < 1 + near[i]:
                expected.add((i, int(k)))
    assert {tuple(map(int, pair)) for pair in found.pairs} == expected


def test_absent_targets_lose_nothing():
    data = make_data(5)
    targets = data.targets.copy()
    targets[0] = -1
    targets[1, 1] = -1
    data = data._replace(targets=targets)
    M = np.eye(3)[None]
    assert find_violations(data, M).objective == pytest.approx(naive_objective(data, M))


def test_subgradient_against_finite_differences(rng):
    data = make_data(2, "class")
    A = rng.normal(size=(3, 3, 3))
    M = A @ A.swapaxes(1, 2)
    active = ActiveSet(data, find_violations(data, M).pairs)
    value, G = active.value_and_subgradient(M)
    assert value == pytest.approx(naive_objective(data, M), rel=1e-9)
    numeric = approx_fprime(
        M.ravel(), lambda m: active.value_and_subgradient(m.reshape(M.shape))[0], 1e-7
    )
    numeric = numeric.reshape(M.shape)
    numeric = 0.5 * (numeric + numeric.swapaxes(1, 2))  # metrics are symmetric
    np.testing.assert_allclose(G, numeric, rtol=1e-4, atol=1e-3)


def test_dual_bound_is_below_the_optimum(rng):
    data = make_data(4, "class")
    active = ActiveSet(data, find_violations(data, np.tile(np.eye(3), (3, 1, 1))).pairs)
    dual = MetricsDual(active.operator, active.triplets, 0.1, data.pull)
    best = convex_optimum(data)
    for _ in range(10):
        gamma = rng.uniform(size=len(active.triplets.target)) ** 3
        assert 0 <= dual_bound(dual, gamma) <= best * (1 + 1e-6)


def test_pairs_join_the_active_set_once():
    data = make_data(1)
    active = ActiveSet(data, np.array([[0, 1], [0, 2]]))
    more = active.with_more(np.array([[0, 2], [3, 1]]))
    np.testing.assert_array_equal(more.pairs, [[0, 1], [0, 2], [3, 1]])
    assert more.with_more(np.array([[0, 1]])) is more


@pytest.mark.parametrize("groups", ["one", "class"])
def test_energies_by_the_definition(groups, rng):
    data = make_data(7, groups)
    A = rng.normal(size=(data.n_groups, 3, 3))
    M = 0.3 * A @ A.swapaxes(1, 2)
    Q = rng.normal(size=(4, 3))
    found = energies(data, M, Q, 3)

    def metric_of_class(c):
        return M[c] if groups == "class" else M[0]

    def distance(a, b, metric):
        return float((a - b) @ metric @ (a - b))

    for q, x in enumerate(Q):
        to_training = [distance(x, data.X[j], M[data.groups[j]]) for j in range(len(data.X))]
        for c in range(3):
            own = sorted(to_training[j] for j in np.flatnonzero(data.y == c))[:2]
            energy = data.pull * sum(own)
            for near in own:
                energy += sum(
                    max(0.0, 1 + near - to_training[j]) for j in np.flatnonzero(data.y != c)
                )
            for i in np.flatnonzero(data.y != c):
                invading = distance(data.X[i], x, metric_of_class(c))
                for j in data.targets[i]:
                    near = distance(data.X[i], data.X[j], M[data.groups[j]])
                    energy += max(0.0, 1 + near - invading)
            assert found[q, c] == pytest.approx(energy, rel=1e-9)


def test_an_observer_can_end_the_fit():
    seen = []

    def observe(M):
        seen.append(M)
        return len(seen) == 2

    learn(make_data(1), "convex", observe=observe)
    assert len(seen) == 2
