"""Squared distances of pairs under local metrics, as a linear operator with its adjoint.

Stage 2 sees the data only through the map from the basis metrics to the distances of pairs,

    (A M)_p = sum_b W_ib (x_i - x_j)^T M_b (x_i - x_j),            p = (i, j),

and its adjoint, which sends one coefficient a pair to one scatter matrix a basis,

    (A* s)_b = sum_p W_ib s_p (x_i - x_j) (x_i - x_j)^T.

Both are graph-Laplacian products: no array of n_pairs x d, let alone n_triplets x d, is formed,
and none of n x m x d either: rows are taken a block at a time, and the blocks, or the bases, are
shared among the threads of a crew.
"""

import numpy as np
from scipy import sparse

from plml.backend.threads import ALONE, Crew

_PAIR_BLOCK = 8192
#: Elements of X in a block of rows: a few hundred kilobytes, so that it stays in the cache.
_BLOCK_ELEMENTS = 2**18
#: Up to so many features the products of all bases are one product a block.
_NARROW = 40


class PairOperator:
    """The operator A above for fixed data, weights and pairs.

    Parameters
    ----------
    X : (n, d) array; its dtype is the dtype of the matrix products
    weights : (n, m) array
    pairs : (n_pairs, 2) integer array of rows (i, j); the metric is that of i
    crew : threads that share the work
    """

    def __init__(
        self, X: np.ndarray, weights: np.ndarray, pairs: np.ndarray, crew: Crew = ALONE
    ) -> None:
        self.X = np.ascontiguousarray(X)
        self.weights = weights.astype(X.dtype, copy=False)
        self.pairs = pairs
        self.crew = crew
        n, d = X.shape
        self._order = np.argsort(pairs[:, 0], kind="stable")
        self._indices = pairs[self._order, 1]
        counts = np.bincount(pairs[:, 0], minlength=n)
        self._indptr = np.concatenate([[0], np.cumsum(counts)])
        self._narrow = d <= _NARROW
        width = d * self.n_bases if self._narrow else d
        self._blocks = crew.cut(n, _BLOCK_ELEMENTS // max(width, 1))
        self._pair_blocks = crew.cut(len(pairs), _PAIR_BLOCK)
        self._members = [] if self._narrow else self._rows_that_matter()
        # A basis and a run of blocks: enough pieces for everyone even where there is one basis.
        n_runs = min(len(self._blocks), -(-2 * crew.size // self.n_bases))
        runs = np.array_split(np.arange(len(self._blocks)), max(n_runs, 1))
        self._pieces = [
            (b, range(run[0], run[-1] + 1)) for b in range(self.n_bases) for run in runs if len(run)
        ]

    @property
    def n_bases(self) -> int:
        """M."""
        return self.weights.shape[1]

    def scatter(self, s: np.ndarray) -> np.ndarray:
        """A* s, an (m, d, d) float64 array, for s of shape (n_pairs,)."""
        data = s[self._order].astype(self.X.dtype, copy=False)
        # sum_p w_p (x_i - x_j)(x_i - x_j)^T = G + G^T with G = X^T (D_i/2 + D_j/2 - S) X.
        out_edges = np.empty_like(self.X)
        self.crew.map(lambda rows: self._out_edges(data, rows, out_edges), self._blocks)
        in_edges = 0.5 * (self._graph(data).T @ self.weights)
        if self._narrow:
            parts = self.crew.map(
                lambda rows: self._narrow_scatter(rows, out_edges, in_edges), self._blocks
            )
            G = _sum(parts)
        else:
            parts = self.crew.map(
                lambda piece: self._wide_scatter(*piece, out_edges, in_edges), self._pieces
            )
            G = np.zeros((self.n_bases, *parts[0].shape))
            for (b, _), part in zip(self._pieces, parts, strict=True):
                G[b] += part
        return G + np.swapaxes(G, 1, 2)

    def distances(self, M: np.ndarray) -> np.ndarray:
        """A M, an (n_pairs,) float64 array, for M of shape (m, d, d)."""
        M = M.astype(self.X.dtype, copy=False)
        MX = np.zeros_like(self.X)  # row i: M_i x_i
        Q = np.zeros_like(self.weights)  # Q_jb = x_j^T M_b x_j
        if self._narrow:
            side_by_side = np.ascontiguousarray(M.transpose(1, 0, 2).reshape(len(M[0]), -1))
            self.crew.map(lambda rows: self._narrow_forms(rows, side_by_side, MX, Q), self._blocks)
        else:
            numbers = range(len(self._blocks))
            self.crew.map(lambda block: self._wide_forms(block, M, MX, Q), numbers)
        own = np.einsum("nm,nm->n", self.weights, Q, dtype=np.float64)
        result = np.empty(len(self.pairs))
        self.crew.map(lambda rows: self._pair_forms(rows, MX, Q, own, result), self._pair_blocks)
        return result

    def _out_edges(self, data: np.ndarray, rows: slice, out: np.ndarray) -> None:
        """Rows of D_i X / 2 - S X."""
        indptr = self._indptr[rows.start : rows.stop + 1]
        edges = slice(indptr[0], indptr[-1])
        shape = (rows.stop - rows.start, len(self.X))
        S = sparse.csr_array((data[edges], self._indices[edges], indptr - indptr[0]), shape=shape)
        sums = np.asarray(S.sum(axis=1)).ravel()
        out[rows] = 0.5 * sums[:, None] * self.X[rows] - S @ self.X

    def _narrow_scatter(self, rows: slice, out: np.ndarray, into: np.ndarray) -> np.ndarray:
        X, W = self.X[rows], self.weights[rows]
        Y = W[:, :, None] * out[rows][:, None, :]
        Y += into[rows][:, :, None] * X[:, None, :]
        d = X.shape[1]
        G = X.T @ Y.reshape(len(X), -1)
        return G.reshape(d, -1, d).transpose(1, 0, 2).astype(np.float64)

    def _wide_scatter(self, b: int, blocks: range, out: np.ndarray, into: np.ndarray) -> np.ndarray:
        d = self.X.shape[1]
        G = np.zeros((d, d))
        for block in blocks:
            rows, chosen = self._blocks[block], self._members[block][b]
            X = self.X[rows][chosen]
            Y = self.weights[rows, b][chosen, None] * out[rows][chosen]
            Y += into[rows, b][chosen, None] * X
            G += X.T @ Y
        return G

    def _narrow_forms(self, rows: slice, M: np.ndarray, MX: np.ndarray, Q: np.ndarray) -> None:
        X, W = self.X[rows], self.weights[rows]
        product = (X @ M).reshape(len(X), self.n_bases, X.shape[1])
        Q[rows] = (product @ X[:, :, None])[:, :, 0]
        MX[rows] = (W[:, None, :] @ product)[:, 0, :]

    def _wide_forms(self, block: int, M: np.ndarray, MX: np.ndarray, Q: np.ndarray) -> None:
        rows = self._blocks[block]
        X, W = self.X[rows], self.weights[rows]
        MX_rows, Q_rows = MX[rows], Q[rows]  # views
        for b, chosen in enumerate(self._members[block]):
            X_b = X[chosen]
            product = X_b @ M[b]
            Q_rows[chosen, b] = np.einsum("nd,nd->n", product, X_b)
            product *= W[chosen, b, None]
            MX_rows[chosen] += product

    def _pair_forms(
        self, rows: slice, MX: np.ndarray, Q: np.ndarray, own: np.ndarray, result: np.ndarray
    ) -> None:
        i, j = self.pairs[rows].T
        cross = np.einsum("pd,pd->p", MX[i], self.X[j])
        other = np.einsum("pm,pm->p", self.weights[i], Q[j])
        result[rows] = own[i] - 2.0 * cross + other

    def _graph(self, data: np.ndarray) -> sparse.csr_array:
        n = len(self.X)
        return sparse.csr_array((data, self._indices, self._indptr), shape=(n, n))

    def _rows_that_matter(self) -> list[list[np.ndarray | slice]]:
        """By block and basis: rows with weight and the other ends of their pairs."""
        used = self.weights != 0
        ones = np.ones(len(self.pairs), dtype=self.X.dtype)
        matters = used | ((self._graph(ones).T @ used.astype(self.X.dtype)) > 0)
        members: list[list[np.ndarray | slice]] = []
        for rows in self._blocks:
            block = matters[rows]
            # Gathering most of the rows costs more than it saves.
            members.append(
                [
                    np.flatnonzero(block[:, b]) if block[:, b].mean() < 0.7 else slice(None)
                    for b in range(self.n_bases)
                ]
            )
        return members


def _sum(parts: list[np.ndarray]) -> np.ndarray:
    """In the order of the parts, so that the result does not depend on the threads."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total
