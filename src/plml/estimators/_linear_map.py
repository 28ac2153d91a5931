"""One metric for the whole space is a linear map, and so the classifier is a transformer, too."""

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import like
from plml.estimators._fitted_state import of_one_fit
from plml.estimators._neighbor_classifier import follow
from plml.ops.projections import psd_factor


class LinearMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin for classifiers with one basis metric, M = components_^T components_.

    The host calls ``_set_components`` once the metric is known.
    """

    components_: np.ndarray
    basis_metrics_: np.ndarray

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
        check_is_fitted(self)
        queries = self._validate_queries(X)
        with self._run().limits():
            return follow(queries @ like(self.components_.T, queries, queries.dtype), X)

    def _set_components(self) -> None:
        M = self.basis_metrics_[0]
        tolerance = len(M) * float(np.finfo(M.dtype).eps)
        self.components_ = np.ascontiguousarray(psd_factor(M, rank_tolerance=tolerance))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
