"""The directions in which the rows of a table differ: all that a metric can be learned from.

With fewer rows than features, with one-hot columns or with columns that are sums of others, the
rows differ in fewer directions than there are features. Distances between rows are the same in an
orthonormal basis of these directions, and so is every problem of this library, its solution and its
certificate: in that basis the cost depends on the number of directions, not of features.

Rows that differ in very many directions may be cut to those with most of their variance. The
problems are then those of the rows that are left, and so are their certificates.
"""

from math import ceil, log2
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from plml.backend.arrays import Array, is_tensor, like, namespace, on_host
from plml.backend.threads import one_blas_thread
from plml.ops.growing import appended, without_rows
from plml.ops.topk import row_blocks

#: Correlation matrices whose least eigenvalue is smaller are examined more closely.
_SUSPICIOUS = 1e-9
#: Below it digits are lost, and nothing is cut off.
_TINY = 1e-250
#: Of rows that differ in more directions than the first number, "auto" keeps the second number.
_MANY, _LEADING = 1000, 512


class Span(NamedTuple):
    """Coordinates z = (x - center) @ basis, with orthonormal columns of the basis."""

    center: np.ndarray  # (d,)
    basis: np.ndarray  # (d, r)
    kept: float = 1.0  # the share of the variance of the rows in it

    def coordinates(self, X: Array) -> Array:
        """(n, d) points -> (n, r), in the dtype of the points."""
        xp = namespace(X)
        center, basis = (like(part, X, xp.float64) for part in (self.center, self.basis))
        return xp.astype(_accurate_product(X - center, basis), X.dtype)

    def points(self, Z: np.ndarray) -> np.ndarray:
        """(n, r) coordinates -> (n, d)."""
        return self.center + Z @ self.basis.T

    def about(self, point: np.ndarray) -> "Span":
        """The same span, about its point that is nearest to a given one (d,)."""
        return Span(self.center + self.basis @ (self.basis.T @ (point - self.center)), self.basis)

    def outward(self, M: np.ndarray) -> np.ndarray:
        """(..., r, r) metrics -> (..., d, d), zero across the span."""
        return self.basis @ M @ self.basis.T

    def inward(self, M: np.ndarray) -> np.ndarray:
        """(..., d, d) metrics -> (..., r, r), restricted to the span."""
        return self.basis.T @ M @ self.basis


def inside(X: Array, span: Span | None) -> Array:
    """Points in the coordinates of a span, or as they are where there is none."""
    return X if span is None else span.coordinates(X)


def placed_after(placed: Array, X: np.ndarray, span: Span | None, left_out: np.ndarray) -> Array:
    """Rows in the coordinates of a span, from those of before: some are left out, or more follow.

    Parameters
    ----------
    placed : (n, r) the rows of before in these coordinates, on any device
    X : (n', d) the rows of now in the coordinates of the data
    span : as in ``inside``
    left_out : numbers of rows of before that are not there any more
    """
    if span is None and not is_tensor(placed):
        return X
    kept = without_rows(placed, left_out) if len(left_out) else placed
    return appended(kept, inside(like(X[len(kept) :], kept), span)) if len(X) > len(kept) else kept


def inward(M: np.ndarray, span: Span | None) -> np.ndarray:
    """Metrics in the coordinates of a span, or as they are where there is none."""
    return M if span is None else span.inward(M)


def outward(M: np.ndarray, span: Span | None) -> np.ndarray:
    """Metrics in the coordinates of the data, from those of a span where there is one."""
    return M if span is None else span.outward(M)


def span_of(
    X: Array, n_directions: int | str | None = None, sample_weight: np.ndarray | None = None
) -> Span | None:
    """The span of centred rows (n, d); None if they differ in as many directions as features.

    Which directions are kept does not depend on the units of the columns: what is dropped is
    below rounding both in these units and in those of the columns' standard deviations.

    Parameters
    ----------
    X : (n, d) array
    n_directions : at most so many, those with most of the variance; all for None, 512 of more than
        1,000 for "auto"
    sample_weight : (n,) how often a row counts in the variance, or None
    """
    span = _whole_span(X)
    rank = X.shape[1] if span is None else span.basis.shape[1]
    if n_directions is None or (n_directions == "auto" and rank <= _MANY):
        return span
    most = _LEADING if isinstance(n_directions, str) else n_directions
    return span if rank <= most else _leading_part(X, span, most, sample_weight)


def _leading_part(X: Array, span: Span | None, most: int, sample_weight: np.ndarray | None) -> Span:
    """The directions of a span in which the rows vary most: the first principal components."""
    xp = namespace(X)
    if sample_weight is None:
        center, shares = xp.mean(xp.astype(X, xp.float64), axis=0), None
    else:
        shares = like(sample_weight / sample_weight.sum(), X)
        center = shares @ xp.astype(X, xp.float64)
    scatter = inward(on_host(_scatter(X, center, shares)), span)
    rank = len(scatter)
    sizes, directions = eigh(scatter, subset_by_index=(rank - most, rank - 1))
    basis = directions[:, ::-1] if span is None else span.basis @ directions[:, ::-1]
    return Span(on_host(center), basis, float(sizes.sum() / np.trace(scatter)))


def _whole_span(X: Array) -> Span | None:
    """The span of all directions."""
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
    return Span(center, basis).about(round_center(X))


def round_center(X: Array) -> np.ndarray:
    """A point near the mean of the rows (n, d), its coordinates multiples of an eighth of a spread.

    Products of differences to it are as accurate as to the mean, and who knows all rows but one can
    compute that one from a mean, but not from this: n roundings of such a size are beyond the rows.
    """
    xp, blocks = namespace(X), row_blocks(len(X), X.shape[1], X)
    mean = xp.mean(xp.astype(X[:1], xp.float64), axis=0)
    mean = mean + sum(xp.sum(X[block] - mean, axis=0) for block in blocks) / len(X)
    squares = sum(xp.sum((X[block] - mean) ** 2, axis=0) for block in blocks)
    varies = on_host(xp.max(X, axis=0) > xp.min(X, axis=0))
    mean, squares, first = (on_host(part) for part in (mean, squares, X[0]))
    spread = np.sqrt(squares / len(X))
    step = 2.0 ** (np.floor(np.log2(np.where(varies & (spread > 0.0), spread, 1.0))) - 3.0)
    return np.where(varies, np.round(mean / step) * step, first)


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


def _scatter(X: Array, center: Array, shares: Array | None = None) -> Array:
    """sum_i (x_i - center) (x_i - center)^T, one block of rows at a time; weighted by (n,) shares
    where there are any.
    """
    blocks = row_blocks(len(X), X.shape[1], X)
    if shares is None:
        return sum((rows := X[block] - center).T @ rows for block in blocks)
    parts = ((X[block] - center, shares[block][:, None]) for block in blocks)
    return sum(rows.T @ (weights * rows) for rows, weights in parts)


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
