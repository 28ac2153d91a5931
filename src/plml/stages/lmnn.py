"""Large Margin Nearest Neighbour (Weinberger and Saul, JMLR 2009), one metric or several.

    min_{M_g >= 0} pull sum_{j ~> i} d^2(x_i, x_j)
                   + sum_{j ~> i} sum_{l: y_l != y_i} [1 + d^2(x_i, x_j) - d^2(x_i, x_l)]_+

with d(x_i, x_j) under the metric of the group of x_j, the second point; pull = (1 - mu) / mu, and
the paper's objective is mu times this one. Every other-class point may be an impostor: those that
matter are found by exact search and kept in an active set. Dropping impostors lowers the
objective, so a dual bound on the active set bounds the whole problem.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from plml.backend.arrays import (
    Array,
    fetch,
    like,
    namespace,
    on_host,
    segment_sum,
    total,
)
from plml.backend.threads import ALONE, Crew, crew, one_blas_thread
from plml.ops.distances import Transformed
from plml.ops.pairs import PairOperator
from plml.ops.projections import PsdMatrices
from plml.ops.topk import row_blocks
from plml.solvers.problem import Evaluation, Iteration, Monitor
from plml.solvers.quasi_newton import projected_lbfgs
from plml.stages.metrics import MetricsDual, relative_gap
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import triplets_of_pairs

_N_FIRST_IMPOSTORS = 3
#: Violators of an instance in one class that join the active set in one round.
_MOST_PER_CLASS = 1000
#: Violators that join it in one round: what bounds the memory.
_MOST_PAIRS = 1_000_000
#: Iterations of L-BFGS between two searches for impostors.
_ROUND = 20
#: Evaluations of one proximal step.
_INNER = 200
#: First proximal weight, relative to objective / ||M||^2, and how it falls.
_FIRST_PROXIMAL = 0.01
_PROXIMAL_DECAY = 0.3
#: How far beyond the margin, relatively, an impostor still counts as near it.
_MARGIN_SLACK = 0.05
#: Relative size below which an eigenvalue is taken for zero.
_RANK = 1e-10


class LmnnData(NamedTuple):
    """What stays fixed while the metrics are learned."""

    X: Array  # (n, d), centred
    y: np.ndarray  # (n,) class codes
    groups: np.ndarray  # (n,) the metric that each point carries
    n_groups: int
    targets: np.ndarray  # (n, k), -1 where absent
    pull: float
    crew: Crew = ALONE


class Lmnn(NamedTuple):
    """Metrics (m, d, d), the whole objective at them, and the relative gap where one is known."""

    M: np.ndarray
    objective: float
    gap: float
    n_iter: int
    history: tuple[Iteration, ...]


#: Sees the metrics after every round; a true return value ends the fit.
Observer = Callable[[np.ndarray], bool]


class Violations(NamedTuple):
    """The whole objective at some metrics, and impostors within the margin."""

    objective: float
    pairs: np.ndarray  # (n_found, 2)


def squared_distances(data: LmnnData, M: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """d^2 of pairs (i, j) under the metric of j."""
    return np.maximum(on_host(_operator(data, pairs).distances(like(M, data.X))), 0.0)


def target_distances(data: LmnnData, M: np.ndarray) -> np.ndarray:
    """d^2 to every target, (n, k); -inf where absent, so that its hinge is zero."""
    rows, columns = np.nonzero(data.targets >= 0)
    result = np.full(data.targets.shape, -np.inf)
    pairs = np.column_stack([rows, data.targets[rows, columns]])
    result[rows, columns] = squared_distances(data, M, pairs)
    return result


def find_violations(data: LmnnData, M: np.ndarray, slack: float = 0.0) -> Violations:
    """The objective over all impostors, and those within the margin of each instance.

    With ``slack`` the pairs are those within so much more than the margin, relatively.

    Of the impostors of one class the nearest ``_MOST_PER_CLASS`` are returned for an instance, and
    ``_MOST_PAIRS`` in all; all of them count in the objective.
    """
    near = target_distances(data, M)
    reach = (1.0 + slack) * (1.0 + near.max(axis=1))
    objective = data.pull * float(near[data.targets >= 0].sum())
    nearest = _Nearest(_MOST_PAIRS)
    for columns, metric in _index_parts(data, M):
        others = np.flatnonzero((data.y != data.y[columns[0]]) & np.isfinite(reach))
        transformed = Transformed(data.X[like(columns, data.X)], metric)

        def search(
            block: slice,
            rows: np.ndarray = others,
            columns: np.ndarray = columns,
            to: Transformed = transformed,
        ) -> tuple[float, np.ndarray, np.ndarray]:
            rows = rows[block]
            d2 = to.distances(data.X[like(rows, data.X)])
            within = namespace(d2).nonzero(d2 < like(reach[rows], d2)[:, None])
            found = on_host(d2[within])
            i, k = (on_host(part) for part in within)
            loss = float(np.maximum(1.0 + near[rows[i]] - found[:, None], 0.0).sum())
            keep = _nearest_of_each(i, found, _MOST_PER_CLASS)
            depth = found[keep] / reach[rows[i[keep]]]
            return loss, np.column_stack([rows[i[keep]], columns[k[keep]]]), depth

        blocks = row_blocks(len(others), len(columns), data.X)
        for loss, pairs, depth in data.crew.map(search, blocks):
            objective += loss
            nearest.add(pairs, depth)
    return Violations(objective, nearest.pairs)


class _Nearest:
    """The pairs deepest within the margin, at most a given number of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.pairs = np.empty((0, 2), dtype=np.int64)
        self.depths = np.empty(0)

    def add(self, pairs: np.ndarray, depths: np.ndarray) -> None:
        self.pairs = np.concatenate([self.pairs, pairs])
        self.depths = np.concatenate([self.depths, depths])
        if len(self.depths) > self.most:
            kept = np.sort(np.argpartition(self.depths, self.most)[: self.most])
            self.pairs, self.depths = self.pairs[kept], self.depths[kept]


