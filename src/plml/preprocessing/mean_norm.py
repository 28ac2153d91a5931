"""All features on one scale, their ratios kept."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)


class MeanNormScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Divide everything by one number, so that the training rows have a mean square norm of one.

    Directions and ratios do not change. ``PLML``, ``SML`` and ``CBLML`` do this themselves
    (``rescale``); the scaler is for learners whose parameters depend on the scale of the rows.

    Attributes
    ----------
    scale_ : float

    Examples
    --------
    >>> import numpy as np
    >>> from plml.preprocessing import MeanNormScaler
    >>> MeanNormScaler().fit_transform(np.array([[3.0, 4.0], [-3.0, 4.0]]))
    array([[ 0.6,  0.8],
           [-0.6,  0.8]])
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Measure the scale of the training rows.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : ignored
        sample_weight : (n_samples,) how often a row counts, once by default
        """
        X = validate_data(self, X, dtype=(np.float64, np.float32))
        largest = float(np.abs(X).max(initial=0.0)) or 1.0
        squares = np.square(X / largest)
        if sample_weight is None:
            mean_square = float(np.sum(squares, dtype=np.float64)) / len(X)
        else:
            counts = _check_sample_weight(sample_weight, X, dtype=np.float64)
            mean_square = float(np.average(squares.sum(axis=1), weights=counts))
        self.scale_ = largest * float(np.sqrt(mean_square)) or 1.0
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Divide the rows by the scale.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        return validate_data(self, X, dtype=(np.float64, np.float32), reset=False) / self.scale_

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Multiply the rows by the scale.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        return check_array(X, dtype=(np.float64, np.float32)) * self.scale_
