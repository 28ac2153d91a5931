"""What a solver needs of a problem, and what it returns.

All solvers take ``tol``, the relative gap at which to stop, ``max_iter``, the largest number of
iterations, ``callback``, called at certified iterates, and ``checkpoint``, which saves the state.
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from plml.backend.arrays import like


class Evaluation(NamedTuple):
    """The objective at a point, with what the problem needs to finish the gradient there."""

    value: Any  # a number, on the device where the problem lives
    cache: Any


class Problem(Protocol):
    """minimise f(x) subject to x in C, with f smooth and convex and C easy to project on."""

    def project(self, x: np.ndarray) -> np.ndarray:
        """The point of C that is nearest to x."""

    def evaluate(self, x: np.ndarray) -> Evaluation:
        """f(x); x need not be in C."""

    def gradient(self, evaluation: Evaluation) -> np.ndarray:
        """The gradient of f at the point of the evaluation."""

    def gap(self, x: np.ndarray, evaluation: Evaluation, gradient: np.ndarray) -> Any:
        """A relative upper bound on f(x) - min f, for x in C."""


class Iteration(NamedTuple):
    """One line of a solver's history."""

    iteration: int
    value: float
    gap: float
    seconds: float


#: Called at every certified iterate; a true return value stops the solver.
Callback = Callable[[Iteration], Any]
#: What a solver needs to continue where it was: arrays and numbers by name.
State = dict[str, Any]


def counting_on(callback: Callback | None, before: "Solution") -> Callback | None:
    """The callback of a run that continues another: iterations and seconds add up."""
    if callback is None:
        return None
    return lambda record: callback(before.counting_on(record))


class Solution(NamedTuple):
    """The point returned, with its certificate."""

    x: np.ndarray
    value: float
    gap: float
    converged: bool
    interrupted: bool  # by the callback
    n_iter: int
    history: tuple[Iteration, ...]

    def followed_by(self, later: "Solution") -> "Solution":
        """A later run from this point, with the history of both."""
        shifted = tuple(self.counting_on(record) for record in later.history)
        return later._replace(n_iter=self.n_iter + later.n_iter, history=self.history + shifted)

    def counting_on(self, record: Iteration) -> Iteration:
        """A line of a later run, with the iterations and seconds of both."""
        seconds = self.history[-1].seconds if self.history else 0.0
        return record._replace(
            iteration=record.iteration + self.n_iter, seconds=record.seconds + seconds
        )


#: Before the first run, for ``followed_by``.
NOTHING_DONE = Solution(np.empty(0), np.inf, np.inf, False, False, 0, ())


class SolverCheckpoint:
    """Where one run of a solver saves its state; this one saves nothing."""

    def finished(self) -> Solution | None:
        """The solution of an earlier run that was not cut short."""
        return None

    def saved(self) -> State:
        """The state of a run that was cut short; empty where there was none."""
        return {}

    def offer(self, state: Callable[[], State]) -> None:
        """Save the state that the function returns, if it is time."""

    def finish(self, solution: Solution) -> Solution:
        """Save the solution, unless a callback stopped the run, and return it."""
        return solution

    def run(
        self, solve: Callable[..., Solution], problem: Any, start: Any, **options: Any
    ) -> Solution:
        """The solution of an earlier run, or that of a solver, on the device of the start."""
        solution = self.finished()
        solution = solution or self.finish(solve(problem, start, checkpoint=self, **options))
        return solution._replace(x=like(solution.x, start))


NO_SOLVER_CHECKPOINT = SolverCheckpoint()


class Checkpointer:
    """Saves what a fit has computed, part by part; this one saves nothing."""

    def arrays(self, name: str, compute: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """What ``compute`` returns, or returned when this part was computed before."""
        return compute()

    def knows(self, name: str) -> bool:
        """Whether this part was computed before."""
        return False

    def solver(self, name: str) -> SolverCheckpoint:
        """The checkpoint of one run of a solver."""
        return NO_SOLVER_CHECKPOINT

    def finish(self) -> None:
        """Save what is not saved yet: the fit is done."""


NO_CHECKPOINT = Checkpointer()

#: The gap down to which single precision is trusted.
SINGLE_PRECISION_TOL = 1e-4


def phases_of(xp: Any, tol: float, single: bool) -> list[tuple[Any, float]]:
    """The dtypes of the arithmetic in the order of use, each with the gap to reach.

    Single precision, where it pays, goes nearly all the way; double precision finishes.
    """
    first = [(xp.float32, max(0.99 * tol, SINGLE_PRECISION_TOL))] if single else []
    return [*first, (xp.float64, tol)]


def best_size(
    value_at: Callable[[float], tuple[float, Any]], n_triplets: float
) -> tuple[float, Any]:
    """The best of the sizes 1/2, 1/4, 1/8, ...: the gammas of data in large units are tiny.

    ``value_at`` maps a size to the objective, and to details that are returned for the best size.
    ``n_triplets`` is their number, or their total weight.
    """
    size = 0.5
    value, details = value_at(size)
    while value > 0.0 or n_triplets * size > 1e-3:
        next_value, next_details = value_at(0.5 * size)
        if next_value >= value:
            break
        size, value, details = 0.5 * size, next_value, next_details
    return size, details


class Monitor:
    """Keeps the history of one run and decides when it ends."""

    def __init__(
        self,
        tol: float,
        callback: Callback | None = None,
        checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
    ) -> None:
        self.tol = tol
        self.callback = callback
        self.checkpoint = checkpoint
        #: The state of a run that was cut short, to continue from.
        self.saved: State = checkpoint.saved()
        self.history = list(history_of(self.saved.pop("history", ())))
        self.interrupted = False
        self._start = perf_counter() - (self.history[-1].seconds if self.history else 0.0)

    def done(
        self, iteration: int, value: float, gap: float, state: Callable[[], State] | None = None
    ) -> bool:
        """Record a certified iterate; true when the gap is closed or the callback says stop.

        ``state`` returns what the solver needs to continue from here.
        """
        record = Iteration(iteration, value, gap, perf_counter() - self._start)
        self.history.append(record)
        if self.callback and self.callback(record):
            self.interrupted = True
        closed = gap <= self.tol
        if state and not closed:
            self.checkpoint.offer(lambda: {**state(), "history": np.array(self.history)})
        return self.interrupted or closed

    def solution(self, x: np.ndarray, value: float, gap: float, n_iter: int) -> Solution:
        """The solution at a certified point."""
        return Solution(
            x, value, gap, gap <= self.tol, self.interrupted, n_iter, tuple(self.history)
        )


def history_of(rows: Iterable[Any]) -> tuple[Iteration, ...]:
    """A history from the rows of an array."""
    return tuple(Iteration(int(i), *(float(value) for value in rest)) for i, *rest in rows)


def history_arrays(history: tuple[Iteration, ...]) -> dict[str, np.ndarray]:
    """The history as one array per column, ready for a plot or a data frame."""
    return {
        name: np.array([getattr(record, name) for record in history]) for name in Iteration._fields
    }
