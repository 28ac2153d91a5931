"""Large Margin Nearest Neighbour (Weinberger and Saul, JMLR 2009), one metric or several.

``lmnn_problem`` has the objective. Both solvers begin here, with a start and rounds of L-BFGS on
factors; ``lmnn_convex`` continues from there to a certificate.
"""

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from plml.backend.arrays import like, namespace, on_host
from plml.backend.threads import one_blas_thread, thread_team
from plml.baselines.lmnn_convex import is_well_posed, solve_convex
from plml.baselines.lmnn_problem import (
    ActiveSet,
    LmnnData,
    LmnnSolution,
    Observer,
    find_violations,
    negligible,
)
from plml.solvers.problem import Monitor
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import neighbor_pairs

_N_FIRST_IMPOSTORS = 3
#: Iterations of L-BFGS between two searches for impostors.
_ROUND = 20
#: Iterations of L-BFGS before the convex solver, which is faster from there.
_START = 100


def learn_lmnn(
    data: LmnnData,
    *,
    solver: str,
    n_components: int | None,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    observe: Observer,
) -> LmnnSolution:
    """The metrics that minimise the objective.

    ``solver="factored"`` runs L-BFGS on L with M = L^T L until the objective settles; it takes an
    ``n_components`` below the dimension, and has no certificate. ``"convex"`` starts with some
    iterations of it and solves the convex problem in M, in double precision, until the relative
    duality gap is at most ``tol``. ``"auto"`` is ``"convex"`` if the problem is well posed.

    Parameters
    ----------
    monitor : keeps the history of objectives over all impostors and of gaps
    observe : sees the metrics after every round and may end the fit
    """
    with thread_team() as threads:
        data, limit = data._replace(team=threads), max_iter
        if solver == "auto":
            solver = "convex" if is_well_posed(data) else "factored"
        if solver == "convex":
            xp, limit = namespace(data.X), min(_START, max(max_iter // 2, 1))
            data = data._replace(X=xp.astype(data.X, xp.float64, copy=False))
        active = ActiveSet(data, _first_impostors(data))
        L = _scaled_identity(active, n_components or data.X.shape[1])
        best, active = _factored(active, L, tol, limit, monitor, observe)
        if best.objective <= negligible(data):
            best = best._replace(gap=0.0)
        elif solver == "convex" and not best.stopped:
            best = solve_convex(active, best, tol, max_iter, monitor, observe)
        return best._replace(history=tuple(monitor.history))


def _factored(
    active: ActiveSet,
    L: np.ndarray,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    observe: Observer,
) -> tuple[LmnnSolution, ActiveSet]:
    """Rounds of L-BFGS on the active set, with a search for impostors between them."""
    data, n_iter, before, stuck = active.data, 0, np.inf, False
    best = LmnnSolution(_gram(L), np.inf)
    while True:
        M = _gram(L)
        found = find_violations(data, M)
        if found.objective < best.objective:
            best = LmnnSolution(M, found.objective)
        cut = monitor.done(n_iter, found.objective, np.inf)
        ended = not cut and observe(M)
        seen, _ = active.value_and_subgradient(M)
        complete = found.objective <= (1.0 + 0.1 * tol) * seen
        settled = complete and before - seen <= 0.01 * tol * seen
        settled = settled or stuck or best.objective <= negligible(data)
        if cut or ended or settled or n_iter >= max_iter:
            converged = bool(ended or settled) and not cut
            return best._replace(n_iter=n_iter, converged=converged, stopped=cut or ended), active
        more = active.with_more(found.pairs)
        grown, active = more is not active, more
        before = active.value_and_subgradient(M)[0]
        L, n_steps = _lbfgs_round(active, L, min(_ROUND, max_iter - n_iter))
        n_iter += max(n_steps, 1)
        stuck = not grown and n_steps == 0


def _lbfgs_round(active: ActiveSet, L: np.ndarray, max_iter: int) -> tuple[np.ndarray, int]:
    """Factors after some iterations of L-BFGS on the active set, and the number of iterations."""

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        factors = flat.reshape(L.shape)
        value, G = active.value_and_subgradient(_gram(factors))
        return value, 2.0 * (factors @ G).ravel()

    with one_blas_thread(of="scipy"):
        result = minimize(
            value_and_gradient,
            L.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter},
        )
    return result.x.reshape(L.shape), int(result.nit)


def _first_impostors(data: LmnnData) -> np.ndarray:
    return neighbor_pairs(ExactNeighbors(data.X, data.y).impostors(_N_FIRST_IMPOSTORS))


def _scaled_identity(active: ActiveSet, n_components: int) -> np.ndarray:
    """L_g = sqrt(s) I, or sqrt(s) times the leading principal axes, with the best common s."""
    data, t = active.data, active.triplets
    d = data.X.shape[1]
    gram = on_host(data.X.T @ data.X).astype(np.float64)
    axes = np.eye(d) if n_components >= d else np.linalg.eigh(gram)[1].T[::-1]
    axes = axes[:n_components]
    same = np.tile(axes.T @ axes, (data.n_groups, 1, 1))
    d2 = on_host(active.operator.distances(like(same, data.X)))
    counted, margins = data.counted(t.pairs), d2[t.impostor] - d2[t.target]
    pulled, pushed = (counted * d2)[: t.n_target_pairs].sum(), counted[t.target]

    def objective(log_scale: float) -> float:
        scale = np.exp(log_scale)
        return data.pull * scale * pulled + (pushed * np.maximum(1.0 - scale * margins, 0.0)).sum()

    mean = float(np.mean(d2))
    size = -np.log(mean) if mean > 0 else 0.0
    log_scale = minimize_scalar(objective, bounds=(size - 10, size + 10), method="bounded").x
    return np.tile(np.exp(0.5 * log_scale) * axes, (data.n_groups, 1, 1))


def _gram(L: np.ndarray) -> np.ndarray:
    return L.mT @ L
