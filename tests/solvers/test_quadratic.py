"""The solver for quadratics over rows of simplices, against a convex solver and itself resumed."""

from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest

from plml.backend.threads import SERIAL
from plml.ops.projections import project_simplex
from plml.solvers.quadratic import accelerated
from plml.solvers.spectral import spectral


class Rows:
    """min <x, H x> + <b, x> with rows of x on the simplex, H coupling the rows."""

    def __init__(self, H, b, n_blocks=3):
        self.H, self.linear = H, b
        self.metric = np.full((len(b), 1), 2.0 * np.linalg.norm(H, 2))
        cuts = np.linspace(0, len(b), n_blocks + 1).astype(int)
        self.blocks = [slice(a, z) for a, z in pairwise(cuts)]
        self.team = SERIAL

    def product(self, x, rows):
        return self.H[rows] @ x

    def project_rows(self, v, hint):
        return project_simplex(v)

    def value_and_gap(self, x, product):
        value = np.sum(x * (product + self.linear))
        gradient = 2 * product + self.linear
        gap = np.sum(gradient * x) - gradient.min(axis=1).sum()
        return value, gap / max(abs(value), 1e-3)


@pytest.fixture
def problem(rng):
    B = rng.normal(size=(12, 10))
    return Rows(B.T @ B / 10 + 0.01 * np.eye(10), rng.normal(size=(10, 4)))


START = np.full((10, 4), 0.25)


@pytest.mark.parametrize("solve", [accelerated, spectral])
def test_reaches_the_optimum_it_certifies(problem, solve):
    found = solve(problem, START, tol=1e-8, max_iter=5000)
    x = cp.Variable((10, 4))
    objective = cp.sum([cp.quad_form(x[:, k], cp.psd_wrap(problem.H)) for k in range(4)])
    objective += cp.sum(cp.multiply(problem.linear, x))
    best = cp.Problem(cp.Minimize(objective), [x >= 0, cp.sum(x, axis=1) == 1])
    assert found.converged
    assert found.value == pytest.approx(best.solve(solver=cp.CLARABEL), abs=1e-6)
    assert found.history[0].iteration == 0
    assert found.history[-1].iteration == found.n_iter
    assert solve is spectral or found.n_iter % 5 == 0
    np.testing.assert_array_equal(START, np.full((10, 4), 0.25))  # not written to


def test_the_momentum_pays(problem):
    """Plain projected gradient takes several times as many steps."""
    found = accelerated(problem, START, tol=1e-8, max_iter=5000)
    x = START.copy()
    for _ in range(int(1.5 * found.n_iter)):
        x = project_simplex(x - (2 * problem.H @ x + problem.linear) / problem.metric)
    assert problem.value_and_gap(x, problem.H @ x)[1] > 1e-8


def test_nothing_to_do_and_no_time(problem):
    solved = accelerated(problem, START, tol=1e-6, max_iter=5000)
    again = accelerated(problem, solved.x, tol=1e-6, max_iter=5000)
    assert (again.n_iter, len(again.history)) == (0, 1)
    assert spectral(problem, solved.x, tol=1e-6, max_iter=5000).n_iter == 0
    for solve in (accelerated, spectral):
        assert solve(problem, START, tol=1e-12, max_iter=7).n_iter == 7
    cut = accelerated(problem, START, tol=1e-12, max_iter=7)
    assert cut.n_iter == 7
    assert not cut.converged
    assert [r.iteration for r in cut.history] == [0, 5, 7]
    assert accelerated(problem, START, tol=1e-12, max_iter=0).n_iter == 0


def test_a_callback_stops_it(problem):
    found = accelerated(
        problem, START, tol=1e-12, max_iter=500, callback=lambda record: record.iteration >= 10
    )
    assert found.interrupted
    assert found.n_iter == 10


@pytest.mark.parametrize("solve", [accelerated, spectral])
@pytest.mark.parametrize("number", [1, 3])
def test_goes_on_along_the_same_iterates(problem, number, solve):
    state, offers = {}, []

    class Shelf:
        def saved(self):
            return dict(state)

        def offer(self, made):
            offers.append(1)
            if len(offers) == number:
                state.update({name: np.array(value) for name, value in made().items()})

    whole = solve(problem, START, tol=1e-8, max_iter=5000, checkpoint=Shelf())
    assert int(state["iteration"]) == 5 * number
    resumed = solve(problem, START, tol=1e-8, max_iter=5000, checkpoint=Shelf())
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.n_iter == whole.n_iter
    assert [r.gap for r in resumed.history] == [r.gap for r in whole.history]
