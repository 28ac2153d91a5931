"""Euclidean neighbours by exact search; ``approximate`` is for very many rows."""

from importlib.util import find_spec
from math import ceil, log2
from typing import Protocol

import numpy as np

from plml.backend.arrays import Array, device, is_tensor, like, namespace, on_host, row_dot
from plml.ops.distances import euclidean_pairs, rounding_of
from plml.ops.hnsw import SPARE_CANDIDATES, NavigableGraph
from plml.ops.topk import InnerProductIndex, Measured, PairwiseDistances, sorted_prefix


class EuclideanIndex:
    """The rows of X, an (n, d) array, ready for exact search.

    ||q - x||^2 = ||q||^2 - <(2q, -1), (x, ||x||^2)>, relative to the mean and in units that keep
    the terms near one; the unit is a power of two, so that scaling a distance is exact.
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
        """Squared distances and indices of the k nearest rows, as in ``InnerProductIndex``."""
        squared, indices = self.index.search(*self._inner_products(queries, k), own)
        return squared * self.unit * self.unit, indices

    def nearest(self, queries: Array, k: int) -> Array:
        """The indices of the k nearest rows, in any order."""
        return self.index.nearest(*self._inner_products(queries, k))

    def _inner_products(self, queries: Array, k: int) -> tuple[Array, int, PairwiseDistances]:
        """The arguments of the index: query vectors, number of neighbours, exact distances."""
        xp = namespace(queries)
        centered = (queries - self.center) / self.unit
        vectors = xp.concat([2.0 * centered, -xp.ones_like(centered[:, :1])], axis=1)

        def distances(rows: Array, columns: Array) -> Measured:
            squared = euclidean_pairs(queries[rows], self.X, columns) / self.unit / self.unit
            return Measured(squared, rounding_of(squared, centered[rows]))

        return vectors, k, distances


class ApproximateIndex:
    """``EuclideanIndex`` by a walk along a navigable graph; what it finds is measured exactly."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self._graph = NavigableGraph(X)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of k near rows, nearest first."""
        found = self._graph.candidates(queries, k + SPARE_CANDIDATES)
        return sorted_prefix(Measured(euclidean_pairs(queries, self.X, found)), found, k)

    def nearest(self, queries: np.ndarray, k: int) -> np.ndarray:
        """The indices of k near rows."""
        return self.search(queries, k)[1]


def euclidean_neighbors(
    X: Array,
    n_neighbors: int,
    queries: Array | None = None,
    own: Array | None = None,
) -> tuple[Array, Array]:
    """Squared distances and indices of the nearest rows of X, as in ``InnerProductIndex.search``.

    Parameters
    ----------
    X : (n, d) array
    n_neighbors : int; fewer are returned if X has fewer rows
    queries : (q, d) array, or None for the rows of X, each left out of its own neighbours
    own : (q,) integer array; query i is row own[i] of X, and that row is left out
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


#: What approximate searches need, as messages say it.
NEEDED = 'needs faiss-cpu (pip install faiss-cpu) and device="cpu"'


def can_approximate(X: Array) -> bool:
    """Whether approximate searches are possible here."""
    return not is_tensor(X) and find_spec("faiss") is not None


class Neighbors(Protocol):
    """Neighbours among the rows of one array; no row is its own neighbour."""

    recall: dict[str, float]  # by purpose, the share of the true neighbours that were found

    def graph(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the k nearest rows, or of all others if fewer."""

    def targets(self, k: int) -> np.ndarray:
        """The k nearest in a row's own class, (n, k), -1 where there are too few."""

    def impostors(self, k: int) -> np.ndarray:
        """The k nearest in other classes, (n, k), -1 where there are too few."""


class ExactNeighbors(Neighbors):
    """Neighbours among the rows of X, (n, d), with class codes y, (n,), by exact search."""

    def __init__(self, X: Array, y: np.ndarray) -> None:
        self.X = X
        self.groups = class_members(y)
        self.recall = dict.fromkeys(("graph", "targets", "impostors"), 1.0)

    def graph(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        squared, indices = (on_host(part) for part in euclidean_neighbors(self.X, k))
        return squared, indices

    def targets(self, k: int) -> np.ndarray:
        result = np.full((len(self.X), k), -1, dtype=np.int64)
        for members in self.groups:
            found = on_host(euclidean_neighbors(self._rows(members), k)[1])
            result[members, : found.shape[1]] = members[found]
        return result

    def impostors(self, k: int) -> np.ndarray:
        result = np.full((len(self.X), k), -1, dtype=np.int64)
        for members in self.groups:
            others = all_but(members, len(self.X))
            found = euclidean_neighbors(self._rows(others), k, self._rows(members))[1]
            result[members, : found.shape[1]] = others[on_host(found)]
        return result

    def _rows(self, rows: np.ndarray) -> Array:
        return self.X[like(rows, self.X)]


def class_members(y: np.ndarray) -> list[np.ndarray]:
    """The row indices of every class that occurs, by class."""
    order = np.argsort(y, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(y[order])) + 1)


def all_but(rows: np.ndarray, n: int) -> np.ndarray:
    """The numbers 0 to n - 1 without the given ones."""
    return np.delete(np.arange(n), rows)
