"""Stage 1: smooth local linear weights (equation 4, Algorithm 1)."""

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

from plml.ops.projections import project_simplex
from plml.solvers.fista import fista
from plml.solvers.problem import Callback, Evaluation, Solution
from plml.stages.graph import local_scales, self_tuning_similarity


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
        self.constant = float(x2.sum())
        self.smoothness = smoothness
        self.laplacian = laplacian.astype(np.float64)
        self.nearest_anchor = distances.argmin(axis=1)

    def start(self) -> np.ndarray:
        """W^0: all weight on the nearest anchor."""
        W = np.zeros_like(self.B)
        W[np.arange(len(W)), self.nearest_anchor] = 1.0
        return W

    def lipschitz(self) -> float:
        """2 ||A|| + 2 lambda_2 ||L||, an upper estimate of the gradient's Lipschitz constant."""
        norm_a = float(np.linalg.norm(self.A, 2))
        norm_l = _largest_eigenvalue(self.laplacian)
        return max(2.0 * norm_a + 2.0 * self.smoothness * norm_l, np.finfo(float).tiny)

    def project(self, W: np.ndarray) -> np.ndarray:
        """Rows onto the simplex."""
        return project_simplex(W)

    def evaluate(self, W: np.ndarray) -> Evaluation:
        """g(W), keeping W A + lambda_2 L W for the gradient."""
        quadratic = W @ self.A + self.smoothness * (self.laplacian @ W)
        value = np.vdot(W, quadratic) + np.vdot(W, self.B) + self.constant
        return Evaluation(float(value), quadratic)

    def gradient(self, evaluation: Evaluation) -> np.ndarray:
        """2 (W A + lambda_2 L W) + B."""
        return 2.0 * evaluation.cache + self.B

    def gap(self, W: np.ndarray, evaluation: Evaluation, gradient: np.ndarray) -> float:
        """Frank-Wolfe gap sum_i (<g_i, W_i> - min_b g_ib) over g(W): bounds (g(W) - g*) / g(W)."""
        gap = float(np.vdot(gradient, W) - gradient.min(axis=1).sum())
        # g >= 0; where it vanishes (all rows equal) rounding alone is left of both.
        floor = np.finfo(float).eps * (self.constant + float(np.abs(self.B).sum()))
        return max(gap, 0.0) / max(evaluation.value, floor, np.finfo(float).tiny)


def learn_weights(
    problem: WeightProblem,
    *,
    solver: str,
    tol: float,
    max_iter: int,
    callback: Callback | None = None,
) -> Solution:
    """W with a relative Frank-Wolfe gap of at most ``tol``.

    ``solver="fista"`` is Algorithm 1 as printed; ``"auto"`` takes the first step size from the
    spectrum and restarts the momentum.
    """
    as_printed = solver == "fista"
    return fista(
        problem,
        problem.start(),
        tol=tol,
        max_iter=max_iter,
        lipschitz=1.0 if as_printed else problem.lipschitz(),
        restart=not as_printed,
        callback=callback,
    )


def query_weight_problem(
    queries: np.ndarray,
    anchors: np.ndarray,
    locality: float,
    smoothness: float,
    training_weights: np.ndarray,
    training_scales: np.ndarray,
    squared_distances: np.ndarray,
    neighbors: np.ndarray,
    n_graph_neighbors: int,
) -> WeightProblem:
    """Equation 4 for new points, given the weights of the training instances.

    A new point x joins the graph with edges to its nearest training instances; with their
    weights fixed, lambda_2 tr(W^T L W) becomes lambda_2 sum_j S_xj ||w - W_j||^2. The queries do
    not touch each other.

    Parameters
    ----------
    queries : (q, d) array
    anchors : (m, d) array
    training_weights : (n, m) array
    training_scales : (n,) array, s_j
    squared_distances, neighbors : (q, k) arrays to the nearest training instances
    n_graph_neighbors : how many of them make edges
    """
    k = min(n_graph_neighbors, neighbors.shape[1])
    scales = local_scales(squared_distances)
    similarity = self_tuning_similarity(
        squared_distances[:, :k], scales[:, None], training_scales[neighbors[:, :k]]
    )
    n_queries = len(queries)
    degrees = similarity.sum(axis=1)
    problem = WeightProblem(
        queries, anchors, locality, smoothness, sparse.diags_array(degrees, shape=(n_queries,) * 2)
    )
    rows = np.repeat(np.arange(n_queries), k)
    edges = sparse.csr_array(
        (similarity.ravel(), (rows, neighbors[:, :k].ravel())),
        shape=(n_queries, len(training_weights)),
    )
    W = training_weights.astype(np.float64, copy=False)
    problem.B -= 2.0 * smoothness * (edges @ W)
    problem.constant += smoothness * float((edges @ np.einsum("nm,nm->n", W, W)).sum())
    return problem


def _largest_eigenvalue(L: sparse.sparray) -> float:
    """||L|| of a positive semidefinite sparse matrix, from above."""
    gershgorin = float(abs(L).sum(axis=1).max())
    if L.shape[0] < 20:
        return gershgorin
    start = np.random.default_rng(0).standard_normal(L.shape[0])
    largest = eigsh(L, k=1, tol=1e-2, v0=start, return_eigenvectors=False, maxiter=200)[0]
    return min(1.02 * float(largest), gershgorin)
