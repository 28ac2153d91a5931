"""The moves of the box solver on gammas that stay with their shards."""

from collections import deque
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.dask.sharded_dual import (
    BOUNDS,
    MetricsValue,
    Parts,
    Point,
    ShardedDual,
    Slack,
    parts_at,
)
from plml.dask.sums import RunningSum
from plml.solvers.problem import Callback, Solution, State
from plml.solvers.quasi_newton import (
    MEMORY,
    free_coordinates,
    inner_products,
    minimize_box,
    row_coefficients,
)
from plml.stages.metrics import PATIENCE, MetricsDual


def minimize(
    dual: ShardedDual,
    start: list[Future] | None,
    *,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> Solution:
    """The solver of one machine, whose moves are tasks."""
    moves = ShardedMoves(dual, dual.uniform_start() if start is None else start)
    patience = PATIENCE if dual.dtype == np.float32 else None
    return minimize_box(moves, tol=tol, max_iter=max_iter, patience=patience, callback=callback)


class StepView(NamedTuple):
    """What a shard remembers of a point: the way to it, and where it may move from there."""

    step: np.ndarray | None
    change: np.ndarray | None
    free: np.ndarray


class _Trial(NamedTuple):
    points: list[Future]
    evaluation: MetricsValue
    slacks: list[Future]  # begun before anybody knows whether they are needed: mostly they are
    value: float
    slope: float


class _Look(NamedTuple):
    x: list[Future]  # of Point
    evaluation: MetricsValue
    slacks: list[Future]
    views: list[Future]
    gram: np.ndarray
    value: float
    gap: float
    steepest: float


class ShardedMoves:
    """The moves of ``minimize_box`` on gammas that stay with their shards.

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
        self._views: deque[list[Future]] = deque(maxlen=MEMORY)

    @property
    def n_remembered(self) -> int:
        """Steps."""
        return len(self._views)

    def start(self, saved: State) -> _Look:
        """As in ``BoxOracle``."""
        dual, points = self.dual, self._points
        groups = dual.groups_of(dual.parts(points), dual.target_scatter)
        return self._look(points, dual.evaluation(groups)[0], dual.slacks(points, groups), None)

    def state(self, at: _Look) -> State:
        """Nothing is kept in a file."""
        raise NotImplementedError

    def trial(self, at: _Look, step: float) -> _Trial:
        """As in ``BoxOracle``."""
        submit, dual = self.cluster.submit, self.dual
        coefficients = row_coefficients(at.gram, range(self.n_remembered))
        points, running = [], RunningSum(self.cluster)
        for s, its_dual in enumerate(dual.duals):
            remembered = [views[s] for views in self._views]
            move = (at.x[s], at.slacks[s], at.views[s], remembered, coefficients, step)
            points.append(submit(_moved, *move))
            # Moving again takes less time than waiting for it.
            running.add(submit(_parts_after, its_dual, dual.dtype, *move))
        groups = dual.groups_of(running, dual.target_scatter)
        slacks = dual.slacks(points, groups)
        evaluation, slope = dual.evaluation(groups)
        return _Trial(points, evaluation, slacks, evaluation.value, slope)

    def look(self, trial: _Trial, before: _Look) -> _Look:
        """As in ``BoxOracle``."""
        return self._look(trial.points, trial.evaluation, trial.slacks, before)

    def forget(self, at: _Look) -> _Look:
        """As in ``BoxOracle``."""
        self._views.clear()
        return self._look(at.x, at.evaluation, at.slacks, None)

    def _look(
        self,
        points: list[Future],
        evaluation: MetricsValue,
        slacks: list[Future],
        before: _Look | None,
    ) -> _Look:
        submit, dual = self.cluster.submit, self.dual
        numbers = [submit(_slack_numbers, slack) for slack in slacks]
        older = [] if before is None else list(self._views)[-(MEMORY - 1) :]
        views, grams = [], []
        for s, (point, slack) in enumerate(zip(points, slacks, strict=True)):
            way = None if before is None else (before.x[s], before.slacks[s])
            view = (point, slack, numbers, way, dual.dtype)
            views.append(submit(_view, *view))
            grams.append(submit(_gram, *view, [its[s] for its in older]))
        if before is not None:
            self._views.append(views)
        grams, numbers = self.cluster.gather((grams, numbers))
        _, steepest, hinge = (list(column) for column in zip(*numbers, strict=True))
        gap = dual.gap(evaluation, sum(hinge))
        gram = np.sum(grams, axis=0)
        return _Look(points, evaluation, slacks, views, gram, evaluation.value, gap, max(steepest))


def _parts_after(dual: MetricsDual, dtype: Any, *move: Any) -> Parts:
    return parts_at(dual, _moved(*move), dtype)


def _slack_numbers(slack: Slack) -> tuple[float, ...]:
    return slack[1:]


def _view(
    point: Point,
    slack: Slack,
    numbers: list[tuple[float, ...]],
    way: tuple[Point, Slack] | None,
    dtype: Any,
) -> StepView:
    """The way to a point, and the coordinates that are free there."""
    distance = np.float64(max(number[0] for number in numbers))
    free = free_coordinates(point.x, slack.gradient, BOUNDS, distance)
    step = change = None
    if way is not None:
        step = (point.x - way[0].x).astype(dtype)
        change = (slack.gradient - way[1].gradient).astype(dtype)
    return StepView(step, change, free)


def _gram(
    point: Point, slack: Slack, numbers: Any, way: Any, dtype: Any, older: list[StepView]
) -> np.ndarray:
    """Inner products over the free coordinates."""
    newest = _view(point, slack, numbers, way, dtype)
    return inner_products(_rows(slack, [*older, newest]), newest.free, dtype)


def _rows(slack: Slack, views: list[StepView]) -> list[np.ndarray]:
    """The gradient, and after it steps and changes of it."""
    pairs = [part for view in views for part in (view.step, view.change) if part is not None]
    return [slack.gradient, *pairs]


def _moved(
    point: Point,
    slack: Slack,
    view: StepView,
    remembered: list[StepView],
    coefficients: np.ndarray,
    step: float,
) -> Point:
    """Along the quasi-Newton direction, and into the box."""
    rows = _rows(slack, remembered)
    dtype = rows[-1].dtype
    inside = sum(
        c * row.astype(dtype, copy=False)
        for c, row in zip(coefficients.astype(dtype), rows, strict=True)
    )
    direction = np.where(view.free, inside.astype(np.float64), -slack.gradient)
    x = np.clip(point.x + step * direction, *BOUNDS)
    return Point(x, float(slack.gradient @ (x - point.x)))
