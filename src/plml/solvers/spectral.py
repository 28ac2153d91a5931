"""Spectral projected gradient for a convex quadratic over a product of simple sets.

From a start near the solution it is faster than ``quadratic.accelerated``, whose momentum has to
build up first: every step is as long as the curvature along the last one says (Barzilai and
Borwein, 1988; Birgin, Martinez and Raydan, 2000).
"""

from collections import deque

import numpy as np

from plml.backend.arrays import Array, fetch, like, namespace, row_dot
from plml.solvers.problem import (
    NO_SOLVER_CHECKPOINT,
    Callback,
    Monitor,
    Solution,
    SolverCheckpoint,
    State,
)
from plml.solvers.quadratic import CHECK_EVERY, RowQuadratic

#: Within this many times ``tol``, which is not approached steadily, every iterate is certified.
_NEAR = 4.0
#: The value has to fall below the largest one of so many iterates.
_MEMORY = 10
_SUFFICIENT_DECREASE = 1e-4
#: Bounds of a step, in units of the steps that are always short enough.
_STEPS = (1e-3, 1e4)


def spectral(
    problem: RowQuadratic,
    x0: Array,
    *,
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
) -> Solution:
    """Minimise to a relative gap of ``tol``, from x0, an (n, m) array in the feasible set.

    One product per iteration: the objective is quadratic, so H x and the value follow from those of
    the direction.
    """
    monitor = Monitor(tol, callback, checkpoint)
    state = _Spectral(problem, x0, monitor.saved)
    value, gap = state.value_and_gap()
    stop = bool(not monitor.saved and monitor.done(0, value, gap))
    while not stop and state.iteration < max_iter:
        state.advance()
        last = state.iteration == max_iter
        if last or gap <= _NEAR * tol or state.iteration % CHECK_EVERY == 0:
            value, gap = state.value_and_gap()
            stop = monitor.done(state.iteration, value, gap, state.to_save)
    return monitor.solution(state.x, value, gap, state.iteration)


class _Spectral:
    """The arrays and numbers that one iteration hands to the next."""

    def __init__(self, problem: RowQuadratic, x0: Array, saved: State) -> None:
        xp = namespace(x0)
        self.problem = problem
        self.iteration = int(saved.get("iteration", 0))
        self.step = float(saved.get("step", 1.0))
        #: The value relative to that of the start, which only differences of values matter to.
        self.values = deque(np.ravel(saved.get("values", 0.0)).tolist(), maxlen=_MEMORY)
        self._move, self._H_move = xp.empty_like(x0), xp.empty_like(x0)
        if saved:
            self.x, self.Hx, self.hint = (like(saved[n], x0, x0.dtype) for n in ("x", "Hx", "hint"))
            return
        self.x, self.Hx = xp.asarray(x0, copy=True), xp.empty_like(x0)
        self.hint = xp.full_like(x0[:, 0], xp.nan)
        problem.team.map(self._multiply, problem.blocks)

    def to_save(self) -> State:
        """The state by name."""
        numbers = {"iteration": self.iteration, "step": self.step, "values": list(self.values)}
        return {**numbers, "x": self.x, "Hx": self.Hx, "hint": self.hint}

    def value_and_gap(self) -> list[float]:
        """The objective at x and its relative gap."""
        return fetch(*self.problem.value_and_gap(self.x, self.Hx))

    def advance(self) -> None:
        """One iteration; the next step is by the curvature along this one."""
        team, blocks = self.problem.team, self.problem.blocks
        aimed = team.map(self._aim, blocks)
        looked = team.map(self._look, blocks)
        sums = (sum(part) for part in (*zip(*aimed, strict=True), *zip(*looked, strict=True)))
        slope, square, curvature, change = fetch(*sums)
        size = self._size(slope, curvature)
        team.map(lambda rows: self._go(rows, size), blocks)
        self.values.append(self.values[-1] + size * slope + size * size * curvature)
        self.iteration += 1
        long, short = _ratio(square, 2.0 * curvature), _ratio(2.0 * curvature, 4.0 * change)
        self.step = min(max(long if self.iteration % 2 else short, _STEPS[0]), _STEPS[1])

    def _size(self, slope: float, curvature: float) -> float:
        """The whole way where the value then is below those of the last iterates, or the best."""
        allowed = max(self.values) + _SUFFICIENT_DECREASE * slope
        if self.values[-1] + slope + curvature <= allowed:
            return 1.0
        return min(max(_ratio(-slope, 2.0 * curvature), 0.0), 1.0)

    def _multiply(self, rows: slice) -> None:
        self.Hx[rows] = self.problem.product(self.x, rows)

    def _aim(self, rows: slice) -> tuple[Array, Array]:
        """The projected step of some rows: its slope, and its square in the metric."""
        problem, xp = self.problem, namespace(self.x)
        gradient = self.Hx[rows] * 2.0
        gradient += problem.linear[rows]
        target = self.x[rows] - self.step * gradient / problem.metric[rows]
        move = problem.project_rows(target, self.hint[rows]) - self.x[rows]
        self._move[rows] = move
        square = problem.metric[rows, 0] * row_dot(move, move)
        return xp.sum(row_dot(gradient, move)), xp.sum(square)

    def _look(self, rows: slice) -> tuple[Array, Array]:
        """The curvature along the step of some rows, and the square of H times the step."""
        xp, move = namespace(self.x), self._move[rows]
        product = self.problem.product(self._move, rows)
        self._H_move[rows] = product
        square = row_dot(product, product) / self.problem.metric[rows, 0]
        return xp.sum(row_dot(move, product)), xp.sum(square)

    def _go(self, rows: slice, size: float) -> None:
        self.x[rows] += size * self._move[rows]
        self.Hx[rows] += size * self._H_move[rows]


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0.0 else 1.0
