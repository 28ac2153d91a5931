"""All features on one scale, their ratios kept."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data


class MeanNormScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Divide everything by one number, so that the training rows have a mean square norm of one.

    Directions and ratios stay as they are. ``PLML``, ``SML`` and ``CBLML`` do it themselves
    (``rescale``); it is for learners whose parameters depend on the scale of the rows.

    Attributes
    ----------
    scale_ : float
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Measure the scale.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : ignored
        """
        X = validate_data(self, X, dtype=(np.float64, np.float32))
        largest = float(np.abs(X).max(initial=0.0)) or 1.0
        mean_square = float(np.sum(np.square(X / largest), dtype=np.float64)) / len(X)
        self.scale_ = largest * float(np.sqrt(mean_square)) or 1.0
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Divide.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        return validate_data(self, X, dtype=(np.float64, np.float32), reset=False) / self.scale_

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Multiply.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        return check_array(X, dtype=(np.float64, np.float32)) * self.scale_
