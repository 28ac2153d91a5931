"""Squared distances between given pairs, from the definition, in float64 and bounded memory.

Row i of ``candidates``, a (q, c) integer array, are rows j of X, an (n, d) array, to measure from
row i of the queries Q, a (q, d) array; the distances are (q, c) float64 arrays.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from plml.backend.arrays import Array, device, like, namespace, row_dot, team_for
from plml.backend.threads import SERIAL, thread_team
from plml.ops.projections import psd_factor
from plml.ops.topk import Measured, row_blocks

#: Rounding error of a difference of two numbers near one, each a few half units in the last place.
_ULPS = 6.0 * float(np.finfo(np.float64).eps)


def mean_radius(X: Array, sample_weight: np.ndarray | None = None) -> float:
    """The root of the mean squared distance of the rows to their mean; one if all are equal.

    With (n,) sample weights a row counts as so many.
    """
    xp = namespace(X)
    largest = float(xp.max(xp.abs(X))) or 1.0  # squares of very large or small units
    rows = xp.astype(X, xp.float64) / largest
    if sample_weight is not None:
        shares = like(sample_weight / sample_weight.sum(), X)
        squares = row_dot(offsets := rows - shares @ rows, offsets)
        return largest * float(xp.sum(shares * squares)) ** 0.5 or 1.0
    rows = rows - xp.mean(rows, axis=0)
    return largest * float(xp.sum(rows**2) / len(rows)) ** 0.5 or 1.0


def rounding_of(euclidean: Array, Q: Array) -> Array:
    """The rounding error of squared distances under metrics of trace one, (q, c).

    The coordinates are known to their last digit, and so are the terms of the sum
    (q_i - x_j)^T M_i (q_i - x_j) <= tr(M_i) ||q_i - x_j||^2; errors of d terms grow as sqrt(d).

    Parameters
    ----------
    euclidean : (q, c) array, ||q_i - x_j||^2
    Q : (q, d) array, relative to the mean of the data
    """
    xp = namespace(euclidean)
    Q = xp.astype(Q, xp.float64, copy=False)
    length = xp.sqrt(row_dot(Q, Q))[:, None]
    terms = Q.shape[1] ** 0.5 * euclidean + xp.sqrt(euclidean) * length
    return _ULPS * terms + (_ULPS * length) ** 2


def measured(squared: Array, euclidean: Array, Q: Array, traces: Array | float) -> Measured:
    """Distances under metrics of given traces; ties are decided by the Euclidean distance.

    Rows at distance zero under a singular metric still differ: a repeated row comes first.

    Parameters
    ----------
    squared : (q, c) array, (q_i - x_j)^T M_i (q_i - x_j)
    euclidean, Q : as in ``rounding_of``
    traces : of the M_i, (q, 1) or (q, c)
    """
    rounding = rounding_of(euclidean, Q)
    return Measured(squared, traces * rounding, Measured(euclidean, rounding))


def euclidean_pairs(Q: Array, X: Array, candidates: Array) -> Array:
    """||q_i - x_j||^2 for j in row i of candidates."""
    xp = namespace(X)
    result = xp.empty(candidates.shape, dtype=xp.float64, device=device(X))
    for block in row_blocks(len(Q), candidates.shape[1] * X.shape[1], X):
        difference = _differences(Q[block], X, candidates[block])
        result[block] = row_dot(difference, difference)
    return result


def local_pairs(Q: Array, weights: Array, M: Array, X: Array, candidates: Array) -> Array:
    """(q_i - x_j)^T (sum_b W_ib M_b) (q_i - x_j) for j in row i of candidates.

    The local metric of a query is formed once, from (q, m) weights and (m, d, d) bases; there is no
    loop over bases for every pair.
    """
    xp, d = namespace(X), X.shape[1]
    result = xp.empty(candidates.shape, dtype=xp.float64, device=device(X))
    for block in row_blocks(len(Q), d * (d + 2 * candidates.shape[1]), X):
        metrics = combine_bases(weights[block], M)
        difference = _differences(Q[block], X, candidates[block])
        result[block] = row_dot(difference @ metrics, difference)
    return xp.clip(result, 0.0, None)


def case_pairs(Q: Array, case_weights: Array, N: Array, X: Array, candidates: Array) -> Array:
    """(q_i - x_j)^T (sum_c V_jc N_c) (q_i - x_j) for j in row i of candidates.

    The metrics are those of the cases x_j: (n, m') case weights V, (m', d, d) metrics N.
    """
    xp = namespace(X)
    N = xp.astype(N, xp.float64, copy=False)
    result = xp.zeros(candidates.shape, dtype=xp.float64, device=device(X))
    for block in row_blocks(len(Q), 2 * candidates.shape[1] * X.shape[1], X):
        difference = _differences(Q[block], X, candidates[block])
        weights = case_weights[candidates[block]]
        part = result[block]  # a view
        for c in range(len(N)):
            members = weights[:, :, c] != 0
            near = difference[members]
            part[members] += weights[:, :, c][members] * row_dot(near @ N[c, ...], near)
    return xp.clip(result, 0.0, None)


def reconstruction_weights(
    Q: Array,
    X: Array,
    candidates: Array,
    metrics: Callable[[slice], Array],
    ridge: float,
    sizes: Sequence[int],
    sample_weight: np.ndarray | None = None,
) -> list[Array]:
    """The weights v with which the first c candidates of each query make it up, for every size c.

        min_v ||q_i - sum_j v_j x_j||^2 + ridge (sum_j ||q_i - x_j||^2 / c) |v|^2 ,  sum_j v_j = 1,

    under the metric of the query: (q, c) float64 arrays. sum_j v_j f_j is the value at the query of
    the affine function that ridge regression fits to values f_j of the candidates. Where these have
    sample weights s, it is that of weighted ridge regression: v_j^2 is divided by s_j, and the mean
    of the squared distances is weighted.

    Parameters
    ----------
    Q, X, candidates : see above
    metrics : from a block of queries to their metrics, (block, d, d) or (1, d, d)
    ridge : positive
    sizes : at most the number of candidates
    sample_weight : (n,) array, positive, or None
    """
    xp, most, d = namespace(X), max(sizes), X.shape[1]
    roots = None if sample_weight is None else like(np.sqrt(sample_weight), X)
    result = [xp.empty((len(Q), c), dtype=xp.float64, device=device(X)) for c in sizes]

    def fill(block: slice) -> None:
        near = candidates[block][:, :most]
        difference = _differences(Q[block], X, near)
        r = _ones(difference) if roots is None else roots[near][:, :, None]
        if roots is not None:
            difference = r * difference
        solved = _reconstructions(difference, r, metrics(block), ridge, sizes)
        for weights, v in zip(result, solved, strict=True):
            v = v if roots is None else r[:, : v.shape[1]] * v
            weights[block] = v[..., 0] / xp.sum(v, axis=1)

    per_query = d * (3 * d + 2 * most) + 2 * min(d, most) ** 2
    share = len(row_blocks(len(Q), per_query, X)) > 1
    with thread_team() if share else nullcontext(SERIAL) as threads:
        team = team_for(X, threads)
        team.map(fill, row_blocks(len(Q), team.size * per_query, X))
    return result


def _reconstructions(
    D: Array, r: Array, M: Array, ridge: float, sizes: Sequence[int]
) -> list[Array]:
    """(K + rho I)^-1 r up to a factor, for K = D M D^T and rho = ridge tr(K) / |r|^2, of the first
    c candidates alone, for every size c: (q, c, 1) arrays.

    Where there are fewer features than candidates it is r - D M (D^T D M + rho I)^-1 D^T r, which
    is Woodbury's identity. What some candidates have in common with more of them is computed once.

    Parameters
    ----------
    D : (q, k, d) array, r times the differences from the query
    r : (q, k, 1) array, the roots of the weights of the candidates
    M : (q, d, d) or (1, d, d) array
    ridge, sizes : as above
    """
    xp, d, found = namespace(D), D.shape[2], {}
    few = [c for c in sizes if c <= d]
    if few:
        some = D[:, : max(few)]
        K = some @ M @ xp.matrix_transpose(some)
    for c in few:
        found[c] = xp.linalg.solve(_ridged(K[:, :c, :c], r[:, :c], ridge), r[:, :c])
    scatter, summed = 0.0, 0
    for c in sorted(set(sizes).difference(few)):
        added, first, r_c = D[:, summed:c], D[:, :c], r[:, :c]
        scatter, summed = scatter + xp.matrix_transpose(added) @ added, c
        moments = xp.matrix_transpose(first) @ r_c
        small = xp.linalg.solve(_ridged(scatter @ M, r_c, ridge), moments)
        found[c] = r_c - first @ (M @ small)
    return [found[c] for c in sizes]


def _ridged(K: Array, r: Array, ridge: float) -> Array:
    """K + ridge tr(K) / |r|^2 I, with the trace of a matrix for the candidates."""
    xp = namespace(K)
    size = xp.linalg.trace(K) / xp.sum(r * r, axis=(1, 2))
    # Where all candidates are where the query is, they count the same.
    penalty = xp.where(size > 0.0, ridge * size, xp.ones_like(size))[:, None, None]
    return K + penalty * xp.eye(K.shape[1], dtype=xp.float64, device=device(K))


def _ones(D: Array) -> Array:
    """(q, c, 1)."""
    return namespace(D).ones((*D.shape[:2], 1), dtype=D.dtype, device=device(D))


def mean_of_cases(values: Array, cases: Array, sample_weight: np.ndarray | None) -> Array:
    """The means of (n, m) values over the (q, k) cases of each query, weighted if asked for."""
    xp = namespace(values)
    if sample_weight is None:
        return xp.mean(values[cases], axis=1)
    counts = like(sample_weight, values)[cases]
    shares = counts / xp.sum(counts, axis=1)[:, None]
    return (shares[:, None, :] @ values[cases])[:, 0, :]


def combine_bases(weights: Array, M: Array) -> Array:
    """M_i = sum_b W_ib M_b (equation 2): (q, m) weights, (m, d, d) bases -> (q, d, d) float64."""
    xp = namespace(M)
    flat = xp.astype(xp.reshape(M, (len(M), -1)), xp.float64, copy=False)
    return xp.reshape(xp.astype(weights, xp.float64, copy=False) @ flat, (-1, *M.shape[1:]))


def _differences(Q: Array, X: Array, candidates: Array) -> Array:
    xp = namespace(X)
    return xp.astype(Q[:, None, :], xp.float64, copy=False) - X[candidates]


class Transformed:
    """Points under the linear map of a metric, ready for distances from matrix products."""

    def __init__(self, X: Array, metric: np.ndarray) -> None:
        self.factor = like(psd_factor(metric).T, X, X.dtype)
        self.Z = X @ self.factor
        self.squares = row_dot(self.Z, self.Z)

    def distances(self, Q: Array) -> Array:
        """Squared distances between queries and points, (q, n)."""
        ZQ = Q @ self.factor
        d2 = (-2.0 * ZQ) @ self.Z.T
        d2 += row_dot(ZQ, ZQ)[:, None]
        d2 += self.squares
        return namespace(d2).clip(d2, 0.0, None)
