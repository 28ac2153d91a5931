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
    iteration: int = 0

    def to_save(self) -> State:
        """What ``_first_state`` needs to go on from here."""
        return {name: value for name, value in self._asdict().items() if name != "evaluation"}


def fista(
    problem: Problem,
    x0: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    restart: bool = False,
    check_every: int = 1,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
) -> Solution:
    """Minimise a problem to a relative gap of ``tol``.

    With the defaults this is Algorithm 1: beta starts at one, doubles, and never falls.

    Parameters
    ----------
    x0 : array in the feasible set
    restart : drop the momentum when it points uphill (O'Donoghue and Candes, 2015)
    check_every : iterations between two certificates
    """
    monitor = Monitor(tol, callback, checkpoint)
    state = _first_state(problem, x0, monitor.saved)
    value, gap = _value_and_gap(problem, state)
    stop = bool(not monitor.saved and monitor.done(0, value, gap))
    while not stop and state.iteration < max_iter:
        state = fista_step(problem, state, restart=restart)
        if state.iteration % check_every == 0 or state.iteration == max_iter:
            value, gap = _value_and_gap(problem, state)
            stop = monitor.done(state.iteration, value, gap, state.to_save)
    return monitor.solution(state.x, value, gap, state.iteration)


def _first_state(problem: Problem, x0: np.ndarray, saved: State) -> FistaState:
    """Where a run begins: at x0, or where a run that was cut short left off."""
    if not saved:
        return FistaState(x0, problem.evaluate(x0), x0, 1.0, 1.0)
    x, y = like(saved["x"], x0), like(saved["y"], x0)
    t, lipschitz, iteration = float(saved["t"]), float(saved["lipschitz"]), int(saved["iteration"])
    return FistaState(x, problem.evaluate(x), y, t, lipschitz, iteration)


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
        # double forever once the iterates stand still.
        slack = 1e-12 * max(abs(after), abs(before))
        if after <= model + slack or not np.isfinite(model):
            break
        beta *= 2.0
    momentum = x - state.x
    if restart and dot(state.y - x, momentum) > 0.0:
        return FistaState(x, at_x, x, 1.0, beta, state.iteration + 1)
    t = 0.5 * (1.0 + sqrt(1.0 + 4.0 * state.t**2))
    y = x + (state.t - 1.0) / t * momentum
    return FistaState(x, at_x, y, t, beta, state.iteration + 1)
