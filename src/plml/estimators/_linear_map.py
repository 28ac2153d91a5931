"""One metric for the whole space is a linear map, and so the classifier is also a transformer."""

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from plml.backend.arrays import like
from plml.estimators._basis_queries import BasisMetricQueries
from plml.estimators._fitted_state import of_one_fit
from plml.estimators._metric_queries import follow
from plml.metric.basis_metric import BasisMetric
from plml.metric.weight_rules import SingleMetric
from plml.ops.projections import psd_factor


class LinearMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BasisMetricQueries):
    """Mixin for classifiers with one basis metric, M = components_^T components_."""

    components_: np.ndarray

    @of_one_fit
    def transform(self, X: Any) -> np.ndarray:
        """Map points so that the Euclidean distance is the learned one.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame

        Returns
        -------
        (n_queries, rank of the metric) array
        """
        queries = self._validate_queries(X)
        with self._run().limits():
            return follow(queries @ like(self.components_.T, queries, queries.dtype), X)

    def _set_metric(self, M: np.ndarray) -> None:
        """Set the fitted attributes from the metric (1, r, r) in the span of the rows."""
        self.basis_metrics_ = self._outward(M)
        self.weights_ = np.ones((len(self._fit_X), 1), dtype=self._fit_X.dtype)
        self._set_components()

    def _set_components(self) -> None:
        M = self.basis_metrics_[0]
        tolerance = len(M) * float(np.finfo(M.dtype).eps)
        self.components_ = np.ascontiguousarray(psd_factor(M, rank_tolerance=tolerance))

    def _make_metric(self) -> BasisMetric:
        return BasisMetric(
            self._fit_X,
            self.weights_,
            self.basis_metrics_,
            SingleMetric(),
            center=self._origin,
            span=self._span,
            device=self.device,
            approximate=self.search_backend == "approximate",
        )

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
