"""The convex problem of LMNN, solved until its duality gap is closed.

A metric enters the objective as pull <A_g, M_g>, with the scatter A_g of its target pairs, and the
dual requires C_g(gamma) <= pull A_g in the order of PSD matrices. So the size of M_g in a direction
is one over that of A_g. Proximal steps in the units of the features take very long where A_g is
small, and their dual points violate the constraint there. Steps in N_g = A_g^1/2 M_g A_g^1/2 are
equally fast in all directions, and violations of the constraint are relative to the identity.
"""

import numpy as np

from plml.backend.arrays import Array, fetch, like, namespace, on_host, total
from plml.baselines.lmnn_problem import (
    ActiveSet,
    LmnnData,
    LmnnSolution,
    Observer,
    find_violations,
    negligible,
    target_scatter,
)
from plml.ops.grouped import GroupedPairs
from plml.ops.projections import PsdMatrices
from plml.solvers.problem import Evaluation, Monitor, Solution
from plml.solvers.quasi_newton import projected_lbfgs
from plml.stages.metrics import MetricsDual, relative_gap

#: The most evaluations of one proximal step.
_INNER = 200
#: The first proximal weight, relative to objective / ||N||^2, and how it decreases.
_FIRST_PROXIMAL = 1.0
_PROXIMAL_DECAY = 0.3
#: A step that raises the objective by more is undone, and the weight grows.
_TOO_FAR = 1.05
_PROXIMAL_GROWTH = 2.0
#: How far beyond the margin, relative to it, an impostor still counts as near it.
_MARGIN_SLACK = 0.05
#: Relative size below which an eigenvalue counts as zero.
_RANK = 1e-10
#: Share of the largest size of a scatter below which targets hardly differ.
_SMALLEST = 1e-6


def is_well_posed(data: LmnnData) -> bool:
    """Whether the targets of every metric differ in all the directions in which the data do.

    If they do not, a metric can push impostors away at no cost: it grows without bound, or the
    optimum follows directions in which a few rows happen not to differ.
    """
    X = on_host(data.X).astype(np.float64, copy=False)
    eigenvalues, vectors = np.linalg.eigh(X.T @ X)
    varying = eigenvalues > _RANK * max(eigenvalues[-1], 0.0)
    if not varying.any():
        return False
    whitened = vectors[:, varying] / np.sqrt(eigenvalues[varying])
    spread = np.linalg.eigvalsh(whitened.T @ target_scatter(data) @ whitened)
    return bool((spread[:, 0] > _SMALLEST * spread[:, -1]).all())


class TargetCoordinates:
    """N_g with M_g = B_g N_g B_g^T, where B_g^T A_g B_g is the identity, or less in directions in
    which targets hardly differ.
    """

    def __init__(self, data: LmnnData) -> None:
        eigenvalues, vectors = np.linalg.eigh(target_scatter(data))
        smallest = _SMALLEST * eigenvalues.max()
        sizes = np.sqrt(np.maximum(eigenvalues, smallest if smallest > 0 else 1.0))
        self.basis = vectors / sizes[:, None, :]
        self._inverse = (vectors * sizes[:, None, :]).mT

    def of(self, M: np.ndarray) -> np.ndarray:
        """N, the metrics M in the coordinates of the basis."""
        return self._inverse @ M @ self._inverse.mT

    def metrics(self, N: np.ndarray) -> np.ndarray:
        """M, metrics N in the coordinates of the data."""
        return self.basis @ N @ self.basis.mT


def solve_convex(
    active: ActiveSet,
    best: LmnnSolution,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    observe: Observer,
) -> LmnnSolution:
    """Proximal steps min_N f(N) + alpha ||N - center||^2 on the active set, alpha decreasing."""
    data, n_iter, lower = active.data, best.n_iter, 0.0
    coordinates = TargetCoordinates(data)
    center, reached = coordinates.of(best.M), best.objective
    # Few of the impostors met on the way matter near the optimum; those at the margin do.
    close = find_violations(data, best.M, _MARGIN_SLACK).pairs
    active = ActiveSet(data, close) if len(close) else active
    alpha = _FIRST_PROXIMAL * reached / (float(np.sum(center**2)) or 1.0)
    smallest, gamma = 1e-12 * alpha, like(np.empty(0), data.X)
    while n_iter < max_iter:
        limit = min(_INNER, max_iter - n_iter)
        solution, N = _step(active, coordinates, center, alpha, gamma, 0.1 * tol, limit)
        n_iter, gamma = n_iter + max(solution.n_iter, 1), solution.x
        M = coordinates.metrics(N)
        found = find_violations(data, M, _MARGIN_SLACK)
        if found.objective < best.objective:
            best = best._replace(M=M, objective=found.objective)
        dual = _dual(active, active.operator, alpha)
        lower = max(lower, dual_bound(dual, gamma))
        gap = float(relative_gap(np.float64(best.objective), lower))
        gap = 0.0 if best.objective <= negligible(data) else gap
        cut = monitor.done(n_iter, best.objective, gap)
        ended = not cut and observe(best.M)
        best = best._replace(gap=gap, n_iter=n_iter, converged=bool(ended or gap <= tol))
        if cut or ended:
            break
        active = active.with_more(found.pairs)
        if found.objective > _TOO_FAR * reached:
            alpha *= _PROXIMAL_GROWTH
            continue
        center, reached = N, found.objective
        if solution.converged:
            alpha = max(_PROXIMAL_DECAY * alpha, smallest)
    return best


def _step(
    active: ActiveSet,
    coordinates: TargetCoordinates,
    center: np.ndarray,
    alpha: float,
    gamma: Array,
    tol: float,
    max_iter: int,
) -> tuple[Solution, np.ndarray]:
    """The solution of the dual of a proximal step, from the gammas of the last one, and its N."""
    X = active.data.X
    operator = active.operator.in_coordinates(like(coordinates.basis, X))
    dual = _dual(active, operator, alpha, like(center, X))
    # New triplets start at their largest value if the center violates them, otherwise at zero.
    violated = dual.gradient(Evaluation(0.0, PsdMatrices(dual.center))) < 0
    xp = namespace(gamma)
    new = (xp.astype(violated, xp.float64) * dual.upper)[len(gamma) :]
    start, box = xp.concat([gamma, new]), (0.0, dual.upper)
    solution = projected_lbfgs(dual, start, bounds=box, tol=tol, max_iter=max_iter)
    return solution, on_host(dual.metrics(solution.x))


def _dual(
    active: ActiveSet, operator: GroupedPairs, alpha: float, center: Array | None = None
) -> MetricsDual:
    """The dual of a proximal step on the active set."""
    data = active.data
    return MetricsDual(operator, active.triplets, alpha, data.pull, center, data.sample_weight)


def dual_bound(dual: MetricsDual, gamma: np.ndarray) -> float:
    """A lower bound on the objective without the proximal term.

    Its dual is max sum gamma subject to 0 <= gamma <= 1, or the sample weights, and
    C_g(gamma) <= pull A_g in the order of PSD matrices, for the scatters C_g of the triplets and
    A_g of the targets. The largest theta
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
