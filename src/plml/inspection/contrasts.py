"""Why this class and not another one: the nearest case for, the nearest against.

    margin = d^2(x, against) - d^2(x, for) = sum_f [D_f (M D)_f (against) - D_f (M D)_f (for)]

Averages of these parts over rows and over their nearest cases say how much a feature does to keep
the classes apart: a feature that differs as much between cases of one class as between those of two
counts nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from plml.metric.feature_split import Between, split_distances
from plml.ops.topk import row_blocks

#: (numbers of queries, k) -> squared distances and numbers of the k nearest training rows.
Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
#: Neighbours that are looked at first; then so many times as many.
_FIRST, _MORE = 32, 8
#: Training rows that the average over all is taken of, and cases of each side of one.
MOST_ROWS, N_CASES = 1000, 5


class NearestCases(NamedTuple):
    """The nearest cases of some classes: (q, k) training rows and squared distances.

    Where a class has fewer cases, the row is -1 and the distance infinite.
    """

    rows: np.ndarray
    squared: np.ndarray


def nearest_where(
    search: Search,
    wanted: Callable[[np.ndarray, np.ndarray], np.ndarray],
    n_queries: int,
    n_rows: int,
    k: int = 1,
) -> NearestCases:
    """The k nearest cases that are wanted, of every query.

    Parameters
    ----------
    search : of some of the queries
    wanted : (numbers of queries, (q, c) training rows) -> (q, c) whether a query wants them
    n_queries, n_rows : queries, and training rows that can be found
    """
    result = NearestCases(np.full((n_queries, k), -1), np.full((n_queries, k), np.inf))
    missing, n_found = np.arange(n_queries), min(_FIRST, n_rows)
    while len(missing):
        full = []
        for block in row_blocks(len(missing), 4 * n_found):
            queries = missing[block]
            squared, nearest = search(queries, n_found)
            good = wanted(queries, nearest)
            order = np.argsort(~good, axis=1, kind="stable")[:, :k]  # the wanted ones first
            there = np.take_along_axis(good, order, axis=1)
            found = slice(0, order.shape[1])
            result.rows[queries, found] = np.where(
                there, np.take_along_axis(nearest, order, axis=1), -1
            )
            result.squared[queries, found] = np.where(
                there, np.take_along_axis(squared, order, axis=1), np.inf
            )
            full.append(good.sum(axis=1) >= k)
        if n_found == n_rows:
            break
        missing, n_found = missing[~np.concatenate(full)], min(n_found * _MORE, n_rows)
    return result


def mean_contrasts(
    metric: Between,
    Q: np.ndarray,
    own: np.ndarray | None,
    cases_for: np.ndarray,
    cases_against: np.ndarray,
) -> np.ndarray:
    """(q, d) mean parts of the distances to the cases against, less those to the cases for.

    Parameters
    ----------
    metric, Q, own : as in ``split_distances``
    cases_for, cases_against : (q, k) training rows, -1 where there is none
    """
    sides = []
    for cases in (cases_against, cases_for):
        parts = split_distances(metric, Q, own, np.maximum(cases, 0), "bilinear")
        there = cases >= 0
        n_there = np.maximum(there.sum(axis=1), 1)[:, None]
        sides.append((parts * there[:, :, None]).sum(axis=1) / n_there)
    return sides[0] - sides[1]


def shares_of(contrasts: np.ndarray) -> np.ndarray:
    """Features that keep the classes apart, as shares that sum to one; the others have none.

    Parameters
    ----------
    contrasts : (..., d) mean contrasts
    """
    positive = np.maximum(contrasts, 0.0)
    total = positive.sum(axis=-1, keepdims=True)
    return np.divide(positive, total, out=np.zeros_like(positive), where=total > 0.0)
