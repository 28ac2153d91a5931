"""Stage 2: large-margin basis metrics (equations 5 to 9), by the dual."""

import sys
from collections.abc import Callable
from copy import copy
from functools import cached_property, partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import (
    Array,
    device,
    dot,
    dtype_name,
    fetch,
    is_tensor,
    like,
    namespace,
    segment_sum,
    total,
)
from plml.backend.graphs import Replayed
from plml.backend.threads import ThreadTeam, thread_team
from plml.ops.pairs import Pairs, pair_operator
from plml.ops.projections import (
    EXACTLY,
    ROUGHLY,
    PsdMatrices,
    as_psd_matrices,
    project_box,
    project_psd,
    project_psd_by_sign,
    project_psd_factored,
    without,
)
from plml.solvers.fista import fista
from plml.solvers.problem import (
    NO_CHECKPOINT,
    NOTHING_DONE,
    Callback,
    Checkpointer,
    Evaluation,
    Iteration,
    Solution,
    best_size,
    counting_on,
    phases_of,
)
from plml.solvers.quasi_newton import projected_lbfgs
from plml.stages.triplets import Triplets

#: Operations per evaluation below which the time that single precision saves is not worth its
#: rounding: the solution of a small table does not depend on the coordinates it is written in.
_SMALL = 2**25
#: Evaluations without progress after which single precision gives way to double.
PATIENCE = 50
#: Above this many features the matrix sign is faster than eigenvalues on a GPU.
_SIGN_PAYS = 32
#: Rounding error of a sum, relative to the sizes of its terms.
_ROUNDING = 4.0 * sys.float_info.epsilon
#: Relative difference of objectives that does not matter.
_NO_WORSE = 1e-9


