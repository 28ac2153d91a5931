"""Stage 2 across shards: gammas stay with their rows, an iteration reduces one (m, d, d) sum.

The solver is that of one machine. Its moves are tasks: a kernel a shard, a sum, a projection of a
few basis metrics a task; a handful of numbers comes to the driver.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.distributed.cluster import Cluster
from plml.distributed.halo import collected, local_numbers, outside, plan_halo
from plml.distributed.neighbors import Found
from plml.distributed.shards import Shard, Shards
from plml.distributed.weights import LearnedWeights
from plml.ops.pairs import PairOperator
from plml.ops.projections import PsdMatrices, project_psd_factored
from plml.solvers.problem import Callback, Solution, State
from plml.solvers.quasi_newton import (
    MEMORY,
    free_coordinates,
    how_far,
    inner_products,
    minimize_box,
    row_coefficients,
)
from plml.stages.metrics import (
    PATIENCE,
    Metrics,
    MetricsDual,
    best_size,
    certified,
    in_phases,
    phases,
    relative_gap,
)
from plml.stages.triplets import cross_triplets

_BOUNDS = (0.0, 1.0)
#: Arrays that one task adds up.
_SUMMED_AT_ONCE = 8


class Point(NamedTuple):
    """A shard's gammas, and its part of <gradient, step> on the way to them."""

    x: np.ndarray
    slope: float


class Parts(NamedTuple):
    """What is summed over shards at a point."""

    scatter: np.ndarray  # (m, d, d)
    total: float  # of gamma
    slope: float


class Group(NamedTuple):
    """The metrics of a few bases at a point."""

    found: PsdMatrices
    square: float  # ||M||^2
    pulled: float  # <M, A* 1_targets>
    total: float  # of gamma, of all shards
    slope: float


class Slack(NamedTuple):
    """The gradient of a shard's gammas."""

    gradient: np.ndarray
    how_far: float
    steepest: float
    hinge: float


class View(NamedTuple):
    """What a shard remembers of a point: the way to it, and where it may move from there."""

    step: np.ndarray | None
    change: np.ndarray | None
    free: np.ndarray


class _Evaluation(NamedTuple):
    """Metrics on the cluster, their numbers here."""

    groups: list[Future]
    square: float
    pulled: float
    value: float


class _Trial(NamedTuple):
    points: list[Future]
    evaluation: _Evaluation
    slacks: list[Future]  # begun before anybody knows whether they are needed: mostly they are
    value: float
    slope: float


class _Look(NamedTuple):
    x: list[Future]  # of Point
    evaluation: _Evaluation
    slacks: list[Future]
    views: list[Future]
    gram: np.ndarray
    value: float
    gap: float
    steepest: float


class RunningSum:
    """A sum of many parts of which few are in memory at a time.

    Parameters
    ----------
    cluster : Cluster
    parts : futures of arrays or ``Parts``
    """

    def __init__(self, cluster: Cluster, parts: Iterable[Future] = ()) -> None:
        self._cluster = cluster
        self._levels: list[list[Future]] = [[]]
        for part in parts:
            self.add(part)

    def add(self, part: Future) -> None:
        """One more; as soon as there are a few, they are replaced by their sum."""
        for level in self._levels:
            level.append(part)
            if len(level) <= _SUMMED_AT_ONCE:
                return
            part = self._cluster.submit(_summed, level[:-1])
            level[:] = level[-1:]
        self._levels.append([part])

    @property
    def parts(self) -> list[Future]:
        """At most a few, whose sum is the sum of all."""
        parts = [part for level in reversed(self._levels) for part in level]
        while len(parts) > _SUMMED_AT_ONCE:
            parts = [
                *parts[:-_SUMMED_AT_ONCE],
                self._cluster.submit(_summed, parts[-_SUMMED_AT_ONCE:]),
            ]
        return parts


