"""FISTA with backtracking, as Algorithm 1 of the paper prints it, and with adaptive restart."""

from math import sqrt
from typing import NamedTuple

import numpy as np

from plml.backend.arrays import dot, fetch, like
from plml.solvers.problem import (
    NO_SOLVER_CHECKPOINT,
    Callback,
    Evaluation,
    Monitor,
    Problem,
    Solution,
    SolverCheckpoint,
    State,
)


class FistaState(NamedTuple):
    """Everything one iteration hands to the next."""

    x: np.ndarray  # W^i
    evaluation: Evaluation  # at x
    y: np.ndarray  # Y^{i+1}
    t: float
    lipschitz: float  # beta


def fista(
    problem: Problem,
    x0: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    lipschitz: float = 1.0,
    restart: bool = False,
    check_every: int = 1,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
) -> Solution:
    """Minimise a problem to a relative gap of ``tol``.

    With the defaults this is Algorithm 1: beta starts at one and doubles, never falls.

    Parameters
    ----------
    problem : Problem
    x0 : array in the feasible set
    tol : relative gap at which to stop
    max_iter : iterations at the most
    lipschitz : first estimate of the gradient's Lipschitz constant
    restart : drop the momentum when it points uphill (O'Donoghue and Candes, 2015)
    check_every : iterations between two certificates
    callback : called at every certified iterate
    checkpoint : of the state
    """
    monitor = Monitor(tol, callback, checkpoint)
    iteration, t, y = 0, 1.0, x0
    if saved := monitor.saved:
        x0, y = like(saved["x"], x0), like(saved["y"], x0)
        iteration, t, lipschitz = (
            int(saved["iteration"]),
            float(saved["t"]),
            float(saved["lipschitz"]),
        )
    state = FistaState(x0, problem.evaluate(x0), y, t, lipschitz)

    def kept() -> State:
        numbers = {"iteration": iteration, "t": state.t, "lipschitz": state.lipschitz}
        return {"x": state.x, "y": state.y, **numbers}

    value, gap = _value_and_gap(problem, state)
    stop = bool(not saved and monitor.done(0, value, gap))
    while not stop and iteration < max_iter:
        iteration += 1
        state = fista_step(problem, state, restart=restart)
        if iteration % check_every == 0 or iteration == max_iter:
            value, gap = _value_and_gap(problem, state)
            stop = monitor.done(iteration, value, gap, kept)
    return monitor.solution(state.x, value, gap, iteration)


def _value_and_gap(problem: Problem, state: FistaState) -> list[float]:
    gap = problem.gap(state.x, state.evaluation, problem.gradient(state.evaluation))
    return fetch(state.evaluation.value, gap)


def fista_step(problem: Problem, state: FistaState, *, restart: bool) -> FistaState:
    """One iteration: a projected gradient step from y, then the extrapolation."""
    at_y = problem.evaluate(state.y)
    gradient = problem.gradient(at_y)
    beta = state.lipschitz
    while True:
        x = problem.project(state.y - gradient / beta)
        at_x = problem.evaluate(x)
        step = x - state.y
        linear, square = dot(gradient, step), dot(step, step)
        before, after, model = fetch(
            at_y.value, at_x.value, at_y.value + linear + 0.5 * beta * square
        )
        # Both sides carry rounding errors of this size; without the slack beta would
        # double for ever once the iterates stand still.
        slack = 1e-12 * max(abs(after), abs(before))
        if after <= model + slack or not np.isfinite(model):
            break
        beta *= 2.0
    momentum = x - state.x
    if restart and dot(state.y - x, momentum) > 0.0:
        return FistaState(x, at_x, x, 1.0, beta)
    t = 0.5 * (1.0 + sqrt(1.0 + 4.0 * state.t**2))
    return FistaState(x, at_x, x + (state.t - 1.0) / t * momentum, t, beta)
