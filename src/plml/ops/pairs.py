"""Squared distances of pairs under local metrics, as a linear operator with its adjoint.

Stage 2 sees the data only through the map from the basis metrics to the distances of pairs,

    (A M)_p = sum_b W_ib (x_i - x_j)^T M_b (x_i - x_j),            p = (i, j),

and its adjoint, which maps one coefficient per pair to one scatter matrix per basis,

    (A* s)_b = sum_p W_ib s_p (x_i - x_j) (x_i - x_j)^T.

Both are graph-Laplacian products: no array of n_pairs x d, let alone n_triplets x d, is formed,
nor one of n x m x d: rows are taken one block at a time, and the blocks, or the bases, are shared
among the threads of a team.
"""

from copy import copy
from typing import Any, Protocol

import numpy as np

from plml.backend.arrays import (
    Array,
    device,
    is_tensor,
    like,
    namespace,
    row_dot,
    segment_sum,
    share_of_memory,
    team_for,
)
from plml.backend.fused import dots_of_pairs, forms_and_mean, sums_of_products
from plml.backend.sparse import Edges
from plml.backend.threads import SERIAL, ThreadTeam
from plml.ops.projections import PsdMatrices, as_psd_matrices

_PAIR_BLOCK = 8192
#: Elements of X in a block of rows: a few megabytes, so that it stays in the cache.
_BLOCK_ELEMENTS = 2**19
#: Up to this many features, and on a GPU always, the products of all bases are one per block.
_NARROW = 40
#: Operations of a product below which the time of a call is that of its parts in Python.
_SMALL = 2**23


class Pairs(Protocol):
    """A map from metrics to distances of pairs, with its adjoint."""

    X: Array
    team: ThreadTeam
    n_bases: int  # m

    def astype(self, dtype: Any) -> "Pairs":
        """The same operator with its products in another dtype."""

    def scatter(self, s: Array) -> Array:
        """A* s, an (m, d, d) float64 array, for s of shape (n_pairs,)."""

    def scatter_sizes(self, s: Array) -> Array:
        """(m,) sizes of the terms of A* s, which is rounded at this scale; zero if unknown."""
        return namespace(s).zeros(self.n_bases, dtype=s.dtype, device=device(s))

    def distances(self, M: Array | PsdMatrices) -> Array:
        """A M, an (n_pairs,) float64 array, for M of shape (m, d, d)."""


