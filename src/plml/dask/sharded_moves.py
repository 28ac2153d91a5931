"""The moves of the box solver on gammas that stay with their shards."""

from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.dask.sharded_dual import BOUNDS, Point, ShardedDual, ShardedTrial, Slack
from plml.solvers.problem import Evaluation, Solution, State
from plml.solvers.quasi_newton import (
    MEMORY,
    BoxOracle,
    free_coordinates,
    inner_products,
    minimize_box,
    row_coefficients,
)
from plml.stages.metrics import PATIENCE


def minimize(dual: ShardedDual, start: list[Future] | None, **options: Any) -> Solution:
    """``minimize_box``, whose moves are tasks; the options are its own."""
    moves = ShardedMoves(dual, dual.uniform_start() if start is None else start)
    patience = PATIENCE if dual.dtype == np.float32 else None
    return minimize_box(moves, patience=patience, **options)


class Way(NamedTuple):
    """How a shard came to a point, and where it may move from there."""

    step: np.ndarray | None
    change: np.ndarray | None  # of the gradient
    free: np.ndarray


class ShardedLook(NamedTuple):
    """A point with all that the next step needs."""

    x: list[Future]  # of Point
    evaluation: Evaluation
    slacks: list[Future]
    ways: list[Future]
    gram: np.ndarray
    value: float
    gap: float
    steepest: float


class ShardedMoves(BoxOracle):
    """The moves over shards.

    Parameters
    ----------
    dual : ShardedDual
    points : of every shard, where to start
    """

    width = BOUNDS[1] - BOUNDS[0]

    def __init__(self, dual: ShardedDual, points: list[Future]) -> None:
        self.dual = dual
        self.cluster = dual.cluster
        self._points = points
        #: For every shard, how it came to the last points.
        self._ways: list[list[Future]] = [[] for _ in points]

    @property
    def n_remembered(self) -> int:
        return len(self._ways[0])

    def start(self, saved: State) -> ShardedLook:
        at = self.dual.arrive(self._points)
        return self._look(at, self.dual.slacks(at))

    def state(self, at: ShardedLook) -> State:
        return {}  # no checkpoint is made on a cluster

    def trial(self, at: ShardedLook, step: float) -> ShardedTrial:
        coefficients = row_coefficients(at.gram, range(self.n_remembered))
        here = at.x, at.slacks, at.ways, self._ways
        return self.dual.arrive(self.cluster.map(moved, *here, known=(coefficients, step)))

    def accept(self, trial: ShardedTrial, before: ShardedLook) -> ShardedLook:
        return self._look(trial, self.dual.slacks(trial), before)

    def forget(self, at: ShardedLook) -> ShardedLook:
        self._ways = [[] for _ in at.x]
        return self._look(at, at.slacks)

    def _look(
        self,
        at: ShardedTrial | ShardedLook,
        slacks: list[Future],
        before: ShardedLook | None = None,
    ) -> ShardedLook:
        on_shards, dtype = self.cluster.map, self.dual.dtype
        numbers = on_shards(_numbers, slacks)
        came = [None] * len(slacks) if before is None else zip(before.x, before.slacks, strict=True)
        ways = on_shards(way_to, at.x, slacks, came, known=(numbers, dtype))
        if before is not None:
            memory = zip(self._ways, ways, strict=True)
            self._ways = [[*earlier, way][-MEMORY:] for earlier, way in memory]
        grams = on_shards(gram_of, slacks, self._ways, ways, known=(dtype,))
        grams, numbers = self.cluster.gather((grams, numbers))
        _, steepest, hinge = zip(*numbers, strict=True)
        gap, gram = self.dual.gap_of(at.evaluation, sum(hinge)), np.sum(grams, axis=0)
        known = slacks, ways, gram, at.value, gap, max(steepest)
        return ShardedLook(at.x, at.evaluation, *known)


def _numbers(slack: Slack) -> tuple[float, ...]:
    return slack[1:]


def way_to(
    point: Point,
    slack: Slack,
    before: tuple[Point, Slack] | None,
    numbers: list[tuple[float, ...]],
    dtype: Any,
) -> Way:
    """The way from the point before, if any, and the coordinates that are free here."""
    distance = np.float64(max(number[0] for number in numbers))
    free = free_coordinates(point.x, slack.gradient, BOUNDS, distance)
    if before is None:
        return Way(None, None, free)
    step, change = point.x - before[0].x, slack.gradient - before[1].gradient
    return Way(step.astype(dtype), change.astype(dtype), free)


def gram_of(slack: Slack, ways: list[Way], here: Way, dtype: Any) -> np.ndarray:
    """Inner products over the free coordinates."""
    return inner_products(_rows(slack, ways), here.free, dtype)


def _rows(slack: Slack, ways: list[Way]) -> list[np.ndarray]:
    """The gradient, and after it steps and changes of it."""
    pairs = [part for way in ways for part in (way.step, way.change) if part is not None]
    return [slack.gradient, *pairs]


def moved(
    point: Point, slack: Slack, here: Way, ways: list[Way], coefficients: np.ndarray, step: float
) -> Point:
    """Along the quasi-Newton direction, and into the box."""
    rows = _rows(slack, ways)
    dtype = rows[-1].dtype
    inside = sum(
        c * row.astype(dtype, copy=False)
        for c, row in zip(coefficients.astype(dtype), rows, strict=True)
    )
    direction = np.where(here.free, inside.astype(np.float64), -slack.gradient)
    x = np.clip(point.x + step * direction, *BOUNDS)
    return Point(x, float(slack.gradient @ (x - point.x)))