class ShardedDual:
    """``MetricsDual`` as a sum over shards.

    Parameters
    ----------
    cluster : Cluster
    duals : futures of MetricsDual, one a shard
    n_triplets : of all shards
    regularization, pull : alpha_1, alpha_2
    groups : slices of the basis metrics that are decomposed together
    dtype : of the products
    """

    def __init__(
        self,
        cluster: Cluster,
        duals: list[Future],
        n_triplets: int,
        regularization: float,
        pull: float,
        groups: list[slice],
        dtype: Any,
    ) -> None:
        self.cluster = cluster
        self.duals = duals
        self.n_triplets = n_triplets
        self.regularization = regularization
        self.pull = pull
        self.groups = groups
        self.dtype = dtype

    @cached_property
    def target_scatter(self) -> Future:
        """A* of one a target pair, for the certificates of the iterations."""
        return self._sum_of(_target_scatter)

    def _sum_of(self, kernel: Callable[[MetricsDual, Any], np.ndarray]) -> Future:
        submit = self.cluster.submit
        running = RunningSum(
            self.cluster, (submit(kernel, dual, self.dtype) for dual in self.duals)
        )
        return submit(_summed, running.parts)

    def parts(self, points: list[Future]) -> "RunningSum":
        """What is summed at points."""
        pairs = zip(self.duals, points, strict=True)
        return RunningSum(
            self.cluster,
            (self.cluster.submit(_parts, dual, point, self.dtype) for dual, point in pairs),
        )

    def groups_of(self, running: "RunningSum", targets: Future | None) -> list[Future]:
        """The metrics, a few bases a task."""
        parts = running.parts
        submit, alpha = self.cluster.submit, self.regularization
        return [submit(_group, parts, targets, b, alpha, self.dtype) for b in self.groups]

    def slacks(self, points: list[Future], groups: list[Future]) -> list[Future]:
        """The gradients under metrics."""
        return [
            self.cluster.submit(_slack, dual, point, groups, self.dtype)
            for dual, point in zip(self.duals, points, strict=True)
        ]

    def evaluation(self, groups: list[Future]) -> tuple[_Evaluation, float]:
        """g(gamma) at metrics, and the slope of the way there."""
        submit = self.cluster.submit
        numbers = np.array(self.cluster.gather([submit(_group_numbers, g) for g in groups]))
        square, pulled = numbers[:, :2].sum(axis=0)
        total, slope = numbers[0, 2:]
        value = self.regularization * square - total
        return _Evaluation(groups, square, pulled, float(value)), float(slope)

    def gap(self, evaluation: _Evaluation, hinge: float) -> float:
        """(primal - dual) / primal at the metrics of gamma."""
        return float(relative_gap(np.float64(self.primal(evaluation, hinge)), -evaluation.value))

    def primal(self, evaluation: _Evaluation, hinge: float) -> float:
        """Equation 5."""
        return self.regularization * evaluation.square + hinge + self.pull * evaluation.pulled

    def uniform_start(self) -> list[Future]:
        """The best of gamma = 1/2, 1/4, 1/8, ..."""
        submit = self.cluster.submit
        pushed = self._sum_of(_triplet_scatter)

        def at(size: float) -> tuple[float, None]:
            parts = submit(
                _uniform_parts, pushed, self.target_scatter, size, self.pull, self.n_triplets
            )
            one = RunningSum(self.cluster, [parts])
            return self.evaluation(self.groups_of(one, None))[0].value, None

        size, _ = best_size(at, self.n_triplets)
        return [submit(_constant, dual, size) for dual in self.duals]


