import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import approx_fprime

from plml.baselines import lmnn_solvers as lmnn
from plml.baselines.energy import energies
from plml.baselines.lmnn_convex import dual_bound, is_well_posed
from plml.baselines.lmnn_problem import ActiveSet, LmnnData, find_violations, target_distances
from plml.baselines.lmnn_solvers import learn_lmnn
from plml.solvers.problem import Monitor
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
def test_convex_solver_closes_where_targets_hardly_differ(groups):
    """In the units of the features its steps would take thousands of iterations."""
    data = make_data(0, groups, n=60, d=5)
    data = data._replace(X=data.X * [1.0, 0.3, 0.1, 0.03, 0.01])
    result = learn(data, "convex", tol=1e-2, max_iter=600)
    assert result.converged
    assert result.gap <= 1e-2


@pytest.mark.parametrize("solver", ["convex", "factored"])
def test_whether_a_solver_met_its_rule(solver):
    data = make_data(3, "class")
    assert learn(data, solver, tol=1e-2).converged
    assert not learn(data, solver, tol=1e-9, max_iter=20).converged


def test_the_automatic_solver_takes_well_posed_problems_for_convex():
    data = make_data(3, "class")
    assert is_well_posed(data)
    assert learn(data, "auto", tol=1e-2).gap <= 1e-2
    X = data.X.copy()
    X[data.y == 1, 0] = 7.0
    posed = {"somewhere": data._replace(X=X), "nowhere": data._replace(X=0.0 * X)}
    posed["alone"] = data._replace(targets=np.where(data.y[:, None] == 2, -1, data.targets))
    for without in posed.values():
        assert not is_well_posed(without)
    assert learn(posed["somewhere"], "auto", tol=1e-2).gap == np.inf
    X = np.column_stack([data.X, np.full(len(X), 3.0), data.X @ [1.0, 2.0, 3.0]])
    assert is_well_posed(data._replace(X=X - X.mean(axis=0)))  # nobody differs there


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


class TestRuns:
    """Histories, limits and ends of the two solvers."""

    @pytest.mark.parametrize("solver", ["factored", "convex"])
    def test_the_history_counts_and_its_objectives_are_whole(self, solver):
        data = make_data(2, n=60, d=4)
        monitor, observed = Monitor(1e-3), []
        found = learn_lmnn(
            data,
            solver=solver,
            n_components=None,
            tol=1e-3,
            max_iter=2000,
            monitor=monitor,
            observe=lambda M: observed.append(M.copy()),
        )
        assert found.history == tuple(monitor.history)
        iterations = [record.iteration for record in found.history]
        assert iterations[0] == 0
        assert iterations == sorted(set(iterations))
        assert found.n_iter <= 2000
        closed = solver == "convex"  # the last one is not for observers any more
        assert len(observed) == len(found.history) - closed
        for record, M in zip(found.history, observed, strict=False):
            assert naive_objective(data, M) == pytest.approx(record.value, rel=1e-8)
        values = np.array([record.value for record in found.history])
        assert found.objective == values.min()
        if solver == "factored":
            assert np.isinf([record.gap for record in found.history]).all()
        else:
            gaps = np.array([record.gap for record in found.history])
            assert np.isfinite(gaps[-1])
            assert (np.diff(gaps[np.isfinite(gaps)]) <= 1e-12).all()
            assert found.gap == gaps[-1] <= 1e-3
            assert found.n_iter == iterations[-1]

    @pytest.mark.parametrize("limit", [1, 7, 25])
    @pytest.mark.parametrize("solver", ["factored", "convex"])
    def test_the_limit_of_iterations(self, solver, limit):
        found = learn(make_data(2, n=60, d=4), solver, tol=1e-9, max_iter=limit)
        assert found.history[-1].iteration <= limit
        assert found.n_iter <= limit
        more = learn(make_data(2, n=60, d=4), solver, tol=1e-9, max_iter=4 * limit)
        assert more.objective <= found.objective

    def test_the_factored_solver_settles(self):
        """A round that changes nothing and finds no new impostor is the last."""
        data = make_data(2, n=60, d=4)
        loose, tight = (learn(data, "factored", tol=tol) for tol in (1e-1, 1e-6))
        assert loose.history[-1].iteration < tight.history[-1].iteration < 20_000
        values = [record.value for record in tight.history]
        assert values[-2] - values[-1] <= 1e-6 * values[-1]
        assert tight.objective <= loose.objective * (1 + 1e-9)

    def test_a_callback_ends_it_and_the_convex_solver_does_not_begin(self):
        monitor = Monitor(1e-3, lambda record: record.iteration >= 1)
        found = learn_lmnn(
            make_data(2, n=60, d=4),
            solver="convex",
            n_components=None,
            tol=1e-3,
            max_iter=500,
            monitor=monitor,
            observe=lambda M: False,
        )
        assert found.gap == np.inf
        assert monitor.interrupted
        assert sum(record.iteration >= 1 for record in found.history) == 1

    def test_separable_data_ends_at_once(self):
        """Targets that coincide and impostors far away: nothing is left to improve."""
        X = np.repeat(np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]]), 4, axis=0)
        X, y = X - X.mean(axis=0), np.repeat([0, 1, 2], 4)
        targets = ExactNeighbors(X, y).targets(2)
        found = learn(LmnnData(X, y, np.zeros(12, int), 1, targets, 1.0), "convex")
        assert found.objective <= 1e-8
        assert found.gap == 0.0


