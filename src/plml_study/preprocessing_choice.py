"""The preprocessing of a data set selected on its training part, for ``AutoPLML``."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from plml import AutoPLML
from plml_study.protocols import REDUCED, preprocessing

#: Rows that the preprocessing is selected on.
SELECTION_ROWS = 3000


def preprocessings(name: str) -> dict[str, Pipeline]:
    """The paper's, and the three that it is made of."""

    def reduced(*steps: Any) -> Pipeline:
        reduction = [PCA(0.95, svd_solver="covariance_eigh")] if name in REDUCED else []
        return make_pipeline(*(steps or [FunctionTransformer()]), *reduction)

    return {
        "paper": preprocessing(name),
        "standardised": reduced(StandardScaler()),
        "unit rows": reduced(Normalizer()),
        "as it is": reduced(),
    }


class SelectedPreprocessing(ClassifierMixin, BaseEstimator):
    """The preprocessing under which one metric does best in cross-validation, then the estimator.

    Parameters
    ----------
    estimator : AutoPLML
    name : of the data set

    Attributes
    ----------
    best_preprocessing_ : str
    scores_ : dict of float, cross-validated accuracies by preprocessing
    pipeline_ : fitted preprocessing
    estimator_ : fitted to all rows
    """

    def __init__(self, estimator: AutoPLML, name: str) -> None:
        self.estimator = estimator
        self.name = name

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Select on some rows of X alone, then fit to all of them."""
        rows = np.arange(len(X))
        if len(X) > SELECTION_ROWS:
            rows, _ = train_test_split(
                rows,
                train_size=SELECTION_ROWS,
                stratify=y,
                random_state=self.estimator.random_state,
            )
        candidates = preprocessings(self.name)
        quick = clone(self.estimator).set_params(metrics=("prior", "one"))
        self.scores_ = {
            name: float(clone(quick).fit(pipeline.fit_transform(X[rows]), y[rows]).best_score_)
            for name, pipeline in candidates.items()
        }
        self.best_preprocessing_ = max(self.scores_, key=self.scores_.__getitem__)
        self.pipeline_ = candidates[self.best_preprocessing_]
        self.estimator_ = clone(self.estimator).fit(self.pipeline_.fit_transform(X), y)
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predictions of ``estimator_``."""
        return self.estimator_.predict(self.pipeline_.transform(X))
