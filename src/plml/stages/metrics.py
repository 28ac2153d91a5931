"""Stage 2: large-margin basis metrics (equations 5 to 9), by the dual."""

from typing import Any, NamedTuple

import numpy as np

from plml.ops.pairs import PairOperator
from plml.ops.projections import project_box, project_psd
from plml.solvers.fista import fista
from plml.solvers.lbfgsb import lbfgsb
from plml.solvers.problem import Callback, Evaluation, Iteration, Solution
from plml.stages.triplets import Triplets


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
        return project_psd(self.center + scatter / (2.0 * self.regularization))

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

    ``solver="fista"`` is the paper's algorithm from a cold start; ``"auto"`` runs L-BFGS-B on the
    same dual from ``gamma``, where one is given. Matrix products run in the dtype of X; the
    certificate is recomputed in float64 at the matrices that are returned.

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
    problem = MetricsDual(PairOperator(X, weights, triplets.pairs), triplets, regularization, pull)
    solution = _minimize(problem, gamma, solver, tol, max_iter, callback)
    M = problem.metrics(solution.x).astype(X.dtype)
    if X.dtype != np.float64:
        operator = PairOperator(X.astype(np.float64), weights.astype(np.float64), triplets.pairs)
        problem = MetricsDual(operator, triplets, regularization, pull)
    objective = problem.primal(M.astype(np.float64))
    gap = relative_gap(objective, -problem.evaluate(solution.x).value)
    return Metrics(
        M, solution.x, objective, gap, gap <= tol, max(solution.n_iter, 1), solution.history
    )


def _minimize(
    problem: MetricsDual,
    gamma: np.ndarray | None,
    solver: str,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> Solution:
    if len(problem.triplets.target) == 0:
        return Solution(np.empty(0), 0.0, 0.0, True, False, 0, ())
    if solver == "fista":
        start = np.zeros(len(problem.triplets.target))
        return fista(problem, start, tol=tol, max_iter=max_iter, check_every=5, callback=callback)
    start = _uniform_start(problem) if gamma is None else gamma
    options: dict[str, Any] = {"tol": tol, "callback": callback}
    solution = lbfgsb(problem, start, bounds=(0.0, 1.0), max_iter=max_iter, **options)
    left = max_iter - solution.n_iter
    if solution.converged or solution.interrupted or left < 1:
        return solution
    # Its line search compares values and gives up where they agree to rounding; FISTA's steps
    # need no such comparison.
    return solution.followed_by(fista(problem, solution.x, restart=True, max_iter=left, **options))


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