class MetricsDual:
    """min_gamma -sum gamma + sum_b ||(-K_b)_+||_F^2 / (4 alpha_1), 0 <= gamma <= 1 (equation 8).

    It is the negative of the dual of

        min_{M >= 0} alpha_1 sum_b ||M_b||_F^2 + sum_ijk [1 - d^2_i(x_i, x_k) + d^2_i(x_i, x_j)]_+
                     + alpha_2 sum_ij d^2_i(x_i, x_j)                                (equation 5)

    with d_i the distance under M_i = sum_b W_ib M_b. Written over pairs: -K_b is the scatter of
    the pair coefficients s_ij = -(alpha_2 + sum_k gamma_ijk) and s_ik = sum_j gamma_ijk.

    With a ``center`` the penalty is alpha_1 sum_b ||M_b - center_b||_F^2, a proximal step. With
    sample weights v, 0 <= gamma_ijk <= v_i, ``upper``, and s_ij = -(alpha_2 v_i + sum_k gamma_ijk).

    Parameters
    ----------
    pairs : operator over ``triplets.pairs``
    triplets : Triplets
    regularization, pull : alpha_1, alpha_2
    center : (m, d, d) array of positive semidefinite matrices; zero by default
    sample_weight : (n,) array, one by default
    """

    def __init__(
        self,
        pairs: Pairs,
        triplets: Triplets,
        regularization: float,
        pull: float,
        center: Array | None = None,
        sample_weight: Array | None = None,
    ) -> None:
        xp, place = namespace(pairs.X), device(pairs.X)
        m, d, n_pairs = pairs.n_bases, pairs.X.shape[1], len(triplets.pairs)
        zero = xp.zeros((m, d, d), dtype=xp.float64, device=place)
        self.center = zero if center is None else center
        self._center_square = dot(self.center, self.center)
        self.pairs = pairs
        self.triplets = triplets
        self.regularization = regularization
        self.pull = pull
        self.exact = True
        self._by_sign: Callable[[Array], Array] = partial(project_psd_by_sign, resolution=EXACTLY)
        ends = triplets.target, triplets.impostor
        self._target, self._impostor = (like(end, pairs.X) for end in ends)
        is_target = xp.arange(n_pairs, device=place) < triplets.n_target_pairs
        self._pulled = xp.astype(is_target, xp.float64)
        self.upper: Any = 1.0
        if sample_weight is not None:
            first = like(np.ascontiguousarray(triplets.pairs[:, 0]), pairs.X)
            of_pairs = like(sample_weight, pairs.X, xp.float64)[first]
            self._pulled, self.upper = self._pulled * of_pairs, of_pairs[self._target]

    @cached_property
    def target_scatter(self) -> Array:
        """The scatter of the target pairs; the constant part of -K is -``pull`` times it."""
        return self.pairs.scatter(self._pulled)

    def iterating(self, dtype: Any) -> "MetricsDual":
        """The same problem for the iterations of a solver, with products and projections as fast
        as the dtype allows; certificates come from the problem itself.
        """
        other = copy(self)
        other.pairs, other.exact = self.pairs.astype(dtype), False
        other._by_sign = Replayed(partial(project_psd_by_sign, resolution=ROUGHLY))
        return other

    @property
    def dtype(self) -> Any:
        """The dtype of the products."""
        return self.pairs.X.dtype

    def constant(self, value: float) -> Array:
        """Gammas that are all the same share ``value`` of their largest value."""
        xp, X = namespace(self.pairs.X), self.pairs.X
        share = xp.full(len(self.triplets.target), value, dtype=xp.float64, device=device(X))
        return share * self.upper if self._is_weighted else share

    def project(self, gamma: Array) -> Array:
        """The nearest point of the box."""
        return project_box(gamma, self.upper)

    def metrics(self, gamma: Array) -> Array:
        """M_b = (-K_b)_+ / (2 alpha_1), the optimality condition below equation 8."""
        return self.metrics_of(self.scatter(gamma)).matrices

    def metrics_of(self, scatter: Array) -> PsdMatrices:
        """The metrics that belong to the scatter -K."""
        S = self.center + scatter / (2.0 * self.regularization)
        xp = namespace(S)
        if not self.exact:
            S = xp.astype(S, self.pairs.X.dtype, copy=False)
        found = _projected(S, self._by_sign, self.pairs.team)
        return found._replace(matrices=xp.astype(found.matrices, xp.float64, copy=False))

    def evaluate(self, gamma: Array) -> Evaluation:
        """g(gamma), keeping the metrics for the gradient."""
        return self.evaluate_at(gamma, self.metrics_of(self.scatter(gamma)))

    def evaluate_at(self, gamma: Array, metrics: PsdMatrices) -> Evaluation:
        """``evaluate`` for gamma whose metrics are known."""
        M = metrics.matrices
        # ||(-K)_+||^2 / (4 alpha_1) = alpha_1 ||M||^2.
        value = self.regularization * (dot(M, M) - self._center_square) - total(gamma)
        return Evaluation(value, metrics)

    def gradient(self, evaluation: Evaluation) -> Array:
        """-1 + d^2_i(x_i, x_k) - d^2_i(x_i, x_j), under the metrics of the evaluation."""
        return self.slack(evaluation.cache)

    def slack(self, M: Array | PsdMatrices) -> Array:
        """The gradient at given metrics; its negative part is the hinge losses."""
        return self._margins(self.pairs.distances(M)) - 1.0

    def gap(self, gamma: Array, evaluation: Evaluation, gradient: Array) -> Array:
        """(primal - dual) / primal at the metrics of gamma; the hinge losses are [-gradient]_+."""
        # sum_ij d_ij^2 = <M, A* 1_targets>: the distances themselves were not kept.
        M = evaluation.cache.matrices
        primal = self._primal(M, self._hinge(gradient), dot(M, self.target_scatter))
        return relative_gap(primal, -evaluation.value)

    def primal(self, M: Array | PsdMatrices) -> Array:
        """Equation 5 at M."""
        return self._primal(as_psd_matrices(M).matrices, *self.losses(M))

    def losses(self, M: Array | PsdMatrices) -> tuple[Array, Array]:
        """The sum of the hinge losses, and that of the distances to targets."""
        distances, n_targets = self.pairs.distances(M), self.triplets.n_target_pairs
        hinge, near = self._hinge(self._margins(distances) - 1.0), distances[:n_targets]
        return hinge, dot(near, self._pulled[:n_targets]) if self._is_weighted else total(near)

    def _primal(self, M: Array, hinge: Array, pulled: Array) -> Array:
        penalty = self.regularization * total((M - self.center) ** 2)
        return penalty + hinge + self.pull * pulled

    def certificate(self, gamma: Array, dtype: Any) -> tuple[Array, Array, Array]:
        """The metrics of gamma in a dtype, the primal value of exactly these, and g(gamma).

        Metrics no larger than the rounding of -K are zero, unless the primal is worse without them.
        """
        evaluation = self.evaluate(gamma)
        found = evaluation.cache
        M, primal = self._rounded(found, dtype)
        xp = namespace(found.matrices)
        rounding = _ROUNDING * self.scatter_sizes(gamma) / (2.0 * self.regularization)
        traces, prior = (
            xp.sum(xp.linalg.diagonal(part), axis=1) for part in (found.matrices, self.center)
        )
        rounding = rounding + _ROUNDING * prior
        noise = (traces > 0.0) & (traces <= rounding)
        if xp.any(noise):
            rest, its_primal = self._rounded(without(found, noise), dtype)
            if its_primal <= (1.0 + _NO_WORSE) * primal:
                M, primal = rest, its_primal
        return M, primal, evaluation.value

    def _rounded(self, found: PsdMatrices, dtype: Any) -> tuple[Array, Array]:
        """Metrics in a dtype, and the primal value of exactly these."""
        xp = namespace(found.matrices)
        M = xp.astype(found.matrices, dtype)
        if dtype == xp.float64:
            return M, self.primal(found)
        # The factors belong to the matrices before rounding.
        return M, self.primal(xp.astype(M, xp.float64))

    def scatter(self, gamma: Array) -> Array:
        """-K, an (m, d, d) array."""
        return self.pairs.scatter(self._coefficients(gamma))

    def scatter_sizes(self, gamma: Array) -> Array:
        """(m,) sizes of the terms of -K before they cancel."""
        return self.pairs.scatter_sizes(self._coefficients(gamma))

    def triplet_scatter(self, gamma: Array) -> Array:
        """sum_ijk gamma_ijk W_ib C_ijk, an (m, d, d) array."""
        return self.pairs.scatter(self._pushes(gamma))

    def _coefficients(self, gamma: Array) -> Array:
        """s_ij and s_ik of all pairs."""
        return self._pushes(gamma) - self.pull * self._pulled

    def _pushes(self, gamma: Array) -> Array:
        """How much the triplets push every pair apart, less how much they pull it together."""
        n_pairs = len(self.triplets.pairs)
        pushed = segment_sum(gamma, self._impostor, n_pairs)
        return pushed - segment_sum(gamma, self._target, n_pairs)

    def _margins(self, distances: Array) -> Array:
        return distances[self._impostor] - distances[self._target]

    @property
    def _is_weighted(self) -> bool:
        return not isinstance(self.upper, float)

    def _hinge(self, slack: Array) -> Array:
        losses = namespace(slack).clip(-slack, 0.0, None)
        return dot(losses, self.upper) if self._is_weighted else total(losses)


