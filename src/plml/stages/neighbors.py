"""Exact Euclidean neighbours."""

from math import ceil, log2

from plml.backend.arrays import Array, device, namespace, row_dot
from plml.ops.distances import euclidean_pairs
from plml.ops.topk import InnerProductIndex


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
