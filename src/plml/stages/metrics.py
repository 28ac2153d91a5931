"""Stage 2: large-margin basis metrics (equations 5 to 9), by the dual."""

from typing import Any, NamedTuple

import numpy as np

from plml.backend.threads import crew
from plml.ops.pairs import PairOperator
from plml.ops.projections import project_box, project_psd
from plml.solvers.fista import fista
from plml.solvers.problem import Callback, Evaluation, Iteration, Solution
from plml.solvers.quasi_newton import projected_lbfgs
from plml.stages.triplets import Triplets

#: Gaps below this are left to double precision.
_SINGLE_PRECISION_TOL = 1e-4


class MetricsDual:
    """min_gamma -sum gamma + sum_b ||(-K_b)_+||_F^2 / (4 alpha_1), 0 <= gamma <= 1 (equation 8).

    It is the negative of the dual of

        min_{M >= 0} alpha_1 sum_b ||M_b||_F^2 + sum_ijk [1 - d^2_i(x_i, x_k) + d^2_i(x_i, x_j)]_+
                     + alpha_2 sum_ij d^2_i(x_i, x_j)                                (equation 5)

    with d_i the distance under M_i = sum_b W_ib M_b. Written over pairs: -K_b is the scatter of
    the pair coefficients s_ij = -(alpha_2 + sum_k gamma_ijk) and s_ik = sum_j gamma_ijk.

    With a ``center`` the penalty is alpha_1 sum_b ||M_b - center_b||_F^2, a proximal step.

    Parameters
    ----------
    pairs : PairOperator over ``triplets.pairs``
    triplets : Triplets
    regularization, pull : alpha_1, alpha_2
    center : (m, d, d) array of positive semidefinite matrices; by default zero
    """

    def __init__(
        self,
        pairs: PairOperator,
        triplets: Triplets,
        regularization: float,
        pull: float,
        center: np.ndarray | None = None,
    ) -> None:
        m, d = pairs.n_bases, pairs.X.shape[1]
        self.center = np.zeros((m, d, d)) if center is None else center
        self.pairs = pairs
        self.triplets = triplets
        self.regularization = regularization
        self.pull = pull
        self._is_target = (np.arange(len(triplets.pairs)) < triplets.n_target_pairs).astype(float)
        self.target_scatter = pairs.scatter(self._is_target)

    def project(self, gamma: np.ndarray) -> np.ndarray:
        """Onto the box."""
        return project_box(gamma)

    def metrics(self, gamma: np.ndarray) -> np.ndarray:
        """M_b = (-K_b)_+ / (2 alpha_1), the optimality condition below equation 8."""
        scatter = self.pairs.scatter(self._coefficients(gamma))
        return project_psd(self.center + scatter / (2.0 * self.regularization), self.pairs.crew)

    def evaluate(self, gamma: np.ndarray) -> Evaluation:
        """g(gamma), keeping the metrics for the gradient."""
        M = self.metrics(gamma)
        # ||(-K)_+||^2 / (4 alpha_1) = alpha_1 ||M||^2.
        center = self.center
        value = self.regularization * (np.vdot(M, M) - np.vdot(center, center)) - gamma.sum()
        return Evaluation(float(value), M)

    def gradient(self, evaluation: Evaluation) -> np.ndarray:
        """-1 + d^2_i(x_i, x_k) - d^2_i(x_i, x_j), under the metrics of the evaluation."""
        return self._margins(self.pairs.distances(evaluation.cache)) - 1.0

    def gap(self, gamma: np.ndarray, evaluation: Evaluation, gradient: np.ndarray) -> float:
        """(primal - dual) / primal at the metrics of gamma; the hinge losses are [-gradient]_+."""
        primal = self._primal(evaluation.cache, gradient)
        return relative_gap(primal, -evaluation.value)

    def primal(self, M: np.ndarray) -> float:
        """Equation 5 at M."""
        return self._primal(M, self._margins(self.pairs.distances(M)) - 1.0)

    def _primal(self, M: np.ndarray, slack: np.ndarray) -> float:
        # alpha_2 sum_ij d_ij^2 = <M, A* 1_targets>: d x d work instead of another pass over pairs.
        penalty = self.regularization * float(np.sum((M - self.center) ** 2))
        pull = self.pull * float(np.vdot(M, self.target_scatter))
        return penalty + float(np.maximum(-slack, 0.0).sum()) + pull

    def triplet_scatter(self, gamma: np.ndarray) -> np.ndarray:
        """sum_ijk gamma_ijk W_ib C_ijk, an (m, d, d) array."""
        return self.pairs.scatter(self._triplet_coefficients(gamma))

    def _triplet_coefficients(self, gamma: np.ndarray) -> np.ndarray:
        t, n_pairs = self.triplets, len(self.triplets.pairs)
        return np.bincount(t.impostor, gamma, n_pairs) - np.bincount(t.target, gamma, n_pairs)

    def _coefficients(self, gamma: np.ndarray) -> np.ndarray:
        return self._triplet_coefficients(gamma) - self.pull * self._is_target

    def _margins(self, distances: np.ndarray) -> np.ndarray:
        return distances[self.triplets.impostor] - distances[self.triplets.target]


