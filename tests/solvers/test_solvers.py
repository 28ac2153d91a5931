"""The solvers on a box-constrained quadratic whose solution a convex solver knows."""

import numpy as np
import pytest

from box_quadratic import BoxQuadratic, optimum
from plml.solvers.fista import FistaState, fista, fista_step
from plml.solvers.problem import Iteration, counting_on, history_arrays
from plml.solvers.quasi_newton import Memory, projected_lbfgs


@pytest.fixture
def quadratic(rng):
    B = rng.normal(size=(30, 20))
    return BoxQuadratic(B.T @ B + 0.01 * np.eye(20), 10 * rng.normal(size=20))


SOLVERS = {
    "fista": lambda p, **k: fista(p, np.zeros(20), **k),
    "fista with restart": lambda p, **k: fista(p, np.zeros(20), restart=True, **k),
    "fista, rare checks": lambda p, **k: fista(p, np.zeros(20), check_every=7, **k),
    "projected lbfgs": lambda p, **k: projected_lbfgs(p, np.zeros(20), bounds=(0.0, 1.0), **k),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_reaches_the_optimum_it_certifies(quadratic, name):
    solution = SOLVERS[name](quadratic, tol=1e-7, max_iter=3000)
    best = optimum(quadratic)
    assert solution.converged
    assert 0 <= solution.gap <= 1e-7
    assert solution.value == pytest.approx(best, rel=1e-6)
    assert ((solution.x >= 0) & (solution.x <= 1)).all()
    assert solution.value == pytest.approx(quadratic.evaluate(solution.x).value, rel=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_gap_bounds_the_error_at_every_iterate(quadratic, name):
    best = optimum(quadratic)
    history = SOLVERS[name](quadratic, tol=1e-6, max_iter=3000).history
    for record in history:
        assert record.value - best <= record.gap * max(abs(record.value), 1e-3) + 1e-6


@pytest.mark.parametrize("name", SOLVERS)
def test_stops_at_max_iter_and_says_so(quadratic, name):
    solution = SOLVERS[name](quadratic, tol=1e-12, max_iter=4)
    assert not solution.converged
    assert solution.n_iter == 4
    assert solution.gap > 1e-12


@pytest.mark.parametrize("name", SOLVERS)
def test_a_callback_can_stop_it(quadratic, name):
    seen = []

    def stop_at_third(record):
        seen.append(record)
        return len(seen) == 3

    solution = SOLVERS[name](quadratic, tol=1e-12, max_iter=3000, callback=stop_at_third)
    assert len(seen) == 3 == len(solution.history)
    assert solution.interrupted
    assert not solution.converged


def test_fista_step_is_algorithm_1(quadratic):
    """Two steps with exact arithmetic by hand: y, projected step, t and extrapolation."""
    lipschitz = 2 * float(np.linalg.norm(quadratic.A, 2))
    x0 = np.full(20, 0.5)
    state = FistaState(x0, quadratic.evaluate(x0), x0, 1.0, lipschitz)
    first = fista_step(quadratic, state, restart=False)
    x1 = np.clip(x0 - (quadratic.A @ x0 - quadratic.b) / lipschitz, 0, 1)
    t2 = (1 + np.sqrt(5)) / 2
    np.testing.assert_allclose(first.x, x1)
    np.testing.assert_allclose(first.y, x1)  # (t_1 - 1) / t_2 = 0
    assert first.t == pytest.approx(t2)
    second = fista_step(quadratic, first, restart=False)
    x2 = np.clip(x1 - (quadratic.A @ x1 - quadratic.b) / lipschitz, 0, 1)
    t3 = (1 + np.sqrt(1 + 4 * t2**2)) / 2
    np.testing.assert_allclose(second.x, x2)
    np.testing.assert_allclose(second.y, x2 + (t2 - 1) / t3 * (x2 - x1))
    assert second.lipschitz == lipschitz


def test_backtracking_doubles_from_one_until_the_model_bounds(quadratic):
    x0 = np.full(20, 0.5)
    state = fista_step(
        quadratic, FistaState(x0, quadratic.evaluate(x0), x0, 1.0, 1.0), restart=False
    )
    step = state.x - x0
    curvature = float(step @ quadratic.A @ step) / float(step @ step)
    assert np.log2(state.lipschitz) == int(np.log2(state.lipschitz))
    assert curvature <= state.lipschitz * (1 + 1e-9)
    assert state.lipschitz <= 2 * float(np.linalg.norm(quadratic.A, 2))


def test_restart_drops_the_momentum_when_it_points_uphill(quadratic):
    x0 = np.full(20, 0.5)
    gradient = quadratic.A @ x0 - quadratic.b
    uphill = x0 + 0.05 * gradient  # extrapolated against the descent direction
    lipschitz = 2 * float(np.linalg.norm(quadratic.A, 2))
    state = FistaState(x0, quadratic.evaluate(x0), uphill, 5.0, lipschitz)
    plain = fista_step(quadratic, state, restart=False)
    restarted = fista_step(quadratic, state, restart=True)
    np.testing.assert_array_equal(plain.x, restarted.x)
    assert float((uphill - plain.x) @ (plain.x - x0)) > 0
    assert restarted.t == 1.0
    np.testing.assert_array_equal(restarted.y, restarted.x)


def test_lbfgs_direction_is_the_two_loop_recursion_on_the_free_coordinates(rng):
    A = rng.normal(size=(30, 12))
    A = A.T @ A + np.eye(12)
    free = rng.uniform(size=12) < 0.7
    steps = [rng.normal(size=12) for _ in range(4)]
    changes = [A @ s for s in steps]
    gradient = rng.normal(size=12)
    # The BFGS update of the inverse Hessian, as a dense matrix over the free coordinates alone.
    s, y = steps[-1][free], changes[-1][free]
    H = (s @ y) / (y @ y) * np.eye(free.sum())
    for step, change in zip(steps, changes, strict=True):
        s, y = step[free], change[free]
        if s @ y <= 0:
            continue
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    memory = Memory(gradient, np.float64)
    for _ in range(4):  # so that the first ones are forgotten
        for step, change in zip(steps, changes, strict=True):
            memory.add(step, change)
    memory.clear()
    for step, change in zip(steps, changes, strict=True):
        memory.add(step, change)
    direction = memory.direction(memory.gram(gradient, free), free)
    np.testing.assert_allclose(direction[free], -H @ gradient[free], rtol=1e-8, atol=1e-10)
    assert not direction[~free].any()


def test_a_solution_followed_by_another(quadratic):
    first = fista(quadratic, np.zeros(20), tol=1e-12, max_iter=5)
    second = fista(quadratic, first.x, tol=1e-6, max_iter=3000)
    both = first.followed_by(second)
    assert both.n_iter == first.n_iter + second.n_iter
    assert both.converged
    assert not both.interrupted
    assert [r.iteration for r in both.history[:7]] == [0, 1, 2, 3, 4, 5, 5]
    assert (np.diff([r.seconds for r in both.history]) >= 0).all()


def test_history_as_columns():
    history = (Iteration(0, 3.0, 0.5, 0.1), Iteration(1, 2.0, 0.25, 0.2))
    columns = history_arrays(history)
    assert list(columns) == ["iteration", "value", "gap", "seconds"]
    np.testing.assert_array_equal(columns["gap"], [0.5, 0.25])
    assert all(len(column) == 0 for column in history_arrays(()).values())


class Shelf:
    """Keeps the state number ``number`` that it is offered, and hands it to the next run."""

    def __init__(self, number):
        self.number, self.state, self.n_offers = number, {}, 0

    def saved(self):
        return dict(self.state)

    def offer(self, state):
        self.n_offers += 1
        if self.n_offers == self.number:
            self.state = {name: np.array(value) for name, value in state().items()}


@pytest.mark.parametrize("number", [1, 4, 15])
@pytest.mark.parametrize("name", SOLVERS)
def test_a_run_that_was_cut_short_goes_on_along_the_same_iterates(quadratic, name, number):
    shelf = Shelf(number)
    whole = SOLVERS[name](quadratic, tol=1e-7, max_iter=3000, checkpoint=shelf)
    assert shelf.n_offers == len(whole.history) - 2  # neither the first nor the last
    before = quadratic.n_evaluations
    resumed = SOLVERS[name](quadratic, tol=1e-7, max_iter=3000, checkpoint=shelf)
    assert quadratic.n_evaluations - before < before
    np.testing.assert_allclose(resumed.x, whole.x, atol=1e-10)
    assert resumed.n_iter == whole.n_iter
    assert [r.iteration for r in resumed.history] == [r.iteration for r in whole.history]
    np.testing.assert_allclose(
        [r.gap for r in resumed.history], [r.gap for r in whole.history], rtol=1e-3, atol=1e-9
    )
    seconds = [r.seconds for r in resumed.history]
    assert (np.diff(seconds) >= 0).all()
    assert seconds[: number + 1] == [r.seconds for r in whole.history[: number + 1]]


def test_the_best_point_survives_an_interruption(quadratic):
    """A state whose best point is not its last one is resumed with both."""
    shelf = Shelf(3)
    projected_lbfgs(
        quadratic, np.zeros(20), bounds=(0.0, 1.0), tol=1e-7, max_iter=40, checkpoint=shelf
    )
    best = {"best_x": np.full(20, 0.25), "best_value": -7.0, "best_gap": 1e-12, "best_at": 2}
    shelf.state.update({key: np.array(value) for key, value in best.items()})
    found = projected_lbfgs(
        quadratic,
        np.zeros(20),
        bounds=(0.0, 1.0),
        tol=0.0,
        max_iter=30,
        patience=3,
        checkpoint=shelf,
    )
    np.testing.assert_array_equal(found.x, best["best_x"])
    assert (found.value, found.gap) == (-7.0, 1e-12)
    assert found.n_iter <= 2 + 3 + 2  # patience counts from the best point


def test_callbacks_of_a_later_run_count_on(quadratic):
    first = fista(quadratic, np.zeros(20), tol=1e-2, max_iter=50)
    seen = []
    callback = counting_on(seen.append, first)
    later = fista(quadratic, first.x, tol=1e-6, max_iter=500, callback=callback)
    both = first.followed_by(later)
    assert seen == list(both.history[len(first.history) :])
    assert seen[0].iteration == first.n_iter
    assert counting_on(None, first) is None
