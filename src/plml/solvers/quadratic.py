"""Accelerated projected gradient for a convex quadratic over a product of simple sets."""

from typing import Protocol

from plml.backend.arrays import (
    Array,
    beyond,
    downhill,
    extrapolate,
    fetch,
    like,
    namespace,
    weighted_dot,
)
from plml.backend.graphs import Repeated
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
    """Minimise to a relative gap of ``tol``, from x0, an (n, m) array in the feasible set.

    The objective is quadratic, so H at the extrapolated point is the extrapolation of H x: one
    product per iteration, and none for a line search, since the steps are known to be short enough.
    The momentum starts afresh whenever it points uphill.
    """
    monitor = Monitor(tol, callback, checkpoint)
    state = _Accelerated(problem, x0, monitor.saved)
    # Not a part of the state: arrays that know each other would outlive this function.
    several = Repeated(lambda: state.iterate(CHECK_EVERY), x0)
    state.iterate(0)
    value, gap = state.at(state.iteration)
    stop = bool(not monitor.saved and monitor.done(0, value, gap))
    while not stop and state.iteration < max_iter:
        left = CHECK_EVERY - state.iteration % CHECK_EVERY
        n = min(left, max_iter - state.iteration)
        if n == CHECK_EVERY:
            several()
        else:
            state.iterate(n)
        value, gap = state.at(state.iteration + n)
        stop = monitor.done(state.iteration, value, gap, state.to_save)
    return monitor.solution(state.x, value, gap, state.iteration)


class _Accelerated:
    """The arrays that one iteration hands to the next, from x0 or from those that were saved.

    They and Nesterov's t stay where x0 is, and where they are: no iteration waits for the host,
    and a GPU is sent all iterations between two certificates at once.
    """

    def __init__(self, problem: RowQuadratic, x0: Array, saved: State) -> None:
        xp = namespace(x0)
        self.problem = problem
        self.iteration = int(saved.get("iteration", 0))
        self._moved, self._one = xp.empty_like(x0), xp.ones_like(x0[0, 0])
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

    def iterate(self, n: int) -> None:
        """Take n iterations and certify the last x, without waiting for the outcome."""
        for _ in range(n):
            self._once()
        self._value, self._gap = self.problem.value_and_gap(self.x, self.Hx)

    def at(self, iteration: int) -> list[float]:
        """The objective at the last x and its relative gap, after so many iterations."""
        self.iteration = iteration
        return fetch(self._value, self._gap)

    def _once(self) -> None:
        """One iteration; t and the momentum start afresh if the momentum points uphill."""
        team, blocks, xp = self.problem.team, self.problem.blocks, namespace(self.t)
        first, *others = team.map(self._step, blocks)
        uphill = sum(others, first) > 0.0
        before = xp.where(uphill, self._one, self.t)
        self.t[...] = xp.where(uphill, self._one, 0.5 + xp.sqrt(0.25 + self.t * self.t))
        momentum = (before - 1.0) / self.t
        team.map(lambda rows: self._extrapolate(rows, momentum), blocks)

    def _multiply(self, rows: slice) -> None:
        self.Hx[rows] = self.problem.product(self.x, rows)

    def _step(self, rows: slice) -> Array:
        """Move some rows from y down the gradient; return how far the momentum points uphill."""
        problem, x, y, move = self.problem, self.x[rows], self.y[rows], self._moved[rows]
        metric = problem.metric[rows]
        new = problem.project_rows(
            downhill(y, self.Hy[rows], problem.linear[rows], metric), self.hint[rows]
        )
        namespace(new).subtract(new, x, out=move)
        x[...] = new
        return weighted_dot(metric, y - new, move)

    def _extrapolate(self, rows: slice, momentum: Array) -> None:
        """Move some rows of y beyond x by the momentum; H y follows without a product."""
        product = self.problem.product(self.x, rows)
        beyond(self.x[rows], self._moved[rows], momentum, out=self.y[rows])
        extrapolate(self.Hx[rows], product, momentum, out=self.Hy[rows])
        self.Hx[rows] = product