class Metrics(NamedTuple):
    """Basis metrics (m, d, d) with the float64 certificate of exactly these matrices."""

    M: np.ndarray
    gamma: np.ndarray
    objective: float
    gap: float
    converged: bool
    n_iter: int
    history: tuple[Iteration, ...]


def relative_gap(primal: float, dual: float) -> float:
    """(primal - dual) / primal; the primal is positive wherever there are triplets."""
    return max(primal - dual, 0.0) / max(primal, np.finfo(float).tiny)


def learn_metrics(
    X: np.ndarray,
    weights: np.ndarray,
    triplets: Triplets,
    regularization: float,
    pull: float,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    gamma: np.ndarray | None = None,
    callback: Callback | None = None,
) -> Metrics:
    """Basis metrics with a relative duality gap of at most ``tol``.

    ``solver="fista"`` is the paper's algorithm from a cold start, its products in the dtype of X.
    ``"auto"`` runs a projected L-BFGS on the same dual from ``gamma``, where one is given, with
    float32 products for as long as they suffice. The certificate is computed in float64 at the
    matrices that are returned.

    Parameters
    ----------
    X : (n, d) array
    weights : (n, m) array
    triplets : Triplets
    regularization, pull : alpha_1, alpha_2
    gamma : (n_triplets,) array, a warm start
    """
    # Distances do not depend on the origin; this one keeps the products accurate.
    X = X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
    with crew() as threads:

        def dual(dtype: Any) -> MetricsDual:
            pairs = PairOperator(X.astype(dtype), weights.astype(dtype), triplets.pairs, threads)
            return MetricsDual(pairs, triplets, regularization, pull)

        exact = dual(np.float64)
        solution = None
        for dtype, phase_tol in _phases(X, solver, tol):
            problem = exact if dtype == np.float64 else dual(dtype)
            options: dict[str, Any] = {"tol": phase_tol, "callback": callback}
            if solution is None:
                solution = _minimize(problem, gamma, solver, max_iter, options)
            else:
                left = max_iter - solution.n_iter
                later = _minimize(problem, solution.x, solver, left, options)
                solution = solution.followed_by(later)
            metrics = _certified(exact, solution, X.dtype, tol)
            if metrics.converged or solution.interrupted or solution.n_iter >= max_iter:
                break
    return metrics


def _phases(X: np.ndarray, solver: str, tol: float) -> list[tuple[Any, float]]:
    """The dtypes of the products, one after the other, each with the gap to reach.

    Single precision carries the automatic solver nearly all the way at half the cost, unless the
    squares of the data leave its range.
    """
    if solver == "fista":
        return [(X.dtype, tol)]
    largest = float(np.abs(X).max(initial=0.0))
    if not 1e-6 < largest < 1e6:
        return [(np.float64, tol)]
    return [(np.float32, max(0.99 * tol, _SINGLE_PRECISION_TOL)), (np.float64, tol)]


def _minimize(
    problem: MetricsDual,
    gamma: np.ndarray | None,
    solver: str,
    max_iter: int,
    options: dict[str, Any],
) -> Solution:
    n_triplets = len(problem.triplets.target)
    if n_triplets == 0:
        return Solution(np.empty(0), 0.0, 0.0, True, False, 0, ())
    if solver == "fista":
        start = np.zeros(n_triplets)
        return fista(problem, start, max_iter=max_iter, check_every=5, **options)
    start = _uniform_start(problem) if gamma is None else gamma
    solution = projected_lbfgs(problem, start, bounds=(0.0, 1.0), max_iter=max_iter, **options)
    left = max_iter - solution.n_iter
    single = problem.pairs.X.dtype == np.float32
    if solution.converged or solution.interrupted or left < 1 or single:
        return solution
    # Its line search compares values and gives up where they agree to rounding; FISTA's steps
    # need no such comparison.
    return solution.followed_by(fista(problem, solution.x, restart=True, max_iter=left, **options))


def _certified(problem: MetricsDual, solution: Solution, dtype: np.dtype, tol: float) -> Metrics:
    """The metrics of a solution as they are returned, with the certificate of exactly these."""
    evaluation = problem.evaluate(solution.x)
    M = evaluation.cache.astype(dtype)
    objective = problem.primal(M.astype(np.float64))
    gap = relative_gap(objective, -evaluation.value)
    n_iter = max(solution.n_iter, 1)
    history = solution.history
    if history:  # its last line is what is returned
        history = (*history[:-1], history[-1]._replace(value=evaluation.value, gap=gap))
    return Metrics(M, solution.x, objective, gap, gap <= tol, n_iter, history)


def _uniform_start(problem: MetricsDual) -> np.ndarray:
    """The best of gamma = 1/2, 1/4, 1/8, ...: data in large units ends at tiny gammas."""
    gamma = np.full(len(problem.triplets.target), 0.5)
    value = problem.evaluate(gamma).value
    while value > 0.0 or len(gamma) * gamma[0] > 1e-3:
        smaller = problem.evaluate(0.5 * gamma).value
        if smaller >= value:
            break
        gamma, value = 0.5 * gamma, smaller
    return gamma
