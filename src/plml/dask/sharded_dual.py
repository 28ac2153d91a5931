"""The dual of stage 2 as a sum over shards: gammas stay with their rows.

An evaluation is a kernel per shard, one (m, d, d) sum, and its projection on the driver, from where
the metrics go back to the shards.
"""

from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from plml.backend.threads import ThreadTeam
from plml.dask.cluster import Cluster
from plml.dask.halo import local_numbers, outside, rows_between, shards_reached
from plml.dask.shards import Shard, Shards
from plml.dask.sums import RunningSum, summed
from plml.ops.pairs import PairOperator
from plml.ops.projections import PsdMatrices, as_psd_matrices
from plml.solvers.problem import Evaluation, best_size
from plml.solvers.quasi_newton import how_far
from plml.stages.metrics import MetricsDual, relative_gap
from plml.stages.pipeline import Prepared, Settings
from plml.stages.triplets import cross_triplets

#: Of every gamma.
BOUNDS = (0.0, 1.0)
_NO_TRIPLETS = cross_triplets(*np.empty((2, 0, 1), dtype=np.int64))


class Point(NamedTuple):
    """A shard's gammas, and its part of <gradient, step> on the way to them."""

    x: np.ndarray
    slope: float


class PointSums(NamedTuple):
    """What is summed over shards at a point."""

    scatter: np.ndarray  # (m, d, d)
    total: float  # of gamma
    slope: float


class ShardedTrial(NamedTuple):
    """A point of all shards."""

    x: list[Future]  # of Point
    evaluation: Evaluation
    value: float
    slope: float  # of the way there


class Slack(NamedTuple):
    """The gradient of a shard's gammas, and what the driver wants to know of it."""

    gradient: np.ndarray
    how_far: float
    steepest: float
    hinge: float


class ShardedDual(MetricsDual):
    """The dual of the triplets of all shards: that of no triplets, whose sums run over shards.

    Parameters
    ----------
    cluster : Cluster
    duals : futures of MetricsDual, one per shard that has triplets
    n_triplets : of all shards
    no_pairs : operator with the features, the bases and the threads of the driver
    settings : Settings
    """

    def __init__(
        self,
        cluster: Cluster,
        duals: list[Future],
        n_triplets: int,
        no_pairs: PairOperator,
        settings: Settings,
    ) -> None:
        super().__init__(no_pairs, _NO_TRIPLETS, settings.regularization, settings.pull)
        self.cluster = cluster
        self.duals = duals
        self.n_triplets = n_triplets

    @cached_property
    def target_scatter(self) -> np.ndarray:
        """Of all shards, for the certificates of the iterations."""
        return self._sum_of(_target_scatter)

    def scatter_sizes(self, points: list[Future]) -> np.ndarray:
        """Of all shards."""
        return self._sum_of(_scatter_sizes, points)

    def losses(self, M: np.ndarray | PsdMatrices) -> tuple[float, float]:
        """The hinge loss and the pull of metrics M, summed over the shards."""
        known = self.dtype, sent(self.cluster, as_psd_matrices(M))
        losses = self.cluster.map(_losses, self.duals, known=known)
        hinge, pulled = np.sum(self.cluster.gather(losses), axis=0)
        return hinge, pulled

    def _sum_of(self, kernel: Callable[..., Any], *of_shards: list[Future]) -> Any:
        """The sum of what a kernel finds on the shards, on the driver."""
        submit, shards = self.cluster.submit, zip(self.duals, *of_shards, strict=True)
        tasks = (submit(kernel, *shard, self.dtype) for shard in shards)
        running = RunningSum(partial(submit, summed), tasks)
        return self.cluster.gather(submit(summed, running.parts))

    def evaluate(self, points: list[Future]) -> Evaluation:
        """g(gamma) with the metrics of gamma."""
        return self.arrive(points).evaluation

    def arrive(self, points: list[Future]) -> ShardedTrial:
        """The same, and the slope of the way there."""
        sums = self._sum_of(sums_at, points)
        evaluation = self._evaluate_sums(sums.scatter, sums.total)
        return ShardedTrial(points, evaluation, evaluation.value, sums.slope)

    def _evaluate_sums(self, scatter: np.ndarray, total: float) -> Evaluation:
        """From -K and the sum of gamma."""
        return self.evaluate_at(np.array([total]), self.metrics_of(scatter))

    def slacks(self, at: ShardedTrial) -> list[Future]:
        """The gradients of the shards."""
        known = self.dtype, sent(self.cluster, at.evaluation.cache)
        return self.cluster.map(slack_at, self.duals, at.x, known=known)

    def gap_of(self, evaluation: Evaluation, hinge: float) -> float:
        """``gap`` from the hinge losses of all shards."""
        M = evaluation.cache.matrices
        primal = self._primal(M, hinge, np.vdot(M, self.target_scatter))
        return float(relative_gap(primal, -evaluation.value))

    def uniform_start(self) -> list[Future]:
        """The best of gamma = 1/2, 1/4, 1/8, ..."""
        pushed, pulled = self._sum_of(_triplet_scatter), self.pull * self.target_scatter

        def at(size: float) -> tuple[float, None]:
            return self._evaluate_sums(size * pushed - pulled, size * self.n_triplets).value, None

        size, _ = best_size(at, self.n_triplets)
        return self.cluster.map(_constant, self.duals, known=(size,))