class ShardedMoves:
    """The moves of ``minimize_box`` on gammas that stay with their shards.

    Parameters
    ----------
    dual : ShardedDual
    points : of every shard, where to start
    """

    width = _BOUNDS[1] - _BOUNDS[0]

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
        """As in ``Moves``."""
        dual, points = self.dual, self._points
        groups = dual.groups_of(dual.parts(points), dual.target_scatter)
        return self._look(points, dual.evaluation(groups)[0], dual.slacks(points, groups), None)

    def state(self, at: _Look) -> State:
        """Nothing is kept in a file."""
        raise NotImplementedError

    def trial(self, at: _Look, step: float) -> _Trial:
        """As in ``Moves``."""
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
        """As in ``Moves``."""
        return self._look(trial.points, trial.evaluation, trial.slacks, before)

    def forget(self, at: _Look) -> _Look:
        """As in ``Moves``."""
        self._views.clear()
        return self._look(at.x, at.evaluation, at.slacks, None)

    def _look(
        self,
        points: list[Future],
        evaluation: _Evaluation,
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


def _target_scatter(dual: MetricsDual, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).target_scatter


def _triplet_scatter(dual: MetricsDual, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).triplet_scatter(dual.constant(1.0))


def _constant(dual: MetricsDual, value: float) -> Point:
    return Point(dual.constant(value), 0.0)


def _parts(dual: MetricsDual, point: Point, dtype: Any) -> Parts:
    scatter = dual.iterating(dtype).scatter(point.x)
    return Parts(scatter, float(point.x.sum()), point.slope)


def _parts_after(dual: MetricsDual, dtype: Any, *move: Any) -> Parts:
    return _parts(dual, _moved(*move), dtype)


def _uniform_parts(
    pushed: np.ndarray, targets: np.ndarray, size: float, pull: float, n_triplets: int
) -> Parts:
    return Parts(size * pushed - pull * targets, size * n_triplets, 0.0)


def _summed(parts: list[Any]) -> Any:
    if isinstance(parts[0], Parts):
        return Parts(*(sum(column) for column in zip(*parts, strict=True)))
    return sum(parts)


def _group(
    several: list[Parts],
    targets: np.ndarray | None,
    bases: slice,
    regularization: float,
    dtype: Any,
) -> Group:
    """(-K_b)_+ / (2 alpha_1) of a few bases."""
    S = np.sum([parts.scatter[bases] for parts in several], axis=0) / (2.0 * regularization)
    found = project_psd_factored(S.astype(dtype, copy=False))
    M = found.matrices.astype(np.float64, copy=False)
    total, slope = (sum(column) for column in zip(*(parts[1:] for parts in several), strict=True))
    pulled = 0.0 if targets is None else np.vdot(M, targets[bases])
    numbers = (np.vdot(M, M), pulled, total, slope)
    return Group(found._replace(matrices=M), *(float(number) for number in numbers))


def _group_numbers(group: Group) -> tuple[float, ...]:
    return group[1:]


def _slack(dual: MetricsDual, point: Point, groups: list[Group], dtype: Any) -> Slack:
    gradient = dual.iterating(dtype).slack(_metrics_of([group.found for group in groups]))
    hinge = np.sum(np.maximum(-gradient, 0.0))
    distance = how_far(point.x, gradient, _BOUNDS)
    return Slack(gradient, float(distance), float(np.abs(gradient).max()), float(hinge))


def _metrics_of(found: list[PsdMatrices]) -> PsdMatrices:
    matrices = np.concatenate([part.matrices for part in found])
    if any(part.factors is None for part in found):
        return PsdMatrices(matrices)
    return PsdMatrices(matrices, [factor for part in found for factor in part.factors or ()])


def _slack_numbers(slack: Slack) -> tuple[float, ...]:
    return slack[1:]


def _view(
    point: Point,
    slack: Slack,
    numbers: list[tuple[float, ...]],
    way: tuple[Point, Slack] | None,
    dtype: Any,
) -> View:
    """The way to a point, and the coordinates that are free there."""
    distance = np.float64(max(number[0] for number in numbers))
    free = free_coordinates(point.x, slack.gradient, _BOUNDS, distance)
    step = change = None
    if way is not None:
        step = (point.x - way[0].x).astype(dtype)
        change = (slack.gradient - way[1].gradient).astype(dtype)
    return View(step, change, free)


def _gram(
    point: Point, slack: Slack, numbers: Any, way: Any, dtype: Any, older: list[View]
) -> np.ndarray:
    """Inner products over the free coordinates."""
    newest = _view(point, slack, numbers, way, dtype)
    return inner_products(_rows(slack, [*older, newest]), newest.free, dtype)


def _rows(slack: Slack, views: list[View]) -> list[np.ndarray]:
    """The gradient, and after it steps and changes of it."""
    pairs = [part for view in views for part in (view.step, view.change) if part is not None]
    return [slack.gradient, *pairs]


def _moved(
    point: Point,
    slack: Slack,
    view: View,
    remembered: list[View],
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
    x = np.clip(point.x + step * direction, *_BOUNDS)
    return Point(x, float(slack.gradient @ (x - point.x)))


def _rounded(group: Group, dtype: Any) -> Group:
    """The metrics as a user gets them; the factors are those of others."""
    if dtype == np.float64:
        return group
    M = group.found.matrices.astype(dtype).astype(np.float64)
    return group._replace(found=PsdMatrices(M))


def _matrices(group: Group) -> np.ndarray:
    return group.found.matrices


def _certificate(
    dual: ShardedDual, points: Any, dtype: Any
) -> tuple[np.ndarray, np.float64, np.float64]:
    """The metrics of gamma in a dtype, the primal value of exactly these, and g(gamma)."""
    submit = dual.cluster.submit
    evaluation, _ = dual.evaluation(dual.groups_of(dual.parts(points), None))
    groups = [submit(_rounded, group, dtype) for group in evaluation.groups]
    losses = [submit(_losses, part, groups, dual.dtype) for part in dual.duals]
    found, sums = dual.cluster.gather(([submit(_matrices, group) for group in groups], losses))
    M = np.concatenate(found)
    hinge, pulled = np.sum(sums, axis=0)
    primal = dual.primal(evaluation._replace(square=np.vdot(M, M), pulled=pulled), hinge)
    return M.astype(dtype), np.float64(primal), np.float64(evaluation.value)


def _losses(dual: MetricsDual, groups: list[Group], dtype: Any) -> tuple[float, float]:
    """A shard's hinge losses and target distances."""
    found = _metrics_of([group.found for group in groups])
    hinge, pulled = dual.iterating(dtype).losses(found)
    return float(hinge), float(pulled)


def learn_metrics(
    cluster: Cluster,
    shards: Shards,
    found: list[Future],
    weights: LearnedWeights,
    regularization: float,
    pull: float,
    *,
    n_bases: int,
    dtype: np.dtype,
    largest: float,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> Metrics:
    """Basis metrics with a relative duality gap of at most ``tol``."""
    duals = _shard_duals(cluster, shards, found, weights, regularization, pull)
    sizes = cluster.gather([cluster.submit(_n_triplets, dual) for dual in duals])
    duals = [dual for dual, size in zip(duals, sizes, strict=True) if size]
    cuts = np.array_split(np.arange(n_bases), min(n_bases, len(cluster.workers())))
    groups = [slice(int(cut[0]), int(cut[-1]) + 1) for cut in cuts]

    def dual_in(dtype: Any) -> ShardedDual:
        return ShardedDual(cluster, duals, sum(sizes), regularization, pull, groups, dtype)

    def minimize(
        dtype: Any, start: list[Future] | None, tol: float, max_iter: int, show: Callback | None
    ) -> Solution:
        dual = dual_in(dtype)
        points = dual.uniform_start() if start is None else start
        patience = PATIENCE if dtype == np.float32 else None
        return minimize_box(
            ShardedMoves(dual, points),
            tol=tol,
            max_iter=max_iter,
            patience=patience,
            callback=show,
        )

    return in_phases(
        minimize,
        lambda solution: certified(
            solution, tol, *_certificate(dual_in(np.float64), solution.x, dtype)
        ),
        phases(np, dtype, largest, "auto", tol),
        gamma=None,
        max_iter=max_iter,
        callback=callback,
    )


def _shard_duals(
    cluster: Cluster,
    shards: Shards,
    found: list[Future],
    weights: LearnedWeights,
    regularization: float,
    pull: float,
) -> list[Future]:
    """``MetricsDual`` of every shard's triplets, with the rows of others that these reach."""
    ranges = list(zip(shards.offsets[:-1].tolist(), shards.offsets[1:].tolist(), strict=True))
    outside_numbers = [
        cluster.submit(_partners_outside, its, own) for its, own in zip(found, ranges, strict=True)
    ]
    halo = plan_halo(cluster, shards, outside_numbers)
    parameters = cluster.put((shards.scaling.mean, regularization, pull))
    duals: list[Future] = []
    for wave in cluster.waves(len(shards)):
        for s in wave:
            its = (shards.parts[s], weights.parts[s], found[s], halo.numbers[s])
            pieces = collected(cluster, halo, shards.parts, s, _rows_of)
            duals.append(
                cluster.submit(_dual, *its, pieces, ranges[s], parameters, on=shards.workers[s])
            )
        cluster.wait(duals[wave.start :])
    return duals


def _partners_outside(found: Found, own: tuple[int, int]) -> np.ndarray:
    return outside(np.concatenate([found.targets, found.impostors], axis=1), *own)


def _rows_of(shard: Shard, rows: np.ndarray) -> np.ndarray:
    return shard.X[rows]


def _dual(
    shard: Shard,
    weights: np.ndarray,
    found: Found,
    halo: np.ndarray,
    pieces: list[np.ndarray],
    own: tuple[int, int],
    parameters: tuple[np.ndarray, float, float],
) -> MetricsDual:
    """The dual of a shard's triplets; rows of others have no weights here."""
    mean, regularization, pull = parameters
    X = np.concatenate([shard.X, *pieces])
    X -= mean.astype(X.dtype)
    W = np.concatenate([weights, np.zeros((len(halo), weights.shape[1]), dtype=weights.dtype)])
    targets, impostors = (
        local_numbers(part, *own, halo) for part in (found.targets, found.impostors)
    )
    triplets = cross_triplets(targets, impostors)
    return MetricsDual(PairOperator(X, W, triplets.pairs), triplets, regularization, pull)


def _n_triplets(dual: MetricsDual) -> int:
    return len(dual.triplets.target)
