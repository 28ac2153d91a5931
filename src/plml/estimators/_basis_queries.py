"""The questions that a convex combination of basis metrics can answer."""

from typing import Any

import numpy as np

from plml.estimators._fitted_state import of_one_fit
from plml.estimators._metric_queries import MetricQueries, follow
from plml.validation import case_numbers


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
    def index_vectors(self, rows: Any = None) -> np.ndarray:
        """(x_j, q_j) for every case, q_jb = x_j^T M_b x_j: (n_cases, d + m).

        Points are relative to a round number near the mean of the training instances. This keeps
        the products accurate wherever the data lies, and the number stays the same when cases come
        and go. The nearest training instance of a query under its local metric is the one with the
        largest inner product between its index vector and the query's ``query_vectors`` row: d^2 =
        x^T M(x) x - <query, index>. Any inner-product index can serve it.

        With ``case_metrics`` they have 2 d + m + m' + 1 columns, (x_j, q_j, N_j x_j, V_j,
        x_j^T N_j x_j).

        Parameters
        ----------
        rows : (n,) numbers of some cases, such as those that were added; None for all
        """
        if rows is not None:
            rows = case_numbers(rows, len(self._fit_X))
        with self._run().limits():
            return self._metric.index_vectors(rows)

    @of_one_fit
    def query_vectors(self, X: Any = None) -> np.ndarray:
        """(2 M(x) x, -w(x)) for every query: (n_queries, d + m); see ``index_vectors``.

        With ``case_metrics``: (2 M(x) x, -w(x), 2 x, -p(x), -1) with p_c(x) = x^T N_c x.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        return follow(self._ask("query_vectors", X), X)
