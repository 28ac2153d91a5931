"""A projected quasi-Newton method for box constraints, on inner products alone."""

from collections import deque

import numpy as np

from plml.backend.arrays import Array, dot, like, namespace, on_host
from plml.solvers.problem import Callback, Evaluation, Monitor, Problem, Solution

_MEMORY = 10
_SUFFICIENT_DECREASE = 1e-4
_SHORTEST_STEP = 1e-10
#: Share of the box that counts as near a bound.
_NEAR = 1e-3


def projected_lbfgs(
    problem: Problem,
    x0: np.ndarray,
    *,
    bounds: tuple[float, float],
    tol: float,
    max_iter: int,
    patience: int | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Minimise over a box to a relative gap of ``tol``.

    Coordinates near a bound that the gradient pushes outwards go there; the others take an L-BFGS
    step, projected on the box (Bertsekas' two-metric projection), with an Armijo line search along
    the projected arc. The L-BFGS direction is a combination of the last steps, of the last changes
    of the gradient and of the gradient, with coefficients from their inner products: the vectors
    never leave the place where they live.

    An iteration here is an evaluation of the objective. The point with the smallest gap is
    returned.

    Parameters
    ----------
    problem : Problem whose feasible set is the box ``bounds``
    x0 : (n,) array in the box
    bounds : the same lower and upper bound for every coordinate
    tol : relative gap at which to stop
    max_iter : evaluations at the most
    patience : evaluations without a smaller gap after which to give up
    callback : called at every accepted point
    """
    xp = namespace(x0)
    lower, upper = bounds
    monitor = Monitor(tol, callback)
    x, evaluation = x0, problem.evaluate(x0)
    gradient = problem.gradient(evaluation)
    n_evaluations = 1
    gap = problem.gap(x, evaluation, gradient)
    best, best_at = (x, evaluation.value, gap), n_evaluations
    steps: deque[Array] = deque(maxlen=_MEMORY)
    changes: deque[Array] = deque(maxlen=_MEMORY)
    done = monitor.done(n_evaluations, evaluation.value, gap)
    while not done and n_evaluations < max_iter:
        # Near a bound counts as at it, or ever shorter steps would end in front of it.
        near = min(
            _NEAR * (upper - lower), float(xp.max(xp.abs(x - problem.project(x - gradient))))
        )
        held = (x <= lower + near) & (gradient > 0.0)
        held = held | ((x >= upper - near) & (gradient < 0.0))
        direction = lbfgs_direction(steps, changes, gradient, ~held)
        direction = xp.where(held, -gradient, direction)
        step = 1.0
        if not steps:  # nothing is known of the curvature: move a fraction of the box
            largest = float(xp.max(xp.abs(direction)))
            step = 0.1 * (upper - lower) / largest if largest > 0.0 else 0.0
        left = max_iter - n_evaluations
        trial = _search(problem, x, evaluation, gradient, direction, step, bounds, left)
        n_evaluations += trial.n_evaluations
        if trial.evaluation is None:
            if not steps:
                break  # not even the gradient leads down: the values agree to rounding
            steps.clear()
            changes.clear()
            continue
        new_gradient = problem.gradient(trial.evaluation)
        s, y = trial.x - x, new_gradient - gradient
        if dot(s, y) > 1e-12 * dot(y, y) ** 0.5:
            steps.append(s)
            changes.append(y)
        x, evaluation, gradient = trial.x, trial.evaluation, new_gradient
        gap = problem.gap(x, evaluation, gradient)
        if gap < best[2]:
            best, best_at = (x, evaluation.value, gap), n_evaluations
        done = monitor.done(n_evaluations, evaluation.value, gap)
        if patience is not None and n_evaluations - best_at > patience:
            break
    return monitor.solution(*best, n_evaluations)


class _Trial:
    """What a line search found; no evaluation where it found nothing."""

    def __init__(self, x: np.ndarray, evaluation: Evaluation | None, n_evaluations: int) -> None:
        self.x = x
        self.evaluation = evaluation
        self.n_evaluations = n_evaluations


def _search(
    problem: Problem,
    x: np.ndarray,
    evaluation: Evaluation,
    gradient: np.ndarray,
    direction: np.ndarray,
    step: float,
    bounds: tuple[float, float],
    max_evaluations: int,
) -> _Trial:
    """The first point along the projected arc with a sufficient decrease."""
    n_evaluations = 0
    while step > _SHORTEST_STEP and n_evaluations < max_evaluations:
        new_x = namespace(x).clip(x + step * direction, *bounds)
        slope = dot(gradient, new_x - x)
        if slope >= 0.0:
            return _Trial(x, None, n_evaluations)
        new = problem.evaluate(new_x)
        n_evaluations += 1
        if new.value <= evaluation.value + _SUFFICIENT_DECREASE * slope:
            return _Trial(new_x, new, n_evaluations)
        # The minimum of the parabola through both values and the slope, within reason.
        curvature = new.value - evaluation.value - slope
        step *= min(max(-0.5 * slope / curvature, 0.1), 0.5)
    return _Trial(x, None, n_evaluations)


def lbfgs_direction(
    steps: "deque[Array]",
    changes: "deque[Array]",
    gradient: Array,
    free: Array,
) -> Array:
    """-H g over the free coordinates, zero elsewhere, by the two-loop recursion on coefficients.

    Parameters
    ----------
    steps, changes : the last s = x_new - x and y = g_new - g, oldest first
    gradient : (n,) array
    free : (n,) boolean array
    """
    k = len(steps)
    xp = namespace(gradient)
    basis = xp.stack([*steps, *changes, gradient]) * free
    G = on_host(basis @ basis.T).astype(np.float64)
    return like(two_loop_coefficients(G, k), basis, basis.dtype) @ basis


def two_loop_coefficients(G: np.ndarray, k: int) -> np.ndarray:
    """The direction as coefficients of (s_1..s_k, y_1..y_k, g), from their Gram matrix.

    Pairs without positive curvature over the coordinates at hand are left out.
    """
    delta = np.zeros(2 * k + 1)
    delta[-1] = -1.0
    kept = [i for i in range(k) if G[i, k + i] > 1e-10 * np.sqrt(G[i, i] * G[k + i, k + i])]
    alpha = np.zeros(k)
    for i in reversed(kept):
        alpha[i] = (G[i] @ delta) / G[i, k + i]
        delta[k + i] -= alpha[i]
    if kept:
        last = kept[-1]
        delta *= G[last, k + last] / G[k + last, k + last]
    for i in kept:
        beta = (G[k + i] @ delta) / G[i, k + i]
        delta[i] += alpha[i] - beta
    return delta
