"""The dual of stage 2 as a sum over shards: gammas stay with their rows.

An evaluation is a kernel a shard, one (m, d, d) sum, and a projection of a few basis metrics a
task; a handful of numbers comes to the driver.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cluster import Cluster
from plml.dask.halo import collected, local_numbers, outside, plan_halo
from plml.dask.sharded_neighbors import Partners
from plml.dask.shards import Shard, Shards
from plml.dask.sums import RunningSum, summed
from plml.ops.pairs import PairOperator
from plml.ops.projections import PsdMatrices, project_psd_factored
from plml.solvers.quasi_newton import how_far
from plml.stages.metrics import MetricsDual, best_size, relative_gap
from plml.stages.triplets import cross_triplets

#: Of every gamma.
BOUNDS = (0.0, 1.0)


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


class MetricsValue(NamedTuple):
    """Metrics on the cluster, their numbers here."""

    groups: list[Future]
    square: float
    pulled: float
    value: float


class ShardedDual:
    """``MetricsDual`` as a sum over shards.

    Parameters
    ----------
    cluster : Cluster
    duals : futures of MetricsDual, one a shard
    n_triplets : of all shards
    regularization, pull : alpha_1, alpha_2
    groups : slices of the basis metrics that are decomposed together
    dtype : of the products; those of certificates are in float64
    """

    def __init__(
        self,
        cluster: Cluster,
        duals: list[Future],
        n_triplets: int,
        regularization: float,
        pull: float,
        groups: list[slice],
        dtype: Any = np.float64,
    ) -> None:
        self.cluster = cluster
        self.duals = duals
        self.n_triplets = n_triplets
        self.regularization = regularization
        self.pull = pull
        self.groups = groups
        self.dtype = dtype

    def iterating(self, dtype: Any) -> "ShardedDual":
        """The same problem for the iterations of a solver."""
        weights = self.regularization, self.pull
        return ShardedDual(self.cluster, self.duals, self.n_triplets, *weights, self.groups, dtype)

    @cached_property
    def target_scatter(self) -> Future:
        """A* of one a target pair, for the certificates of the iterations."""
        return self._sum_of(_target_scatter)

    def _sum_of(self, kernel: Callable[[MetricsDual, Any], np.ndarray]) -> Future:
        submit = self.cluster.submit
        running = RunningSum(
            self.cluster, (submit(kernel, dual, self.dtype) for dual in self.duals)
        )
        return submit(summed, running.parts)

    def parts(self, points: list[Future]) -> RunningSum:
        """What is summed at points."""
        pairs = zip(self.duals, points, strict=True)
        return RunningSum(
            self.cluster,
            (self.cluster.submit(parts_at, dual, point, self.dtype) for dual, point in pairs),
        )

    def groups_of(self, running: RunningSum, targets: Future | None) -> list[Future]:
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

    def evaluation(self, groups: list[Future]) -> tuple[MetricsValue, float]:
        """g(gamma) at metrics, and the slope of the way there."""
        submit = self.cluster.submit
        numbers = np.array(self.cluster.gather([submit(_group_numbers, g) for g in groups]))
        square, pulled = numbers[:, :2].sum(axis=0)
        total, slope = numbers[0, 2:]
        value = self.regularization * square - total
        return MetricsValue(groups, square, pulled, float(value)), float(slope)

    def gap(self, evaluation: MetricsValue, hinge: float) -> float:
        """(primal - dual) / primal at the metrics of gamma."""
        return float(relative_gap(np.float64(self.primal(evaluation, hinge)), -evaluation.value))

    def primal(self, evaluation: MetricsValue, hinge: float) -> float:
        """Equation 5."""
        return self.regularization * evaluation.square + hinge + self.pull * evaluation.pulled

    def certificate(self, points: Any, dtype: Any) -> tuple[np.ndarray, np.float64, np.float64]:
        """The metrics of gamma in a dtype, the primal value of exactly these, and g(gamma)."""
        submit = self.cluster.submit
        evaluation, _ = self.evaluation(self.groups_of(self.parts(points), None))
        groups = [submit(_rounded, group, dtype) for group in evaluation.groups]
        losses = [submit(_losses, part, groups, self.dtype) for part in self.duals]
        found, sums = self.cluster.gather(([submit(_matrices, group) for group in groups], losses))
        M = np.concatenate(found)
        hinge, pulled = np.sum(sums, axis=0)
        primal = self.primal(evaluation._replace(square=np.vdot(M, M), pulled=pulled), hinge)
        return M.astype(dtype), np.float64(primal), np.float64(evaluation.value)

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


def _target_scatter(dual: MetricsDual, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).target_scatter


def _triplet_scatter(dual: MetricsDual, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).triplet_scatter(dual.constant(1.0))


def _constant(dual: MetricsDual, value: float) -> Point:
    return Point(dual.constant(value), 0.0)


def parts_at(dual: MetricsDual, point: Point, dtype: Any) -> Parts:
    scatter = dual.iterating(dtype).scatter(point.x)
    return Parts(scatter, float(point.x.sum()), point.slope)


def _uniform_parts(
    pushed: np.ndarray, targets: np.ndarray, size: float, pull: float, n_triplets: int
) -> Parts:
    return Parts(size * pushed - pull * targets, size * n_triplets, 0.0)


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
    distance = how_far(point.x, gradient, BOUNDS)
    return Slack(gradient, float(distance), float(np.abs(gradient).max()), float(hinge))


def _metrics_of(found: list[PsdMatrices]) -> PsdMatrices:
    matrices = np.concatenate([part.matrices for part in found])
    if any(part.factors is None for part in found):
        return PsdMatrices(matrices)
    return PsdMatrices(matrices, [factor for part in found for factor in part.factors or ()])


def _rounded(group: Group, dtype: Any) -> Group:
    """The metrics as a user gets them; the factors are those of others."""
    if dtype == np.float64:
        return group
    M = group.found.matrices.astype(dtype).astype(np.float64)
    return group._replace(found=PsdMatrices(M))


def _matrices(group: Group) -> np.ndarray:
    return group.found.matrices


def _losses(dual: MetricsDual, groups: list[Group], dtype: Any) -> tuple[float, float]:
    """A shard's hinge losses and target distances."""
    found = _metrics_of([group.found for group in groups])
    hinge, pulled = dual.iterating(dtype).losses(found)
    return float(hinge), float(pulled)


