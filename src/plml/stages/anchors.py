"""Anchor points: the means of k-means clusters."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from plml.backend.arrays import (
    Array,
    device,
    fetch,
    is_tensor,
    like,
    namespace,
    on_host,
    row_dot,
)
from plml.backend.graphs import Repeated

MAX_ITER = 300
TOLERANCE = 1e-4
#: Iterations between two looks at whether the clusters have settled.
AT_ONCE = 8


class Anchors(NamedTuple):
    """Cluster means (m, d) and the cluster of every instance (n,), a NumPy array."""

    centers: Array
    labels: np.ndarray
    n_iter: int


def kmeans_anchors(
    X: Array,
    n_bases: int,
    random_state: int | np.random.RandomState | None,
    sample_weight: np.ndarray | None = None,
) -> Anchors:
    """U, the means of at most ``n_bases`` k-means clusters of (n, d) rows, none of them empty.

    There are fewer of them if the data have fewer distinct rows. With (n,) sample weights a row
    counts as so many.
    """
    n_clusters = min(n_bases, len(X))
    if is_tensor(X):
        weights = None if sample_weight is None else like(sample_weight, X)
        start = _spread_out(X, n_clusters, check_random_state(random_state), weights)
        centers, labels, n_iter = _lloyd(X, start, weights)
    else:
        from sklearn.cluster import KMeans  # with a dozen modules that nothing else needs

        with warnings.catch_warnings():
            # The estimator has a warning of its own.
            warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
            # In float64, so that the anchors do not depend on where they are computed.
            kmeans = KMeans(n_clusters, random_state=random_state)
            kmeans.fit(X.astype(np.float64), sample_weight=sample_weight)
        centers, labels = kmeans.cluster_centers_.astype(X.dtype), kmeans.labels_
        n_iter = kmeans.n_iter_
    return _in_use(centers, labels, n_iter)


def kept_anchors(X: Array, anchors: np.ndarray) -> Anchors:
    """Anchors of an earlier fit to most of the rows, with the clusters that they make of these.

    An anchor that is the nearest one of no row is left out.

    Parameters
    ----------
    X : (n, d) array
    anchors : (m, d) array
    """
    xp, centers = namespace(X), like(anchors, X, X.dtype)
    labels = on_host(xp.argmin(squared_distances_to(X, centers), axis=1))
    return _in_use(centers, labels, 0)


def _in_use(centers: Array, labels: np.ndarray, n_iter: int) -> Anchors:
    """Clusters that have members."""
    used, labels = np.unique(labels, return_inverse=True)
    return Anchors(centers[like(used, centers)], labels, n_iter)


def _spread_out(
    X: Array, n_clusters: int, rng: np.random.RandomState, weights: Array | None
) -> Array:
    """The greedy k-means++ start, with the random numbers in scikit-learn's order, so that a GPU
    starts where scikit-learn's ``KMeans`` does.
    """
    xp = namespace(X)
    n = len(X)
    n_trials = 2 + int(np.log(n_clusters))  # of which the best is taken
    odds = np.full(n, 1.0 / n) if weights is None else on_host(weights / xp.sum(weights))
    chosen = [int(rng.choice(n, p=odds))]
    closest = squared_distances_to(X, X[chosen[-1]][None])[:, 0]
    for _ in range(1, n_clusters):
        counted = closest if weights is None else weights * closest
        targets = like(rng.uniform(size=n_trials) * float(xp.sum(counted)), closest)
        trials = xp.searchsorted(xp.cumulative_sum(counted), targets)
        trials = xp.clip(trials, None, n - 1)
        shrunk = xp.minimum(closest[:, None], squared_distances_to(X, X[trials]))
        counted = shrunk if weights is None else weights[:, None] * shrunk
        best = int(xp.argmin(xp.sum(counted, axis=0)))
        chosen.append(int(trials[best]))
        closest = shrunk[:, best]
    return X[like(np.array(chosen), X)]


def _cluster_means(X: Array, labels: Array, centers: Array, weights: Array | None) -> Array:
    """The means of the clusters; an empty one stays where it is."""
    xp = namespace(X)
    numbers = xp.arange(len(centers), device=device(X))
    members = xp.astype(labels[:, None] == numbers, xp.float64)
    if weights is not None:
        members = weights[:, None] * members
    counts = xp.sum(members, axis=0)[:, None]
    safe = xp.where(counts > 0, counts, xp.ones_like(counts))
    return xp.where(counts > 0, members.T @ X / safe, centers)


def _nearest_center(X: Array, centers: Array) -> Array:
    """argmin_b ||c_b||^2 - 2 <x, c_b>: the squares of the rows are the same for all centers."""
    return namespace(X).argmin(row_dot(centers, centers) - 2.0 * (X @ centers.T), axis=1)


def _lloyd(X: Array, centers: Array, weights: Array | None) -> tuple[Array, np.ndarray, int]:
    """Lloyd's iteration, stopped as scikit-learn's ``KMeans`` stops it."""
    xp = namespace(X)
    X64 = xp.astype(X, xp.float64)
    center = xp.mean(X64, axis=0)
    clusters = _Clusters(X64 - center, xp.astype(centers, xp.float64) - center, weights)
    n_iter = clusters.settle()
    centers = clusters.centers
    labels = on_host(_nearest_center(clusters.X, centers))
    return xp.astype(centers + center, X.dtype), labels, n_iter


class _Clusters:
    """The arrays that one iteration hands to the next, all of them where the rows are.

    A GPU is sent several iterations at once; those after the last one change nothing.
    """

    def __init__(self, X: Array, centers: Array, weights: Array | None) -> None:
        xp, place = namespace(X), device(X)
        self.X, self.weights = X, weights
        self.centers = xp.asarray(centers, copy=True)
        self._labels = xp.full(len(X), -1, dtype=xp.int64, device=place)
        self._n_iter = xp.zeros((), dtype=xp.int64, device=place)
        self._settled = xp.zeros((), dtype=xp.bool, device=place)
        self._enough = TOLERANCE * xp.mean(xp.mean(X * X, axis=0))

    def settle(self) -> int:
        """Iterate until nothing changes any more, or little; return how often."""
        several, settled, n_iter = Repeated(self._iterate, self.X), False, 0.0
        while not settled:
            several()
            settled, n_iter = fetch(self._settled, self._n_iter)  # one wait for the device
        return int(n_iter)

    def _iterate(self) -> None:
        for _ in range(AT_ONCE):
            self._once()

    def _once(self) -> None:
        xp = namespace(self.X)
        labels = _nearest_center(self.X, self.centers)
        moved = _cluster_means(self.X, labels, self.centers, self.weights)
        moved = xp.where(self._settled, self.centers, moved)
        self._n_iter += xp.astype(~self._settled, xp.int64)
        self._settled |= xp.all(labels == self._labels) | (self._n_iter >= MAX_ITER)
        self._settled |= xp.sum((moved - self.centers) ** 2) <= self._enough
        self._labels[...], self.centers[...] = labels, moved


def anchors_without(
    anchors: np.ndarray, X: np.ndarray, gone: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Anchors (m, d) after some rows have gone: those of their clusters are the means of the rest.

    Where nothing is left of a cluster, its anchor moves to the nearest of the other rows.

    Parameters
    ----------
    anchors : of all rows
    X : (n, d) the rows that stay
    gone : (r, d) the rows that do not
    weights : (n,) how often each row counts that stays, once by default
    """
    center, result = anchors.mean(axis=0, dtype=np.float64), anchors.copy()
    to_anchors = squared_distances_to(X - center, anchors - center)
    labels = to_anchors.argmin(axis=1)
    counts = np.ones(len(X)) if weights is None else weights
    near = np.unique(squared_distances_to(gone - center, anchors - center).argmin(axis=1))
    # Two anchors may be the same point, and the nearest one is only the first of them.
    alike = (anchors[:, None, :] == anchors[None, near, :]).all(axis=2).any(axis=1)
    for b in np.flatnonzero(alike):
        members = labels == b
        if members.any():
            result[b] = np.average(X[members].astype(np.float64), axis=0, weights=counts[members])
        else:
            result[b] = X[to_anchors[:, b].argmin()]
    return result


def squared_distances_to(X: Array, centers: Array) -> Array:
    """Squared distances between rows and centers, (n, m) float64."""
    xp = namespace(X)
    X, centers = xp.astype(X, xp.float64), xp.astype(centers, xp.float64)
    d2 = row_dot(X, X)[:, None] - 2.0 * (X @ centers.T) + row_dot(centers, centers)
    return xp.clip(d2, 0.0, None)
