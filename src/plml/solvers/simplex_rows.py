"""Many small quadratics over the simplex, each solved independently of the others."""

from typing import NamedTuple

import numpy as np

from plml.backend.arrays import Array, namespace, on_host, row_dot
from plml.ops.projections import project_simplex

#: Iterations between two computations of the certificates.
_CHECK_EVERY = 5
#: Keeps the step finite where the quadratic is flat.
_TINY = 1e-300


class RowQuadratics(NamedTuple):
    """minimise <w, (A + shift_i) w> + <linear_i, w> + constant_i over the simplex, for every i."""

    A: Array  # (m, m), positive semidefinite
    shift: Array  # (n, 1), not negative
    linear: Array  # (n, m)
    constant: Array  # (n,)
    floor: Array  # (n,) smaller values are rounding

    def product(self, W: Array) -> Array:
        """(A + shift) w, one row at a time: how a row is rounded does not depend on the others."""
        return (W[:, None, :] @ self.A)[:, 0] + self.shift * W

    def gaps(self, W: Array) -> Array:
        """Relative Frank-Wolfe gap of every row."""
        xp, product = namespace(W), self.product(W)
        gradient = 2.0 * product + self.linear
        values = row_dot(W, product + self.linear) + self.constant
        gaps = row_dot(gradient, W) - xp.min(gradient, axis=1)
        return xp.clip(gaps, 0.0, None) / xp.maximum(values, self.floor)

    def only(self, rows: Array) -> "RowQuadratics":
        """The problems of the given rows."""
        return RowQuadratics(self.A, *(part[rows] for part in self[1:]))


def minimize_rows(problem: RowQuadratics, tol: float, max_iter: int) -> tuple[Array, Array]:
    """Points (n, m) with relative gaps of at most ``tol``, and the gaps (n,).

    Accelerated projected gradient. Every row has its own step, momentum and stopping point, so its
    result does not depend on the rows it is solved with.
    """
    xp = namespace(problem.linear)
    m = problem.linear.shape[1]
    result = xp.full_like(problem.linear, 1.0 / m)
    gaps = problem.gaps(result)
    left = xp.nonzero(gaps > tol)[0]
    norm = float(np.linalg.norm(on_host(problem.A), 2))
    part, x = problem.only(left), result[left]
    y, t = x, xp.ones_like(part.shift)
    for iteration in range(1, max_iter + 1):
        if not len(left):
            break
        gradient = 2.0 * part.product(y) + part.linear
        new = project_simplex(y - gradient / (2.0 * (norm + part.shift) + _TINY))
        uphill = row_dot(y - new, new - x)[:, None] > 0.0
        t = xp.where(uphill, xp.ones_like(t), t)
        following = 0.5 + xp.sqrt(0.25 + t * t)
        y, x, t = new + (t - 1.0) / following * (new - x), new, following
        if iteration % _CHECK_EVERY == 0 or iteration == max_iter:
            result[left], gaps[left] = x, part.gaps(x)
            open_ = gaps[left] > tol
            left, part, x, y, t = left[open_], part.only(open_), x[open_], y[open_], t[open_]
    return result, gaps
