"""Accelerated projected gradient for a convex quadratic over a product of simple sets."""

from typing import Protocol

from plml.backend.arrays import Array, fetch, like, namespace, row_dot
from plml.backend.threads import ThreadTeam
from plml.solvers.problem import (
    NO_SOLVER_CHECKPOINT,
    Callback,
    Monitor,
    Solution,
    SolverCheckpoint,
    State,
)

#: Iterations between two certificates; computing one costs as much as an iteration.
CHECK_EVERY = 5
#: Arrays that one iteration hands to the next.
_STATE = ("x", "y", "Hx", "Hy", "hint", "t")


class RowQuadratic(Protocol):
    """minimise <x, H x> + <b, x> + c, every row of x in a set of its own.

    ``metric`` is a diagonal majoriser, constant within a row: 2 H <= diag(metric). Its reciprocal
    is the step.
    """

    linear: Array  # (n, m), b
    metric: Array  # (n, 1)
    blocks: list[slice]  # rows that are worked on together
    team: ThreadTeam

    def product(self, x: Array, rows: slice) -> Array:
        """Rows of H x."""

    def project_rows(self, v: Array, hint: Array) -> Array:
        """Project rows onto their sets; the (n,) hint is read and written, and starts as NaN."""

    def value_and_gap(self, x: Array, product: Array) -> tuple[Array, Array]:
        """The objective, and a relative upper bound on its distance to the minimum."""


def accelerated(
    problem: RowQuadratic,
    x0: Array,
    *,
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
) -> Solution:
    """Minimise to a relative gap of ``tol``.

    The objective is quadratic, so H at the extrapolated point is the extrapolation of H x: one
    product per iteration, and none for a line search, since the steps are known to be short enough.
    The momentum starts afresh whenever it points uphill.

    Parameters
    ----------
    problem : RowQuadratic
    x0 : (n, m) array in the feasible set
    tol : relative gap at which to stop
    max_iter : largest number of iterations
    callback : called whenever the certificate is computed
    checkpoint : where the state is saved
    """
    monitor = Monitor(tol, callback, checkpoint)
    state = _Accelerated(problem, x0, monitor.saved)
    value, gap = state.value_and_gap()
    stop = bool(not monitor.saved and monitor.done(0, value, gap))
    while not stop and state.iteration < max_iter:
        state.advance()
        if state.iteration % CHECK_EVERY == 0 or state.iteration == max_iter:
            value, gap = state.value_and_gap()
            stop = monitor.done(state.iteration, value, gap, state.to_save)
    return monitor.solution(state.x, value, gap, state.iteration)


class _Accelerated:
    """The arrays that one iteration hands to the next.

    They and Nesterov's t stay where x0 is: no iteration waits for the host.

    Parameters
    ----------
    problem : RowQuadratic
    x0 : (n, m) array
    saved : what ``to_save`` returned in a run that was cut short, or empty
    """

    def __init__(self, problem: RowQuadratic, x0: Array, saved: State) -> None:
        xp = namespace(x0)
        self.problem = problem
        self.iteration = int(saved.get("iteration", 0))
        self._moved = xp.empty_like(x0)
        if saved:
            arrays = (like(saved[name], x0, x0.dtype) for name in _STATE)
            self.x, self.y, self.Hx, self.Hy, self.hint, self.t = arrays
            return
        self.x, self.Hx = xp.asarray(x0, copy=True), xp.empty_like(x0)
        problem.team.map(self._multiply, problem.blocks)
        self.y, self.Hy = xp.asarray(self.x, copy=True), xp.asarray(self.Hx, copy=True)
        self.hint, self.t = xp.full_like(x0[:, 0], xp.nan), xp.ones_like(x0[0, 0])

    def to_save(self) -> State:
        """The state by name."""
        return {"iteration": self.iteration, **{name: getattr(self, name) for name in _STATE}}

    def value_and_gap(self) -> list[float]:
        """The objective at x and its relative gap."""
        return fetch(*self.problem.value_and_gap(self.x, self.Hx))

    def advance(self) -> None:
        """One iteration."""
        team, blocks = self.problem.team, self.problem.blocks
        self.t, momentum = next_momentum(self.t, sum(team.map(self._step, blocks)))
        team.map(lambda rows: self._extrapolate(rows, momentum), blocks)
        self.iteration += 1

    def _multiply(self, rows: slice) -> None:
        self.Hx[rows] = self.problem.product(self.x, rows)

    def _step(self, rows: slice) -> Array:
        y, Hy, hint = self.y[rows], self.Hy[rows], self.hint[rows]
        return take_step(self.problem, rows, self.x, self._moved, y, Hy, hint)

    def _extrapolate(self, rows: slice, momentum: Array) -> None:
        product = self.problem.product(self.x, rows)
        self.y[rows], self.Hy[rows] = extrapolated(
            self.x[rows], self._moved[rows], product, self.Hx[rows], momentum
        )
        self.Hx[rows] = product


def take_step(
    problem: RowQuadratic, rows: slice, x: Array, moved: Array, y: Array, Hy: Array, hint: Array
) -> Array:
    """Move some rows of x from y down the gradient; return how far the momentum points uphill.

    Parameters
    ----------
    problem : RowQuadratic
    rows : the rows to move
    x, moved : (n, m) arrays; these rows are overwritten by the new x and by how far it moved
    y, Hy : these rows of the extrapolated point and of its product
    hint : these entries of the projection's hint, overwritten
    """
    xp = namespace(x)
    gradient = Hy * 2.0
    gradient += problem.linear[rows]
    gradient /= problem.metric[rows]
    new = problem.project_rows(y - gradient, hint)
    move = moved[rows]
    move[...] = new
    move -= x[rows]
    x[rows] = new
    return xp.sum(problem.metric[rows, 0] * row_dot(y - new, move))


def next_momentum(t: Array, uphill: Array) -> tuple[Array, Array]:
    """Nesterov's t and the momentum after a step; both start afresh if it pointed uphill."""
    xp = namespace(t)
    one = xp.ones_like(t)
    previous = xp.where(uphill > 0.0, one, t)
    t = xp.where(uphill > 0.0, one, 0.5 * (1.0 + xp.sqrt(1.0 + 4.0 * t * t)))
    return t, (previous - 1.0) / t


def extrapolated(
    x: Array, moved: Array, product: Array, product_before: Array, momentum: Array
) -> tuple[Array, Array]:
    """The point beyond x by the momentum, and its product; overwrites ``moved``."""
    moved *= momentum
    moved += x
    change = product - product_before
    change *= momentum
    change += product
    return moved, change
