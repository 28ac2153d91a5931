"""A projected quasi-Newton method for box constraints, on inner products alone.

Coordinates near a bound that the gradient pushes outwards go to the bound; the others take an
L-BFGS step, projected on the box (Bertsekas' two-metric projection), with an Armijo line search
along the projected arc. The L-BFGS direction is a combination of the last steps, of the last
changes of the gradient and of the gradient, with coefficients from their inner products: the
vectors never leave the place where they live.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from plml.backend.arrays import Array, device, dot, fetch, like, namespace, share_of_memory
from plml.backend.threads import slices
from plml.ops.projections import project_box
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

MEMORY = 10
#: Elements of the block of vectors that is worked on at a time.
_BLOCK_ELEMENTS = 2**18
_SUFFICIENT_DECREASE = 1e-4
_SHORTEST_STEP = 1e-10
#: Share of the box that counts as near a bound.
_NEAR = 1e-3
#: A lower bound, and one upper bound for all coordinates or an array of them.
Bounds = tuple[float, Any]


def projected_lbfgs(
    problem: Problem,
    x0: np.ndarray,
    *,
    bounds: Bounds,
    single: bool = False,
    evaluation: Evaluation | None = None,
    **options: Any,
) -> Solution:
    """Minimise over a box, as ``minimize_box``, with vectors that are arrays of one device.

    Parameters
    ----------
    problem : Problem whose feasible set is the box ``bounds``
    x0 : (n,) array in the box
    bounds : the lower bound of every coordinate, and the upper one: a number, or one for each
    single : keep the steps and the changes of the gradient in float32
    evaluation : that of x0, if it is known
    options : of ``minimize_box``
    """
    return minimize_box(ArrayOracle(problem, x0, bounds, single, evaluation), **options)


class Iterate(NamedTuple):
    """A point with all that the next step needs; the last four fields are on the host."""

    x: Any
    evaluation: Evaluation
    gradient: Any
    free: Any  # coordinates not near a bound, or not pushed outwards
    gram: np.ndarray  # inner products of the memory's rows
    value: float
    gap: float
    steepest: float  # largest absolute entry of the gradient


class Trial(NamedTuple):
    """A point along the projected arc; the last two fields are on the host."""

    x: Any
    evaluation: Evaluation
    value: float
    slope: float  # <gradient, x_new - x>


class BoxOracle(Protocol):
    """What the method does with vectors, wherever they are: only a few numbers come back."""

    width: float  # of the box, where it is widest

    @property
    def n_remembered(self) -> int:
        """How many steps the quasi-Newton direction is made from."""

    def start(self, saved: State) -> Any:
        """The ``Iterate`` at the first point, or at that of a saved state."""

    def trial(self, iterate: Any, step: float) -> Any:
        """The ``Trial`` at a step along the projected quasi-Newton direction."""

    def accept(self, trial: Any, before: Any) -> Any:
        """The ``Iterate`` at a trial point that is accepted; the step to it is remembered."""

    def forget(self, iterate: Any) -> Any:
        """The same point without the memory of steps."""

    def state(self, iterate: Any) -> State:
        """What ``start`` needs to return to this point."""


def minimize_box(
    oracle: BoxOracle,
    *,
    tol: float,
    max_iter: int,
    patience: int | None = None,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
) -> Solution:
    """Minimise over a box to a relative gap of ``tol``; return the point with the smallest gap.

    Evaluations of the objective count as iterations. After ``patience`` evaluations without a
    smaller gap the method gives up. Accepted points are certified.
    """
    monitor = Monitor(tol, callback, checkpoint)
    saved = monitor.saved
    iterate, n_evaluations = oracle.start(saved), int(saved.get("n_evaluations", 1))
    best = _Best(iterate.x, iterate.value, iterate.gap, n_evaluations)
    if saved:
        value, gap, at = (float(saved[f"best_{name}"]) for name in _Best._fields[1:])
        best = _Best(like(saved["best_x"], iterate.x), value, gap, int(at))

    def to_save() -> State:
        best_point = {f"best_{name}": value for name, value in best._asdict().items()}
        return {**oracle.state(iterate), "n_evaluations": n_evaluations, **best_point}

    done = bool(not saved and monitor.done(n_evaluations, iterate.value, iterate.gap))
    while not done and n_evaluations < max_iter:
        following, n_tried = _advance(oracle, iterate, max_iter - n_evaluations)
        n_evaluations += n_tried
        if following is None:
            break
        iterate = following
        if iterate.gap < best.gap:
            best = _Best(iterate.x, iterate.value, iterate.gap, n_evaluations)
        done = monitor.done(n_evaluations, iterate.value, iterate.gap, to_save)
        done = done or (patience is not None and n_evaluations - best.at > patience)
    return monitor.solution(best.x, best.value, best.gap, n_evaluations)


def _advance(oracle: BoxOracle, iterate: Any, max_evaluations: int) -> tuple[Any, int]:
    """The next iterate, or None if not even the gradient leads down; and how many were tried."""
    trial, n_evaluations = _search(oracle, iterate, max_evaluations)
    if trial is None and oracle.n_remembered:
        iterate = oracle.forget(iterate)
        trial, n_more = _search(oracle, iterate, max_evaluations - n_evaluations)
        n_evaluations += n_more
    return None if trial is None else oracle.accept(trial, iterate), n_evaluations


def _search(oracle: BoxOracle, iterate: Iterate, max_evaluations: int) -> tuple[Any, int]:
    """The first trial point with a sufficient decrease, or None; and how many were tried."""
    step = 1.0
    if not oracle.n_remembered:  # nothing is known of the curvature: move a fraction of the box
        step = 0.1 * oracle.width / iterate.steepest if iterate.steepest > 0.0 else 0.0
    n_evaluations = 0
    while step > _SHORTEST_STEP and n_evaluations < max_evaluations:
        trial: Trial = oracle.trial(iterate, step)
        n_evaluations += 1
        if trial.slope >= 0.0:
            break
        if trial.value <= iterate.value + _SUFFICIENT_DECREASE * trial.slope:
            return trial, n_evaluations
        # The minimum of the parabola through both values and the slope, within reason.
        curvature = trial.value - iterate.value - trial.slope
        step *= min(max(-0.5 * trial.slope / curvature, 0.1), 0.5)
    return None, n_evaluations


class _Best(NamedTuple):
    """The point with the smallest gap so far."""

    x: Array
    value: float
    gap: float
    at: int  # the number of evaluations when it was found


class Memory:
    """The last steps s = x_new - x and changes y = g_new - g of the gradient, and the gradient.

    Kept in place, one row per vector: g, s_1, y_1, s_2, y_2, ... A new pair replaces the oldest, so
    the rows in use are always the first ones. They are worked on one block of columns at a time,
    so that it stays in the cache.

    Parameters
    ----------
    like_x : (n,) array of the namespace and device to use
    dtype : of the vectors
    """

    def __init__(self, like_x: Array, dtype: Any) -> None:
        xp = namespace(like_x)
        shape = (2 * MEMORY + 1, len(like_x))
        self._vectors = xp.empty(shape, dtype=dtype, device=device(like_x))
        size = share_of_memory(like_x, _BLOCK_ELEMENTS) // len(self._vectors) + 1
        self._blocks = slices(len(like_x), size)
        self._slots: deque[int] = deque(maxlen=MEMORY)

    def __len__(self) -> int:
        return len(self._slots)

    def state(self) -> State:
        """What ``restore`` needs."""
        return {"vectors": self._used, "slots": np.array(self._slots, dtype=np.int64)}

    def restore(self, vectors: np.ndarray, slots: np.ndarray) -> None:
        """Become the memory that returned this state."""
        self._slots.clear()
        self._slots.extend(slots.tolist())
        self._used[...] = like(vectors, self._vectors)

    def clear(self) -> None:
        """Forget all remembered steps and changes of the gradient."""
        self._slots.clear()

    def add(self, step: Array, change: Array) -> None:
        """Remember a step and the change of the gradient over it."""
        slot = self._slots[0] if len(self) == MEMORY else len(self)
        self._slots.append(slot)
        self._vectors[1 + 2 * slot, :] = step
        self._vectors[2 + 2 * slot, :] = change

    def gram(self, gradient: Array, free: Array) -> Array:
        """Remember the gradient; inner products of the rows in use over the free coordinates."""
        xp = namespace(gradient)
        self._vectors[0, :] = gradient
        used = self._used
        total = xp.zeros((len(used),) * 2, dtype=xp.float64, device=device(gradient))
        for block in self._blocks:
            part = used[:, block] * free[block]
            total += part @ part.T
        return total

    def direction(self, gram: np.ndarray, free: Array) -> Array:
        """-H g over the free coordinates, zero elsewhere, by the two-loop recursion."""
        used = self._used
        coefficients = like(row_coefficients(gram, self._slots), used, used.dtype)
        parts = [coefficients @ used[:, block] for block in self._blocks]
        xp = namespace(free)
        return xp.astype(xp.concat(parts), xp.float64) * free

    @property
    def _used(self) -> Array:
        return self._vectors[: 1 + 2 * len(self), :]


class ArrayOracle(BoxOracle):
    """The oracle on arrays of one device; the parameters are those of ``projected_lbfgs``."""

    def __init__(
        self,
        problem: Problem,
        x0: Array,
        bounds: Bounds,
        single: bool,
        evaluation: Evaluation | None,
    ) -> None:
        xp = namespace(x0)
        self.problem = problem
        self.bounds = bounds
        lower, upper = bounds
        self.width = (upper if isinstance(upper, float) else float(xp.max(upper))) - lower
        self._memory = Memory(x0, xp.float32 if single else xp.float64)
        self._first = x0, evaluation
        #: The iterate of the last trial, and the direction from it.
        self._direction: tuple[Iterate, Array] | None = None

    @property
    def n_remembered(self) -> int:
        return len(self._memory)

    def start(self, saved: State) -> Iterate:
        x, evaluation = self._first
        if saved:
            x, evaluation = like(saved["x"], x), None
            self._memory.restore(saved["vectors"], saved["slots"])
        if evaluation is None:
            evaluation = self.problem.evaluate(x)
        return self._iterate(x, evaluation, self.problem.gradient(evaluation))

    def state(self, iterate: Iterate) -> State:
        return {"x": iterate.x, **self._memory.state()}

    def trial(self, iterate: Iterate, step: float) -> Trial:
        xp = namespace(iterate.x)
        if self._direction is None or self._direction[0] is not iterate:
            inside = self._memory.direction(iterate.gram, iterate.free)
            self._direction = iterate, xp.where(iterate.free, inside, -iterate.gradient)
        x = in_box(iterate.x + step * self._direction[1], self.bounds)
        new = self.problem.evaluate(x)
        return Trial(x, new, *fetch(new.value, dot(iterate.gradient, x - iterate.x)))

    def accept(self, trial: Trial, before: Iterate) -> Iterate:
        gradient = self.problem.gradient(trial.evaluation)
        self._memory.add(trial.x - before.x, gradient - before.gradient)
        return self._iterate(trial.x, trial.evaluation, gradient)

    def forget(self, iterate: Iterate) -> Iterate:
        self._memory.clear()
        return self._iterate(iterate.x, iterate.evaluation, iterate.gradient)

    def _iterate(self, x: Array, evaluation: Evaluation, gradient: Array) -> Iterate:
        """All that is known of a point, with one transfer to the host."""
        xp = namespace(x)
        free = free_coordinates(x, gradient, self.bounds, how_far(x, gradient, self.bounds))
        gram = self._memory.gram(gradient, free)
        gap = self.problem.gap(x, evaluation, gradient)
        steepest = xp.max(xp.abs(gradient))
        on_device = (gram, evaluation.value, gap, steepest)
        return Iterate(x, evaluation, gradient, free, *fetch(*on_device))


def in_box(x: Array, bounds: Bounds) -> Array:
    """The nearest point of the box."""
    lower, upper = bounds
    return project_box(x, upper, lower)


def how_far(x: Array, gradient: Array, bounds: Bounds) -> Array:
    """The longest coordinate of a projected gradient step: zero at a solution."""
    xp = namespace(x)
    return xp.max(xp.abs(x - in_box(x - gradient, bounds)))


def free_coordinates(x: Array, gradient: Array, bounds: Bounds, distance: Any) -> Array:
    """Where x is not near a bound, or not pushed outwards; near is within ``distance``.

    A coordinate near a bound counts as at it: otherwise ever shorter steps would end before it.
    """
    lower, upper = bounds
    near = distance.clip(None, _NEAR * (upper - lower))
    held = (x <= lower + near) & (gradient > 0.0)
    return ~(held | ((x >= upper - near) & (gradient < 0.0)))


def inner_products(rows: list[np.ndarray], free: np.ndarray, dtype: Any) -> np.ndarray:
    """Of vectors over the free coordinates, one block that fits the cache at a time."""
    total = np.zeros((len(rows),) * 2)
    for block in slices(len(free), _BLOCK_ELEMENTS // len(rows) + 1):
        part = np.array([row[block] for row in rows], dtype=dtype)
        part *= free[block]
        total += part @ part.T
    return total


def row_coefficients(gram: np.ndarray, slots: Iterable[int]) -> np.ndarray:
    """The direction as coefficients of the rows g, s, y, s, y, ...; slots are oldest first."""
    steps = 1 + 2 * np.array(list(slots), dtype=np.int64)
    order = np.concatenate([steps, steps + 1, [0]])  # the gradient last
    coefficients = np.zeros(len(order))
    coefficients[order] = two_loop_coefficients(gram[np.ix_(order, order)], len(steps))
    return coefficients


def two_loop_coefficients(G: np.ndarray, k: int) -> np.ndarray:
    """The direction as coefficients of (s_1..s_k, y_1..y_k, g), from their Gram matrix.

    Pairs without positive curvature over the free coordinates are left out.
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
