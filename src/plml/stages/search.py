"""Prediction: neighbours under the local metric as a maximum inner product search, and the vote.

d^2_i(x_i, x_j) = x_i^T M_i x_i - <(2 M_i x_i, -W_i), (x_j, q_j)>,     q_jb = x_j^T M_b x_j
"""

import numpy as np

from plml.ops.distances import local_pairs
from plml.ops.topk import InnerProductIndex
from plml.stages.neighbors import euclidean_neighbors


def index_vectors(X: np.ndarray, M: np.ndarray) -> np.ndarray:
    """(x_j, q_j): (n, d) instances, (m, d, d) basis metrics -> (n, d + m)."""
    q = np.stack([np.einsum("nd,nd->n", X @ M_b, X) for M_b in M], axis=1)
    return np.concatenate([X, q], axis=1)


def query_vectors(X: np.ndarray, weights: np.ndarray, M: np.ndarray) -> np.ndarray:
    """(2 M_i x_i, -W_i): (n, d) queries, (n, m) weights, (m, d, d) basis metrics -> (n, d + m)."""
    MX = np.zeros(X.shape, dtype=np.result_type(X, M))
    for b, M_b in enumerate(M):
        rows = np.flatnonzero(weights[:, b])
        MX[rows] += weights[rows, b, None] * (X[rows] @ M_b)
    return np.concatenate([2.0 * MX, -weights], axis=1)


class LocalMetricIndex:
    """Training instances ready for exact search under the queries' local metrics.

    Parameters
    ----------
    X : (n, d) array
    M : (m, d, d) array
    """

    def __init__(self, X: np.ndarray, M: np.ndarray) -> None:
        self.X = X
        self.M = M
        self.center = X.mean(axis=0, dtype=np.float64)
        vectors = index_vectors(X - self.center, M.astype(np.float64))
        # Columns q_b are brought to the scale of the others, which tightens the rounding bound.
        d = X.shape[1]
        self.scale = float(np.abs(vectors[:, d:]).max() / (np.abs(vectors[:, :d]).max() or 1.0))
        self.scale = self.scale or 1.0
        vectors[:, d:] /= self.scale
        self.index = InnerProductIndex(vectors)
        self._nonzero_bases = M.any(axis=(1, 2))

    def search(
        self, Q: np.ndarray, weights: np.ndarray, n_neighbors: int, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest training instances under each query's own metric.

        Where that metric vanishes every distance is zero; the Euclidean order decides.

        Parameters
        ----------
        Q : (q, d) array
        weights : (q, m) array
        n_neighbors : int
        own : (q,) integer array; query i is training instance own[i], which is left out

        Returns
        -------
        squared_distances : (q, n_neighbors) float64 array
        indices : (q, n_neighbors) integer array
        """
        squared = np.zeros((len(Q), n_neighbors))
        indices = np.empty((len(Q), n_neighbors), dtype=np.int64)
        curved = (weights[:, self._nonzero_bases] != 0).any(axis=1)
        if curved.any():
            found = self._search(Q[curved], weights[curved], n_neighbors, _take(own, curved))
            squared[curved], indices[curved] = found
        if not curved.all():
            flat = ~curved
            found = euclidean_neighbors(self.X, n_neighbors, Q[flat], _take(own, flat))
            indices[flat] = found[1]
        return squared, indices

    def _search(
        self, Q: np.ndarray, weights: np.ndarray, n_neighbors: int, own: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        vectors = query_vectors(Q - self.center, weights, self.M.astype(np.float64))
        vectors[:, Q.shape[1] :] *= self.scale
        return self.index.search(
            vectors,
            n_neighbors,
            lambda rows, columns: local_pairs(Q[rows], weights[rows], self.M, self.X, columns),
            own,
        )


def _take(own: np.ndarray | None, mask: np.ndarray) -> np.ndarray | None:
    return None if own is None else own[mask]


def vote(neighbor_labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Share of the neighbours in each class: (q, k) labels -> (q, n_classes)."""
    n_queries, k = neighbor_labels.shape
    flat = np.arange(n_queries)[:, None] * n_classes + neighbor_labels
    counts = np.bincount(flat.ravel(), minlength=n_queries * n_classes)
    return counts.reshape(n_queries, n_classes) / k
