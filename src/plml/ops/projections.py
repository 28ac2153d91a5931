"""Euclidean projections. Each docstring is the optimisation problem that the function solves."""

import math
from typing import NamedTuple

import numpy as np

from plml.backend.arrays import (
    Array,
    columns_as_rows,
    device,
    matrix_products,
    namespace,
)
from plml.backend.fused import in_one_kernel
from plml.backend.threads import SERIAL, ThreadTeam

#: Odd quintics a y + b y^3 + c y^5: the first one lifts small values fast, the second one (the
#: Newton-Schulz step of order three) converges to the sign.
_LIFT, _CONVERGE = (3.4445, -4.775, 2.0315), (1.875, -1.25, 0.375)
_N_CONVERGE = 5
#: Eigenvalues that ``project_psd_by_sign`` tells from zero, relative to the norm: enough for the
#: iterations of a solver, and all that double precision knows.
ROUGHLY, EXACTLY = 1e-6, 1e-14
#: Sides of matrices are multiples of this in products on a GPU.
_ALIGNED = 4
#: Rows with larger entries are shifted first, which limits the rounding.
_FAR_FROM_THE_SIMPLEX = 4.0
#: From this many dimensions on, a decomposition takes longer than handing it to a thread.
_WORTH_A_THREAD = 32


def project_simplex(V: Array) -> Array:
    r"""argmin_W ||W - V||_F^2 subject to W >= 0 and every row of W summing to one.

    Sorts each row of V, (n, m), once: O(n m log m) (Duchi et al., ICML 2008). On a GPU one kernel
    does all of it where kernels can be compiled.
    """
    if in_one_kernel(V):
        from plml.backend.kernels import simplex_rows

        return simplex_rows(V)
    xp = namespace(V)
    descending = xp.sort(V, axis=1, descending=True, stable=False)
    # The projection is invariant to a shift of the row; this one keeps the sums small.
    largest = descending[:, :1]
    excess = xp.cumulative_sum(columns_as_rows(descending - largest), axis=0) - 1.0
    counts = xp.arange(1, V.shape[1] + 1, dtype=V.dtype, device=device(V))
    # The threshold of the k largest entries alone is the highest where k is right.
    threshold = xp.max(excess / counts[:, None], axis=0)
    return xp.clip(V - largest - threshold[:, None], 0.0, None)