def _index_parts(data: LmnnData, M: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The training points cut by group and class, with the metric that they carry."""
    for group, metric in enumerate(M):
        members = data.groups == group
        for label in np.unique(data.y[members]):
            yield np.flatnonzero(members & (data.y == label)), metric


def _nearest_of_each(rows: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k smallest distances of every row number."""
    order = np.lexsort((distances, rows))
    sorted_rows = rows[order]
    first = np.searchsorted(sorted_rows, sorted_rows, side="left")
    return order[np.arange(len(order)) - first < k]


def _operator(data: LmnnData, pairs: np.ndarray) -> PairOperator:
    # The metric is that of the second point, and differences have no sign: turn the pairs round.
    weights = like(np.eye(data.n_groups)[data.groups], data.X, data.X.dtype)
    return PairOperator(data.X, weights, pairs[:, ::-1], data.crew)


class ActiveSet:
    """The impostor pairs looked at, in the order in which they were found."""

    def __init__(self, data: LmnnData, pairs: np.ndarray) -> None:
        self.data = data
        self.pairs = pairs
        self.triplets = triplets_of_pairs(data.targets, pairs)
        self.operator = _operator(data, self.triplets.pairs)
        self._target, self._impostor = (
            like(ends, data.X) for ends in (self.triplets.target, self.triplets.impostor)
        )

    def with_more(self, pairs: np.ndarray) -> "ActiveSet":
        """With the pairs that are new."""
        n = len(self.data.X)
        new = ~np.isin(pairs[:, 0] * n + pairs[:, 1], self.pairs[:, 0] * n + self.pairs[:, 1])
        return ActiveSet(self.data, np.concatenate([self.pairs, pairs[new]])) if new.any() else self

    def value_and_subgradient(self, M: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective over the active set, and a subgradient, both (m, d, d) NumPy arrays."""
        n_targets, pull = self.triplets.n_target_pairs, self.data.pull
        xp = namespace(self.data.X)
        d2 = xp.clip(self.operator.distances(like(M, self.data.X)), 0.0, None)
        hinge = 1.0 + d2[self._target] - d2[self._impostor]
        active = xp.astype(hinge > 0, xp.float64)
        weights = segment_sum(active, self._target, len(d2))
        weights -= segment_sum(active, self._impostor, len(d2))
        weights[:n_targets] += pull
        value = pull * total(d2[:n_targets]) + total(xp.clip(hinge, 0.0, None))
        return fetch(value)[0], on_host(self.operator.scatter(weights))


def learn_lmnn(
    data: LmnnData,
    *,
    solver: str,
    n_components: int | None,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    observe: Observer,
) -> Lmnn:
    """The metrics that minimise the objective.

    ``solver="factored"`` runs L-BFGS on L with M = L^T L: fast, of low rank where
    ``n_components`` says so, without a certificate. ``"convex"`` takes its answer for a start and
    solves the convex problem in M by proximal steps, each a large-margin dual with PSD
    projections, until the relative duality gap is at most ``tol``.

    Parameters
    ----------
    monitor : keeps the history of whole objectives and gaps
    observe : sees the metrics after every round and may end the fit
    """
    with crew() as threads:
        data = data._replace(crew=threads)
        active = ActiveSet(data, _first_impostors(data))
        L = _scaled_identity(active, n_components or data.X.shape[1])
        best, active, ended = _factored(active, L, tol, max_iter, monitor, observe)
        if best.objective <= _negligible(data):
            best = best._replace(gap=0.0)
        elif solver == "convex" and not ended:
            best = _proximal(active, best, tol, max_iter, monitor, observe)
        return best._replace(history=tuple(monitor.history))


def _factored(
    active: ActiveSet,
    L: np.ndarray,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    observe: Observer,
) -> tuple[Lmnn, ActiveSet, bool]:
    """Rounds of L-BFGS on the active set, with a search for impostors between them."""
    data, n_iter, before = active.data, 0, np.inf
    best = Lmnn(_gram(L), np.inf, np.inf, 0, ())

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        factors = flat.reshape(L.shape)
        value, G = active.value_and_subgradient(_gram(factors))
        return value, 2.0 * (factors @ G).ravel()

    while True:
        M = _gram(L)
        found = find_violations(data, M)
        if found.objective < best.objective:
            best = Lmnn(M, found.objective, np.inf, n_iter, ())
        stop = monitor.done(n_iter, found.objective, np.inf) or observe(M) or n_iter >= max_iter
        seen, _ = active.value_and_subgradient(M)
        complete = found.objective <= (1.0 + 0.1 * tol) * seen
        settled = complete and before - seen <= 0.01 * tol * seen
        if stop or settled or best.objective <= _negligible(data):
            return best, active, stop
        more = active.with_more(found.pairs)
        grown, active = more is not active, more
        before = active.value_and_subgradient(M)[0]
        with one_blas_thread(of="scipy"):
            result = minimize(
                value_and_gradient,
                L.ravel(),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": min(_ROUND, max_iter - n_iter)},
            )
        L = result.x.reshape(L.shape)
        n_iter += max(int(result.nit), 1)
        if not grown and result.nit == 0:
            return best, active, False


def _proximal(
    active: ActiveSet,
    best: Lmnn,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    observe: Observer,
) -> Lmnn:
    """Proximal steps min_M f(M) + alpha ||M - best||^2 on the active set, alpha falling."""
    data, n_iter, lower = active.data, best.n_iter, 0.0
    # Near the optimum few impostors of the way there still matter; those at the margin do.
    close = find_violations(data, best.M, _MARGIN_SLACK).pairs
    active = ActiveSet(data, close) if len(close) else active
    alpha = _FIRST_PROXIMAL * best.objective / (float(np.sum(best.M**2)) or 1.0)
    smallest = 1e-12 * alpha
    xp = namespace(data.X)
    gamma = like(np.empty(0), data.X)
    while n_iter < max_iter:
        center = like(best.M, data.X)
        dual = MetricsDual(active.operator, active.triplets, alpha, data.pull, center)
        violated = dual.gradient(Evaluation(0.0, PsdMatrices(center))) < 0
        start = xp.concat([gamma, xp.astype(violated[len(gamma) :], xp.float64)])
        solution = projected_lbfgs(
            dual, start, bounds=(0.0, 1.0), tol=0.1 * tol, max_iter=min(_INNER, max_iter - n_iter)
        )
        n_iter, gamma = n_iter + max(solution.n_iter, 1), solution.x
        M = on_host(dual.metrics(gamma))
        found = find_violations(data, M, _MARGIN_SLACK)
        lower = max(lower, dual_bound(dual, gamma))
        if found.objective < best.objective:
            best = best._replace(M=M, objective=found.objective)
        gap = float(relative_gap(np.float64(best.objective), lower))
        best = best._replace(gap=gap, n_iter=n_iter)
        if monitor.done(n_iter, best.objective, best.gap) or observe(best.M):
            break
        active = active.with_more(found.pairs)
        alpha = max(_PROXIMAL_DECAY * alpha, smallest)
    return best


def _negligible(data: LmnnData) -> float:
    """An objective that is zero up to rounding."""
    return max(1e-9, float(namespace(data.X).finfo(data.X.dtype).eps)) * len(data.X)


def dual_bound(dual: MetricsDual, gamma: np.ndarray) -> float:
    """A lower bound on the objective without the proximal term.

    Its dual is max sum gamma subject to 0 <= gamma <= 1 and C_g(gamma) <= pull A_g in the order of
    PSD matrices, for the scatters C_g of the triplets and A_g of the targets. The largest theta
    for which theta gamma is feasible is found from generalised eigenvalues.
    """
    theta = 1.0
    scatters = on_host(dual.triplet_scatter(gamma)), dual.pull * on_host(dual.target_scatter)
    for C, A in zip(*scatters, strict=True):
        eigenvalues, vectors = np.linalg.eigh(A)
        regular = eigenvalues > _RANK * max(eigenvalues[-1], 0.0)
        null = vectors[:, ~regular]
        if null.size and np.linalg.eigvalsh(null.T @ C @ null)[-1] > _RANK * np.abs(C).max():
            return 0.0  # impostors differ where targets do not: theta = 0
        whitened = vectors[:, regular] / np.sqrt(eigenvalues[regular])
        if whitened.size:
            largest = np.linalg.eigvalsh(whitened.T @ C @ whitened)[-1]
            theta = min(theta, 1.0 / max(largest, 1e-300))
    return theta * fetch(total(gamma))[0]


def _first_impostors(data: LmnnData) -> np.ndarray:
    impostors = ExactNeighbors(data.X, data.y).impostors(_N_FIRST_IMPOSTORS)
    rows, columns = np.nonzero(impostors >= 0)
    return np.column_stack([rows, impostors[rows, columns]])


def _scaled_identity(active: ActiveSet, n_components: int) -> np.ndarray:
    """L_g = sqrt(s) I, or the leading principal axes, with the s that is best for one metric."""
    data, t = active.data, active.triplets
    d = data.X.shape[1]
    gram = on_host(data.X.T @ data.X).astype(np.float64)
    axes = np.eye(d) if n_components >= d else np.linalg.eigh(gram)[1].T[::-1]
    axes = axes[:n_components]
    same = np.tile(axes.T @ axes, (data.n_groups, 1, 1))
    d2 = on_host(active.operator.distances(like(same, data.X)))
    pulled, margins = d2[: t.n_target_pairs].sum(), d2[t.impostor] - d2[t.target]

    def objective(log_scale: float) -> float:
        scale = np.exp(log_scale)
        return data.pull * scale * pulled + np.maximum(1.0 - scale * margins, 0.0).sum()

    mean = float(np.mean(d2))
    size = -np.log(mean) if mean > 0 else 0.0
    log_scale = minimize_scalar(objective, bounds=(size - 10, size + 10), method="bounded").x
    return np.tile(np.exp(0.5 * log_scale) * axes, (data.n_groups, 1, 1))


def _gram(L: np.ndarray) -> np.ndarray:
    return np.swapaxes(L, -1, -2) @ L
