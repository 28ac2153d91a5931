"""Euclidean neighbours by exact search; ``approximate`` is for very many rows."""

from collections.abc import Callable, Iterator
from copy import copy
from importlib.util import find_spec
from itertools import groupby
from math import ceil, log2
from typing import Protocol, Self

import numpy as np

from plml.backend.arrays import Array, device, is_tensor, like, namespace, on_host, row_dot
from plml.ops.distances import euclidean_pairs, rounding_of
from plml.ops.growing import without_rows
from plml.ops.hnsw import SPARE_CANDIDATES, NavigableGraph
from plml.ops.topk import (
    Found,
    InnerProductIndex,
    Measured,
    PairwiseDistances,
    Shortlist,
    n_candidates,
    rows_per_block,
    sorted_prefix,
)


class EuclideanIndex:
    """The rows of X, an (n, d) array, ready for exact search.

    ||q - x||^2 = ||q||^2 - <(2q, -1), (x, ||x||^2)>, relative to a center (the mean by default) and
    in units that keep the terms near one; the unit is a power of two, so that scaling a distance is
    exact.

    Parameters
    ----------
    X : (n, d) array
    center : (d,) array
    order : (n,) integer array, the order in which the index holds the rows
    """

    def __init__(self, X: Array, center: Array | None = None, order: Array | None = None) -> None:
        xp = namespace(X)
        self.X = X
        self.center = xp.mean(xp.astype(X, xp.float64), axis=0) if center is None else center
        largest = float(xp.max(xp.abs(X - self.center)))
        self.unit = 2.0 ** ceil(log2(largest)) if largest > 0 else 1.0
        centered = ((X if order is None else X[order]) - self.center) / self.unit
        self.index = InnerProductIndex(_with_squares(centered), order)
        #: Relative to which the coordinates of the rows are rounded.
        self.origin = self.center

    def extended(self, X: Array) -> Self:
        """Another index, of rows that begin with those of this one."""
        grown = copy(self)
        grown.X = X
        new = (X[len(self.X) :] - self.center) / self.unit
        grown.index = self.index.extended(_with_squares(new))
        return grown

    def without(self, rows: np.ndarray) -> Self:
        """Another index, without some of the rows."""
        rest = copy(self)
        rest.X, rest.index = without_rows(self.X, rows), self.index.without(rows)
        return rest

    def part(self, origin: Array, *spans: slice) -> "EuclideanIndex":
        """Some stretches of the rows in their order.

        Parameters
        ----------
        origin : (d,) array, relative to which the coordinates of these rows are rounded
        spans : the stretches
        """
        found = copy(self)
        found.index, found.origin = self.index.part(*spans), origin
        return found

    def about(self, origins: Array) -> "EuclideanIndex":
        """The same rows for queries with an origin each, (q, d), as in ``part``."""
        found = copy(self)
        found.origin = origins
        return found

    def shortlist(self, queries: Array, count: int, own: Array | None = None) -> Shortlist:
        """As in ``InnerProductIndex``."""
        return self.index.shortlist(self._inner_products(queries, count)[0], count, own)

    def search(
        self,
        queries: Array,
        k: int,
        own: Array | None = None,
        known: Shortlist | None = None,
    ) -> tuple[Array, Array]:
        """Squared distances and indices of the k nearest rows, as in ``InnerProductIndex``."""
        squared, indices = self.index.search(*self._inner_products(queries, k), own, known)
        return squared * self.unit * self.unit, indices

    def proven(self, queries: Array, k: int, own: Array | None, known: Shortlist) -> Found:
        """``search`` as far as a shortlist proves it."""
        found = self.index.proven(*self._inner_products(queries, k), own, known)
        return found._replace(squared=found.squared * self.unit * self.unit)

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
            origin = self.origin if self.origin.ndim == 1 else self.origin[rows]
            relative = (queries[rows] - origin) / self.unit
            return Measured(squared, rounding_of(squared, relative))

        return vectors, k, distances


