"""Neighbourhoods of a radius, and neighbourhoods as sparse matrices, from searches of k."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse

#: (rows, k) -> squared distances and indices, (r, k) both, nearest first
Search = Callable[[np.ndarray, int], tuple[np.ndarray, ...]]

_FIRST_LOOK = 16
#: Relative; a distance that was returned once is within the radius of the same size.
_ROUNDING = 1e-12


def within_radius(
    search: Search, n_queries: int, n_rows: int, radius: float, nearest_first: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Distances and indices of all rows within a radius, for every query.

    Looks at a few neighbours, and at four times as many where all of these are within.

    Parameters
    ----------
    search : of some of the queries
    n_queries, n_rows : int
    radius : float
    nearest_first : or in the order of the rows
    """
    distances: list[Any] = [None] * n_queries
    numbers: list[Any] = [None] * n_queries
    left, k = np.arange(n_queries), min(_FIRST_LOOK, n_rows)
    while len(left):
        squared, indices = search(left, k)
        inside = np.sqrt(squared) <= radius * (1.0 + _ROUNDING)
        done = ~inside[:, -1] if k < n_rows else np.ones(len(left), dtype=bool)
        for place in np.flatnonzero(done):
            near = np.flatnonzero(inside[place])
            if not nearest_first:
                near = near[np.argsort(indices[place, near])]
            distances[left[place]] = np.sqrt(squared[place, near])
            numbers[left[place]] = indices[place, near]
        left, k = left[~done], min(4 * k, n_rows)
    return distances, numbers


def neighbor_graph(
    values: list[np.ndarray] | None, indices: list[np.ndarray], n_rows: int
) -> sparse.csr_matrix:
    """One row per query: the values, or ones, at the indices of its neighbours."""
    sizes = [len(row) for row in indices]
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    columns = np.concatenate([np.empty(0, dtype=np.int64), *indices])
    data = np.ones(len(columns)) if values is None else np.concatenate([np.empty(0), *values])
    return sparse.csr_matrix((data, columns, indptr), shape=(len(indices), n_rows))


def ragged(rows: list[np.ndarray]) -> np.ndarray:
    """Arrays of different lengths as an array of objects, as scikit-learn returns them."""
    result = np.empty(len(rows), dtype=object)
    result[:] = rows
    return result


def check_mode(mode: str) -> None:
    """A ``ValueError`` for what a graph cannot hold."""
    if mode not in ("connectivity", "distance"):
        raise ValueError(f'mode must be "connectivity" or "distance", got {mode!r}')


def check_radius(radius: Any) -> float:
    """A radius that is a number, not negative."""
    if isinstance(radius, bool) or not isinstance(radius, Real) or not float(radius) >= 0.0:
        raise ValueError(f"radius must be a number that is not negative, got {radius!r}")
    return float(radius)
