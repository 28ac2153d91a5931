"""Multi-class SVM whose kernel and C are selected by inner cross-validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from plml.backend.threads import limit_threads
from plml.baselines.kernel_machines import (
    KernelOver,
    fit_temperature,
    held_out_decisions,
    kernel_values,
    mean_pairwise_distance,
    train_machines,
)
from plml.estimators._fitted_state import of_one_fit, refitted
from plml.estimators._folds import checked_splits, folds_of_kept
from plml.estimators._parameters import Parameters, parameter
from plml.evaluation.stratified import stratified_part
from plml.ops.topk import row_blocks
from plml.validation import (
    query_data,
    refuse_keywords,
    rows_that_count,
    training_data,
    with_class_weight,
)

#: The kernels of the paper's comparison, as parameters of scikit-learn's kernels.
KERNELS: dict[str, dict[str, Any]] = {
    "linear": {"kernel": "linear"},
    "poly2": {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0},
    "poly3": {"kernel": "poly", "degree": 3, "gamma": 1.0, "coef0": 1.0},
    "poly4": {"kernel": "poly", "degree": 4, "gamma": 1.0, "coef0": 1.0},
    "gaussian": {"kernel": "rbf"},
}


@dataclass(kw_only=True, eq=False, repr=False)
class KernelSVM(Parameters, ClassifierMixin, BaseEstimator):
    """One-against-all support vector machine with a selected kernel.

    It solves

        min_{f_c, xi >= 0} ||f_c||^2 / 2 + C sum_i xi_i,   z_i (f_c(x_i) + b_c) >= 1 - xi_i,

    for every class c, where z_i is 1 in the class and -1 outside it. The kernel (linear, polynomial
    of degree 2 to 4, Gaussian with the mean pairwise distance for its width) and C are those with
    the best accuracy in an inner cross-validation.

    Parameters
    ----------
    kernels : sequence of str
        Of "linear", "poly2", "poly3", "poly4", "gaussian".
    Cs : sequence of float
        Values of C.
    cv : int, splitter or iterable
        scikit-learn's meaning; an integer is the number of stratified folds.
    max_selection_samples : int or None
        Select on a random stratified subsample of at most this many rows; None takes all of them.
    max_iter : int
        Maximum number of iterations of one binary machine; -1 sets no limit.
    class_weight : {"balanced"}, dict or None
        Weights of the classes, by which those of the rows, and with them C, are multiplied.
    n_jobs : int or None
        Machines trained in parallel.
    random_state : int, RandomState or None
        Seeds the subsample.

    Attributes
    ----------
    best_params_ : dict
        ``kernel`` and ``C``.
    best_score_ : float
        Their mean accuracy over the folds.
    cv_results_ : dict
        ``params``, ``split{i}_test_score``, ``mean_test_score``.
    width_ : float
        Mean pairwise distance of the training instances.
    scale_ : float
        Root mean squared length of the training instances, by which all are divided: one for rows
        of unit length. With large numbers, polynomial kernels would keep the solver busy forever.
    temperature_ : float
        Divides the decision values before the softmax of ``predict_proba``; fitted on the decision
        values of the held-out folds.
    n_iter_ : int
        Iterations of the binary machine that needed most.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    AutoPLML : Explains its predictions by cases.
    sklearn.svm.SVC : The solver that is used.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import KernelSVM
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(KernelSVM().fit(X, y).score(X, y) > 0.95)
    True
    """

    kernels: Sequence[str] = parameter(tuple(KERNELS), "array-like")
    Cs: Sequence[float] = parameter((0.1, 1.0, 10.0, 100.0), "array-like")
    cv: Any = parameter(2, "cv_object")
    max_selection_samples: int | None = parameter(
        None, Interval(Integral, 10, None, closed="left"), None
    )
    max_iter: int = parameter(1_000_000, Interval(Integral, -1, None, closed="left"))
    n_jobs: int | None = parameter(None, Integral, None)
    class_weight: dict[Any, float] | str | None = parameter(
        None, dict, StrOptions({"balanced"}), None
    )
    random_state: int | np.random.RandomState | None = parameter(None, "random_state")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **unknown: Any) -> Self:
        """Select the kernel and C, then train on all data.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : (n_samples,) class labels
        sample_weight : (n_samples,) by which C is multiplied for a row; one of zero is left out
        """
        refuse_keywords(self, unknown)
        self._validate_params()
        with refitted(self) as model, limit_threads(None):
            model._fit(*rows_that_count(X, y, sample_weight))
        return self

    def _fit(self, X: Any, y: Any, weights: np.ndarray | None, kept: np.ndarray | None) -> None:
        if kept is not None:
            self.kept_rows_ = kept
        X, self.classes_, codes = training_data(self, X, y)
        weights = with_class_weight(weights, self.class_weight, self.classes_, codes)
        kernels, Cs = self._grid()
        self.width_ = mean_pairwise_distance(X, weights)
        squares = np.einsum("nd,nd->n", X, X, dtype=np.float64)
        self.scale_ = float(np.sqrt(np.average(squares, weights=weights))) or 1.0
        X = X / self.scale_
        self._select(X, codes, weights, kernels, Cs)
        kernel = KernelOver(X, self._kernel_parameters(self.best_params_["kernel"]))
        machines = train_machines(
            kernel,
            np.arange(len(X)),
            codes,
            self.best_params_["C"],
            len(self.classes_),
            self.max_iter,
            self.n_jobs,
            weights,
        )
        self._support_vectors = X[machines.support]
        self._coefficients, self._intercepts = machines.coefficients, machines.intercepts
        self.n_iter_ = machines.n_iter

    def add_cases(self, X: Any, y: Any, new_classes: str = "refuse") -> Self:
        """Refused: there are no neighbours.

        Parameters
        ----------
        X, y, new_classes : as in ``PLML``
        """
        raise ValueError("KernelSVM has no neighbours to add cases to; fit it again with them")

    def forget_cases(self, indices: Any) -> Self:
        """Refused: there are no neighbours.

        Parameters
        ----------
        indices : as in ``PLML``
        """
        raise ValueError("KernelSVM has no neighbours to forget; fit it again without these rows")

    @of_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: (n_queries, n_classes), or (n_queries,) where there are two classes.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        values = self._decide(X)
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest decision value.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        return self.classes_[self._decide(X).argmax(axis=1)]

    @of_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Softmax of the decision values over ``temperature_``.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        return softmax(self._decide(X) / self.temperature_, axis=1)

    def _decide(self, X: Any) -> np.ndarray:
        """Decision values; where rounding could decide, those of the query by itself."""
        X = query_data(self, X) / self.scale_
        result = np.empty((len(X), len(self.classes_)))
        with limit_threads(None):
            for block in row_blocks(len(X), len(self._support_vectors)):
                result[block] = self._values(X[block])
            largest, second = -np.partition(-result, 1, axis=1)[:, :2].T
            rounding = np.sqrt(np.finfo(X.dtype).eps) * np.maximum(np.abs(largest), 1.0)
            for row in np.flatnonzero(largest - second <= rounding):
                result[row] = self._values(X[row : row + 1])[0]
        return result

    def _values(self, X: np.ndarray) -> np.ndarray:
        parameters = self._kernel_parameters(self.best_params_["kernel"])
        values = kernel_values(parameters, X, self._support_vectors)
        return values @ self._coefficients + self._intercepts

    def _grid(self) -> tuple[list[str], list[float]]:
        """The kernels and the values of C, each once."""
        kernels, Cs = list(self.kernels), np.asarray(self.Cs)
        unknown = [name for name in kernels if name not in KERNELS]
        if unknown or not kernels:
            raise ValueError(
                f"kernels must be some of {', '.join(KERNELS)}; got {unknown or kernels}"
            )
        if Cs.ndim != 1 or len(Cs) == 0 or Cs.dtype.kind not in "iuf" or not (Cs > 0).all():
            raise ValueError(
                f"Cs must be a non-empty sequence of positive numbers, got {self.Cs!r}"
            )
        if self.max_selection_samples is not None and not isinstance(self.cv, Integral):
            raise ValueError("max_selection_samples needs an integer cv: its rows are subsampled")
        return list(dict.fromkeys(kernels)), list(dict.fromkeys(Cs.astype(float).tolist()))

    def _kernel_parameters(self, name: str) -> dict[str, Any]:
        parameters = KERNELS[name]
        if name == "gaussian":
            parameters = {**parameters, "gamma": 0.5 * (self.scale_ / self.width_) ** 2}
        return parameters

    def _select(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None,
        kernels: list[str],
        Cs: list[float],
    ) -> None:
        """Set the kernel and the C with the best accuracy over the folds, and the temperature."""
        rows = self._selection_rows(y)
        X, y, weights = X[rows], y[rows], None if weights is None else weights[rows]
        cv = folds_of_kept(self.cv, getattr(self, "kept_rows_", None))
        splits = checked_splits(cv, X, y, self.classes_, "kernels and Cs")
        decisions: list[np.ndarray] = []  # on held-out rows, by kernel, C and fold
        for kernel in kernels:
            shared = KernelOver(X, self._kernel_parameters(kernel))  # one Gram matrix per kernel
            decisions += Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(held_out_decisions)(
                    shared, train, test, y, C, len(self.classes_), self.max_iter, weights
                )
                for C in Cs
                for train, test in splits
            )
        truths = [y[test] for _, test in splits]
        counts = [None if weights is None else weights[test] for _, test in splits]
        candidates = [{"kernel": kernel, "C": C} for kernel in kernels for C in Cs]
        right = [
            np.average(decision.argmax(axis=1) == truth, weights=count)
            for decision, truth, count in zip(
                decisions, truths * len(candidates), counts * len(candidates), strict=True
            )
        ]
        scores = np.reshape(right, (len(candidates), len(splits)))
        best = int(scores.mean(axis=1).argmax())
        self.best_params_: dict[str, Any] = candidates[best]
        self.best_score_ = float(scores[best].mean())
        self.cv_results_ = {
            "params": candidates,
            **{f"split{i}_test_score": scores[:, i] for i in range(len(splits))},
            "mean_test_score": scores.mean(axis=1),
        }
        of_best = decisions[best * len(splits) : (best + 1) * len(splits)]
        tested = None if weights is None else np.concatenate([weights[t] for _, t in splits])
        pooled = np.concatenate(of_best), np.concatenate(truths)
        self.temperature_ = fit_temperature(*pooled, tested)

    def _selection_rows(self, y: np.ndarray) -> np.ndarray:
        """All rows, or a subsample with every class in proportion and at least two of each."""
        most = len(y) if self.max_selection_samples is None else self.max_selection_samples
        return stratified_part(y, most, self.random_state)