def _with_squares(centered: Array) -> Array:
    """(x, ||x||^2)."""
    squares = row_dot(centered, centered)[:, None]
    return namespace(centered).concat([centered, squares], axis=1)


class ApproximateIndex:
    """``EuclideanIndex`` by a walk along a navigable graph; what it finds is measured exactly."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        self._graph = NavigableGraph(X)

    def extended(self, X: np.ndarray) -> Self:
        """As in ``EuclideanIndex``."""
        grown = copy(self)
        grown.X, grown._graph = X, self._graph.extended(X[len(self.X) :])
        return grown

    def without(self, rows: np.ndarray) -> "ApproximateIndex":
        """As in ``EuclideanIndex``; the graph is built again, so that no link leads to the rows."""
        return ApproximateIndex(without_rows(self.X, rows))

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
    """Neighbours among the rows of X, (n, d), with class codes y, (n,), by exact search.

    All lists come from one pass over the distances, which the first of them starts. What the pass
    found is kept until all three were asked for, and the lists as long as this object.
    """

    def __init__(self, X: Array, y: np.ndarray) -> None:
        self.X = X
        self.groups = class_members(y)
        self.recall = dict.fromkeys(("graph", "targets", "impostors"), 1.0)
        self._lists: dict[tuple[str, int], tuple[np.ndarray, ...]] = {}
        self._sweep: ClassSweep | None = None

    def graph(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        squared, indices = self._known("graph", min(k, len(self.X) - 1), self._nearest)
        return squared, indices

    def targets(self, k: int) -> np.ndarray:
        return self._known("targets", k, lambda sweep, k: (sweep.nearest_by_class(k, True),))[0]

    def impostors(self, k: int) -> np.ndarray:
        return self._known("impostors", k, lambda sweep, k: (sweep.nearest_by_class(k, False),))[0]

    def _known(
        self,
        purpose: str,
        k: int,
        find: Callable[["ClassSweep", int], tuple[Array, ...]],
    ) -> tuple[np.ndarray, ...]:
        if (purpose, k) not in self._lists:
            if self._sweep is None:
                self._sweep = ClassSweep(self.X, self.groups)
            self._lists[purpose, k] = tuple(on_host(part) for part in find(self._sweep, k))
            if {name for name, _ in self._lists} == set(self.recall):
                self._sweep = None
        return self._lists[purpose, k]

    def _nearest(self, sweep: "ClassSweep", k: int) -> tuple[Array, ...]:
        if k < 1:
            return np.empty((len(self.X), 0)), np.empty((len(self.X), 0), dtype=np.int64)
        return sweep.nearest(k)


#: So many neighbours a side are found at least, for the lists that come later.
_LEAST_WANTED = 7
#: Rows of several classes that are worked on together, at most.
_ROWS_AT_ONCE = 2**16


class ClassSweep:
    """One pass over the distances between rows: the nearest of the own class, and of the others.

    The index holds the rows by class, so that a class is one stretch of it and the others are two.

    Parameters
    ----------
    X : (n, d) array
    groups : row indices by class
    """

    def __init__(self, X: Array, groups: list[np.ndarray]) -> None:
        xp = namespace(X)
        self.X, self.groups = X, [like(members, X) for members in groups]
        self._ends = np.cumsum([len(members) for members in groups])
        self._means = [xp.mean(xp.astype(X[rows], xp.float64), axis=0) for rows in self.groups]
        self._index = EuclideanIndex(X, order=xp.concat(self.groups))
        self._known: dict[tuple[int, bool], Shortlist] = {}

    def nearest(self, k: int) -> tuple[Array, Array]:
        """Squared distances and indices of the k < n nearest of every row, without itself."""
        xp, n, place = namespace(self.X), len(self.X), device(self.X)
        width = min(n, n_candidates(k))
        scores = xp.empty((n, width), dtype=xp.float32, device=place)
        rows = xp.empty((n, width), dtype=xp.int64, device=place)
        for number, members in enumerate(self.groups):
            same, others = (self._shortlist(number, k, own) for own in (True, False))
            scores[members], rows[members] = same.joined_with(others, width)
        own = xp.arange(n, device=place)
        return self._index.search(self.X, k, own, Shortlist(scores, rows))

    def nearest_by_class(self, k: int, own: bool) -> Array:
        """Indices of the k nearest of every row in its class, or outside, (n, k); -1 where there
        are too few.
        """
        xp = namespace(self.X)
        result = xp.full((len(self.X), k), -1, dtype=xp.int64, device=device(self.X))
        for wanted, numbers in self._runs(k, own):
            members = xp.concat([self.groups[number] for number in numbers])
            result[members, :wanted] = self._nearest_of_classes(numbers, wanted, own)
        return result

    def _runs(self, k: int, own: bool) -> Iterator[tuple[int, list[int]]]:
        """How many neighbours there are, at most k, and classes that have as many, a bounded number
        of rows together.
        """
        at_once = min(_ROWS_AT_ONCE, rows_per_block(self.X.shape[1], self.X))
        n, sizes, keys = len(self.X), [len(members) for members in self.groups], {}
        for number, size in enumerate(sizes):
            if wanted := min(k, size - 1 if own else n - size):
                keys[number] = wanted, self._shortlist(number, wanted, own).rows.shape[1]
        for (wanted, _), alike in groupby(sorted(keys, key=keys.__getitem__), keys.__getitem__):
            rest = list(alike)
            while rest:
                together = max(1, int((np.cumsum(np.take(sizes, rest)) <= at_once).sum()))
                yield wanted, rest[:together]
                rest = rest[together:]

    def _nearest_of_classes(self, numbers: list[int], k: int, own: bool) -> Array:
        """Indices of the k nearest of every row of some classes, each in its class or outside."""
        xp = namespace(self.X)
        members = [self.groups[number] for number in numbers]
        rows, sizes = xp.concat(members), [len(part) for part in members]
        parts = [self._part(number, own) for number in numbers]
        known = Shortlist.of_all([self._shortlist(number, k, own) for number in numbers])
        origins = xp.stack([part.origin for part in parts])
        class_of_row = like(np.repeat(np.arange(len(numbers)), sizes), self.X)
        queries, without = self.X[rows], rows if own else None
        found = self._index.about(origins[class_of_row]).proven(queries, k, without, known)
        if len(left := found.unproven):
            for number, part in enumerate(parts):
                if len(some := left[class_of_row[left] == number]):
                    without = rows[some] if own else None
                    again = part.search(queries[some], k, without, known.take(some))
                    found.rows[some] = again[1]
        return found.rows

    def _shortlist(self, number: int, k: int, own: bool) -> Shortlist:
        """For the rows of a class, in the class or outside; searched for if too few are known."""
        count = n_candidates(max(k, _LEAST_WANTED), with_own=own)
        part, known = self._part(number, own), self._known.get((number, own))
        if known is None or known.rows.shape[1] < min(count, len(part.index)):
            members = self.groups[number]
            known = part.shortlist(self.X[members], count, members if own else None)
            self._known[number, own] = known
        return known

    def _part(self, number: int, own: bool) -> EuclideanIndex:
        """A class, or the rows outside."""
        n, end, mean = len(self.X), int(self._ends[number]), self._means[number]
        size = len(self.groups[number])
        start = end - size
        if own:
            return self._index.part(mean, slice(start, end))
        mean = (n * self._index.center - size * mean) / max(1, n - size)
        return self._index.part(mean, slice(0, start), slice(end, n))


def class_members(y: np.ndarray) -> list[np.ndarray]:
    """The row indices of every class that occurs, by class."""
    order = np.argsort(y, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(y[order])) + 1)


def all_but(rows: np.ndarray, n: int) -> np.ndarray:
    """The numbers 0 to n - 1 without the given ones."""
    return np.delete(np.arange(n), rows)
