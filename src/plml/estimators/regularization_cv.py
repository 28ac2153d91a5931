"""``regularization`` selected for a classifier of the pipeline, as ``PLMLCV`` does for ``PLML``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import check_device, to_available_device
from plml.estimators._cross_validation import FINAL_FIT
from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._parameters import Parameters
from plml.estimators._selection import REGULARIZATIONS, select_regularization
from plml.ops.span import inside, span_of
from plml.stages.run import Run
from plml.validation import training_data, with_class_weight


@dataclass(eq=False, repr=False)
class RegularizationCV(Parameters, ClassifierMixin, BaseEstimator):
    """A large-margin classifier whose ``regularization`` is selected by cross-validation.

    Parameters
    ----------
    estimator : SML or CBLML
        Its own ``regularization`` is ignored.
    regularizations : sequence of float
        Values to select from.
    cv : int, splitter or iterable
        scikit-learn's meaning.
    selection_tol : float
        Relative gap within the folds.
    n_jobs : int or None
        Folds computed in parallel.

    Attributes
    ----------
    estimator_ : fitted to all rows at the selected value
    best_regularization_, best_score_, cv_results_
        As in ``PLMLCV``.
    classes_ : (n_classes,) array
    """

    estimator: LargeMarginClassifier
    _: KW_ONLY
    regularizations: Sequence[float] = REGULARIZATIONS
    cv: Any = 2
    selection_tol: float = 1e-2
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Select on the rows of X alone, then fit to all of them.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : (n_samples,) class labels
        """
        model = clone(self.estimator)
        check_device(model.device)
        rows, model.classes_, codes = training_data(model, X, y)
        run = Run(n_jobs=self.n_jobs, memory=model.working_memory, verbose=model.verbose)
        with run.shown():
            rows = to_available_device(rows, model.device)
            weights = with_class_weight(None, model.class_weight, model.classes_, codes)
            inner = inside(rows, span_of(rows, model.n_directions, weights))
            selection = select_regularization(model, inner, codes, self, run, weights)
            chosen = clone(self.estimator).set_params(**selection.params)
            with run.stage(FINAL_FIT):
                self.estimator_ = chosen.fit(X, y)
        self.best_regularization_ = selection.params["regularization"]
        self.best_score_ = selection.score
        self.cv_results_ = selection.results
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions of ``estimator_``.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)
