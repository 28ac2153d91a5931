"""A projected quasi-Newton method for box constraints, on inner products alone."""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from plml.backend.arrays import Array, device, dot, fetch, like, namespace, share_of_memory
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


def projected_lbfgs(
    problem: Problem,
    x0: np.ndarray,
    *,
    bounds: tuple[float, float],
    tol: float,
    max_iter: int,
    patience: int | None = None,
    single: bool = False,
    evaluation: Evaluation | None = None,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
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
    single : keep the steps and the changes of the gradient in float32
    evaluation : of x0, where it is at hand
    callback : called at every accepted point
    checkpoint : of the state
    """
    moves = BoxMoves(problem, x0, bounds, single, evaluation)
    return minimize_box(
        moves,
        tol=tol,
        max_iter=max_iter,
        patience=patience,
        callback=callback,
        checkpoint=checkpoint,
    )


class Look(Protocol):
    """A point with all that the next step needs."""

    x: Any
    value: float
    gap: float
    steepest: float  # largest entry of the gradient


class Trial(Protocol):
    """A point along the projected arc."""

    value: float
    slope: float  # <gradient, x_new - x>


class BoxOracle(Protocol):
    """What the method does with vectors, wherever they are: a few numbers come back."""

    width: float  # of the box

    @property
    def n_remembered(self) -> int:
        """Steps."""
        ...

    def start(self, saved: State) -> Any:
        """A ``Look`` at the first point, or at that of a saved state."""
        ...

    def trial(self, at: Any, step: float) -> Any:
        """A ``Trial`` at a step along the projected quasi-Newton direction."""
        ...

    def look(self, trial: Any, before: Any) -> Any:
        """A ``Look`` at a trial that is accepted; the way to it is remembered."""
        ...

    def forget(self, at: Any) -> Any:
        """The same point without the memory of steps."""
        ...

    def state(self, at: Any) -> State:
        """What ``start`` wants."""
        ...


def minimize_box(
    moves: BoxOracle,
    *,
    tol: float,
    max_iter: int,
    patience: int | None = None,
    callback: Callback | None = None,
    checkpoint: SolverCheckpoint = NO_SOLVER_CHECKPOINT,
) -> Solution:
    """``projected_lbfgs`` by the moves that a problem's vectors allow."""
    monitor = Monitor(tol, callback, checkpoint)
    n_evaluations, best_at = 1, 1
    saved = monitor.saved
    at = moves.start(saved)
    best = _Best(at.x, at.value, at.gap)
    if saved:
        n_evaluations, best_at = int(saved["n_evaluations"]), int(saved["best_at"])
        best = _Best(
            like(saved["best_x"], at.x), float(saved["best_value"]), float(saved["best_gap"])
        )

    def kept() -> State:
        numbers = {"n_evaluations": n_evaluations, "best_at": best_at}
        its = {f"best_{name}": value for name, value in best._asdict().items()}
        return {**moves.state(at), **numbers, **its}

    done = bool(not saved and monitor.done(n_evaluations, at.value, at.gap))
    while not done and n_evaluations < max_iter:
        trial, n_tried = _search(moves, at, max_iter - n_evaluations)
        n_evaluations += n_tried
        if trial is None:
            if not moves.n_remembered:
                break  # not even the gradient leads down: the values agree to rounding
            at = moves.forget(at)
            continue
        at = moves.look(trial, at)
        if at.gap < best.gap:
            best, best_at = _Best(at.x, at.value, at.gap), n_evaluations
        done = monitor.done(n_evaluations, at.value, at.gap, kept)
        if patience is not None and n_evaluations - best_at > patience:
            break
    return monitor.solution(*best, n_evaluations)


def _search(moves: BoxOracle, at: Look, max_evaluations: int) -> tuple[Any, int]:
    """The first trial along the projected arc with a sufficient decrease, and how many it took."""
    step = 1.0
    if not moves.n_remembered:  # nothing is known of the curvature: move a fraction of the box
        step = 0.1 * moves.width / at.steepest if at.steepest > 0.0 else 0.0
    n_evaluations = 0
    while step > _SHORTEST_STEP and n_evaluations < max_evaluations:
        trial: Trial = moves.trial(at, step)
        n_evaluations += 1
        if trial.slope >= 0.0:
            break
        if trial.value <= at.value + _SUFFICIENT_DECREASE * trial.slope:
            return trial, n_evaluations
        # The minimum of the parabola through both values and the slope, within reason.
        curvature = trial.value - at.value - trial.slope
        step *= min(max(-0.5 * trial.slope / curvature, 0.1), 0.5)
    return None, n_evaluations


class _Best(NamedTuple):
    """The point with the smallest gap so far."""

    x: Array
    value: float
    gap: float


class Memory:
    """The last steps s = x_new - x and changes y = g_new - g of the gradient, and the gradient.

    Kept in place, one row a vector: g, s_1, y_1, s_2, y_2, ... A new pair takes the place of the
    oldest, so what is used is always the first rows. What is done with them is done a block of
    columns at a time, so that it happens in the cache.

    Parameters
    ----------
    like_x : (n,) array of the namespace and device
    dtype : of the vectors
    """

    def __init__(self, like_x: Array, dtype: Any) -> None:
        xp = namespace(like_x)
        shape = (2 * MEMORY + 1, len(like_x))
        self._vectors = xp.empty(shape, dtype=dtype, device=device(like_x))
        size = share_of_memory(like_x, _BLOCK_ELEMENTS) // len(self._vectors) + 1
        self._blocks = [slice(i, i + size) for i in range(0, len(like_x), size)]
        self._slots: deque[int] = deque(maxlen=MEMORY)

    def __len__(self) -> int:
        return len(self._slots)

    def state(self) -> State:
        """What ``restore`` wants."""
        return {"vectors": self._used, "slots": np.array(self._slots, dtype=np.int64)}

    def restore(self, vectors: np.ndarray, slots: np.ndarray) -> None:
        """Be the memory that gave this state."""
        self._slots.clear()
        self._slots.extend(slots.tolist())
        self._used[...] = like(vectors, self._vectors)

    def clear(self) -> None:
        """Forget the steps."""
        self._slots.clear()

    def add(self, step: Array, change: Array) -> None:
        """A step and the change of the gradient over it."""
        slot = self._slots[0] if len(self) == MEMORY else len(self)
        self._slots.append(slot)
        self._vectors[1 + 2 * slot, :] = step
        self._vectors[2 + 2 * slot, :] = change

    def gram(self, gradient: Array, free: Array) -> Array:
        """Inner products of the rows in use, over the free coordinates; takes the gradient in."""
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


class _Look(NamedTuple):
    """A point with all that the next step needs; the last four on the host."""

    x: Array
    evaluation: Evaluation
    gradient: Array
    free: Array  # not near a bound, or not pushed outwards
    gram: np.ndarray  # of the memory's rows
    value: float
    gap: float
    steepest: float  # largest entry of the gradient


class _Trial(NamedTuple):
    """A point along the projected arc; the last two on the host."""

    x: Array
    evaluation: Evaluation
    value: float
    slope: float


class BoxMoves:
    """The moves of ``minimize_box`` on arrays of one device.

    Parameters
    ----------
    problem : Problem
    x0 : (n,) array in the box
    bounds : of every coordinate
    single : keep the memory in float32
    evaluation : of x0, where it is at hand
    """

    def __init__(
        self,
        problem: Problem,
        x0: Array,
        bounds: tuple[float, float],
        single: bool,
        evaluation: Evaluation | None,
    ) -> None:
        xp = namespace(x0)
        self.problem = problem
        self.bounds = bounds
        self.width = bounds[1] - bounds[0]
        self._memory = Memory(x0, xp.float32 if single else xp.float64)
        self._first = x0, evaluation
        self._direction: tuple[_Look, Array] | None = None  # of the look last tried from

    @property
    def n_remembered(self) -> int:
        """Steps."""
        return len(self._memory)

    def start(self, saved: State) -> _Look:
        """As in ``BoxOracle``."""
        x, evaluation = self._first
        if saved:
            x, evaluation = like(saved["x"], x), None
            self._memory.restore(saved["vectors"], saved["slots"])
        return self._look(x, self.problem.evaluate(x) if evaluation is None else evaluation)

    def state(self, at: _Look) -> State:
        """As in ``BoxOracle``."""
        return {"x": at.x, **self._memory.state()}

    def trial(self, at: _Look, step: float) -> _Trial:
        """As in ``BoxOracle``."""
        xp = namespace(at.x)
        if self._direction is None or self._direction[0] is not at:
            inside = self._memory.direction(at.gram, at.free)
            self._direction = at, xp.where(at.free, inside, -at.gradient)
        x = xp.clip(at.x + step * self._direction[1], *self.bounds)
        new = self.problem.evaluate(x)
        return _Trial(x, new, *fetch(new.value, dot(at.gradient, x - at.x)))

    def look(self, trial: _Trial, before: _Look) -> _Look:
        """As in ``BoxOracle``."""
        gradient = self.problem.gradient(trial.evaluation)
        self._memory.add(trial.x - before.x, gradient - before.gradient)
        return self._look(trial.x, trial.evaluation, gradient)

    def forget(self, at: _Look) -> _Look:
        """As in ``BoxOracle``."""
        self._memory.clear()
        return self._look(at.x, at.evaluation, at.gradient)

    def _look(self, x: Array, evaluation: Evaluation, gradient: Array | None = None) -> _Look:
        """One transfer to the host."""
        xp, problem = namespace(x), self.problem
        if gradient is None:
            gradient = problem.gradient(evaluation)
        free = free_coordinates(x, gradient, self.bounds, how_far(x, gradient, self.bounds))
        gram = self._memory.gram(gradient, free)
        gap = problem.gap(x, evaluation, gradient)
        steepest = xp.max(xp.abs(gradient))
        on_device = (gram, evaluation.value, gap, steepest)
        return _Look(x, evaluation, gradient, free, *fetch(*on_device))


def how_far(x: Array, gradient: Array, bounds: tuple[float, float]) -> Array:
    """The longest coordinate of a projected gradient step: zero at a solution."""
    xp = namespace(x)
    return xp.max(xp.abs(x - xp.clip(x - gradient, *bounds)))


def free_coordinates(
    x: Array, gradient: Array, bounds: tuple[float, float], distance: Any
) -> Array:
    """Not near a bound, or not pushed outwards; near is within the distance of ``how_far``.

    Near a bound counts as at it, or ever shorter steps would end in front of it.
    """
    lower, upper = bounds
    near = distance.clip(None, _NEAR * (upper - lower))
    held = (x <= lower + near) & (gradient > 0.0)
    return ~(held | ((x >= upper - near) & (gradient < 0.0)))


def inner_products(rows: list[np.ndarray], free: np.ndarray, dtype: Any) -> np.ndarray:
    """Of vectors over the free coordinates, a block that fits the cache at a time."""
    total = np.zeros((len(rows),) * 2)
    size = _BLOCK_ELEMENTS // len(rows) + 1
    for start in range(0, len(free), size):
        block = slice(start, start + size)
        part = np.array([row[block] for row in rows], dtype=dtype)
        part *= free[block]
        total += part @ part.T
    return total


def row_coefficients(gram: np.ndarray, slots: Iterable[int]) -> np.ndarray:
    """The direction as coefficients of the rows g, s, y, s, y, ...; the slots oldest first."""
    steps = 1 + 2 * np.array(list(slots), dtype=np.int64)
    order = np.concatenate([steps, steps + 1, [0]])  # the gradient last
    coefficients = np.zeros(len(order))
    coefficients[order] = two_loop_coefficients(gram[np.ix_(order, order)], len(steps))
    return coefficients


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
