"""Anchor points: the means of k-means clusters."""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning


class Anchors(NamedTuple):
    """Cluster means (m, d) and the cluster of every instance (n,)."""

    centers: np.ndarray
    labels: np.ndarray


def kmeans_anchors(
    X: np.ndarray, n_bases: int, random_state: int | np.random.RandomState | None
) -> Anchors:
    """U, the means of at most ``n_bases`` k-means clusters, none of them empty.

    Fewer come back where the data has fewer distinct rows.

    Parameters
    ----------
    X : (n, d) array
    n_bases : int
    random_state : scikit-learn's random state
    """
    n_clusters = min(n_bases, len(X))
    with warnings.catch_warnings():
        # The estimator says it in its own words.
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        kmeans = KMeans(n_clusters, random_state=random_state).fit(X)
    used, labels = np.unique(kmeans.labels_, return_inverse=True)
    return Anchors(kmeans.cluster_centers_[used], labels)
