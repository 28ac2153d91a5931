"""Generative Local Metric Learning."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from plml.backend.arrays import Array
from plml.baselines.generative import (
    GaussianClasses,
    bias_matrices,
    fit_gaussians,
    generative_metrics,
    shrunk_predictions,
)
from plml.estimators._folds import checked_splits, folds_of_kept
from plml.estimators._neighbor_classifier import NeighborClassifier
from plml.estimators._parameters import COUNT, parameter
from plml.metric.query_metric import QueryMetric
from plml.ops.span import inside, inward, outward
from plml.stages.own_metric_search import OwnMetricIndex
from plml.stages.run import Run

#: What ``metric_shrinkage="cv"`` chooses from.
METRIC_SHRINKAGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)


@dataclass(kw_only=True, eq=False, repr=False)
class GLML(NeighborClassifier):
    """Nearest-neighbour classification under local metrics from Gaussian models of the classes.

    At every point, the metric of unit determinant minimises the leading term of the finite-sample
    bias of the 1-NN error,

        min_{M > 0, |M| = 1} |tr(M^{-1} B)|,
        B = sum_c Hess p_c(x) sum_{c' != c} p_c'(x) (p_c'(x) - p_c(x)),

    where p_c is the Gaussian density of class c times its share of the data. Nothing is iterated:
    the minimiser has a closed form in the eigenvalues of B. In many dimensions these span many
    orders of magnitude, and the metric is blind to most directions; it is then shrunk towards the
    identity, by an amount that cross-validation on the training rows selects.

    Parameters
    ----------
    shrinkage : float
        Share of a multiple of the identity in every class covariance. The second derivatives of a
        Gaussian grow with the inverse of its smallest variance.
    metric_shrinkage : float or "cv"
        s in [0, 1]: the metric used is M^(1 - s), of unit determinant as M is. Zero is the metric
        as published, one is Euclidean; ``"cv"`` selects it.
    cv : int, splitter or iterable
        Folds of that selection, in scikit-learn's meaning.
    max_selection_samples : int
        The most held-out rows that the selection classifies, over all folds.
    n_neighbors : int
        Neighbours that vote.
    vote : {"uniform", "distance"}
        As in ``PLML``.
    class_weight, weigh_votes
        As in ``PLML``; the Gaussians are weighted.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    random_state : int, RandomState or None
        Seeds the choice of these rows.

    Attributes
    ----------
    metric_shrinkage_ : float
        The value used; of equally accurate ones, the smallest.
    cv_results_ : dict of arrays
        ``param_metric_shrinkage`` and ``mean_test_score``, with ``metric_shrinkage="cv"``.
    means_ : (n_classes, d) array
        Class means.
    precisions_ : (n_classes, d, d) array
        Inverse class covariances.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    DANN : Local metrics from the neighbourhood of the query.
    PLML : Local metrics that are learned.

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

    shrinkage: float = parameter(0.5, Interval(Real, 0, 1, closed="right"))
    metric_shrinkage: float | str = parameter(
        "cv", Interval(Real, 0, 1, closed="both"), StrOptions({"cv"})
    )
    cv: Any = parameter(2, "cv_object")
    max_selection_samples: int = parameter(1000, COUNT)
    random_state: int | np.random.RandomState | None = parameter(None, "random_state")

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        self._set_densities(X, y, self.classes_, self._fit_weights)
        if self.metric_shrinkage == "cv":
            scores = self._cross_validate(X, y)
            self.metric_shrinkage_ = float(METRIC_SHRINKAGES[scores.argmax()])
            self.cv_results_ = {
                "param_metric_shrinkage": np.array(METRIC_SHRINKAGES),
                "mean_test_score": scores,
            }
        else:
            self.metric_shrinkage_ = float(self.metric_shrinkage)

    def _cross_validate(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Accuracy of every value on held-out rows, all of them or a random part."""
        cv = folds_of_kept(self.cv, getattr(self, "kept_rows_", None))
        splits = checked_splits(cv, X, y, self.classes_, "metric_shrinkage", self.n_neighbors)
        random = check_random_state(self.random_state)
        share = self.max_selection_samples / sum(len(test) for _, test in splits)
        exponents = 1.0 - np.array(METRIC_SHRINKAGES)
        correct, tested_weight = np.zeros(len(exponents)), 0.0
        weights = np.ones(len(X)) if self._fit_weights is None else self._fit_weights
        for train, test in splits:
            n_rows = max(1, int(min(share, 1.0) * len(test)))
            tested = random.permutation(test)[:n_rows]
            present, codes = np.unique(y[train], return_inverse=True)
            counts = weights[train]
            model = fit_gaussians(X[train], codes, len(present), self.shrinkage, counts)
            how = exponents, self.n_neighbors, counts if self.weigh_votes else None
            predicted = present[shrunk_predictions(model, X[train], codes, X[tested], *how)]
            correct += (predicted == y[tested]) @ weights[tested]
            tested_weight += weights[tested].sum()
        return correct / tested_weight

    def _set_densities(
        self, X: Array, y: np.ndarray, classes: np.ndarray, sample_weight: np.ndarray | None
    ) -> None:
        """Set one Gaussian for each of some classes, from rows in their span, codes and weights."""
        means, precisions, self._log_constants = fit_gaussians(
            X, y, len(classes), self.shrinkage, sample_weight
        )
        span = self._span
        self.means_ = means if span is None else span.points(means)
        self.precisions_ = outward(precisions, span)
        self._density_classes = classes

    def _take_classes(self, classes: np.ndarray) -> None:
        if "_density_classes" not in vars(self):  # older files do not say so
            self._density_classes = self.classes_
        super()._take_classes(classes)

    def _forget_statistics(self, gone: np.ndarray, moved: np.ndarray) -> None:
        """The densities are those of what is left of the rows that were learned from.

        A class of which none is left has that of its added cases.
        """
        classes = vars(self).get("_density_classes", self.classes_)
        known = np.searchsorted(self.classes_, classes)
        fitted = np.arange(len(self._fit_X)) < self._n_learned
        for code in known:
            members = self._fit_codes == code
            fitted |= members & ~(members & fitted).any()
        rows, codes = self._fit_X[fitted], self._fit_codes[fitted]
        kept = np.isin(codes, known)
        rows, codes = inside(rows[kept], self._span), np.searchsorted(known, codes[kept])
        weights = self._fit_weights
        counts = None if weights is None else weights[fitted][kept]
        self._set_densities(rows, codes, classes, counts)

    def _make_metric(self) -> QueryMetric:
        rows, origin = inside(self._fit_X, self._span), self._placed_origin()
        return self._metric_on(OwnMetricIndex(rows, origin))

    def _metric_after(self, before: QueryMetric, left_out: np.ndarray) -> QueryMetric:
        return self._metric_on(before.index_after(self._fit_X, left_out))

    def _metric_on(self, index: OwnMetricIndex) -> QueryMetric:
        model = GaussianClasses(
            inside(self.means_, self._span),
            inward(self.precisions_, self._span),
            self._log_constants,
        )
        # Models of before this parameter have the metric as published.
        exponent = 1.0 - getattr(self, "metric_shrinkage_", 0.0)

        def matrices(Q: np.ndarray, own: np.ndarray | None) -> np.ndarray:
            return generative_metrics(bias_matrices(model, Q), exponent)

        return QueryMetric(self._fit_X, index, matrices, 4 * self.n_features_in_**2, self._span)