def sent(cluster: Cluster, found: PsdMatrices) -> Future:
    """Metrics on the cluster; where there are factors, these go, which are smaller."""
    if found.factors is None:
        return cluster.submit(PsdMatrices, cluster.put_rows(found.matrices))
    ranks = [factor.shape[1] for factor in found.factors]
    columns = cluster.put_rows(np.concatenate([factor.T for factor in found.factors]))
    return cluster.submit(metrics_from, columns, ranks)


def metrics_from(columns: np.ndarray, ranks: list[int]) -> PsdMatrices:
    """L_b L_b^T, from the columns of all L_b one below the other."""
    factors = [part.T for part in np.split(columns, np.cumsum(ranks)[:-1])]
    return PsdMatrices(np.stack([L @ L.T for L in factors]), factors)


def _target_scatter(dual: MetricsDual, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).target_scatter


def _triplet_scatter(dual: MetricsDual, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).triplet_scatter(dual.constant(1.0))


def _scatter_sizes(dual: MetricsDual, point: Point, dtype: Any) -> np.ndarray:
    return dual.iterating(dtype).scatter_sizes(point.x)


def _constant(dual: MetricsDual, value: float) -> Point:
    return Point(dual.constant(value), 0.0)


def sums_at(dual: MetricsDual, point: Point, dtype: Any) -> PointSums:
    """A shard's part of -K, of the sum of gamma and of the slope."""
    return PointSums(dual.iterating(dtype).scatter(point.x), float(point.x.sum()), point.slope)


def slack_at(dual: MetricsDual, point: Point, dtype: Any, found: PsdMatrices) -> Slack:
    """The gradient at a point whose metrics are known."""
    gradient = dual.iterating(dtype).slack(found)
    hinge = np.sum(np.maximum(-gradient, 0.0))
    distance = how_far(point.x, gradient, BOUNDS)
    return Slack(gradient, float(distance), float(np.abs(gradient).max()), float(hinge))


def _losses(dual: MetricsDual, dtype: Any, found: PsdMatrices) -> tuple[float, float]:
    """A shard's hinge losses and target distances."""
    hinge, pulled = dual.iterating(dtype).losses(found)
    return float(hinge), float(pulled)


def sharded_dual(
    cluster: Cluster, shards: Shards, prepared: Prepared, settings: Settings, team: ThreadTeam
) -> ShardedDual:
    """The dual of the triplets of all shards, each with the rows that it reads of others."""
    submit, parts, ranges = cluster.submit, shards.parts, list(pairwise(shards.offsets.tolist()))
    weights, anchors, partners = *prepared.weights[:2], prepared.triplets
    halos = cluster.map(outside, partners, *zip(*ranges, strict=True))
    reached = cluster.gather(cluster.map(shards_reached, halos, known=(shards.offsets,)))
    mean = shards.quantizer.scaling.mean
    parameters = cluster.put((mean, settings))

    def dual_of(s: int) -> Future:
        others = [submit(rows_between, parts[r], halos[s], *ranges[r]) for r in reached[s]]
        own = parts[s], weights[s], partners[s], ranges[s]
        return submit(shard_dual, *own, halos[s], others, parameters, on=shards.workers[s])

    duals = cluster.in_waves(lambda wave: [dual_of(s) for s in wave], range(len(shards)))
    sizes = cluster.gather(cluster.map(_n_triplets, duals))
    duals = [dual for dual, size in zip(duals, sizes, strict=True) if size]
    X, W = np.zeros((1, len(mean))), np.zeros((1, len(anchors)))
    no_pairs = PairOperator(X, W, _NO_TRIPLETS.pairs, team)
    return ShardedDual(cluster, duals, sum(sizes), no_pairs, settings)


def shard_dual(
    shard: Shard,
    weights: np.ndarray,
    partners: np.ndarray,
    own: tuple[int, int],
    halo: np.ndarray,
    others: list[np.ndarray],
    parameters: tuple[np.ndarray, Settings],
) -> MetricsDual:
    """The dual of a shard's triplets; rows of others have no weights here.

    Parameters
    ----------
    shard, weights, partners : of the same rows; targets and impostors side by side
    own : number of the shard's first row, and of the next one's
    halo, others : numbers of the rows that are read of other shards, and these rows
    parameters : mean of the data, and what is minimised
    """
    mean, settings = parameters
    X = np.concatenate([shard.X, *others])
    X -= mean.astype(X.dtype)
    W = np.concatenate([weights, np.zeros((len(halo), weights.shape[1]), dtype=weights.dtype)])
    numbers = local_numbers(partners, *own, halo)
    triplets = cross_triplets(*np.split(numbers, [settings.n_targets], axis=1))
    pairs = PairOperator(X, W, triplets.pairs)
    return MetricsDual(pairs, triplets, settings.regularization, settings.pull)


def _n_triplets(dual: MetricsDual) -> int:
    return len(dual.triplets.target)
