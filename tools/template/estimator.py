"""Template: nearest neighbours where the classes vary little."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
from plml.baselines.template_learning import learn_template
from sklearn.utils._param_validation import Interval

from plml.backend.arrays import Array
from plml.estimators._linear_map import LinearMap
from plml.estimators._neighbor_classifier import NeighborClassifier
from plml.estimators._parameters import parameter
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class Template(LinearMap, NeighborClassifier):
    """Nearest-neighbour classification under the inverse of the scatter within the classes,

        argmin_{M > 0} tr(M S) - log det M = S^{-1},

    with S the mean squared deviation from the class mean, shrunk towards a multiple of I.

    Parameters
    ----------
    shrinkage : float
        How far S is shrunk, above zero and at most one.
    n_neighbors : int
        Neighbours that vote.
    vote : {"uniform", "distance"}
        As in ``PLML``.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.

    Attributes
    ----------
    components_ : (rank, d) array
        The linear map of the metric, ``M = components_^T components_``.
    basis_metrics_ : (1, d, d) array
        The metric M.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    SML : One metric that is learned from triplets.

    References
    ----------
    Who described it, and where.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import Template
    >>> X, y = load_iris(return_X_y=True)
    >>> Template().fit(X, y).score(X, y)
    1.0
    """

    shrinkage: float = parameter(0.1, Interval(Real, 0, 1, closed="right"))

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        M = learn_template(X, y, self._fit_weights, shrinkage=self.shrinkage)
        self._set_metric(M[None])
