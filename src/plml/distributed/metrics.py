"""Stage 2 across shards: the solver of one machine, whose moves are tasks."""

from typing import Any

import numpy as np
from distributed import Future

from plml.distributed.dual import ShardedDual
from plml.distributed.moves import ShardedMoves
from plml.solvers.problem import Callback, Solution
from plml.solvers.quasi_newton import minimize_box
from plml.stages.metrics import PATIENCE, Metrics, certified, in_phases, phases


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

    def minimize(
        dtype: Any, start: list[Future] | None, tol: float, max_iter: int, show: Callback | None
    ) -> Solution:
        its_dual = dual.iterating(dtype)
        points = its_dual.uniform_start() if start is None else start
        patience = PATIENCE if dtype == np.float32 else None
        return minimize_box(
            ShardedMoves(its_dual, points),
            tol=tol,
            max_iter=max_iter,
            patience=patience,
            callback=show,
        )

    return in_phases(
        minimize,
        lambda solution: certified(solution, tol, *dual.certificate(solution.x, dtype)),
        phases(np, dtype, largest, "auto", tol),
        gamma=None,
        max_iter=max_iter,
        callback=callback,
    )
