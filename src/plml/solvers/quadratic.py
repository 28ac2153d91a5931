"""Accelerated projected gradient for a convex quadratic over a product of simple sets."""

from typing import Any, Protocol

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

#: Iterations between two looks at the certificate, which costs as much as an iteration.
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
        ...

    def project_rows(self, v: Array, hint: Array) -> Array:
        """Rows onto their sets; the (n,) hint is read and written, and starts as NaN."""
        ...

    def value_and_gap(self, x: Array, product: Array) -> tuple[Array, Array]:
        """The objective, and a relative upper bound on its distance to the minimum."""
        ...


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
    product an iteration, and none for a line search, since the steps are known to be short enough.
    The momentum starts afresh whenever it points uphill.

    Parameters
    ----------
    problem : RowQuadratic
    x0 : (n, m) array in the feasible set
    tol : relative gap at which to stop
    max_iter : iterations at the most
    callback : called at every look at the certificate
    checkpoint : of the state
    """
    monitor = Monitor(tol, callback, checkpoint)
    xp = namespace(x0)
    share = problem.team.map
    # Kept where the arrays are: no iteration waits for the host.
    one = xp.ones_like(x0[0, 0])
    if saved := monitor.saved:
        state = {name: like(saved[name], x0, x0.dtype) for name in _STATE}
        t, done_before = state.pop("t"), int(saved["iteration"])
    else:
        state, t, done_before = _first_state(problem, x0), one, 0
    x, y, Hx, Hy, hint = (state[name] for name in ("x", "y", "Hx", "Hy", "hint"))
    moved = xp.empty_like(x0)
    value, gap = fetch(*problem.value_and_gap(x, Hx))
    if not saved and monitor.done(0, value, gap):
        return monitor.solution(x, value, gap, 0)

    def step(rows: slice) -> Any:
        return take_step(problem, rows, x, moved, y[rows], Hy[rows], hint[rows])

    def extrapolate(rows: slice) -> None:
        product = problem.product(x, rows)
        y[rows], Hy[rows] = extrapolated(x[rows], moved[rows], product, Hx[rows], momentum)
        Hx[rows] = product

    def kept() -> State:
        return {**state, "t": t, "iteration": iteration}

    momentum, iteration = 0.0 * one, done_before
    for iteration in range(done_before + 1, max_iter + 1):
        t, momentum = next_momentum(t, sum(share(step, problem.blocks)))
        share(extrapolate, problem.blocks)
        if iteration % CHECK_EVERY == 0 or iteration == max_iter:
            value, gap = fetch(*problem.value_and_gap(x, Hx))
            if monitor.done(iteration, value, gap, kept):
                break
    return monitor.solution(x, value, gap, iteration)


def take_step(
    problem: RowQuadratic, rows: slice, x: Array, moved: Array, y: Array, Hy: Array, hint: Array
) -> Array:
    """Move some rows of x from y down the gradient; how far the momentum points uphill there.

    Parameters
    ----------
    problem : RowQuadratic
    rows : of the problem
    x, moved : (n, m) arrays; these rows are written: where x goes, and how far
    y, Hy : these rows of the extrapolated point and of its product
    hint : these entries of the projection's hint, written
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
    """Nesterov's t and the momentum after a step; both start afresh where it pointed uphill."""
    xp = namespace(t)
    one = xp.ones_like(t)
    previous = xp.where(uphill > 0.0, one, t)
    t = xp.where(uphill > 0.0, one, 0.5 * (1.0 + xp.sqrt(1.0 + 4.0 * t * t)))
    return t, (previous - 1.0) / t


def extrapolated(
    x: Array, moved: Array, product: Array, product_before: Array, momentum: Array
) -> tuple[Array, Array]:
    """A point beyond x by the momentum, and its product; takes ``moved`` over."""
    moved *= momentum
    moved += x
    change = product - product_before
    change *= momentum
    change += product
    return moved, change


def _first_state(problem: RowQuadratic, x0: Array) -> State:
    """The arrays that one iteration hands to the next, before the first."""
    xp = namespace(x0)
    x, Hx = xp.asarray(x0, copy=True), xp.empty_like(x0)
    problem.team.map(lambda rows: Hx.__setitem__(rows, problem.product(x, rows)), problem.blocks)
    y, Hy = xp.asarray(x, copy=True), xp.asarray(Hx, copy=True)
    return {"x": x, "y": y, "Hx": Hx, "Hy": Hy, "hint": xp.full_like(x0[:, 0], xp.nan)}
