"""Euclidean neighbours: exact, or approximate above a size where that pays."""

from importlib.util import find_spec
from math import ceil, log2
from typing import Protocol

import numpy as np

from plml.backend.arrays import Array, device, is_tensor, like, namespace, on_host, row_dot
from plml.ops.distances import euclidean_pairs
from plml.ops.hnsw import NavigableGraph
from plml.ops.inverted import InvertedFile
from plml.ops.topk import InnerProductIndex, sorted_prefix

#: Rows from which an approximate search is the default.
APPROXIMATE_FROM = 100_000
#: Candidates beyond those wanted that an approximate search is asked for.
_SPARE_CANDIDATES = 8


class EuclideanIndex:
    """Rows ready for exact search.

    ||q - x||^2 = ||q||^2 - <(2q, -1), (x, ||x||^2)>, about the mean and in units that keep the
    terms near one; a power of two, so that scaling a distance is exact.

    Parameters
    ----------
    X : (n, d) array
    """

    def __init__(self, X: Array) -> None:
        xp = namespace(X)
        self.X = X
        self.center = xp.mean(xp.astype(X, xp.float64), axis=0)
        largest = float(xp.max(xp.abs(X - self.center)))
        self.unit = 2.0 ** ceil(log2(largest)) if largest > 0 else 1.0
        centered = (X - self.center) / self.unit
        squares = row_dot(centered, centered)[:, None]
        self.index = InnerProductIndex(xp.concat([centered, squares], axis=1))

    def search(self, queries: Array, k: int, own: Array | None = None) -> tuple[Array, Array]:
        """Squared distances and numbers of the k nearest rows, nearest first.

        Parameters
        ----------
        queries : (q, d) array
        k : int
        own : (q,) integer array; query i is row own[i], and that row is left out
        """
        squared, indices = self.index.search(
            self._vectors(queries),
            k,
            lambda rows, columns: self._distances(queries[rows], columns),
            own,
        )
        return squared * self.unit * self.unit, indices

    def nearest(self, queries: Array, k: int) -> Array:
        """The numbers of the k nearest rows, in any order."""
        return self.index.nearest(
            self._vectors(queries),
            k,
            lambda rows, columns: self._distances(queries[rows], columns),
        )

    def _vectors(self, queries: Array) -> Array:
        xp = namespace(queries)
        centered = (queries - self.center) / self.unit
        return xp.concat([2.0 * centered, -xp.ones_like(centered[:, :1])], axis=1)

    def _distances(self, queries: Array, columns: Array) -> Array:
        return euclidean_pairs(queries, self.X, columns) / self.unit / self.unit


class ApproximateIndex:
    """``EuclideanIndex`` by a walk along a navigable graph; what it finds is measured exactly.

    Parameters
    ----------
    X : (n, d) array
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self._graph = NavigableGraph(X)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and numbers of k near rows, nearest first."""
        found = self._graph.candidates(queries, k + _SPARE_CANDIDATES)
        return sorted_prefix(euclidean_pairs(queries, self.X, found), found, k)

    def nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """The numbers of k near rows."""
        return self.search(queries, k)[1]


def euclidean_neighbors(
    X: Array,
    n_neighbors: int,
    queries: Array | None = None,
    own: Array | None = None,
) -> tuple[Array, Array]:
    """The nearest rows of X, nearest first, equal distances by index.

    Parameters
    ----------
    X : (n, d) array
    n_neighbors : int; fewer are returned where X has fewer
    queries : (q, d) array, or None for the rows of X, each left out of its own neighbours
    own : (q,) integer array; query i is row own[i] of X, and that row is left out

    Returns
    -------
    squared_distances : (q, k) float64 array
    indices : (q, k) integer array
    """
    xp, place = namespace(X), device(X)
    if queries is None:
        queries, own = X, xp.arange(len(X), device=place)
    k = min(n_neighbors, len(X) - (own is not None))
    if k < 1 or len(queries) == 0:
        shape = (len(queries), 0)
        nothing = xp.empty(shape, dtype=xp.float64, device=place)
        return nothing, xp.empty(shape, dtype=xp.int64, device=place)
    return EuclideanIndex(X).search(queries, k, own)


#: What approximate searches want.
NEEDED = 'needs faiss-cpu (pip install faiss-cpu) and device="cpu"'


def can_approximate(X: Array) -> bool:
    """Whether approximate searches are possible here."""
    return not is_tensor(X) and find_spec("faiss") is not None


class Neighbors(Protocol):
    """Neighbours among the rows of one array."""

    recall: dict[str, float]  # share of true neighbours found, by purpose

    def find(
        self, purpose: str, k: int, rows: np.ndarray | None = None, among: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and numbers of the k nearest of some rows among some others, all of
        which contain the rows or none.

        No row is its own neighbour. There are fewer columns where there are fewer rows.
        """
        ...


class ExactNeighbors:
    """By definition.

    Parameters
    ----------
    X : (n, d) array
    """

    def __init__(self, X: Array) -> None:
        self.X = X
        self.recall: dict[str, float] = {}

    def find(
        self, purpose: str, k: int, rows: np.ndarray | None = None, among: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As in ``Neighbors``."""
        self.recall[purpose] = 1.0
        everyone = np.arange(len(self.X))
        rows, among = (everyone if part is None else part for part in (rows, among))
        place = np.full(len(self.X), -1)
        place[among] = np.arange(len(among))
        own = place[rows]
        X, Q = (self.X[like(part, self.X)] for part in (among, rows))
        found = euclidean_neighbors(X, k, Q, like(own, self.X) if (own >= 0).any() else None)
        squared, indices = (on_host(part) for part in found)
        return squared, among[indices]


class ApproximateNeighbors:
    """By the nearest cells of an inverted file; distances are exact.

    Parameters
    ----------
    X : (n, d) array
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self.recall: dict[str, float] = {}
        self._file = InvertedFile(X)
        self._n_found: dict[str, int] = {}

    def find(
        self, purpose: str, k: int, rows: np.ndarray | None = None, among: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As in ``Neighbors``."""
        rows = np.arange(len(self.X)) if rows is None else rows
        others = len(self.X) if among is None else len(among)
        overlap = among is None or bool(np.isin(rows[:1], among).any())
        k = min(k, others - overlap)
        if k < 1:
            return np.empty((len(rows), 0)), np.empty((len(rows), 0), dtype=np.int64)
        found = self._file.search(rows, k, among)
        # The mean over the calls for one purpose, by the number of their rows.
        before = self._n_found.get(purpose, 0)
        total = before * self.recall.get(purpose, 0.0) + len(rows) * found.recall
        self._n_found[purpose] = before + len(rows)
        self.recall[purpose] = total / self._n_found[purpose]
        indices = found.indices
        short = np.flatnonzero((indices < 0).any(axis=1))  # their cells held too few
        if len(short):
            indices[short] = ExactNeighbors(self.X).find(purpose, k, rows[short], among)[1]
        return euclidean_pairs(self.X[rows], self.X, indices), indices


def neighbors_of(X: Array, how: str) -> Neighbors:
    """Neighbours among the rows of X.

    Parameters
    ----------
    X : (n, d) array
    how : "exact", "approximate" or "auto": exact on a GPU, without faiss, and for fewer than
        ``APPROXIMATE_FROM`` rows
    """
    possible = can_approximate(X)
    if how == "approximate" and not possible:
        raise ValueError(f'neighbor_search="approximate" {NEEDED}; use "auto" or "exact"')
    if how == "approximate" or (how == "auto" and possible and len(X) >= APPROXIMATE_FROM):
        return ApproximateNeighbors(X)
    return ExactNeighbors(X)
