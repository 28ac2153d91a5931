"""Accelerated projected gradient for a convex quadratic over a product of simple sets."""

from math import sqrt
from typing import Protocol

import numpy as np

from plml.backend.threads import Crew
from plml.solvers.problem import Callback, Monitor, Solution

#: Iterations between two looks at the certificate, which costs about half an iteration.
_CHECK_EVERY = 5


class RowQuadratic(Protocol):
    """minimise <x, H x> + <b, x> + c, every row of x in a set of its own.

    ``metric`` is a diagonal majoriser, constant within a row: 2 H <= diag(metric). Its reciprocal
    is the step.
    """

    linear: np.ndarray  # (n, m), b
    metric: np.ndarray  # (n, 1)
    blocks: list[slice]  # rows that are worked on together
    crew: Crew

    def product(self, x: np.ndarray, rows: slice) -> np.ndarray:
        """Rows of H x."""
        ...

    def project_rows(self, v: np.ndarray, hint: np.ndarray) -> np.ndarray:
        """Rows onto their sets; the (n,) hint is read and written, and starts at -1."""
        ...

    def value_and_gap(self, x: np.ndarray, product: np.ndarray) -> tuple[float, float]:
        """The objective, and a relative upper bound on its distance to the minimum."""
        ...


def accelerated(
    problem: RowQuadratic,
    x0: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
) -> Solution:
    """Minimise to a relative gap of ``tol``.

    The objective is quadratic, so H at the extrapolated point is the extrapolation of H x: one
    product an iteration, and none for a line search, since the steps are known to be short enough.
    The momentum starts afresh whenever it points uphill.

    Parameters
    ----------
    problem : RowQuadratic
    x0 : (n, m) array in the feasible set
    tol : relative gap at which to stop
    max_iter : iterations at the most
    callback : called at every look at the certificate
    """
    monitor = Monitor(tol, callback)
    x, y, moved = x0.copy(), x0.copy(), np.empty_like(x0)
    Hx = np.empty_like(x)
    hint = np.full(len(x0), -1.0, dtype=x0.dtype)
    share = problem.crew.map
    share(lambda rows: Hx.__setitem__(rows, problem.product(x, rows)), problem.blocks)
    Hy = Hx.copy()
    value, gap = problem.value_and_gap(x, Hx)
    if monitor.done(0, value, gap):
        return monitor.solution(x, value, gap, 0)

    def step(rows: slice) -> float:
        """New x from y; how far the momentum points uphill."""
        gradient = Hy[rows] * 2.0
        gradient += problem.linear[rows]
        gradient /= problem.metric[rows]
        new = problem.project_rows(y[rows] - gradient, hint[rows])
        np.subtract(new, x[rows], out=moved[rows])
        x[rows] = new
        new_less_y = y[rows]
        np.subtract(new_less_y, new, out=new_less_y)
        new_less_y *= moved[rows]
        return float(np.vdot(problem.metric[rows], new_less_y.sum(axis=1, keepdims=True)))

    def extrapolate(rows: slice) -> None:
        """New products, and y beyond x by the momentum."""
        product = problem.product(x, rows)
        np.multiply(moved[rows], momentum, out=y[rows])
        y[rows] += x[rows]
        change = product - Hx[rows]
        change *= momentum
        change += product
        Hy[rows] = change
        Hx[rows] = product

    t, momentum, iteration = 1.0, 0.0, 0
    for iteration in range(1, max_iter + 1):
        uphill = sum(share(step, problem.blocks)) > 0.0
        t, previous = (1.0, 1.0) if uphill else (0.5 * (1.0 + sqrt(1.0 + 4.0 * t * t)), t)
        momentum = (previous - 1.0) / t
        share(extrapolate, problem.blocks)
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            value, gap = problem.value_and_gap(x, Hx)
            if monitor.done(iteration, value, gap):
                break
    return monitor.solution(x, value, gap, iteration)