def project_simplex_from(V: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """``project_simplex`` by Newton's method on the thresholds, from those of a similar matrix.

    The threshold is the root of sum_b [v_b - t]_+ = 1, which is convex, decreasing and piecewise
    linear in t: Newton's method is exact after finitely many steps, mostly after one if the start
    is close, and later steps work only on the rows that need them.

    Parameters
    ----------
    V : (n, m) array
    threshold : (n,) array, the start, overwritten by the result; NaN where nothing is known
    """
    m = V.shape[1]
    if max(V.max(initial=0.0), -V.min(initial=0.0)) > _FAR_FROM_THE_SIMPLEX:
        threshold[:] = np.nan  # its rounding would be that of the entries
        return project_simplex(V)
    ones = np.ones(m, dtype=V.dtype)
    eps = float(np.finfo(V.dtype).eps)
    if np.isnan(threshold).any():
        unknown = np.flatnonzero(np.isnan(threshold))
        threshold[unknown] = _below_every_threshold(V[unknown])
    above, excess = _above(V, threshold, ones)
    rows: np.ndarray | slice = slice(None)
    part, part_above, t = V, above, threshold
    for _ in range(4 * m):
        # More than the rounding of the entries and of their sum.
        open_rows = np.abs(excess) > m * eps * _FAR_FROM_THE_SIMPLEX
        if not open_rows.any():
            break
        if not open_rows.all():
            rows = np.flatnonzero(open_rows) if isinstance(rows, slice) else rows[open_rows]
            part, part_above, t = V[rows], part_above[open_rows], t[open_rows]
            excess = excess[open_rows]
        counts = (part_above > 0.0) @ ones
        if counts.all():
            t = t + excess / counts
        else:
            empty = np.flatnonzero(counts == 0.0)
            t = t + excess / np.maximum(counts, 1.0)
            t[empty] = _below_every_threshold(part[empty])
        part_above, excess = _above(part, t, ones)
        threshold[rows], above[rows] = t, part_above
    return above


def _above(V: np.ndarray, threshold: np.ndarray, ones: np.ndarray) -> tuple[np.ndarray, ...]:
    """[v - t]_+, and how much the sums of its rows exceed one."""
    above = V - threshold[:, None]
    np.maximum(above, 0.0, out=above)
    return above, above @ ones - 1.0


def _below_every_threshold(V: np.ndarray) -> np.ndarray:
    """A start from which Newton's method always converges."""
    return V.max(axis=1) - 1.0 if len(V) else np.empty(0, dtype=V.dtype)


def project_box(v: Array, upper: float | Array = 1.0, lower: float = 0.0) -> Array:
    """argmin_w ||w - v||^2 subject to lower <= w <= upper, numbers or arrays like v."""
    xp = namespace(v)
    if isinstance(upper, float):
        return xp.clip(v, lower, upper)
    return xp.minimum(xp.clip(v, lower, None), upper)


class PsdMatrices(NamedTuple):
    """Positive semidefinite matrices M_b, with factors L_b L_b^T = M_b where they save work.

    The rank of the solutions of large-margin problems is a fraction of the dimension.
    """

    matrices: Array  # (m, d, d)
    factors: list[np.ndarray] | None = None  # (d, rank_b)


def without(found: PsdMatrices, gone: Array) -> PsdMatrices:
    """The same matrices, those marked in ``gone``, an (m,) mask, replaced by zero."""
    xp = namespace(found.matrices)
    matrices = xp.where(gone[:, None, None], xp.zeros_like(found.matrices), found.matrices)
    if found.factors is None:
        return PsdMatrices(matrices)
    pairs = zip(found.factors, gone, strict=True)
    return PsdMatrices(matrices, [L[:, :0] if zero else L for L, zero in pairs])


def as_psd_matrices(M: Array | PsdMatrices) -> PsdMatrices:
    """Matrices with their factors, or without where they have none."""
    return M if isinstance(M, PsdMatrices) else PsdMatrices(M)


def project_psd(S: Array) -> Array:
    """argmin_P ||P - S||_F^2 subject to P positive semidefinite, for symmetric (..., d, d) S.

    Eigenvalues that are zero up to rounding become zero: a metric that should vanish does.
    """
    xp = namespace(S)
    eigenvalues, vectors = xp.linalg.eigh(S)
    positive = xp.where(eigenvalues > _rounding(eigenvalues), eigenvalues, 0.0 * eigenvalues)
    scaled = vectors * xp.sqrt(positive)[..., None, :]
    return scaled @ xp.matrix_transpose(scaled)


def project_psd_factored(S: np.ndarray, team: ThreadTeam = SERIAL) -> PsdMatrices:
    """``project_psd`` of an (m, d, d) array, with the factors where d is not small."""
    if S.shape[-1] < _WORTH_A_THREAD:
        return PsdMatrices(project_psd(S))
    factors = team.map(_positive_factor, list(S))
    return PsdMatrices(np.stack([L @ L.T for L in factors]), factors)


def _positive_factor(S: np.ndarray) -> np.ndarray:
    eigenvalues, vectors = np.linalg.eigh(S)
    positive = eigenvalues > _rounding(eigenvalues)
    return vectors[:, positive] * np.sqrt(eigenvalues[positive])


def _rounding(eigenvalues: Array) -> Array:
    """The size of zero eigenvalues after rounding: (..., d) -> (..., 1)."""
    xp = namespace(eigenvalues)
    largest = xp.max(xp.abs(eigenvalues), axis=-1, keepdims=True)
    return eigenvalues.shape[-1] * xp.finfo(eigenvalues.dtype).eps * largest


def project_psd_by_sign(S: Array, resolution: float = ROUGHLY) -> Array:
    """``project_psd`` without eigenvalues, of (m, d, d): (S)_+ = (S + |S|) / 2, |S| = S sign(S).

    The sign comes from a quintic iteration that consists of matrix products, which a GPU computes
    many times faster than a decomposition. Eigenvalues within ``resolution`` of zero, relative to
    the norm of the matrix, may keep a part of their sign.
    """
    xp, d = namespace(S), S.shape[-1]
    S = _aligned(S)
    norm = xp.sqrt(xp.sum(S * S, axis=(-2, -1), keepdims=True))
    Y = S / xp.where(norm > 0, norm, xp.ones_like(norm))
    n_lifts = math.ceil(-math.log(resolution) / math.log(_LIFT[0]))
    for a, b, c in (_LIFT,) * n_lifts + (_CONVERGE,) * _N_CONVERGE:
        square = Y @ Y
        Y = matrix_products(matrix_products(square, square, c, square, b), Y, 1.0, Y, a)
    absolute = S @ Y
    projected = 0.25 * (2.0 * S + absolute + xp.matrix_transpose(absolute))
    # A matrix that should vanish does.
    left = xp.sqrt(xp.sum(projected * projected, axis=(-2, -1), keepdims=True))
    vanished = left <= d * xp.finfo(S.dtype).eps * norm
    return xp.where(vanished, xp.zeros_like(projected), projected)[:, :d, :d]


def _aligned(S: Array) -> Array:
    """Matrices (m, d, d) with zeros up to a d that fast products like."""
    m, d, _ = S.shape
    side = -(-d // _ALIGNED) * _ALIGNED
    if side == d:
        return S
    result = namespace(S).zeros((m, side, side), dtype=S.dtype, device=device(S))
    result[:, :d, :d] = S
    return result


def psd_factor(M: np.ndarray, rank_tolerance: float = 0.0) -> np.ndarray:
    """L with L^T L = M for a positive semidefinite (d, d) M, rows by decreasing eigenvalue.

    Eigenvalues at or below ``rank_tolerance`` times the largest are dropped; even a zero matrix
    keeps one row.
    """
    eigenvalues, vectors = np.linalg.eigh(M)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    keep = eigenvalues > rank_tolerance * max(eigenvalues[0], 0.0)
    keep[0] = True
    return np.sqrt(np.maximum(eigenvalues[keep], 0.0))[:, None] * vectors[:, keep].T
