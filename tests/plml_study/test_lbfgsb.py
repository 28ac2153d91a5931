"""SciPy's L-BFGS-B on a box-constrained quadratic whose solution a convex solver knows."""

import numpy as np
import pytest

from box_quadratic import BoxQuadratic, optimum
from plml_study.lbfgsb import lbfgsb


@pytest.fixture
def quadratic(rng):
    B = rng.normal(size=(30, 20))
    return BoxQuadratic(B.T @ B + 0.01 * np.eye(20), 10 * rng.normal(size=20))


def solve(problem, **options):
    return lbfgsb(problem, np.zeros(20), bounds=(0.0, 1.0), **options)


def test_reaches_the_optimum_it_certifies(quadratic):
    solution = solve(quadratic, tol=1e-7, max_iter=3000)
    assert solution.converged
    assert 0 <= solution.gap <= 1e-7
    assert solution.value == pytest.approx(optimum(quadratic), rel=1e-6)
    assert ((solution.x >= 0) & (solution.x <= 1)).all()
    assert solution.value == pytest.approx(quadratic.evaluate(solution.x).value, rel=1e-12)


def test_gap_bounds_the_error_at_every_iterate(quadratic):
    best = optimum(quadratic)
    for record in solve(quadratic, tol=1e-6, max_iter=3000).history:
        assert record.value - best <= record.gap * max(abs(record.value), 1e-3) + 1e-6


def test_stops_at_max_iter_and_says_so(quadratic):
    solution = solve(quadratic, tol=1e-12, max_iter=4)
    assert not solution.converged
    assert solution.n_iter == 4
    assert solution.gap > 1e-12


def test_a_callback_can_stop_it(quadratic):
    seen = []

    def stop_at_third(record):
        seen.append(record)
        return len(seen) == 3

    solution = solve(quadratic, tol=1e-12, max_iter=3000, callback=stop_at_third)
    assert len(seen) == 3 == len(solution.history)
    assert solution.interrupted
    assert not solution.converged


def test_starts_from_where_it_is_told(quadratic):
    cold = lbfgsb(quadratic, np.zeros(20), bounds=(0.0, 1.0), tol=1e-5, max_iter=500)
    warm = lbfgsb(quadratic, cold.x, bounds=(0.0, 1.0), tol=1e-5, max_iter=500)
    assert warm.n_iter == 1
    np.testing.assert_array_equal(warm.x, cold.x)
