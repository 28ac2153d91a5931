"""Squared distances of pairs where every point carries the metric of its group.

The operator A of ``pairs`` for weights that are one for a point's own group g(i) and zero
otherwise,

    (A M)_p = (x_i - x_j)^T M_g(i) (x_i - x_j),                    p = (i, j).

A group's metric is applied to its members and to the other ends of their pairs, the *visitors*,
and to no other row: the work grows with the number of pairs, not with the number of groups.
"""

from copy import copy
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import (
    Array,
    device,
    like,
    namespace,
    row_dot,
    segment_sum,
    share_of_memory,
    team_for,
)
from plml.backend.sparse import Edges
from plml.backend.threads import SERIAL, ThreadTeam
from plml.ops.pairs import Pairs
from plml.ops.projections import PsdMatrices, as_psd_matrices

#: Elements of X in a block of rows: a few megabytes, so that it stays in the cache.
_BLOCK_ELEMENTS = 2**18


class _Piece(NamedTuple):
    """Some of the points that one metric is applied to; members come before visitors."""

    group: int
    nodes: Array
    rows: Array
    n_members: int


class GroupedPairs(Pairs):
    """The operator A above for fixed data, groups and pairs.

    Parameters
    ----------
    X : (n, d) array; its dtype is the dtype of the matrix products
    groups : (n,) integer NumPy array
    n_groups : int
    pairs : (n_pairs, 2) integer NumPy array of rows (i, j); the metric is that of i
    team : threads that share the work
    """

    def __init__(
        self,
        X: Array,
        groups: np.ndarray,
        n_groups: int,
        pairs: np.ndarray,
        team: ThreadTeam = SERIAL,
    ) -> None:
        n, d = X.shape
        self.X = X
        self.n_bases = n_groups
        self.team = team_for(X, team)
        self.n_pairs = len(pairs)
        self._basis: Array | None = None
        ends, visitors, visited = _nodes(groups, pairs)
        self._n_nodes = n + len(visitors)
        self._ends = like(np.ascontiguousarray(np.vstack([pairs.T, ends])), X)
        self._edges = Edges(pairs, n, X)
        block = max(1, share_of_memory(X, _BLOCK_ELEMENTS) // max(d, 1))
        self._row_blocks = self.team.cut(n, block)
        self._pair_blocks = self.team.cut(len(pairs), block)
        pieces = _pieces(groups, visitors, visited, n_groups, block)
        pieces = [
            piece._replace(nodes=like(piece.nodes, X), rows=like(piece.rows, X)) for piece in pieces
        ]
        # Many groups are small: a thread takes several at once.
        runs = np.array_split(np.arange(len(pieces)), 4 * self.team.size)
        self._runs = [[pieces[k] for k in run] for run in runs if len(run)]

    def astype(self, dtype: Any) -> "GroupedPairs":
        other = copy(self)
        other.X = namespace(self.X).astype(self.X, dtype, copy=False)
        return other

    def in_coordinates(self, basis: Array) -> "GroupedPairs":
        """The operator of N with M_g = B_g N_g B_g^T, for B of shape (n_groups, d, d)."""
        other = copy(self)
        other._basis = basis
        return other

    def distances(self, M: Array | PsdMatrices) -> Array:
        xp, place = namespace(self.X), device(self.X)
        M, factors = as_psd_matrices(M)
        if self._basis is not None:
            M = self._basis @ M @ xp.matrix_transpose(self._basis)
            if factors is not None:
                factors = [B @ L for B, L in zip(self._basis, factors, strict=True)]
        M = xp.astype(M, self.X.dtype, copy=False)
        MX = xp.empty_like(self.X)  # row i: M_g(i) x_i
        squares = xp.empty(self._n_nodes, dtype=xp.float64, device=place)
        self.team.map(lambda run: self._forms(run, M, factors, MX, squares), self._runs)
        result = xp.empty(self.n_pairs, dtype=xp.float64, device=place)
        self.team.map(lambda block: self._pair_forms(block, MX, squares, result), self._pair_blocks)
        return result

    def scatter(self, s: Array) -> Array:
        xp, d = namespace(self.X), self.X.shape[1]
        entries = self._edges.entries(s, self.X.dtype)
        # sum_p s_p (x_i - x_j)(x_i - x_j)^T = G + G^T with G = X^T (D_i/2 + D_j/2 - S) X.
        out_edges = self._edges.half_laplacian(entries, self.X, self.team, self._row_blocks)
        in_edges = 0.5 * segment_sum(s, self._ends[2], self._n_nodes)
        G = xp.zeros((self.n_bases, d, d), dtype=xp.float64, device=device(self.X))
        parts = self.team.map(
            lambda run: [self._part(piece, out_edges, in_edges) for piece in run], self._runs
        )
        for piece, part in zip(chain(*self._runs), chain(*parts), strict=True):
            G[piece.group, ...] += part
        G = G + xp.matrix_transpose(G)
        return G if self._basis is None else xp.matrix_transpose(self._basis) @ G @ self._basis

    def _forms(
        self,
        run: list[_Piece],
        M: Array,
        factors: list[np.ndarray] | None,
        MX: Array,
        squares: Array,
    ) -> None:
        for group, nodes, rows, n_members in run:
            Z = self.X[rows]
            if factors is not None and 2 * factors[group].shape[1] < Z.shape[1]:  # of low rank
                L = factors[group].astype(Z.dtype)
                mapped = Z @ L
                squares[nodes] = row_dot(mapped, mapped)
                MX[nodes[:n_members]] = mapped[:n_members] @ L.T
                continue
            product = Z @ M[group, ...]
            squares[nodes] = namespace(Z).astype(row_dot(product, Z), squares.dtype)
            MX[nodes[:n_members]] = product[:n_members]

    def _pair_forms(self, block: slice, MX: Array, squares: Array, result: Array) -> None:
        i, j, end = (self._ends[k, block] for k in range(3))
        result[block] = squares[i] - 2.0 * row_dot(MX[i], self.X[j]) + squares[end]

    def _part(self, piece: _Piece, out: Array, into: Array) -> Array:
        """What a piece adds to G of its group."""
        xp, Z, members = namespace(out), self.X[piece.rows], slice(piece.n_members)
        Y = xp.astype(into[piece.nodes], Z.dtype)[:, None] * Z
        Y[members] += out[piece.nodes[members]]
        return xp.astype(Z.T @ Y, xp.float64)


def _nodes(groups: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points under the metrics applied to them: node i < n is point i under its own metric, and
    the nodes from n on are the visitors, by group.

    Returns
    -------
    ends : (n_pairs,) nodes of the second points
    visitors, visited : rows and groups of the visitors
    """
    n = len(groups)
    carried, second = groups[pairs[:, 0]].astype(np.int64), pairs[:, 1]
    ends = second.astype(np.int64)
    foreign = groups[second] != carried
    keys, numbers = np.unique(carried[foreign] * n + second[foreign], return_inverse=True)
    ends[foreign] = n + numbers
    return ends, keys % n, keys // n


def _pieces(
    groups: np.ndarray, visitors: np.ndarray, visited: np.ndarray, n_groups: int, largest: int
) -> list[_Piece]:
    """The points of every group, in pieces of at most ``largest`` points."""
    n = len(groups)
    metric = np.concatenate([groups, visited])
    rows = np.concatenate([np.arange(n), visitors])
    order = np.argsort(metric, kind="stable")
    starts = np.searchsorted(metric[order], np.arange(n_groups + 1))
    pieces = []
    for group, (first, last) in enumerate(pairwise(starts.tolist())):
        for start in range(first, last, largest):
            nodes = order[start : min(start + largest, last)]
            pieces.append(_Piece(group, nodes, rows[nodes], int(np.sum(nodes < n))))
    return pieces
