"""Classifiers whose metric at x is a convex combination of basis metrics (equation 2)."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import Array, device, like, namespace, on_host
from plml.estimators._base import NeighborClassifier, follow
from plml.estimators._state import of_one_fit
from plml.explanation import Explanation
from plml.ops.distances import combine_bases, local_pairs
from plml.stages.explanation import feature_contributions, feature_importance
from plml.stages.neighbors import ApproximateIndex, EuclideanIndex, can_approximate
from plml.stages.search import (
    ApproximateMetricIndex,
    LocalMetricIndex,
    index_vectors,
    query_vectors,
    vote,
)

#: Rows on which the recall of an approximate index is measured.
_SAMPLE = 256


class Placed:
    """Training data and its indexes on one device."""

    def __init__(self, X: Array, weights: Array, M: Array, approximate: bool) -> None:
        self.X = X
        self.weights = weights
        self._approximate = approximate and can_approximate(X)
        kind = ApproximateMetricIndex if self._approximate else LocalMetricIndex
        self.metric_index: LocalMetricIndex | ApproximateMetricIndex = kind(X, M)

    @cached_property
    def euclidean_index(self) -> EuclideanIndex | ApproximateIndex:
        """For the weights of new points."""
        return ApproximateIndex(self.X) if self._approximate else EuclideanIndex(self.X)

    def recall(self, k: int) -> float:
        """Share of the true neighbours that the index finds for a sample of its own rows."""
        index = self.metric_index
        if isinstance(index, LocalMetricIndex):
            return 1.0
        rows = np.arange(len(self.X))[:: -(-len(self.X) // _SAMPLE)]
        arguments = (self.X[rows], self.weights[rows], k, rows)
        found, truth = (which.search(*arguments)[1] for which in (index, index.exact))
        return float(np.mean((truth[:, :, None] == found[:, None, :]).any(axis=2)))


class BasisMetricClassifier(NeighborClassifier):
    """M(x) = sum_b w_b(x) M_b, so neighbours are a maximum inner product search.

    A subclass sets ``basis_metrics_`` (m, d, d) and ``weights_`` (n, m), NumPy arrays both, and
    answers ``_weights_at``.
    """

    _searches_on_gpu = True
    _made_again = ("_copies",)

    basis_metrics_: np.ndarray
    weights_: np.ndarray

    @of_one_fit
    def local_weights(self, X: Any = None) -> np.ndarray:
        """Weights of the basis metrics at each point, (n_queries, m); rows sum to one.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        check_is_fitted(self)
        with self._threads():
            return follow(self._weights(None if X is None else self._validate_queries(X)), X)

    @of_one_fit
    def index_vectors(self) -> np.ndarray:
        """(x_j, q_j) for every training instance, q_jb = x_j^T M_b x_j: (n_samples, d + m).

        Points are taken about the mean of the training instances, which keeps the products
        accurate wherever the data lies. The nearest training instance of a query under its local
        metric is the one with the largest inner product between its index vector and the query's
        ``query_vectors`` row: d^2 = x^T M(x) x - <query, index>. Any inner-product index can serve
        it.
        """
        check_is_fitted(self)
        with self._threads():
            return index_vectors(self._about_the_mean(self._fit_X), self.basis_metrics_)

    @of_one_fit
    def query_vectors(self, X: Any = None) -> np.ndarray:
        """(2 M(x) x, -w(x)) for every query: (n_queries, d + m); see ``index_vectors``.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        check_is_fitted(self)
        queries = None if X is None else self._validate_queries(X)
        with self._threads():
            weights = self._weights(queries)
            points = self._about_the_mean(self._fit_X if queries is None else queries)
            points = like(points, weights)
            vectors = query_vectors(points, weights, like(self.basis_metrics_, weights))
            return follow(vectors, X)

    def _about_the_mean(self, X: Array) -> Array:
        center = self._fit_X.mean(axis=0, dtype=np.float64)
        xp = namespace(X)
        return xp.astype(X - like(center, X, xp.float64), X.dtype)

    @of_one_fit
    def local_importance(self, X: Any = None) -> np.ndarray:
        """How much each feature matters at each point, (n_queries, n_features).

        Rows sum to one, or to zero where the metric vanishes.

        The share of the feature in the diagonal of M(x), in units of its spread in the training
        data: what a difference of one standard deviation in it alone adds to the squared distance.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        return self._importance(on_host(self.local_weights(X)))

    @of_one_fit
    def average_importance(self) -> np.ndarray:
        """``local_importance`` under the average metric of the training data, (n_features,)."""
        check_is_fitted(self)
        return self._importance(self.weights_.mean(axis=0, dtype=np.float64)[None])[0]

    def _importance(self, weights: np.ndarray) -> np.ndarray:
        diagonals = np.diagonal(self.basis_metrics_, axis1=1, axis2=2).astype(np.float64)
        return feature_importance(weights @ diagonals, self._fit_X.std(axis=0, dtype=np.float64))

    @of_one_fit
    def explain(self, X: Any = None, n_neighbors: int | None = None) -> Explanation:
        """The prediction of each query, its nearest training cases, and what made them near.

        The squared local distance to each neighbour is split exactly over the features.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances,
            each of which is then left out of its own neighbours
        n_neighbors : neighbours a query; by default the ``n_neighbors`` of the estimator
        """
        squared, neighbors = self._found(X, n_neighbors)
        squared, neighbors = on_host(squared), on_host(neighbors)
        queries = self._fit_X if X is None else self._validate_on_host(X)
        with self._threads():
            weights = on_host(self._weights(None if X is None else queries))
        values = self._fit_X[neighbors]
        if X is None:
            voters = neighbors[:, : self.n_neighbors]
            if neighbors.shape[1] < self.n_neighbors:
                voters = on_host(self._found(X, self.n_neighbors)[1])
            codes = vote(self._fit_codes[voters], len(self.classes_)).argmax(axis=1)
        else:
            codes = on_host(self._predict_codes(queries))
        names = getattr(self, "feature_names_in_", None)
        return Explanation(
            predictions=self.classes_[codes],
            neighbors=neighbors,
            labels=self.classes_[self._fit_codes[neighbors]],
            squared_distances=squared,
            contributions=feature_contributions(queries, values, weights, self.basis_metrics_),
            queries=queries,
            neighbor_values=values,
            importance=self._importance(weights),
            global_importance=self.average_importance(),
            weights=weights,
            basis_metrics=self.basis_metrics_,
            feature_names=(
                np.array([f"x{i}" for i in range(queries.shape[1])], dtype=object)
                if names is None
                else names
            ),
        )

    @abstractmethod
    def _weights_at(self, X: Array) -> Array:
        """(n_queries, m) weights of new points, where these are."""

    def _weights(self, X: Array | None) -> Array:
        return self.weights_ if X is None else self._weights_at(self._place(X))

    def _placed(self, like_x: Array) -> "Placed":
        """What a search needs, on the device of an array; made once a device."""
        if not hasattr(self, "_copies"):
            self._copies: dict[str, Placed] = {}
        approximate = getattr(self, "search_backend", "exact") == "approximate"
        key = f"{type(like_x).__module__} {device(like_x)} {approximate}"
        if key not in self._copies:
            parts = self._inside(self._fit_X), self.weights_, self._inward(self.basis_metrics_)
            X, weights, M = (like(array, like_x) for array in parts)
            self._copies[key] = Placed(X, weights, M, approximate)
        return self._copies[key]

    def _forget_copies(self) -> None:
        """Of an earlier fit."""
        self.__dict__.pop("_copies", None)

    def _search(self, X: Array | None, k: int) -> tuple[Array, Array]:
        Q = self._place(self._fit_X if X is None else X)
        placed = self._placed(Q)
        if X is None:
            return placed.metric_index.search(Q, placed.weights, k, like(np.arange(len(Q)), Q))
        return placed.metric_index.search(Q, self._weights_at(Q), k)

    def _nearest(self, X: Array, k: int) -> Array:
        Q = self._place(X)
        return self._placed(Q).metric_index.nearest(Q, self._weights_at(Q), k)

    def _squared_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        candidates = np.arange(len(second))[:, None]
        weights = on_host(self._weights(first))
        return local_pairs(first, weights, self.basis_metrics_, second, candidates)[:, 0]

    def _metrics_at(self, X: Array | None) -> Array:
        weights = self._weights(X)
        return combine_bases(weights, like(self.basis_metrics_, weights))
