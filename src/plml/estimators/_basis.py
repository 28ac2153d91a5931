"""Classifiers whose metric at x is a convex combination of basis metrics (equation 2)."""

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.estimators._base import NeighborClassifier
from plml.ops.distances import combine_bases, local_pairs
from plml.stages.search import LocalMetricIndex, index_vectors, query_vectors


class BasisMetricClassifier(NeighborClassifier):
    """M(x) = sum_b w_b(x) M_b, so neighbours are a maximum inner product search.

    A subclass sets ``basis_metrics_`` (m, d, d) and ``weights_`` (n, m), calls ``_build_index``,
    and answers ``_weights_at``.
    """

    basis_metrics_: np.ndarray
    weights_: np.ndarray

    def local_weights(self, X: Any = None) -> np.ndarray:
        """Weights of the basis metrics at each point, (n_queries, m); rows sum to one.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        check_is_fitted(self)
        with self._threads():
            return self._weights(None if X is None else self._validate_queries(X))

    def index_vectors(self) -> np.ndarray:
        """(x_j, q_j) for every training instance, q_jb = x_j^T M_b x_j: (n_samples, d + m).

        The nearest training instance of a query under its local metric is the one with the
        largest inner product between its index vector and the query's ``query_vectors`` row:
        d^2 = x^T M(x) x - <query, index>. Any inner-product index can serve it.
        """
        check_is_fitted(self)
        return index_vectors(self._fit_X, self.basis_metrics_)

    def query_vectors(self, X: Any = None) -> np.ndarray:
        """(2 M(x) x, -w(x)) for every query: (n_queries, d + m); see ``index_vectors``.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        check_is_fitted(self)
        X = None if X is None else self._validate_queries(X)
        points = self._fit_X if X is None else X
        with self._threads():
            return query_vectors(points, self._weights(X), self.basis_metrics_)

    @abstractmethod
    def _weights_at(self, X: np.ndarray) -> np.ndarray:
        """(n_queries, m) weights of new points."""

    def _weights(self, X: np.ndarray | None) -> np.ndarray:
        return self.weights_ if X is None else self._weights_at(X)

    def _build_index(self, X: np.ndarray) -> None:
        self._index = LocalMetricIndex(X, self.basis_metrics_)

    def _search(self, X: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        if X is None:
            return self._index.search(self._fit_X, self.weights_, k, np.arange(len(self._fit_X)))
        return self._index.search(X, self._weights_at(X), k)

    def _squared_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        candidates = np.arange(len(second))[:, None]
        weights = self._weights_at(first)
        return local_pairs(first, weights, self.basis_metrics_, second, candidates)[:, 0]

    def _metrics_at(self, X: np.ndarray | None) -> np.ndarray:
        return combine_bases(self._weights(X), self.basis_metrics_)