class PairOperator(Pairs):
    """The operator A above for fixed data, weights and pairs.

    Parameters
    ----------
    X : (n, d) array; its dtype is the dtype of the matrix products
    weights : (n, m) array
    pairs : (n_pairs, 2) integer NumPy array of rows (i, j); the metric is that of i
    team : threads that share the work
    """

    def __init__(
        self, X: Array, weights: Array, pairs: np.ndarray, team: ThreadTeam = SERIAL
    ) -> None:
        xp = namespace(X)
        self.X = xp.asarray(X)
        self.weights = xp.astype(weights, X.dtype, copy=False)
        self.pairs = pairs
        self.team = team_for(X, team)
        n, d = X.shape
        self.n_bases = weights.shape[1]
        self._edges = Edges(pairs, n, X)
        self._ends = like(np.ascontiguousarray(pairs.T), X)
        self._narrow = d <= _NARROW or is_tensor(X)
        width = d * self.n_bases if self._narrow else d
        elements = share_of_memory(X, _BLOCK_ELEMENTS)
        self._blocks = self.team.cut(n, elements // max(width, 1))
        pair_block = max(1, elements // max(d, 1))
        if not is_tensor(X):
            pair_block = min(_PAIR_BLOCK, pair_block)
        self._pair_blocks = self.team.cut(len(pairs), pair_block)
        self._members = [] if self._narrow else self._rows_in_use()
        # A basis and several blocks: enough pieces for every thread even where there is one basis.
        n_runs = min(len(self._blocks), -(-2 * self.team.size // self.n_bases))
        runs = np.array_split(np.arange(len(self._blocks)), max(n_runs, 1))
        self._pieces = [
            (b, range(run[0], run[-1] + 1)) for b in range(self.n_bases) for run in runs if len(run)
        ]

    def astype(self, dtype: Any) -> "PairOperator":
        xp, other = namespace(self.X), copy(self)
        parts = (self.X, self.weights)
        other.X, other.weights = (xp.astype(part, dtype, copy=False) for part in parts)
        return other

    def scatter(self, s: Array) -> Array:
        xp, d = namespace(self.X), self.X.shape[1]
        entries = self._edges.entries(s, self.X.dtype)
        # sum_p w_p (x_i - x_j)(x_i - x_j)^T = G + G^T with G = X^T (D_i/2 + D_j/2 - S) X.
        out_edges = self._edges.half_laplacian(entries, self.X, self.team, self._blocks)
        in_edges = 0.5 * self._edges.transposed_product(s, entries, self.weights)
        G = xp.zeros((self.n_bases, d, d), dtype=xp.float64, device=device(self.X))
        if self._narrow:
            for part in self.team.map(
                lambda rows: self._narrow_scatter(rows, out_edges, in_edges), self._blocks
            ):
                G += part
        else:
            parts = self.team.map(
                lambda piece: self._wide_scatter(*piece, out_edges, in_edges), self._pieces
            )
            for (b, _), part in zip(self._pieces, parts, strict=True):
                G[b, ...] += part
        return G + xp.matrix_transpose(G)

    def scatter_sizes(self, s: Array) -> Array:
        """sum_p W_ib |s_p| (||x_i||^2 + ||x_j||^2)."""
        xp, s = namespace(self.X), namespace(s).abs(s)
        entries = self._edges.entries(s, self.X.dtype)
        out_edges = segment_sum(s, self._ends[0], len(self.X))[:, None] * self.weights
        in_edges = self._edges.transposed_product(s, entries, self.weights)
        sizes = xp.astype(row_dot(self.X, self.X), xp.float64)
        return sizes @ xp.astype(out_edges + in_edges, xp.float64)

    def distances(self, M: Array | PsdMatrices) -> Array:
        xp = namespace(self.X)
        M, factors = as_psd_matrices(M)
        M = xp.astype(M, self.X.dtype, copy=False)
        MX = xp.zeros_like(self.X)  # row i: M_i x_i
        Q = xp.zeros_like(self.weights)  # Q_jb = x_j^T M_b x_j
        if self._narrow:
            side_by_side = xp.reshape(xp.permute_dims(M, (1, 0, 2)), (M.shape[1], -1))
            self.team.map(lambda rows: self._narrow_forms(rows, side_by_side, MX, Q), self._blocks)
        else:
            numbers = range(len(self._blocks))
            L = None if factors is None else [part.astype(self.X.dtype) for part in factors]
            self.team.map(lambda block: self._wide_forms(block, M, L, MX, Q), numbers)
        own = xp.astype(row_dot(self.weights, Q), xp.float64)
        result = xp.empty(len(self.pairs), dtype=xp.float64, device=device(self.X))
        self.team.map(lambda rows: self._pair_forms(rows, MX, Q, own, result), self._pair_blocks)
        return result

    def _narrow_scatter(self, rows: slice, out: Array, into: Array) -> Array:
        xp, d = namespace(out), self.X.shape[1]
        X, W = self.X[rows], self.weights[rows]
        Y = sums_of_products(W, out[rows], into[rows], X)
        G = X.T @ xp.reshape(Y, (len(X), -1))
        G = xp.permute_dims(xp.reshape(G, (d, self.n_bases, d)), (1, 0, 2))
        return xp.astype(G, xp.float64)

    def _wide_scatter(self, b: int, blocks: range, out: Array, into: Array) -> Array:
        xp, d = namespace(out), self.X.shape[1]
        G = xp.zeros((d, d), dtype=xp.float64, device=device(out))
        for block in blocks:
            rows, chosen = self._blocks[block], self._members[block][b]
            X = self.X[rows][chosen]
            Y = self.weights[rows, b][chosen, None] * out[rows][chosen]
            Y += into[rows, b][chosen, None] * X
            G += X.T @ Y
        return G

    def _narrow_forms(self, rows: slice, M: Array, MX: Array, Q: Array) -> None:
        X, W = self.X[rows], self.weights[rows]
        product = namespace(X).reshape(X @ M, (len(X), self.n_bases, X.shape[1]))
        forms_and_mean(product, X, W, Q[rows], MX[rows])

    def _wide_forms(
        self, block: int, M: Array, L: list[np.ndarray] | None, MX: Array, Q: Array
    ) -> None:
        rows = self._blocks[block]
        X, W = self.X[rows], self.weights[rows]
        MX_rows, Q_rows = MX[rows], Q[rows]  # views
        for b, chosen in enumerate(self._members[block]):
            X_b = X[chosen]
            if L is not None and 2 * L[b].shape[1] < X.shape[1]:  # of low rank
                Z = X_b @ L[b]
                Q_rows[chosen, b] = row_dot(Z, Z)
                product = Z @ L[b].T
            else:
                product = X_b @ M[b, ...]
                Q_rows[chosen, b] = row_dot(product, X_b)
            product *= W[chosen, b, None]
            MX_rows[chosen] += product

    def _pair_forms(self, rows: slice, MX: Array, Q: Array, own: Array, result: Array) -> None:
        i, j = self._ends[0, rows], self._ends[1, rows]
        cross = dots_of_pairs(MX, self.X, i, j)
        result[rows] = own[i] - 2.0 * cross + dots_of_pairs(self.weights, Q, i, j)

    def _rows_in_use(self) -> list[list[np.ndarray | slice]]:
        """By block and basis: the rows with a weight and the other ends of their pairs."""
        used = self.weights != 0
        ones = np.ones(len(self.pairs), dtype=self.X.dtype)
        reached = self._edges.transposed_product(ones, ones, used.astype(self.X.dtype)) > 0
        # Gathering most of the rows costs more than it saves.
        return [
            [np.flatnonzero(rows) if rows.mean() < 0.7 else slice(None) for rows in block.T]
            for block in ((used | reached)[rows] for rows in self._blocks)
        ]


class SmallPairs(Pairs):
    """The operator A of few pairs of few features, where calls cost more than operations.

    The products (x_i - x_j) (x_i - x_j)^T are formed once, and A and its adjoint are one matrix
    product each.

    Parameters
    ----------
    X : (n, d) NumPy array
    weights : (n_pairs, m) array, those of the metrics of every pair
    pairs : (n_pairs, 2) integer array
    """

    def __init__(self, X: np.ndarray, weights: np.ndarray, pairs: np.ndarray) -> None:
        self.X = X
        self.team = SERIAL
        self.n_bases = weights.shape[1]
        self._weights = weights
        difference = X[pairs[:, 0]] - X[pairs[:, 1]]
        self._upper = np.triu_indices(X.shape[1])
        first, second = self._upper
        self._products = difference[:, first] * difference[:, second]
        self._times = np.where(first == second, 1.0, 2.0)  # an entry stands for its mirror image

    def astype(self, dtype: Any) -> "SmallPairs":
        other = copy(self)
        parts = (self.X, self._weights, self._products)
        other.X, other._weights, other._products = (part.astype(dtype) for part in parts)
        return other

    def scatter(self, s: np.ndarray) -> np.ndarray:
        d, (first, second) = self.X.shape[1], self._upper
        sums = (self._weights * s[:, None].astype(self.X.dtype)).T @ self._products
        result = np.empty((self.n_bases, d, d))
        result[:, first, second] = result[:, second, first] = sums
        return result

    def scatter_sizes(self, s: np.ndarray) -> np.ndarray:
        """sum_p W_pb |s_p| ||x_i - x_j||^2."""
        squares = self._products[:, self._times == 1.0].sum(axis=1, dtype=np.float64)
        return (np.abs(s) * squares) @ self._weights.astype(np.float64)

    def distances(self, M: np.ndarray | PsdMatrices) -> np.ndarray:
        matrices = as_psd_matrices(M).matrices
        entries = (matrices[:, *self._upper] * self._times).astype(self.X.dtype)
        return row_dot(self._products @ entries.T, self._weights).astype(np.float64)


class TwoSidedPairs(Pairs):
    """Metrics at both ends of a pair: M at the first, the query, and N at the second, the case.

        (A (M, N))_p = sum_b W_ib D_p(M_b) + sum_c V_jc D_p(N_c)

    with D_p(M) = (x_i - x_j)^T M (x_i - x_j). The second sum is the first one with the ends of the
    pairs exchanged. M and N are one array of m + m' matrices.

    Parameters
    ----------
    X : (n, d) array
    weights, case_weights : (n, m) and (n, m') arrays, W and V
    pairs : (n_pairs, 2) integer NumPy array of rows (i, j)
    team : threads that share the work
    """

    def __init__(
        self,
        X: Array,
        weights: Array,
        case_weights: Array,
        pairs: np.ndarray,
        team: ThreadTeam = SERIAL,
    ) -> None:
        self._queries = PairOperator(X, weights, pairs, team)
        self._cases = PairOperator(X, case_weights, np.ascontiguousarray(pairs[:, ::-1]), team)
        self.X, self.team = self._queries.X, self._queries.team
        self.n_bases = self._queries.n_bases + self._cases.n_bases

    def astype(self, dtype: Any) -> "TwoSidedPairs":
        other = copy(self)
        other._queries, other._cases = self._queries.astype(dtype), self._cases.astype(dtype)
        other.X = other._queries.X
        return other

    def scatter(self, s: Array) -> Array:
        both = self._queries.scatter(s), self._cases.scatter(s)
        return namespace(self.X).concat(both, axis=0)

    def scatter_sizes(self, s: Array) -> Array:
        """As in ``PairOperator``, of both ends."""
        both = self._queries.scatter_sizes(s), self._cases.scatter_sizes(s)
        return namespace(self.X).concat(both, axis=0)

    def distances(self, M: Array | PsdMatrices) -> Array:
        matrices, factors = as_psd_matrices(M)
        m = self._queries.n_bases
        first, second = slice(None, m), slice(m, None)
        at_query, at_case = (
            PsdMatrices(matrices[side, ...], None if factors is None else factors[side])
            for side in (first, second)
        )
        return self._queries.distances(at_query) + self._cases.distances(at_case)


def pair_operator(
    X: Array,
    weights: Array,
    case_weights: Array | None,
    pairs: np.ndarray,
    team: ThreadTeam = SERIAL,
) -> Pairs:
    """The operator of metrics at the queries, or at the queries and the cases, by its size.

    Parameters
    ----------
    X, weights, pairs, team : as in ``PairOperator``
    case_weights : as in ``TwoSidedPairs``, or None
    """
    n_bases = weights.shape[1] + (0 if case_weights is None else case_weights.shape[1])
    if not is_tensor(X) and len(pairs) * X.shape[1] ** 2 * n_bases <= _SMALL:
        sides = [weights[pairs[:, 0]]]
        if case_weights is not None:
            sides.append(case_weights[pairs[:, 1]])
        return SmallPairs(X, np.concatenate(sides, axis=1, dtype=X.dtype), pairs)
    if case_weights is None:
        return PairOperator(X, weights, pairs, team)
    return TwoSidedPairs(X, weights, case_weights, pairs, team)
