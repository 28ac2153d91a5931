"""Squared distances of pairs under local metrics, as a linear operator with its adjoint.

Stage 2 sees the data only through the map from the basis metrics to the distances of pairs,

    (A M)_p = sum_b W_ib (x_i - x_j)^T M_b (x_i - x_j),            p = (i, j),

and its adjoint, which sends one coefficient a pair to one scatter matrix a basis,

    (A* s)_b = sum_p W_ib s_p (x_i - x_j) (x_i - x_j)^T.

Both are graph-Laplacian products: no array of n_pairs x d, let alone n_triplets x d, is formed.
"""

import numpy as np
from scipy import sparse

_PAIR_BLOCK = 8192


class PairOperator:
    """The operator A above for fixed data, weights and pairs.

    Parameters
    ----------
    X : (n, d) array; its dtype is the dtype of the matrix products
    weights : (n, m) array
    pairs : (n_pairs, 2) integer array of rows (i, j); the metric is that of i
    """

    def __init__(self, X: np.ndarray, weights: np.ndarray, pairs: np.ndarray) -> None:
        self.X = X
        self.weights = weights.astype(X.dtype, copy=False)
        self.pairs = pairs
        n = X.shape[0]
        self._order = np.argsort(pairs[:, 0], kind="stable")
        self._indices = pairs[self._order, 1]
        counts = np.bincount(pairs[:, 0], minlength=n)
        self._indptr = np.concatenate([[0], np.cumsum(counts)])
        self._supports = self._basis_supports()

    @property
    def n_bases(self) -> int:
        """M."""
        return self.weights.shape[1]

    def scatter(self, s: np.ndarray) -> np.ndarray:
        """A* s, an (m, d, d) float64 array, for s of shape (n_pairs,)."""
        X, W = self.X, self.weights
        S = self._graph(s)
        row_sums = np.asarray(S.sum(axis=1)).ravel()
        # sum_p w_p (x_i - x_j)(x_i - x_j)^T = G + G^T with G = X^T (D_i/2 + D_j/2 - S) X.
        out_edges = 0.5 * row_sums[:, None] * X - S @ X
        in_edges = 0.5 * (S.T @ W)
        d = X.shape[1]
        result = np.empty((self.n_bases, d, d))
        for b, rows in enumerate(self._supports):
            X_b = X[rows]
            Y_b = W[rows, b, None] * out_edges[rows] + in_edges[rows, b, None] * X_b
            G = X_b.T @ Y_b
            result[b] = G + G.T
        return result

    def distances(self, M: np.ndarray) -> np.ndarray:
        """A M, an (n_pairs,) float64 array, for M of shape (m, d, d)."""
        X, W = self.X, self.weights
        M = M.astype(X.dtype, copy=False)
        MX = np.zeros_like(X)  # row i: M_i x_i
        Q = np.zeros_like(W)  # Q_jb = x_j^T M_b x_j
        for b, rows in enumerate(self._supports):
            X_b = X[rows]
            product = X_b @ M[b]
            Q[rows, b] = np.einsum("nd,nd->n", product, X_b)
            MX[rows] += W[rows, b, None] * product
        own = np.einsum("nm,nm->n", W, Q, dtype=np.float64)
        result = np.empty(len(self.pairs))
        for start in range(0, len(self.pairs), _PAIR_BLOCK):
            i, j = self.pairs[start : start + _PAIR_BLOCK].T
            cross = np.einsum("pd,pd->p", MX[i], X[j])
            other = np.einsum("pm,pm->p", W[i], Q[j])
            result[start : start + _PAIR_BLOCK] = own[i] - 2.0 * cross + other
        return result

    def _graph(self, s: np.ndarray) -> sparse.csr_array:
        data = s[self._order].astype(self.X.dtype, copy=False)
        n = self.X.shape[0]
        return sparse.csr_array((data, self._indices, self._indptr), shape=(n, n))

    def _basis_supports(self) -> list[np.ndarray | slice]:
        """Rows that matter to each basis: those with weight and the other ends of their pairs."""
        n = self.X.shape[0]
        used = self.weights != 0
        reached = (self._graph(np.ones(len(self.pairs))).T @ used.astype(self.X.dtype)) > 0
        supports: list[np.ndarray | slice] = []
        for b in range(self.n_bases):
            rows = np.flatnonzero(used[:, b] | reached[:, b])
            # Gathering most of the rows costs more than it saves.
            supports.append(rows if len(rows) < 0.7 * n else slice(None))
        return supports
