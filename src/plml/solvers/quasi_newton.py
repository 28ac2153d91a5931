"""A projected quasi-Newton method for box constraints, on inner products alone."""

from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import (
    Array,
    chunk_sum,
    device,
    dot,
    fetch,
    is_chunked,
    like,
    map_chunks,
    namespace,
    settle,
    share_of_memory,
)
from plml.solvers.problem import Callback, Evaluation, Keeper, Monitor, Problem, Solution, State

_MEMORY = 10
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
    keeper: Keeper | None = None,
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
    keeper : of the state
    """
    monitor = Monitor(tol, callback, keeper)
    xp = namespace(x0)
    dtype = xp.float32 if single else xp.float64
    memory = ChunkedMemory(dtype) if is_chunked(x0) else Memory(x0, dtype)
    (x0,) = settle(x0)
    n_evaluations, best_at = 1, 1
    if saved := monitor.saved:
        x0, evaluation = like(saved["x"], x0), None
        memory.restore(saved["vectors"], saved["slots"])
        n_evaluations, best_at = int(saved["n_evaluations"]), int(saved["best_at"])
    evaluation = problem.evaluate(x0) if evaluation is None else evaluation
    at = _look(problem, x0, evaluation, bounds, memory)
    best = _Best(at.x, at.value, at.gap)
    if saved:
        best = _Best(
            like(saved["best_x"], x0), float(saved["best_value"]), float(saved["best_gap"])
        )

    def kept() -> State:
        numbers = {"n_evaluations": n_evaluations, "best_at": best_at}
        its = {f"best_{name}": value for name, value in best._asdict().items()}
        return {"x": at.x, **memory.state(), **numbers, **its}

    done = bool(not saved and monitor.done(n_evaluations, at.value, at.gap))
    while not done and n_evaluations < max_iter:
        direction = xp.where(at.free, memory.direction(at.gram, at.free), -at.gradient)
        step = 1.0
        if not memory:  # nothing is known of the curvature: move a fraction of the box
            step = 0.1 * (bounds[1] - bounds[0]) / at.steepest if at.steepest > 0.0 else 0.0
        trial = _search(problem, at, direction, step, bounds, max_iter - n_evaluations)
        n_evaluations += trial.n_evaluations
        if trial.evaluation is None:
            if not memory:
                break  # not even the gradient leads down: the values agree to rounding
            memory.clear()
            at = _look(problem, at.x, at.evaluation, bounds, memory, at.gradient)
            continue
        at = _look(problem, trial.x, trial.evaluation, bounds, memory, before=at)
        if at.gap < best.gap:
            best, best_at = _Best(at.x, at.value, at.gap), n_evaluations
        done = monitor.done(n_evaluations, at.value, at.gap, kept)
        if patience is not None and n_evaluations - best_at > patience:
            break
    return monitor.solution(*best, n_evaluations)


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
        shape = (2 * _MEMORY + 1, len(like_x))
        self._vectors = xp.empty(shape, dtype=dtype, device=device(like_x))
        size = share_of_memory(like_x, _BLOCK_ELEMENTS) // len(self._vectors) + 1
        self._blocks = [slice(i, i + size) for i in range(0, len(like_x), size)]
        self._slots: deque[int] = deque(maxlen=_MEMORY)

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
        slot = self._slots[0] if len(self) == _MEMORY else len(self)
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
        coefficients = like(_row_coefficients(gram, self._slots), used, used.dtype)
        parts = [coefficients @ used[:, block] for block in self._blocks]
        xp = namespace(free)
        return xp.astype(xp.concat(parts), xp.float64) * free

    @property
    def _used(self) -> Array:
        return self._vectors[: 1 + 2 * len(self), :]


class ChunkedMemory:
    """``Memory`` of Dask vectors: nothing is written in place, and every vector stays an array of
    its own, so that one that is not in use can leave the memory of its machine.

    Parameters
    ----------
    dtype : of the vectors
    """

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._gradient: Array = None
        self._pairs: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)

    def __len__(self) -> int:
        return len(self._pairs)

    def state(self) -> State:
        """Nothing is kept in a file."""
        raise NotImplementedError

    def restore(self, vectors: np.ndarray, slots: np.ndarray) -> None:
        """Nothing was kept in a file."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget the steps."""
        self._pairs.clear()

    def add(self, step: Array, change: Array) -> None:
        """A step and the change of the gradient over it."""
        self._pairs.append(settle(step.astype(self._dtype), change.astype(self._dtype)))

    def gram(self, gradient: Array, free: Array) -> Array:
        """Inner products of the rows in use, over the free coordinates; takes the gradient in."""
        self._gradient = gradient.astype(self._dtype)
        size = 1 + 2 * len(self)
        return chunk_sum(_inner_products, (size, size), free, *self._rows)

    def direction(self, gram: np.ndarray, free: Array) -> Array:
        """-H g over the free coordinates, zero elsewhere, by the two-loop recursion."""
        coefficients = _row_coefficients(gram, range(len(self))).astype(self._dtype)
        combine = partial(_combination, coefficients)
        return map_chunks(combine, np.float64, free, *self._rows)

    @property
    def _rows(self) -> list[Array]:
        return [self._gradient, *chain.from_iterable(self._pairs)]


