"""The directions in which the rows of a table differ: all that a metric can be learned from.

With fewer rows than features, with one-hot columns or with columns that are sums of others, the
rows differ in fewer directions than there are features. Distances between rows are the same in an
orthonormal basis of these directions, and so is every problem of this library, its solution and its
certificate: in that basis the cost depends on the number of directions, not of features.
"""

from math import ceil, log2
from typing import NamedTuple

import numpy as np

from plml.backend.arrays import Array, like, namespace, on_host
from plml.backend.threads import one_blas_thread
from plml.ops.topk import row_blocks

#: Correlation matrices whose least eigenvalue is smaller are examined more closely.
_SUSPICIOUS = 1e-9
#: Below it digits are lost, and nothing is cut off.
_TINY = 1e-250


class Span(NamedTuple):
    """Coordinates z = (x - center) @ basis, with orthonormal columns of the basis."""

    center: np.ndarray  # (d,)
    basis: np.ndarray  # (d, r)

    def coordinates(self, X: Array) -> Array:
        """(n, d) points -> (n, r), in the dtype of the points."""
        xp = namespace(X)
        center, basis = (like(part, X, xp.float64) for part in self)
        return xp.astype(_accurate_product(X - center, basis), X.dtype)

    def points(self, Z: np.ndarray) -> np.ndarray:
        """(n, r) coordinates -> (n, d)."""
        return self.center + Z @ self.basis.T

    def outward(self, M: np.ndarray) -> np.ndarray:
        """(..., r, r) metrics -> (..., d, d), zero across the span."""
        return self.basis @ M @ self.basis.T

    def inward(self, M: np.ndarray) -> np.ndarray:
        """(..., d, d) metrics -> (..., r, r), restricted to the span."""
        return self.basis.T @ M @ self.basis


def inside(X: Array, span: Span | None) -> Array:
    """Points in the coordinates of a span, or as they are where there is none."""
    return X if span is None else span.coordinates(X)


def inward(M: np.ndarray, span: Span | None) -> np.ndarray:
    """Metrics in the coordinates of a span, or as they are where there is none."""
    return M if span is None else span.inward(M)


def outward(M: np.ndarray, span: Span | None) -> np.ndarray:
    """Metrics in the coordinates of the data, from those of a span where there is one."""
    return M if span is None else span.outward(M)


def span_of(X: Array) -> Span | None:
    """The span of centred rows (n, d); None if they differ in as many directions as features.

    Which directions are kept does not depend on the units of the columns: what is dropped is
    below rounding both in these units and in those of the columns' standard deviations.
    """
    xp, (n, d) = namespace(X), X.shape
    varies = on_host(xp.max(X, axis=0) > xp.min(X, axis=0))
    if not varies.any():
        return None
    center = xp.mean(xp.astype(X, xp.float64), axis=0)
    columns = None if varies.all() else Span(np.zeros(d), np.eye(d)[:, varies])
    if n > varies.sum() and _is_regular(on_host(_scatter(X, center))[np.ix_(varies, varies)]):
        return columns
    center = on_host(center)
    rows = (on_host(X) - center)[:, varies]
    tolerance = 16.0 * np.sqrt(d) * float(np.finfo(on_host(X[:1]).dtype).eps)
    sizes, directions = _singular(rows)
    rank = int((sizes > tolerance * sizes[0]).sum())
    in_units, _ = _singular(_unit_columns(rows))
    if rank < int((in_units > tolerance * in_units[0]).sum()):
        # The units are so far apart that a small column looks like rounding; it may matter most.
        return columns
    if rank == d:
        return None
    basis = np.zeros((d, rank))
    basis[varies] = directions[:rank].T
    return Span(center, basis)


def _accurate_product(A: Array, B: Array) -> Array:
    """A @ B to the last digit, (n, d) and (d, r): a row does not depend on the others.

    Both factors are cut into parts of so few digits that products of the leading parts are exact,
    in whatever order they are summed; the rounding of the others is far below the last digit.
    """
    bits = (52 - ceil(log2(A.shape[1] + 1))) // 2
    A1, A2, A3 = _parts(A, bits, axis=1)
    B1, B2, B3 = _parts(B, bits, axis=0)
    rest = A1 @ B3 + A2 @ (B2 + B3) + A3 @ B
    return A1 @ B1 + ((A1 @ B2 + A2 @ B1) + rest)


def _parts(A: Array, bits: int, axis: int) -> tuple[Array, Array, Array]:
    """A as a sum: twice the next bits of the largest entry along an axis, then what is left."""
    leading, left = _leading(A, bits, axis)
    return leading, *_leading(left, bits, axis)


def _leading(A: Array, bits: int, axis: int) -> tuple[Array, Array]:
    xp = namespace(A)
    largest = xp.max(xp.abs(A), axis=axis, keepdims=True)
    largest = xp.where(largest > _TINY, largest, xp.ones_like(largest))
    unit = 2.0 ** (xp.ceil(xp.log2(largest)) - bits)
    leading = xp.round(A / unit) * unit
    return leading, A - leading


def _scatter(X: Array, center: Array) -> Array:
    """sum_i (x_i - center) (x_i - center)^T, one block of rows at a time."""
    blocks = row_blocks(len(X), X.shape[1], X)
    return sum((rows := X[block] - center).T @ rows for block in blocks)


def _is_regular(scatter: np.ndarray) -> bool:
    """Whether columns are clearly independent, by the eigenvalues of their correlations."""
    units = np.sqrt(np.diagonal(scatter))
    if not units.all():
        return False
    with one_blas_thread():
        return float(np.linalg.eigvalsh(scatter / units / units[:, None])[0]) > _SUSPICIOUS


def _unit_columns(rows: np.ndarray) -> np.ndarray:
    """Columns of length one, however small their squares."""
    rows = rows / np.abs(rows).max(axis=0)
    return rows / np.linalg.norm(rows, axis=0)


def _singular(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and right singular vectors; from the factor R if there are many rows."""
    triangle = np.linalg.qr(rows, mode="r") if len(rows) > rows.shape[1] else rows
    with one_blas_thread():
        _, sizes, directions = np.linalg.svd(triangle, full_matrices=False)
    return sizes, directions
