"""Generative Local Metric Learning."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from plml.estimators._own import OwnMetricClassifier
from plml.stages.generative import (
    GaussianClasses,
    bias_matrices,
    fit_gaussians,
    generative_metrics,
)


class GLML(OwnMetricClassifier):
    """Nearest-neighbour classification under local metrics from Gaussian models of the classes.

    At every point the metric of unit determinant that minimises the leading term of the
    finite-sample bias of the 1-NN error,

        min_{M > 0, |M| = 1} |tr(M^{-1} B)|,
        B = sum_c Hess p_c(x) sum_{c' != c} p_c'(x) (p_c'(x) - p_c(x)),

    with p_c the Gaussian density of class c times its share of the data. There is nothing to
    iterate: the minimiser is known in closed form from the eigenvalues of B.

    Parameters
    ----------
    shrinkage : float
        Share of a multiple of the identity in every class covariance. The second derivatives of a
        Gaussian grow with the inverse of its smallest variance, so little of it makes the metric
        blind to most directions.
    n_neighbors : int
        Neighbours that vote.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.

    Attributes
    ----------
    means_ : (n_classes, d) array
        Class means.
    precisions_ : (n_classes, d, d) array
        Inverse class covariances.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    References
    ----------
    Y.-K. Noh, B.-T. Zhang, D. D. Lee. Generative Local Metric Learning for Nearest Neighbor
    Classification. NIPS 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import GLML
    >>> X, y = load_iris(return_X_y=True)
    >>> GLML().fit(X, y).score(X, y)
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **OwnMetricClassifier._parameter_constraints,
        "shrinkage": [Interval(Real, 0, 1, closed="right")],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self, *, shrinkage: float = 0.5, n_neighbors: int = 1, n_jobs: int | None = None
    ) -> None:
        self.shrinkage = shrinkage
        self.n_neighbors = n_neighbors
        self.n_jobs = n_jobs

    def _learn(self, X: np.ndarray, y: np.ndarray) -> None:
        model = fit_gaussians(X, y, len(self.classes_), self.shrinkage)
        self.means_, self.precisions_, self._log_constants = model

    def _matrices(self, Q: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        return generative_metrics(bias_matrices(self._model, Q))

    @property
    def _model(self) -> GaussianClasses:
        return GaussianClasses(self.means_, self.precisions_, self._log_constants)
