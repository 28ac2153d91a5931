"""Search where every training instance, or every query, has one metric of its own.

X are the training instances, an (n, d) array, and Q queries (q, d).
"""

from copy import copy
from typing import Self

import numpy as np

from plml.backend.arrays import row_dot
from plml.ops.distances import case_pairs, euclidean_pairs, measured
from plml.ops.growing import appended
from plml.ops.topk import InnerProductIndex, Measured, row_blocks, sorted_prefix
from plml.stages.search import index_vectors, query_vectors

#: One in this many eigenvectors makes the lower bound on distances under a query's own metric.
_SHARE_OF_DIRECTIONS = 8


class TrainingMetricIndex:
    """Training instances ready for exact search under their own metrics, M_g of their group g.

    The roles are reversed: d^2 = q_g(x) - <(2 M_g x_j, -x_j^T M_g x_j), (x, 1)> with
    q_g(x) = x^T M_g x, so the index vectors are (2 M_g x_j, -e_g, -x_j^T M_g x_j) and the query
    vectors (x, q(x), 1). The groups are an (n,) integer array.
    """

    def __init__(
        self, X: np.ndarray, groups: np.ndarray, M: np.ndarray, center: np.ndarray | None = None
    ) -> None:
        self.X = X
        self.M = M
        self.center = X.mean(axis=0, dtype=np.float64) if center is None else center
        self._set_groups(groups)
        self.index = InnerProductIndex(self._vectors(slice(None)))

    def _set_groups(self, groups: np.ndarray) -> None:
        self._own = np.eye(len(self.M))[groups]
        self._traces = np.trace(self.M, axis1=1, axis2=2, dtype=np.float64)[groups]

    def _vectors(self, rows: slice) -> np.ndarray:
        X = self.X[rows] - self.center
        vectors = query_vectors(X, self._own[rows], self.M.astype(np.float64))
        square = 0.5 * np.einsum("nd,nd->n", vectors[:, : X.shape[1]], X)
        return np.column_stack([vectors, -square])

    def extended(self, X: np.ndarray, groups: np.ndarray) -> Self:
        """Another index, of instances and groups that begin with those of this one."""
        grown = copy(self)
        grown.X = X
        grown._set_groups(groups)
        grown.index = self.index.extended(grown._vectors(slice(len(self.X), None)))
        return grown

    def without(self, rows: np.ndarray) -> Self:
        """Another index, without some of the instances."""
        rest = copy(self)
        rest.X, rest.index = np.delete(self.X, rows, axis=0), self.index.without(rows)
        rest._own, rest._traces = (
            np.delete(part, rows, axis=0) for part in (self._own, self._traces)
        )
        return rest

    def search(
        self, Q: np.ndarray, n_neighbors: int, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the nearest instances, as in ``LocalMetricIndex``."""
        vectors = index_vectors(Q - self.center, self.M.astype(np.float64))
        vectors = np.column_stack([vectors, np.ones(len(Q))])

        def distances(rows: np.ndarray, columns: np.ndarray) -> Measured:
            return measured(
                case_pairs(Q[rows], self._own, self.M, self.X, columns),
                euclidean_pairs(Q[rows], self.X, columns),
                Q[rows] - self.center,
                self._traces[columns],
            )

        return self.index.search(vectors, n_neighbors, distances, own)


class OwnMetricIndex:
    """Training instances ready for exact search where every query has a matrix of its own.

    No inner product of few dimensions serves all queries at once. With p_l the component of a
    difference along the leading eigenvector l of a query's matrix and lambda the least eigenvalue,

        d^2 >= sum_l (lambda_l - lambda) p_l^2 + lambda ||x_j - x||^2

    is a lower bound on all distances that takes a fraction of n d^2 operations; only instances that
    it cannot exclude are measured.
    """

    def __init__(self, X: np.ndarray, center: np.ndarray | None = None) -> None:
        self.rows = X
        self.center = X.mean(axis=0, dtype=np.float64) if center is None else center
        self.X = X - self.center
        self.squares = row_dot(self.X, self.X)

    @property
    def radius(self) -> float:
        """The largest distance of an instance to the center."""
        return float(np.sqrt(self.squares.max()))

    def extended(self, X: np.ndarray) -> Self:
        """Another index, of instances that begin with those of this one."""
        grown, new = copy(self), X[len(self.rows) :] - self.center
        grown.rows, grown.X = X, appended(self.X, new)
        grown.squares = appended(self.squares, row_dot(new, new))
        return grown

    def without(self, rows: np.ndarray) -> Self:
        """Another index, without some of the instances."""
        rest = copy(self)
        rest.rows, rest.X, rest.squares = (
            np.delete(part, rows, axis=0) for part in (self.rows, self.X, self.squares)
        )
        return rest

    def search(
        self, Q: np.ndarray, metrics: np.ndarray, n_neighbors: int, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the nearest instances under (q, d, d) metrics."""
        squared = np.empty((len(Q), n_neighbors))
        indices = np.empty((len(Q), n_neighbors), dtype=np.int64)
        all_rows = np.arange(len(self.X))
        for i, (x, M) in enumerate(zip(Q - self.center, metrics, strict=True)):
            others = all_rows if own is None else np.delete(all_rows, own[i])
            near = self._not_excluded(x, M, n_neighbors, others)
            found = sorted_prefix(self._distances(x, M, near), near[None], n_neighbors)
            squared[i], indices[i] = (part[0] for part in found)
        return squared, indices

    def _not_excluded(self, x: np.ndarray, M: np.ndarray, k: int, others: np.ndarray) -> np.ndarray:
        """Those of the others that may be among the k nearest of x."""
        d = len(x)
        rank = d // _SHARE_OF_DIRECTIONS
        if rank < 2 or len(others) <= 2 * k:
            return others
        eigenvalues, vectors = np.linalg.eigh(M)
        least, leading = max(eigenvalues[0], 0.0), vectors[:, -rank:]
        leading = leading * np.sqrt(np.maximum(eigenvalues[-rank:] - least, 0.0))
        projected = self.X @ leading - x @ leading
        euclidean = self.squares - 2.0 * (self.X @ x) + x @ x
        bound = (row_dot(projected, projected) + least * euclidean)[others]
        promising = np.argpartition(bound, k - 1)[:k]
        within = float(self._distances(x, M, others[promising]).squared.max())
        # The terms of the bound are of this size before they cancel, and so is its rounding.
        size = max(eigenvalues[-1], 0.0) * (self.radius + np.sqrt(x @ x)) ** 2
        near = bound <= within + 16.0 * d * float(np.finfo(np.float64).eps) * size
        near[promising] = True
        return others[near]

    def _distances(self, x: np.ndarray, M: np.ndarray, rows: np.ndarray) -> Measured:
        """(x_j - x)^T M (x_j - x) for the given rows j of one query x."""
        squared, euclidean = np.empty((1, len(rows))), np.empty((1, len(rows)))
        for block in row_blocks(len(rows), 2 * len(x)):
            differences = self.X[rows[block]] - x
            squared[0, block] = row_dot(differences @ M, differences)
            euclidean[0, block] = row_dot(differences, differences)
        return measured(np.maximum(squared, 0.0), euclidean, x[None], float(np.trace(M)))