def sharded_dual(
    cluster: Cluster,
    shards: Shards,
    partners: list[Future],
    weights: list[Future],
    regularization: float,
    pull: float,
    n_bases: int,
) -> ShardedDual:
    """The dual of the triplets of all shards."""
    duals, sizes = _shard_duals(cluster, shards, partners, weights, regularization, pull)
    duals = [dual for dual, size in zip(duals, sizes, strict=True) if size]
    cuts = np.array_split(np.arange(n_bases), min(n_bases, len(cluster.workers())))
    groups = [slice(int(cut[0]), int(cut[-1]) + 1) for cut in cuts]
    return ShardedDual(cluster, duals, sum(sizes), regularization, pull, groups)


def _shard_duals(
    cluster: Cluster,
    shards: Shards,
    partners: list[Future],
    weights: list[Future],
    regularization: float,
    pull: float,
) -> tuple[list[Future], list[int]]:
    """``MetricsDual`` of every shard's triplets, with the rows of others, and their number."""
    ranges = list(zip(shards.offsets[:-1].tolist(), shards.offsets[1:].tolist(), strict=True))
    outside_numbers = [
        cluster.submit(_partners_outside, its, own)
        for its, own in zip(partners, ranges, strict=True)
    ]
    halo = plan_halo(cluster, shards, outside_numbers)
    parameters = cluster.put((shards.scaling.mean, regularization, pull))
    duals: list[Future] = []
    sizes: list[int] = []
    for wave in cluster.waves(len(shards)):
        for s in wave:
            its = (shards.parts[s], weights[s], partners[s], halo.numbers[s])
            pieces = collected(cluster, halo, shards.parts, s)
            duals.append(
                cluster.submit(_dual, *its, pieces, ranges[s], parameters, on=shards.workers[s])
            )
        sizes += cluster.gather([cluster.submit(_n_triplets, duals[s]) for s in wave])
    return duals, sizes


def _partners_outside(partners: Partners, own: tuple[int, int]) -> np.ndarray:
    return outside(np.concatenate(partners, axis=1), *own)


def _dual(
    shard: Shard,
    weights: np.ndarray,
    partners: Partners,
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
    targets, impostors = (local_numbers(part, *own, halo) for part in partners)
    triplets = cross_triplets(targets, impostors)
    return MetricsDual(PairOperator(X, W, triplets.pairs), triplets, regularization, pull)


def _n_triplets(dual: MetricsDual) -> int:
    return len(dual.triplets.target)
