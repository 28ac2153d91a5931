"""Stage 1: smooth local linear weights (equation 4, Algorithm 1)."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from plml.backend.arrays import (
    Array,
    add_matrix_product,
    device,
    dot,
    dtype_name,
    fetch,
    is_tensor,
    like,
    namespace,
    on_host,
    row_dot,
    share_of_memory,
    team_for,
    total,
)
from plml.backend.sparse import sparse_product
from plml.backend.threads import SERIAL, ThreadTeam, one_blas_thread, thread_team
from plml.ops.projections import project_simplex, project_simplex_from
from plml.solvers.fista import fista
from plml.solvers.problem import (
    NO_CHECKPOINT,
    NOTHING_DONE,
    Callback,
    Checkpointer,
    Evaluation,
    Solution,
    counting_on,
    phases_of,
)
from plml.solvers.quadratic import accelerated
from plml.solvers.simplex_rows import RowQuadratics, minimize_rows
from plml.solvers.spectral import spectral
from plml.stages.graph import curvature, n_nearest, query_similarity, weighted_edges

#: Elements of W in a block of rows, so that it stays in the cache.
_BLOCK_ELEMENTS = 2**17
#: Operations per iteration below which the time single precision saves is not worth its rounding.
_SMALL = 2**20
#: Elements of W above which threads share an iteration.
_WORTH_SHARING = 2**18


class RowTerms(NamedTuple):
    """What equation 4 keeps of some rows."""

    B: Array  # (n, m)
    constant: Array  # (n,)
    nearest_anchor: Array  # (n,)

    def weighted(self, sample_weight: Array | None) -> "RowTerms":
        """The terms of rows that count so often; as they are without weights."""
        if sample_weight is None:
            return self
        B, constant = sample_weight[:, None] * self.B, sample_weight * self.constant
        return RowTerms(B, constant, self.nearest_anchor)


def row_terms(X: Array, anchors: Array, locality: float) -> RowTerms:
    """The terms of equation 4 without the graph: (n, d) rows, (m, d) anchors U, lambda_1."""
    xp, center = namespace(X), _origin(anchors)
    X, U = (xp.astype(array, xp.float64, copy=False) - center for array in (X, anchors))
    XU = X @ U.T
    x2 = row_dot(X, X)
    distances = xp.clip(x2[:, None] - 2.0 * XU + row_dot(U, U), 0.0, None)
    return RowTerms(locality * distances - 2.0 * XU, x2, xp.argmin(distances, axis=1))


def _origin(anchors: Array) -> Array:
    """Weights sum to one, so nothing in equation 4 depends on the origin: this one keeps
    ||x||^2 - 2 <x, u> + ||u||^2 accurate.
    """
    xp = namespace(anchors)
    return xp.mean(xp.astype(anchors, xp.float64), axis=0)


def _gram(anchors: Array) -> Array:
    """U U^T about the same origin."""
    xp = namespace(anchors)
    U = xp.astype(anchors, xp.float64) - _origin(anchors)
    return U @ U.T


def _floors(linear: Array, constant: Array) -> Array:
    """Where g >= 0 vanishes (all rows equal), only rounding of this size is left in a row."""
    xp = namespace(linear)
    scale = constant + xp.sum(xp.abs(linear), axis=1)
    return np.finfo(float).eps * scale + np.finfo(float).tiny


class WeightProblem:
    """min_W ||X - W U||_F^2 + lambda_1 tr(W G) + lambda_2 tr(W^T L W), rows of W on the simplex.

    Held as the quadratic <W, W A + lambda_2 L W> + <W, B> + c with A = U U^T, so that an
    evaluation costs n m^2 and one sparse product, whatever d is.

    With sample weights v the terms of row i count v_i times, also in <W, v W A>, and an edge is as
    many edges as there are pairs of rows: L is that of v_i v_j S_ij (``graph.weighted_edges``).

    Parameters
    ----------
    terms : RowTerms
    anchors : (m, d) array, U
    smoothness : lambda_2
    laplacian : (n, n) sparse array, or tensor where the rows are tensors, L
    sample_weight : (n,) array, one by default
    """

    def __init__(
        self,
        terms: RowTerms,
        anchors: Array,
        smoothness: float,
        laplacian: Any,
        sample_weight: Array | None = None,
    ) -> None:
        self.anchors = anchors
        self.A = _gram(anchors)
        self.sample_weight = sample_weight
        self._unweighted = terms
        self.B, self.constant, self.nearest_anchor = terms.weighted(sample_weight)
        self.smoothness = smoothness
        self.laplacian = laplacian
        self._laplacian_product = sparse_product(laplacian, self.B)

    def reordered(self, order: np.ndarray) -> "WeightProblem":
        """The same problem with its rows in another order."""
        terms = RowTerms(*(part[order] for part in self._unweighted))
        laplacian, weights = self.laplacian[order][:, order], self.sample_weight
        weights = None if weights is None else weights[order]
        return WeightProblem(terms, self.anchors, self.smoothness, laplacian, weights)

    def even_start(self) -> Array:
        """The same weight on every anchor: no row has to find its way out of a corner."""
        return namespace(self.B).full_like(self.B, 1.0 / self.B.shape[1])

    def start(self) -> Array:
        """W^0: all weight on the nearest anchor."""
        xp = namespace(self.B)
        numbers = xp.arange(self.B.shape[1], device=device(self.B))
        return xp.astype(self.nearest_anchor[:, None] == numbers, xp.float64)

    def fits_single_precision(self) -> bool:
        """Whether float32 can hold the problem."""
        xp = namespace(self.B)
        largest = max(float(xp.max(xp.abs(array))) for array in (self.A, self.B))
        if self.sample_weight is not None:
            largest *= max(float(xp.max(self.sample_weight)), 1.0)
        return 1e-15 < largest < 1e15

    def project(self, W: Array) -> Array:
        """The nearest matrix whose rows are on the simplex."""
        return project_simplex(W)

    def evaluate(self, W: Array) -> Evaluation:
        """g(W), keeping W A + lambda_2 L W for the gradient."""
        quadratic = weighted_rows(W @ self.A, self.sample_weight)
        quadratic = quadratic + self.smoothness * self._laplacian_product(W)
        value = dot(W, quadratic) + dot(W, self.B) + self.total_constant
        return Evaluation(value, quadratic)

    def gradient(self, evaluation: Evaluation) -> Array:
        """2 (v W A + lambda_2 L W) + B."""
        return 2.0 * evaluation.cache + self.B

    def gap(self, W: Array, evaluation: Evaluation, gradient: Array) -> Array:
        """Frank-Wolfe gap sum_i (<g_i, W_i> - min_b g_ib) over g(W): bounds (g(W) - g*) / g(W)."""
        gaps = row_dot(gradient, W) - namespace(gradient).min(gradient, axis=1)
        return total(gaps).clip(0.0, None) / evaluation.value.clip(self.floor, None)

    @cached_property
    def floor(self) -> float:
        """The size of g after rounding where it vanishes."""
        return fetch(total(_floors(self.B, self.constant)))[0]

    @cached_property
    def total_constant(self) -> Array:
        """The sum of the constants of the rows."""
        return total(self.constant)


class RowWeightProblem:
    """A ``WeightProblem`` in the form of a ``RowQuadratic``, one block of rows at a time.

    L <= 2 D with D its diagonal (L = D if there are no edges), so 2 v_i ||A|| + 4 lambda_2 D_i
    majorises row i: points with few or weak edges take longer steps. The arithmetic is in a dtype;
    the threads of a team share the blocks.
    """

    def __init__(self, problem: WeightProblem, dtype: Any, team: ThreadTeam) -> None:
        xp = namespace(problem.B)
        self.problem = problem
        n, m = problem.B.shape
        # A little work is done sooner than it is handed to threads.
        self.team = team_for(problem.B, team) if n * m > _WORTH_SHARING else SERIAL
        self.A = xp.astype(problem.A, dtype)
        self.linear = xp.astype(problem.B, dtype)
        norm, weights = 2.0 * float(np.linalg.norm(on_host(problem.A), 2)), problem.sample_weight
        self.sample_weight = None if weights is None else xp.astype(weights, dtype)
        metric = 2.0 * problem.smoothness * like(curvature(problem.laplacian), problem.B)
        metric = metric + (norm if weights is None else norm * weights)
        self.metric = xp.astype(xp.clip(metric, 1e-30, None)[:, None], dtype)
        elements = share_of_memory(self.linear, _BLOCK_ELEMENTS)
        self.blocks = self.team.cut(n, elements // m)
        self._products = {
            rows.start: sparse_product(problem.laplacian, self.linear, problem.smoothness, rows)
            for rows in self.blocks
        }

    def product(self, x: Array, rows: slice) -> Array:
        """W A + lambda_2 L W, the first with sample weights."""
        result, weights = self._products[rows.start](x), self.sample_weight
        own = weighted_rows(x[rows], None if weights is None else weights[rows])
        add_matrix_product(result, own, self.A)
        return result

    def project_rows(self, v: Array, hint: Array) -> Array:
        """Project rows onto the simplex; the hint is the threshold."""
        return project_simplex(v) if is_tensor(v) else project_simplex_from(v, hint)

    def value_and_gap(self, x: Array, product: Array) -> tuple[Array, Array]:
        """G(W) and its relative Frank-Wolfe gap."""
        problem = self.problem
        value = total(row_dot(x, product + self.linear)) + problem.total_constant
        gradient = 2.0 * product + self.linear
        return value, problem.gap(x, Evaluation(value, product), gradient)


def weighted_rows(rows: Array, sample_weight: Array | None) -> Array:
    """Rows times their weights; the rows themselves without weights."""
    return rows if sample_weight is None else sample_weight[:, None] * rows


def learn_weights(
    problem: WeightProblem,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    callback: Callback | None = None,
    checkpoint: Checkpointer = NO_CHECKPOINT,
) -> Solution:
    """W with a relative Frank-Wolfe gap of at most ``tol``.

    ``solver="fista"`` is Algorithm 1 as printed. ``"auto"`` derives the steps from the spectrum,
    longer ones where the graph is thin, and restarts the momentum; from a ``start`` near the
    solution, (n, m) weights, it needs no momentum. It uses float32 as long as that suffices.
    """
    if solver == "fista":
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "callback": callback}
        with one_blas_thread():  # n x m x m products
            return checkpoint.solver("weights").run(fista, problem, problem.start(), **options)
    if is_tensor(problem.B) or problem.B.size <= _WORTH_SHARING:
        return _in_phases(problem, start, tol, max_iter, callback, checkpoint)
    # Keep the neighbours of a row near it in memory, so that they are still in the cache.
    order = np.argsort(problem.nearest_anchor, kind="stable")
    start = None if start is None else start[order]
    solution = _in_phases(problem.reordered(order), start, tol, max_iter, callback, checkpoint)
    return solution._replace(x=solution.x[np.argsort(order)])


def _in_phases(
    problem: WeightProblem,
    start: Array | None,
    tol: float,
    max_iter: int,
    callback: Callback | None,
    checkpoint: Checkpointer,
) -> Solution:
    """``learn_weights`` in single precision as long as it suffices, then in double precision."""
    xp, (n, m) = namespace(problem.B), problem.B.shape
    single = problem.fits_single_precision() and n * m * m >= _SMALL
    solve = accelerated if start is None else spectral
    first = problem.even_start() if start is None else problem.project(start)
    solution = NOTHING_DONE._replace(x=first)
    with thread_team() as threads:
        for dtype, goal in phases_of(xp, tol, single):
            first = solution.x
            if solution.history:
                first = project_simplex(xp.astype(first, dtype))
            later = checkpoint.solver(f"weights in {dtype_name(dtype)}").run(
                solve,
                RowWeightProblem(problem, dtype, threads),
                xp.astype(first, dtype),
                tol=goal,
                # After an interruption only the certificate is computed.
                max_iter=0 if solution.interrupted else max_iter - solution.n_iter,
                callback=counting_on(callback, solution),
            )
            solution = solution.followed_by(later)
    return solution


def query_problem(
    Q: Array,
    anchors: Array,
    locality: float,
    smoothness: float,
    training_weights: Array,
    similarity: sparse.csr_array,
) -> RowQuadratics:
    """Equation 4 for new points, given the weights of the training instances.

    A new point x joins the graph with edges to its nearest training instances; with their
    weights fixed, lambda_2 tr(W^T L W) becomes lambda_2 sum_j S_xj ||w - W_j||^2. The points are
    (q, d), the weights (n, m), the similarity S_xj a (q, n) sparse array.
    """
    xp = namespace(training_weights)
    W = xp.astype(training_weights, xp.float64, copy=False)
    near = sparse_product(similarity, W)
    B, x2, _ = row_terms(Q, anchors, locality)
    linear = B - 2.0 * smoothness * near(W)
    constant = x2 + smoothness * near(row_dot(W, W)[:, None])[:, 0]
    degrees = like(np.asarray(similarity.sum(axis=1)).reshape(-1, 1), linear)
    floors = _floors(linear, constant)
    return RowQuadratics(_gram(anchors), smoothness * degrees, linear, constant, floors)


class NewPointRule(NamedTuple):
    """Equation 4 for a point alone, the weights of the training instances around it given."""

    anchors: Array  # (m, d)
    locality: float
    smoothness: float
    n_graph_neighbors: int
    tol: float
    max_iter: int

    @property
    def n_near(self) -> int:
        """How many instances around it a point has to know."""
        return n_nearest(self.n_graph_neighbors)

    def weights(
        self,
        Q: Array,
        squared_distances: np.ndarray,
        neighbors: np.ndarray,
        training_weights: Array,
        training_scales: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> tuple[Array, float]:
        """Weights (q, m) of new points, and the largest relative gap of one.

        Parameters
        ----------
        Q : (q, d) array
        squared_distances, neighbors : (q, k) arrays of the ``n_near`` nearest, nearest first
        training_weights, training_scales : (n, m) and (n,) arrays, which ``neighbors`` point into
        sample_weight : (n,) how often an edge to each of them counts, once by default
        """
        S = query_similarity(squared_distances, neighbors, training_scales, self.n_graph_neighbors)
        S = weighted_edges(S, None, sample_weight)
        problem = query_problem(
            Q, like(self.anchors, Q), self.locality, self.smoothness, training_weights, S
        )
        # So tightly that the weights depend neither on other points nor on where the solver stops.
        W, gaps = minimize_rows(problem, 1e-3 * self.tol, self.max_iter)
        return W, float(namespace(gaps).max(gaps))