def _projected(S: Array, by_sign: Callable[[Array], Array], team: ThreadTeam) -> PsdMatrices:
    """The projections of (m, d, d) symmetric matrices, the fastest way there is."""
    if not is_tensor(S):
        return project_psd_factored(S, team)
    return PsdMatrices(project_psd(S) if S.shape[-1] <= _SIGN_PAYS else by_sign(S))


class Metrics(NamedTuple):
    """Basis metrics (m, d, d) with the float64 certificate of exactly these matrices."""

    M: Array
    gamma: Array
    objective: float
    gap: float
    converged: bool
    n_iter: int
    history: tuple[Iteration, ...]
    interrupted: bool = False  # by a callback


def relative_gap(primal: Array, dual: Array) -> Array:
    """(primal - dual) / primal; the primal is positive if there are triplets."""
    return (primal - dual).clip(0.0, None) / primal.clip(sys.float_info.min, None)


def learn_metrics(
    X: Array,
    weights: Array,
    triplets: Triplets,
    regularization: float,
    pull: float,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    case_weights: Array | None = None,
    prior: Array | None = None,
    sample_weight: Array | None = None,
    gamma: Array | None = None,
    callback: Callback | None = None,
    checkpoint: Checkpointer = NO_CHECKPOINT,
) -> Metrics:
    """Basis metrics with a relative duality gap of at most ``tol``.

    ``solver="fista"`` is the paper's algorithm from a cold start, its products in the dtype of X.
    ``"auto"`` runs a projected L-BFGS on the same dual from ``gamma``, if given, with float32
    products as long as they suffice. The certificate is that of the returned matrices, in float64.

    Parameters
    ----------
    X, weights : (n, d) and (n, m) arrays
    regularization, pull : alpha_1, alpha_2
    case_weights : (n, m') array; the metrics N of the cases then follow those of the queries
    prior : (d, d) array that the metric is drawn to; either side of two is drawn to its half
    sample_weight : (n,) array, how often the terms of each row count
    gamma : (n_triplets,) array, a warm start
    """
    xp = namespace(X)
    # Distances do not depend on the origin; the mean keeps the products accurate.
    X = X - xp.astype(xp.mean(xp.astype(X, xp.float64), axis=0), X.dtype)
    with thread_team() as threads:
        in_double = xp.astype(X, xp.float64)
        pairs = pair_operator(in_double, weights, case_weights, triplets.pairs, threads)
        n_sides = 1 if case_weights is None else 2
        center = None if prior is None else xp.stack([prior / n_sides] * pairs.n_bases)
        work, largest = len(X) * pairs.n_bases * X.shape[1] ** 2, float(xp.max(xp.abs(X)))
        if sample_weight is not None:
            largest *= float(xp.max(sample_weight)) ** 0.5  # of the terms of a scatter, its root
        return certified_metrics(
            MetricsDual(pairs, triplets, regularization, pull, center, sample_weight),
            partial(_minimize, solver=solver, checkpoint=checkpoint),
            phases(xp, X.dtype, largest, solver, tol, work),
            X.dtype,
            gamma=gamma,
            tol=tol,
            max_iter=max_iter,
            callback=callback,
        )


