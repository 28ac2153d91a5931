"""SciPy's L-BFGS-B, stopped by the problem's own certificate."""

import numpy as np
from scipy.optimize import minimize

from plml.backend.threads import one_blas_thread
from plml.solvers.problem import Callback, Monitor, Problem, Solution


class _Certified(Exception):
    """Leaves SciPy's loop as soon as the certificate closes."""


def lbfgsb(
    problem: Problem,
    x0: np.ndarray,
    *,
    bounds: tuple[float, float],
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
) -> Solution:
    """Minimise a box-constrained problem to a relative gap of ``tol``.

    Every evaluated point is feasible and comes with its gap; the best one is returned. An
    iteration here is an evaluation of value and gradient.

    Parameters
    ----------
    problem : Problem whose feasible set is the box ``bounds``
    x0 : (n,) array in the box
    bounds : the same lower and upper bound for every coordinate
    """
    monitor = Monitor(tol, callback)
    best_x, best_value, best_gap = x0, np.inf, np.inf
    n_evaluations = 0

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best_x, best_value, best_gap, n_evaluations
        evaluation = problem.evaluate(x)
        gradient = problem.gradient(evaluation)
        gap = float(problem.gap(x, evaluation, gradient))
        n_evaluations += 1
        if gap < best_gap:
            best_x, best_value, best_gap = x.copy(), evaluation.value, gap
        if monitor.done(n_evaluations, evaluation.value, gap) or n_evaluations >= max_iter:
            raise _Certified
        return evaluation.value, gradient

    try:
        start_gap = np.inf
        # A line search that gives up leaves a stale curvature model: start afresh from the
        # best point for as long as that still closes the gap.
        while best_gap < 0.99 * start_gap or start_gap == np.inf:
            start_gap = best_gap
            with one_blas_thread(of="scipy"):
                minimize(
                    value_and_gradient,
                    best_x,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=[bounds] * len(x0),
                    options={"maxiter": max_iter, "maxfun": 2 * max_iter, "ftol": 0.0, "gtol": 0.0},
                )
    except _Certified:
        pass
    return monitor.solution(best_x, best_value, best_gap, n_evaluations)
