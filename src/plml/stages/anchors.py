"""Anchor points: the means of k-means clusters."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from plml.backend.arrays import Array, is_tensor, like, namespace, on_host, row_dot

MAX_ITER = 300
TOLERANCE = 1e-4


class Anchors(NamedTuple):
    """Cluster means (m, d) and the cluster of every instance (n,), a NumPy array."""

    centers: Array
    labels: np.ndarray
    n_iter: int


def kmeans_anchors(
    X: Array, n_bases: int, random_state: int | np.random.RandomState | None
) -> Anchors:
    """U, the means of at most ``n_bases`` k-means clusters of (n, d) rows, none of them empty.

    There are fewer of them if the data have fewer distinct rows.
    """
    n_clusters = min(n_bases, len(X))
    if is_tensor(X):
        start = _spread_out(X, n_clusters, check_random_state(random_state))
        centers, labels, n_iter = _lloyd(X, start)
    else:
        with warnings.catch_warnings():
            # The estimator has a warning of its own.
            warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
            # In float64, so that the anchors do not depend on where they are computed.
            kmeans = KMeans(n_clusters, random_state=random_state).fit(X.astype(np.float64))
        centers, labels = kmeans.cluster_centers_.astype(X.dtype), kmeans.labels_
        n_iter = kmeans.n_iter_
    used, labels = np.unique(labels, return_inverse=True)
    return Anchors(centers[like(used, X)], labels, n_iter)


def _spread_out(X: Array, n_clusters: int, rng: np.random.RandomState) -> Array:
    """The greedy k-means++ start, with the random numbers in scikit-learn's order, so that a GPU
    starts where scikit-learn's ``KMeans`` does.
    """
    xp = namespace(X)
    n = len(X)
    n_trials = 2 + int(np.log(n_clusters))  # of which the best is taken
    chosen = [int(rng.choice(n, p=np.full(n, 1.0 / n)))]
    closest = squared_distances_to(X, X[chosen[-1]][None])[:, 0]
    for _ in range(1, n_clusters):
        potential = float(xp.sum(closest))
        targets = like(rng.uniform(size=n_trials) * potential, closest)
        trials = xp.searchsorted(xp.cumulative_sum(closest), targets)
        trials = xp.clip(trials, None, n - 1)
        shrunk = xp.minimum(closest[:, None], squared_distances_to(X, X[trials]))
        best = int(xp.argmin(xp.sum(shrunk, axis=0)))
        chosen.append(int(trials[best]))
        closest = shrunk[:, best]
    return X[like(np.array(chosen), X)]


def _cluster_means(X: Array, labels: Array, centers: Array) -> Array:
    """The means of the clusters; an empty one stays where it is."""
    xp = namespace(X)
    members = xp.astype(labels[:, None] == like(np.arange(len(centers)), X)[None], xp.float64)
    counts = xp.sum(members, axis=0)[:, None]
    return xp.where(counts > 0, members.T @ X / xp.clip(counts, 1.0, None), centers)


def _lloyd(X: Array, centers: Array) -> tuple[Array, np.ndarray, int]:
    """Lloyd's iteration, stopped as scikit-learn's ``KMeans`` stops it."""
    xp = namespace(X)
    X64 = xp.astype(X, xp.float64)
    enough = TOLERANCE * float(xp.mean(xp.var(X64, axis=0)))
    centers = xp.astype(centers, xp.float64)
    labels, n_iter = None, 0
    while n_iter < MAX_ITER:
        n_iter += 1
        previous = labels
        labels = xp.argmin(squared_distances_to(X64, centers), axis=1)
        if previous is not None and bool(xp.all(labels == previous)):
            break
        moved = _cluster_means(X64, labels, centers)
        shift = float(xp.sum((moved - centers) ** 2))
        centers = moved
        if shift <= enough:
            labels = xp.argmin(squared_distances_to(X64, centers), axis=1)
            break
    return xp.astype(centers, X.dtype), on_host(labels), n_iter


def squared_distances_to(X: Array, centers: Array) -> Array:
    """Squared distances between rows and centers, (n, m) float64."""
    xp = namespace(X)
    X, centers = xp.astype(X, xp.float64), xp.astype(centers, xp.float64)
    d2 = row_dot(X, X)[:, None] - 2.0 * (X @ centers.T) + row_dot(centers, centers)
    return xp.clip(d2, 0.0, None)
