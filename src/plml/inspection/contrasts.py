"""Why this class and not another one: the nearest case for, the nearest against.

    margin = d^2(x, against) - d^2(x, for) = sum_f [D_f (M D)_f (against) - D_f (M D)_f (for)]

Importance is an average over rows and over their nearest cases, of what a column adds alone,

    D_G' M_GG D_G    with G the features made from the column,

to the distances to cases of other classes, less those to cases of the same class, under one metric
for both. A column that differs as much within classes as between them counts nothing.
"""

import numpy as np

from plml.metric.feature_split import Between, bilinear_parts, column_parts
from plml.ops.topk import row_blocks

#: Training rows that importance is averaged over and compared with; cases of each side of one, and
#: those that they are chosen from.
MOST_ROWS, N_CASES, N_REACHED = 1000, 5, 25
#: Groups of training rows that are left out in turn, to see how certain an average is.
N_GROUPS = 10
#: Rows times cases times squared features that importance may take, about a second or two.
_WORK = 3e9


def drawn_cases(codes: np.ndarray, n_rows: int, d: int) -> np.ndarray:
    """Training rows that importance compares n_rows others with, some of every class, in order.

    All of them where that is not too much work; they are drawn by class, and never by distance:
    cases chosen for being near are near in every column, the closer ones more so, and a column of
    noise would seem to keep the classes apart.
    """
    most = int(np.clip(_WORK / (n_rows * d * d), 100, MOST_ROWS))
    order = np.random.default_rng(0).permutation(len(codes))
    place, size = np.empty(len(codes)), np.bincount(codes)[codes]
    for code in np.unique(codes):
        members = order[codes[order] == code]
        place[members] = np.arange(len(members))
    return np.flatnonzero((place < 2 * N_CASES) | (place < most / len(codes) * size))


def column_contrasts(
    metric: Between,
    rows: np.ndarray,
    cases: np.ndarray,
    codes: np.ndarray,
    columns: np.ndarray,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """(1 + n_groups, r, n_columns) mean parts of columns in distances to other classes, less those
    to the own; first with all cases, then without those of each group.

    The cases a column is judged by are, of those within reach of the row, the ``N_CASES`` of each
    side that are nearest without it. One reach for both sides keeps the comparison local and fair
    to a column of noise.

    Parameters
    ----------
    metric : as in ``split_distances``
    rows : (r,) training rows, each of which is left out of its own cases
    cases : (k,) training rows to compare them with
    codes : (n,) classes of all training rows
    columns : (d,) the column that each feature was made from
    groups : (k,) the group of every case; None for no groups
    """
    k, d = len(cases), len(columns)
    n_groups = 0 if groups is None else 1 + groups.max()
    groups = np.zeros(k, dtype=int) if groups is None else groups
    result = np.empty((1 + n_groups, len(rows), columns.max() + 1))
    for block in row_blocks(len(rows), k * d * (d + 4)):
        own = rows[block]
        near = np.broadcast_to(cases, (len(own), k))
        D = metric.X[own, None, :].astype(np.float64) - metric.X[cases]
        M = metric.between(metric.X[own], own, near)
        same = codes[near] == codes[own, None]
        both = ~same, same & (near != own[:, None])
        if M.shape[1] > 1:
            M = _common(M, _within_reach(D, M, both))
        alone, without = column_parts(D, M, columns)
        sides = _within_reach(D, M, both)
        found = [_nearest(alone, without, side, groups) for side in sides]
        for number, contrasts in enumerate(result, start=-1):
            others, mine = (_mean_of_first(parts, group != number) for parts, group in found)
            contrasts[block] = others - mine
    return result


def _common(M: np.ndarray, sides: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """(q, 1, d, d) one metric for both sides of every row: the mean of the means over the sides.

    A metric at the case may stretch one class more than another; a column of noise would seem to
    keep them apart.
    """
    weights = sum(side / np.maximum(side.sum(axis=1, keepdims=True), 1) for side in sides)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return np.einsum("qk,qkde->qde", weights, M, optimize=True)[:, None]


def _within_reach(
    D: np.ndarray, M: np.ndarray, sides: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(q, k) of each side, the cases no farther than the last of the ``N_REACHED`` nearest of
    either one.
    """
    squared = bilinear_parts(D, M).sum(axis=2)
    last = min(N_REACHED, squared.shape[1]) - 1
    reach = np.full(len(squared), -np.inf)
    for side in sides:
        farthest = np.partition(np.where(side, squared, np.inf), last, axis=1)[:, last]
        reach = np.maximum(reach, farthest)  # all cases, where a side has fewer
    reached = squared <= reach[:, None]
    return sides[0] & reached, sides[1] & reached


def _nearest(
    parts: np.ndarray, squared: np.ndarray, wanted: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(q, 2 N_CASES, c) parts of the nearest that are wanted, nearest first, and their groups; the
    parts of what is not there are missing.

    Parameters
    ----------
    parts, squared : (q, k, c)
    wanted : (q, k)
    groups : (k,)
    """
    squared = np.where(wanted[:, :, None], squared, np.inf)
    last = min(2 * N_CASES, squared.shape[1]) - 1
    nearest = np.argpartition(squared, last, axis=1)[:, : last + 1]
    distances = np.take_along_axis(squared, nearest, axis=1)
    order = distances.argsort(axis=1)
    nearest = np.take_along_axis(nearest, order, axis=1)
    there = np.isfinite(np.take_along_axis(distances, order, axis=1))
    return np.where(there, np.take_along_axis(parts, nearest, axis=1), np.nan), groups[nearest]


def _mean_of_first(parts: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """(q, c) means of the first N_CASES parts that are there and chosen, (q, k, c); 0 for none."""
    chosen = chosen & ~np.isnan(parts)
    chosen &= chosen.cumsum(axis=1) <= N_CASES
    return np.where(chosen, parts, 0.0).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)


def deletion_groups(n: int) -> np.ndarray:
    """(n,) which of some ten groups of the same size each of n training rows is in, at random."""
    return np.random.default_rng(0).permutation(n) % min(N_GROUPS, n)


def clear_means(contrasts: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(c,) means over the rows; zero where they are within two standard errors of zero.

    Rows share their cases, so their contrasts are not independent: the errors are those of the
    jackknife, which leaves out a group of training rows at a time, as rows and as cases.

    Parameters
    ----------
    contrasts : (1 + n_groups, r, c) as ``column_contrasts`` returns them
    groups : (r,) the group of every row
    """
    means = [part[groups != number].mean(axis=0) for number, part in enumerate(contrasts, -1)]
    mean, n_groups = means[0], len(means) - 1
    error = np.sqrt((n_groups - 1) * np.var(means[1:], axis=0))
    return np.where(np.abs(mean) > 2.0 * error, mean, 0.0)


def shares_of(contrasts: np.ndarray) -> np.ndarray:
    """Columns that keep the classes apart, as shares that sum to one; the others have none.

    Parameters
    ----------
    contrasts : (..., n_columns) mean contrasts
    """
    positive = np.maximum(contrasts, 0.0)
    total = positive.sum(axis=-1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0.0)


def spread_over_features(shares: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(..., d) the shares of columns, divided evenly among the features made from them."""
    return shares[..., columns] / np.bincount(columns)[columns]