class TestStart:
    @pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
    def test_the_scale_is_the_best_for_one_metric(self, size):
        data = make_data(6, "class", n=45, d=4, pull=0.05)
        X = data.X + 2.0 * np.eye(3, 4)[data.y]
        data = data._replace(X=size * (X - X.mean(axis=0)))
        active = ActiveSet(data, lmnn._first_impostors(data))
        L = lmnn._scaled_identity(active, 4)
        assert L.shape == (3, 4, 4)
        scale = L[0, 0, 0] ** 2
        np.testing.assert_allclose(L, np.tile(np.sqrt(scale) * np.eye(4), (3, 1, 1)))

        def objective(s):
            return active.value_and_subgradient(np.tile(s * np.eye(4), (3, 1, 1)))[0]

        best = objective(scale)
        for factor in (0.5, 0.9, 1.1, 2.0):
            assert objective(factor * scale) >= best * (1 - 1e-6)

    def test_fewer_components_are_the_leading_axes(self):
        data = make_data(6, n=45, d=4)
        data = data._replace(X=data.X * [1.0, 5.0, 0.1, 3.0])
        active = ActiveSet(data, lmnn._first_impostors(data))
        L = lmnn._scaled_identity(active, 2)[0]
        assert L.shape == (2, 4)
        leading = np.linalg.eigh(data.X.T @ data.X)[1].T[::-1][:2]
        np.testing.assert_allclose(np.abs(L / np.linalg.norm(L[0])), np.abs(leading), atol=1e-10)

    def test_points_that_coincide_have_a_start(self):
        X, y = np.zeros((6, 2)), np.arange(6) % 2
        data = LmnnData(X, y, np.zeros(6, int), 1, ExactNeighbors(X, y).targets(1), 1.0)
        L = lmnn._scaled_identity(ActiveSet(data, lmnn._first_impostors(data)), 2)
        assert np.isfinite(L).all()


class TestDualBound:
    class Dual:
        """Scatters as they are given."""

        def __init__(self, C, A, pull=1.0):
            self.C, self.target_scatter, self.pull = C, A, pull

        def triplet_scatter(self, gamma):
            return self.C

    def test_theta_is_the_largest_feasible_multiple(self, rng):
        B, D = (rng.normal(size=(2, 3, 3)) for _ in range(2))
        A, C = B @ B.swapaxes(1, 2), D @ D.swapaxes(1, 2)
        found = dual_bound(self.Dual(C, A, pull=0.7), np.array([1.0, 3.0])) / 4.0
        assert 0 < found < 1
        for theta, feasible in ((0.999 * found, True), (1.001 * found, False)):
            slack = np.linalg.eigvalsh(0.7 * A - theta * C)
            assert (slack.min() >= 0) == feasible

    def test_it_is_never_more_than_the_whole_sum(self, rng):
        A = np.eye(3)[None]
        assert dual_bound(self.Dual(0.1 * A, A), np.array([2.0, 3.0])) == 5.0
        assert dual_bound(self.Dual(-A, A), np.array([2.0])) == 2.0

    def test_where_targets_do_not_differ(self):
        A = np.diag([1.0, 2.0, 0.0])[None]
        inside, outside = np.diag([4.0, 0.0, 0.0])[None], np.diag([0.5, 0.0, 1e-3])[None]
        gamma = np.array([8.0])
        assert dual_bound(self.Dual(inside, A), gamma) == pytest.approx(2.0)
        assert dual_bound(self.Dual(outside, A), gamma) == 0.0
        nothing = np.zeros((1, 3, 3))
        assert dual_bound(self.Dual(nothing, nothing), gamma) == 8.0
        assert dual_bound(self.Dual(inside, nothing), gamma) == 0.0
        tiny = 1e-30 * A  # units do not matter
        assert dual_bound(self.Dual(1e-30 * inside, tiny), gamma) == pytest.approx(2.0)
