"""Stage 2 across shards: the solver of one machine, whose moves are tasks."""

from typing import Any

import numpy as np
from distributed import Future

from plml.distributed.cluster import Cluster
from plml.distributed.dual import ShardedDual, n_triplets_of, shard_duals
from plml.distributed.moves import ShardedMoves
from plml.distributed.shards import Shards
from plml.distributed.weights import LearnedWeights
from plml.solvers.problem import Callback, Solution
from plml.solvers.quasi_newton import minimize_box
from plml.stages.metrics import PATIENCE, Metrics, certified, in_phases, phases


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
    duals = shard_duals(cluster, shards, found, weights, regularization, pull)
    sizes = cluster.gather([cluster.submit(n_triplets_of, dual) for dual in duals])
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
            solution, tol, *dual_in(np.float64).certificate(solution.x, dtype)
        ),
        phases(np, dtype, largest, "auto", tol),
        gamma=None,
        max_iter=max_iter,
        callback=callback,
    )
