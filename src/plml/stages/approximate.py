"""Approximate neighbours for the graph and the triplets, above a size where that pays."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from plml.backend.arrays import Array
from plml.ops.distances import euclidean_pairs
from plml.ops.inverted import InvertedFile, nearest_rows
from plml.ops.topk import share_found
from plml.stages.neighbors import (
    NEEDED,
    ExactNeighbors,
    Neighbors,
    all_but,
    can_approximate,
    class_members,
)

#: Number of rows from which approximate search is the default.
APPROXIMATE_FROM = 200_000
#: Largest number of classes for which it is the default: every pair of classes is one search.
MOST_CLASSES = 100
#: Number of rows on which the recall is measured.
_SAMPLE = 256
#: Share of the true neighbours to find; as many cells are searched as that takes.
TARGET_RECALL = 0.95
_CELLS_AT_FIRST = 2


class SearchResult(NamedTuple):
    """Neighbours (q, k), and the share of true ones in a sample of the queries."""

    indices: np.ndarray
    recall: float


class ApproximateNeighbors(Neighbors):
    """Neighbours in the nearest cells of inverted files, one of all rows and one per class.

    Distances are exact. X is an (n, d) array, y (n,) class codes.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X = X
        self._groups = class_members(y)
        center = X.mean(axis=0, dtype=np.float64)
        scale = float(np.abs(X - center).max()) or 1.0
        self._single = np.ascontiguousarray((X - center) / scale, dtype=np.float32)
        self._files: list[InvertedFile] = []  # one per class
        self.recall: dict[str, float] = {}

    def graph(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = _own_neighbors(self._single, InvertedFile(self._single), min(k, len(self.X) - 1))
        self.recall["graph"] = found.recall
        return euclidean_pairs(self.X, self.X, found.indices), found.indices

    def targets(self, k: int) -> np.ndarray:
        def search(number: int, members: np.ndarray) -> SearchResult:
            file, wanted = self._files[number], min(k, len(members) - 1)
            found = _own_neighbors(self._single[members], file, wanted)
            return found._replace(indices=members[found.indices])

        return self._by_group("targets", k, search)

    def impostors(self, k: int) -> np.ndarray:
        X = self._single

        def search(number: int, members: np.ndarray) -> SearchResult:
            groups = list(zip(self._groups, self._files, strict=True))
            del groups[number]
            others = all_but(members, len(X))
            wanted = min(k, len(others))
            return _calibrated(
                len(members),
                wanted,
                lambda rows, n_cells: _best_of_groups(X[members[rows]], groups, wanted, n_cells),
                lambda rows: others[nearest_rows(X[others], X[members[rows]], wanted)],
                max((file.n_cells for _, file in groups), default=1),
            )

        return self._by_group("impostors", k, search)

    def _by_group(
        self, purpose: str, k: int, search: Callable[[int, np.ndarray], SearchResult]
    ) -> np.ndarray:
        """The neighbours of all rows, group by group, and the recall over all of them."""
        if not self._files:
            self._files = [InvertedFile(self._single[members]) for members in self._groups]
        result = np.full((len(self.X), k), -1, dtype=np.int64)
        total = 0.0
        for number, members in enumerate(self._groups):
            found = search(number, members)
            result[members, : found.indices.shape[1]] = found.indices
            total += found.recall * len(members)
        self.recall[purpose] = total / len(self.X)
        return result


def _own_neighbors(X: np.ndarray, file: InvertedFile, k: int) -> SearchResult:
    """The k nearest rows of every row of X in a file of X, without itself."""
    return _calibrated(
        len(X),
        k,
        lambda rows, n_cells: _without(file.search(X[rows], k + 1, n_cells)[1], rows),
        lambda rows: _without(nearest_rows(X, X[rows], k + 1), rows),
        file.n_cells,
    )


def _best_of_groups(
    queries: np.ndarray, groups: list[tuple[np.ndarray, InvertedFile]], k: int, n_cells: int
) -> np.ndarray:
    """The k nearest rows in the files of several groups."""
    best = np.full((len(queries), k), np.inf, dtype=np.float32)
    indices = np.full((len(queries), k), -1, dtype=np.int64)
    for members, file in groups:
        d2, found = file.search(queries, min(k, len(members)), n_cells)
        d2 = np.concatenate([best, d2], axis=1)
        rows = np.concatenate([indices, np.where(found < 0, -1, members[found])], axis=1)
        order = np.argsort(d2, axis=1, kind="stable")[:, :k]
        best, indices = (np.take_along_axis(part, order, axis=1) for part in (d2, rows))
    return indices


def _calibrated(
    n: int,
    k: int,
    search: Callable[[np.ndarray, int], np.ndarray],
    exactly: Callable[[np.ndarray], np.ndarray],
    most: int,
) -> SearchResult:
    """Search in as many cells as a sample of the n rows needs for the target recall.

    Rows whose cells hold too few neighbours are searched exactly.
    """
    rows = np.arange(n)
    if k < 1 or n == 0:
        return SearchResult(np.empty((n, 0), dtype=np.int64), 1.0)
    sample = rows[:: -(-n // _SAMPLE)]
    truth = exactly(sample)
    n_cells = _CELLS_AT_FIRST
    while True:
        recall = share_found(truth, search(sample, n_cells))
        if recall >= TARGET_RECALL or n_cells >= most:
            break
        n_cells = min(2 * n_cells, most)
    found = search(rows, n_cells)
    short = np.flatnonzero((found < 0).any(axis=1))
    if len(short):
        found[short] = exactly(short)
    return SearchResult(found, recall)


def _without(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """One column fewer: without the row itself, or without the last where it was not found."""
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    return found[~own].reshape(len(found), -1)


def neighbors_of(X: Array, y: np.ndarray, method: str) -> Neighbors:
    """Neighbours among the rows of X.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) class codes
    method : "exact", "approximate" or "auto": exact on a GPU, without faiss, for fewer than
        ``APPROXIMATE_FROM`` rows, and for more than ``MOST_CLASSES`` classes
    """
    possible = can_approximate(X)
    if method == "approximate" and not possible:
        raise ValueError(f'neighbor_search="approximate" {NEEDED}; use "auto" or "exact"')
    pays = len(X) >= APPROXIMATE_FROM and y.max() < MOST_CLASSES
    if method == "approximate" or (method == "auto" and possible and pays):
        return ApproximateNeighbors(X, y)
    return ExactNeighbors(X, y)
