"""Stage 2 across shards: the solver of one machine, whose moves are tasks."""

import numpy as np
from distributed import Future

from plml.dask.dual import ShardedDual
from plml.dask.moves import ShardedMoves
from plml.solvers.problem import Callback, Solution
from plml.solvers.quasi_newton import minimize_box
from plml.stages.metrics import PATIENCE, Metrics, certified_metrics, phases


def learn_metrics(
    dual: ShardedDual,
    *,
    dtype: np.dtype,
    largest: float,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> Metrics:
    """Basis metrics with a relative duality gap of at most ``tol``."""
    return certified_metrics(
        dual,
        _minimize,
        phases(np, dtype, largest, "auto", tol),
        dtype,
        gamma=None,
        tol=tol,
        max_iter=max_iter,
        callback=callback,
    )


def _minimize(
    dual: ShardedDual,
    start: list[Future] | None,
    *,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> Solution:
    moves = ShardedMoves(dual, dual.uniform_start() if start is None else start)
    patience = PATIENCE if dual.dtype == np.float32 else None
    return minimize_box(moves, tol=tol, max_iter=max_iter, patience=patience, callback=callback)
