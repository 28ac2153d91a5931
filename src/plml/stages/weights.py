"""Stage 1: smooth local linear weights (equation 4, Algorithm 1)."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import ArpackError, eigsh

from plml.backend.threads import Crew, crew, one_blas_thread
from plml.ops.projections import project_simplex, project_simplex_from
from plml.solvers.fista import fista
from plml.solvers.problem import Callback, Evaluation, Solution
from plml.solvers.quadratic import accelerated
from plml.stages.graph import local_scales, self_tuning_similarity

#: Elements of W in a block of rows: they stay in the cache.
_BLOCK_ELEMENTS = 2**17


class WeightProblem:
    """min_W ||X - W U||_F^2 + lambda_1 tr(W G) + lambda_2 tr(W^T L W), rows of W on the simplex.

    Held as the quadratic <W, W A + lambda_2 L W> + <W, B> + c with A = U U^T, so that an
    evaluation costs n m^2 and one sparse product, whatever d is.

    Parameters
    ----------
    X : (n, d) array
    anchors : (m, d) array, U
    locality, smoothness : lambda_1, lambda_2
    laplacian : (n, n) sparse array, L
    """

    def __init__(
        self,
        X: np.ndarray,
        anchors: np.ndarray,
        locality: float,
        smoothness: float,
        laplacian: sparse.sparray,
    ) -> None:
        X = X.astype(np.float64, copy=False)
        U = anchors.astype(np.float64, copy=False)
        # Weights sum to one, so nothing here depends on the origin: take the one that keeps
        # ||x||^2 - 2 <x, u> + ||u||^2 accurate.
        center = U.mean(axis=0)
        X, U = X - center, U - center
        XU = X @ U.T
        x2 = np.einsum("nd,nd->n", X, X)
        distances = np.maximum(x2[:, None] - 2.0 * XU + np.einsum("md,md->m", U, U), 0.0)
        self.A = U @ U.T
        self.B = locality * distances - 2.0 * XU
        self.constant = x2
        self.smoothness = smoothness
        self.laplacian = sparse.csr_array(laplacian.astype(np.float64))
        self.nearest_anchor = distances.argmin(axis=1)

    def start(self) -> np.ndarray:
        """W^0: all weight on the nearest anchor."""
        W = np.zeros_like(self.B)
        W[np.arange(len(W)), self.nearest_anchor] = 1.0
        return W

    def fits_single_precision(self) -> bool:
        """Whether float32 can hold the problem."""
        largest = max(float(np.abs(a).max(initial=0.0)) for a in (self.A, self.B))
        return 1e-15 < largest < 1e15

    def project(self, W: np.ndarray) -> np.ndarray:
        """Rows onto the simplex."""
        return project_simplex(W)

    def evaluate(self, W: np.ndarray) -> Evaluation:
        """g(W), keeping W A + lambda_2 L W for the gradient."""
        quadratic = W @ self.A + self.smoothness * (self.laplacian @ W)
        value = np.vdot(W, quadratic) + np.vdot(W, self.B) + self.constant.sum()
        return Evaluation(float(value), quadratic)

    def gradient(self, evaluation: Evaluation) -> np.ndarray:
        """2 (W A + lambda_2 L W) + B."""
        return 2.0 * evaluation.cache + self.B

    def gap(self, W: np.ndarray, evaluation: Evaluation, gradient: np.ndarray) -> float:
        """Frank-Wolfe gap sum_i (<g_i, W_i> - min_b g_ib) over g(W): bounds (g(W) - g*) / g(W)."""
        gap = float(self._row_gaps(W, gradient).sum())
        return max(gap, 0.0) / max(evaluation.value, float(self._row_floors().sum()))

    def _row_gaps(self, W: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return np.einsum("nm,nm->n", gradient, W) - gradient.min(axis=1)

    def _row_floors(self) -> np.ndarray:
        """G >= 0; where it vanishes (all rows equal) rounding of this size is all that is left."""
        scale = self.constant + np.abs(self.B).sum(axis=1)
        return np.finfo(float).eps * scale + np.finfo(float).tiny


class QueryWeightProblem(WeightProblem):
    """Equation 4 for new points, given the weights of the training instances.

    A new point x joins the graph with edges to its nearest training instances; with their
    weights fixed, lambda_2 tr(W^T L W) becomes lambda_2 sum_j S_xj ||w - W_j||^2. The queries do
    not touch each other, so the gap is that of the worst of them: no query's weights are less
    accurate for the company it keeps.

    Parameters
    ----------
    queries : (q, d) array
    anchors : (m, d) array
    locality, smoothness : lambda_1, lambda_2
    training_weights : (n, m) array
    similarity : (q, n) sparse array, S_xj
    """

    def __init__(
        self,
        queries: np.ndarray,
        anchors: np.ndarray,
        locality: float,
        smoothness: float,
        training_weights: np.ndarray,
        similarity: sparse.csr_array,
    ) -> None:
        degrees = sparse.diags_array(np.asarray(similarity.sum(axis=1)).ravel())
        super().__init__(queries, anchors, locality, smoothness, degrees)
        W = training_weights.astype(np.float64, copy=False)
        self.B = self.B - 2.0 * smoothness * (similarity @ W)
        self.constant = self.constant + smoothness * (similarity @ np.einsum("nm,nm->n", W, W))

    def gap(self, W: np.ndarray, evaluation: Evaluation, gradient: np.ndarray) -> float:
        """The largest relative Frank-Wolfe gap of a row."""
        values = np.einsum("nm,nm->n", W, evaluation.cache + self.B) + self.constant
        gaps = np.maximum(self._row_gaps(W, gradient), 0.0)
        return float((gaps / np.maximum(values, self._row_floors())).max())


class RowWeightProblem:
    """A ``WeightProblem`` as the solver for quadratics wants it, a block of rows at a time.

    L <= s D with D its diagonal and s = ||D^-1/2 L D^-1/2||, so 2 ||A|| + 2 lambda_2 s D_i
    majorises row i: points with few or weak edges take longer steps.

    Parameters
    ----------
    problem : WeightProblem
    dtype : of the arithmetic
    crew : threads that share the blocks
    """

    def __init__(self, problem: WeightProblem, dtype: Any, crew: Crew) -> None:
        self.problem = problem
        self.crew = crew
        self.A = problem.A.astype(dtype)
        self.linear = problem.B.astype(dtype)
        L = problem.laplacian
        degrees = L.diagonal()
        norm = 2.0 * np.linalg.norm(problem.A, 2)
        norm = norm + 2.0 * problem.smoothness * _normalized_norm(L, degrees) * degrees
        self.metric = np.maximum(norm, np.finfo(dtype).tiny)[:, None].astype(dtype)
        n, m = self.linear.shape
        self.blocks = crew.cut(n, _BLOCK_ELEMENTS // m)
        scaled = sparse.csr_array(problem.smoothness * L).astype(dtype)
        self._laplacians = [scaled[rows] for rows in self.blocks]

    def product(self, x: np.ndarray, rows: slice) -> np.ndarray:
        """W A + lambda_2 L W."""
        result = self._laplacians[rows.start // self._block_size] @ x
        result += x[rows] @ self.A
        return result

    @property
    def _block_size(self) -> int:
        return self.blocks[0].stop

    def project_rows(self, v: np.ndarray, hint: np.ndarray) -> np.ndarray:
        """Onto the simplex; the hint is the threshold."""
        return project_simplex_from(v, hint)

    def value_and_gap(self, x: np.ndarray, product: np.ndarray) -> tuple[float, float]:
        """G(W) and its relative Frank-Wolfe gap."""
        problem = self.problem
        value = float(
            np.einsum("nm,nm->", x, product, dtype=np.float64)
            + np.einsum("nm,nm->", x, self.linear, dtype=np.float64)
            + problem.constant.sum()
        )
        gradient = 2.0 * product + self.linear
        return value, problem.gap(x, Evaluation(value, product), gradient)


def learn_weights(
    problem: WeightProblem,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
) -> Solution:
    """W with a relative Frank-Wolfe gap of at most ``tol``.

    ``solver="fista"`` is Algorithm 1 as printed. ``"auto"`` takes the steps from the spectrum,
    longer ones where the graph is thin, and restarts the momentum; float32 for as long as that
    suffices.
    """
    if solver == "fista":
        with one_blas_thread():  # n x m x m products
            return fista(problem, problem.start(), tol=tol, max_iter=max_iter, callback=callback)
    with crew() as threads:

        def minimize(dtype: Any, start: np.ndarray, tol: float, max_iter: int) -> Solution:
            rows = RowWeightProblem(problem, dtype, threads)
            start = start.astype(dtype)
            return accelerated(rows, start, tol=tol, max_iter=max_iter, callback=callback)

        if not problem.fits_single_precision():
            return minimize(np.float64, problem.start(), tol, max_iter)
        solution = minimize(np.float32, problem.start(), max(0.99 * tol, 1e-4), max_iter)
        W = project_simplex(solution.x.astype(np.float64))
        # No iteration where the float64 certificate of these weights closes as well.
        left = 0 if solution.interrupted else max_iter - solution.n_iter
        return solution.followed_by(minimize(np.float64, W, tol, left))


def query_similarity(
    squared_distances: np.ndarray,
    neighbors: np.ndarray,
    training_scales: np.ndarray,
    n_graph_neighbors: int,
) -> sparse.csr_array:
    """S_xj of new points to their nearest training instances.

    Parameters
    ----------
    squared_distances, neighbors : (q, k) arrays, nearest first
    training_scales : (n,) array, s_j
    n_graph_neighbors : how many of the neighbours make edges
    """
    n_queries, k = len(neighbors), min(n_graph_neighbors, neighbors.shape[1])
    scales = local_scales(squared_distances)
    columns = neighbors[:, :k]
    similarity = self_tuning_similarity(
        squared_distances[:, :k], scales[:, None], training_scales[columns]
    )
    rows = np.repeat(np.arange(n_queries), k)
    shape = (n_queries, len(training_scales))
    return sparse.csr_array((similarity.ravel(), (rows, columns.ravel())), shape=shape)


def _normalized_norm(L: sparse.csr_array, degrees: np.ndarray) -> float:
    """||D^-1/2 L D^-1/2|| of a graph Laplacian with diagonal D, from above; at most two."""
    if L.nnz <= L.shape[0]:  # diagonal
        return 1.0
    scale = 1.0 / np.sqrt(np.where(degrees > 0.0, degrees, 1.0))
    normalized = sparse.diags_array(scale) @ L @ sparse.diags_array(scale)
    start = np.random.default_rng(0).standard_normal(L.shape[0])
    try:
        norm = eigsh(normalized, k=1, tol=1e-2, v0=start, return_eigenvectors=False, maxiter=200)[0]
    except ArpackError:
        return 2.0
    return min(1.02 * float(norm), 2.0)