def certified_metrics(
    dual: Any,
    minimize: Callable[..., Solution],
    phases: list[tuple[Any, float]],
    dtype: Any,
    *,
    gamma: Any,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> Metrics:
    """Certified metrics, computed in phases of increasing precision.

    Parameters
    ----------
    dual : MetricsDual, or one that is distributed over machines
    minimize : (dual, gamma, tol=, max_iter=, callback=) -> Solution
    phases : dtypes of the products, with the gaps to reach
    dtype : of the metrics
    gamma : where to start, or None
    tol, max_iter, callback : of all phases together
    """
    solution = NOTHING_DONE._replace(x=gamma)
    for precision, goal in phases:
        later = minimize(
            dual.iterating(precision),
            solution.x,
            tol=goal,
            max_iter=max_iter - solution.n_iter,
            callback=counting_on(callback, solution),
        )
        solution = solution.followed_by(later)
        metrics = _certified(solution, tol, *dual.certificate(solution.x, dtype))
        if metrics.converged or solution.interrupted or solution.n_iter >= max_iter:
            break
    return metrics


def phases(
    xp: Any, dtype: Any, largest: float, solver: str, tol: float, work: float = inf
) -> list[tuple[Any, float]]:
    """The dtypes of the products in the order of use, each with the gap to reach.

    Single precision takes the automatic solver nearly all the way at half the cost, unless the
    squares of the data leave its range, or there is little to save: ``largest`` is the largest
    entry of the centred data, ``work`` the operations per evaluation.
    """
    if solver == "fista":
        return [(dtype, tol)]
    return phases_of(xp, tol, single=1e-6 < largest < 1e6 and work >= _SMALL)


def _minimize(
    problem: MetricsDual,
    gamma: Array | None,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    callback: Callback | None,
    checkpoint: Checkpointer,
) -> Solution:
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "callback": callback}
    zero, precision = problem.constant(0.0), dtype_name(problem.dtype)
    fista_name = f"metrics by fista in {precision}"
    if len(zero) == 0:
        return Solution(zero, 0.0, 0.0, True, False, 0, ())
    if solver == "fista":
        return checkpoint.solver(fista_name).run(fista, problem, zero, check_every=5, **options)
    single = precision == "float32"
    if gamma is None:
        start, evaluation = _uniform_start(problem)
    else:
        start, evaluation = problem.project(gamma), None
    solution = checkpoint.solver(f"metrics by lbfgs in {precision}").run(
        projected_lbfgs,
        problem,
        start,
        bounds=(0.0, problem.upper),
        patience=PATIENCE if single else None,
        single=single,
        evaluation=evaluation,
        **options,
    )
    left = max_iter - solution.n_iter
    if solution.converged or solution.interrupted or left < 1 or single:
        return solution
    # The line search compares values and gives up where they agree to rounding; the steps of
    # FISTA need no such comparison.
    options |= {"max_iter": left, "callback": counting_on(callback, solution)}
    later = checkpoint.solver(fista_name).run(fista, problem, solution.x, restart=True, **options)
    return solution.followed_by(later)


def _certified(solution: Solution, tol: float, M: Array, primal: Array, value: Array) -> Metrics:
    """The metrics M of a solution with their certificate, from primal and g(gamma)."""
    objective, value, gap = fetch(primal, value, relative_gap(primal, -value))
    n_iter = max(solution.n_iter, 1)
    if history := solution.history:  # the last line describes what is returned
        history = (*history[:-1], history[-1]._replace(value=value, gap=gap))
    known = objective, gap, gap <= tol, n_iter, history, solution.interrupted
    return Metrics(M, solution.x, *known)


def _uniform_start(problem: MetricsDual) -> tuple[Array, Evaluation]:
    """The best of gamma = 1/2, 1/4, 1/8, ... of its largest value; -K is linear in gamma, so one
    pass over the pairs serves all of them.
    """
    ones = problem.constant(1.0)
    pushed, pulled = problem.triplet_scatter(ones), problem.pull * problem.target_scatter

    def value_at(size: float) -> tuple[float, Evaluation]:
        metrics = problem.metrics_of(size * pushed - pulled)
        evaluation = problem.evaluate_at(size * ones, metrics)
        return float(fetch(evaluation.value)[0]), evaluation

    size, evaluation = best_size(value_at, fetch(total(ones))[0])
    return size * ones, evaluation