def _inner_products(free: np.ndarray, *rows: np.ndarray) -> np.ndarray:
    """Of rows of vectors over the free coordinates, a block that fits the cache at a time."""
    total = np.zeros((len(rows),) * 2)
    size = _BLOCK_ELEMENTS // len(rows) + 1
    for start in range(0, len(free), size):
        block = slice(start, start + size)
        part = np.stack([row[block] for row in rows]) * free[block]
        total += part @ part.T
    return total


def _combination(coefficients: np.ndarray, free: np.ndarray, *rows: np.ndarray) -> np.ndarray:
    """Of rows of vectors, at the free coordinates."""
    result = coefficients[0] * rows[0]
    for coefficient, row in zip(coefficients[1:], rows[1:], strict=True):
        result += coefficient * row
    return result.astype(np.float64) * free


def _row_coefficients(gram: np.ndarray, slots: Iterable[int]) -> np.ndarray:
    """The direction as coefficients of the rows g, s, y, s, y, ...; slots are oldest first."""
    steps = 1 + 2 * np.array(list(slots), dtype=np.int64)
    order = np.concatenate([steps, steps + 1, [0]])  # the gradient last
    coefficients = np.zeros(len(order))
    coefficients[order] = two_loop_coefficients(gram[np.ix_(order, order)], len(steps))
    return coefficients


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


def _look(
    problem: Problem,
    x: Array,
    evaluation: Evaluation,
    bounds: tuple[float, float],
    memory: Memory | ChunkedMemory,
    gradient: Array | None = None,
    before: _Look | None = None,
) -> _Look:
    """Look at a point, and remember the way to it; one transfer to the host."""
    xp = namespace(x)
    if gradient is None:
        gradient = problem.gradient(evaluation)
    if before is not None:
        memory.add(x - before.x, gradient - before.gradient)
    lower, upper = bounds
    # Near a bound counts as at it, or ever shorter steps would end in front of it.
    near = xp.max(xp.abs(x - problem.project(x - gradient))).clip(None, _NEAR * (upper - lower))
    held = (x <= lower + near) & (gradient > 0.0)
    held = held | ((x >= upper - near) & (gradient < 0.0))
    gram = memory.gram(gradient, ~held)
    gap = problem.gap(x, evaluation, gradient)
    steepest = xp.max(xp.abs(gradient))
    free, *on_device = settle(~held, gram, evaluation.value, gap, steepest)
    return _Look(x, evaluation, gradient, free, *fetch(*on_device))


class _Trial(NamedTuple):
    """What a line search found; no evaluation where it found nothing."""

    x: Array
    evaluation: Evaluation | None
    n_evaluations: int


def _search(
    problem: Problem,
    at: _Look,
    direction: Array,
    step: float,
    bounds: tuple[float, float],
    max_evaluations: int,
) -> _Trial:
    """The first point along the projected arc with a sufficient decrease."""
    n_evaluations = 0
    while step > _SHORTEST_STEP and n_evaluations < max_evaluations:
        (x,) = settle(namespace(at.x).clip(at.x + step * direction, *bounds))
        new = problem.evaluate(x)
        n_evaluations += 1
        value, slope = fetch(new.value, dot(at.gradient, x - at.x))
        if slope >= 0.0:
            break
        if value <= at.value + _SUFFICIENT_DECREASE * slope:
            return _Trial(x, new, n_evaluations)
        # The minimum of the parabola through both values and the slope, within reason.
        curvature = value - at.value - slope
        step *= min(max(-0.5 * slope / curvature, 0.1), 0.5)
    return _Trial(at.x, None, n_evaluations)


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
