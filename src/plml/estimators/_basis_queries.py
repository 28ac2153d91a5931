"""The questions that a convex combination of basis metrics can answer."""

from typing import Any

import numpy as np

from plml.backend.arrays import on_host
from plml.estimators._fitted_state import of_one_fit
from plml.estimators._metric_queries import MetricQueries, follow
from plml.inspection.explanation import Explanation
from plml.metric.votes import class_shares


class BasisMetricQueries(MetricQueries):
    """Mixin for classifiers whose metric is a ``BasisMetric``."""

    basis_metrics_: np.ndarray
    weights_: np.ndarray

    @of_one_fit
    def local_weights(self, X: Any = None) -> np.ndarray:
        """Weights of the basis metrics at each point, (n_queries, m); rows sum to one.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        if (remote := self._remote_queries(X)) is not None:
            return remote.local_weights(X)
        return follow(self._ask("weights", X), X)

    @of_one_fit
    def index_vectors(self) -> np.ndarray:
        """(x_j, q_j) for every training instance, q_jb = x_j^T M_b x_j: (n_samples, d + m).

        Points are taken about the mean of the training instances, which keeps the products
        accurate wherever the data lies. The nearest training instance of a query under its local
        metric is the one with the largest inner product between its index vector and the query's
        ``query_vectors`` row: d^2 = x^T M(x) x - <query, index>. Any inner-product index can serve
        it.

        With ``case_metrics`` they have 2 d + m + m' + 1 columns, (x_j, q_j, N_j x_j, V_j,
        x_j^T N_j x_j).
        """
        with self._run().limits():
            return self._metric.index_vectors()

    @of_one_fit
    def query_vectors(self, X: Any = None) -> np.ndarray:
        """(2 M(x) x, -w(x)) for every query: (n_queries, d + m); see ``index_vectors``.

        With ``case_metrics``: (2 M(x) x, -w(x), 2 x, -p(x), -1) with p_c(x) = x^T N_c x.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        return follow(self._ask("query_vectors", X), X)

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
        return self._metric.importance(on_host(self.local_weights(X)))

    @of_one_fit
    def average_importance(self) -> np.ndarray:
        """``local_importance`` under the average metric of the training data, (n_features,)."""
        return self._metric.importance(self.weights_.mean(axis=0, dtype=np.float64)[None])[0]

    @of_one_fit
    def explain(self, X: Any = None, n_neighbors: int | None = None) -> Explanation:
        """The prediction of each query, its nearest training cases, and what made them near.

        The squared local distance to each neighbour is split exactly over the features.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances,
            each of which is then left out of its own neighbours
        n_neighbors : neighbours per query; by default the ``n_neighbors`` of the estimator
        """
        squared, neighbors = self._found(X, n_neighbors)
        squared, neighbors = on_host(squared), on_host(neighbors)
        queries = self._fit_X if X is None else self._validate_on_host(X)
        metric = self._metric
        with self._run().limits():
            weights = on_host(metric.weights(None if X is None else queries))
        values = self._fit_X[neighbors]
        if X is None:
            k, how = self._voting()
            voters = squared[:, :k], neighbors[:, :k]
            if neighbors.shape[1] < k:
                voters = self._found(X, k)
            shares = class_shares(metric, None, *voters, self._fit_codes, len(self.classes_), how)
            codes = on_host(shares).argmax(axis=1)
        else:
            codes = on_host(self._shares(queries)).argmax(axis=1)
        unnamed = [f"x{i}" for i in range(queries.shape[1])]
        return Explanation(
            predictions=self.classes_[codes],
            neighbors=neighbors,
            labels=self.classes_[self._fit_codes[neighbors]],
            squared_distances=squared,
            contributions=metric.split(queries, weights, neighbors),
            queries=queries,
            neighbor_values=values,
            importance=metric.importance(weights),
            global_importance=self.average_importance(),
            weights=weights,
            basis_metrics=self.basis_metrics_,
            feature_names=np.asarray(getattr(self, "feature_names_in_", unnamed), dtype=object),
        )
