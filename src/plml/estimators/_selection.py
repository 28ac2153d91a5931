"""Choosing ``regularization`` by cross-validation along a warm-started path."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from plml.backend.arrays import is_tensor, like, on_host
from plml.backend.processes import end_with
from plml.estimators._costs import SELECTION_ITERATIONS, search_cost
from plml.estimators._folds import Split, checked_splits
from plml.estimators._large_margin import METRICS, LargeMarginClassifier
from plml.progress import plan, stage
from plml.solvers.problem import NOTHING_KEPT, Keep

#: The paper's grid for alpha_1.
REGULARIZATIONS = (0.01, 0.1, 1.0, 10.0, 100.0)
#: The stage after all folds, and the one after stage 2 in each.
FINAL_FIT, SCORING = "final fit", "scoring"


class Selection(NamedTuple):
    """The value with the best mean accuracy, and how every value did."""

    regularization: float
    score: float
    results: dict[str, Any]


def select_regularization(
    estimator: LargeMarginClassifier,
    X: np.ndarray,
    y: np.ndarray,
    regularizations: Sequence[float],
    **options: Any,
) -> Selection:
    """The best of the values in ``cross_validate_path``; the larger of equals.

    Parameters
    ----------
    estimator, X, y, options : as in ``cross_validate_path``
    regularizations : positive numbers in any order
    """
    values = _largest_first(regularizations)
    results = cross_validate_path(estimator, X, y, values, **options)
    best = int(results["mean_test_score"].argmax())
    return Selection(float(values[best]), float(results["mean_test_score"][best]), results)


def cross_validate_path(
    estimator: LargeMarginClassifier,
    X: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    *,
    classes: np.ndarray,
    cv: Any,
    tol: float,
    n_jobs: int | None,
    keep: Keep = NOTHING_KEPT,
) -> dict[str, Any]:
    """Accuracy of every value on every fold, in the form of scikit-learn's ``cv_results_``.

    Parameters
    ----------
    estimator : unfitted; its ``regularization`` is not looked at
    X, y : validated instances and class codes
    values : (n_values,) array, largest first
    classes : names of the classes, for messages
    cv : scikit-learn's meaning
    tol : relative gap within the folds
    """
    splits = _kept_splits(
        keep, lambda: checked_splits(cv, X, y, classes, "regularization", estimator.n_neighbors)
    )
    to_do = [i for i in range(len(splits)) if not keep.knows(f"fold {i}")]
    jobs = _fold_paths(estimator, X, y, [splits[i] for i in to_do], values, tol, n_jobs)
    names = [f"cross-validation: fold {i + 1} of {len(splits)}" for i in range(len(splits))]
    costs = dict.fromkeys(names, 0.0)
    for i in to_do:
        train, test = (np.arange(len(y))[rows] for rows in splits[i])
        sizes = len(train), len(test), X.shape[1]
        costs[names[i]] = sum(_fold_costs(estimator, *sizes, values).values())
    plan({**costs, FINAL_FIT: sum(estimator._costs(*X.shape).values())})
    folds = []
    for i, name in enumerate(names):
        with stage(name):
            folds.append(keep.arrays(f"fold {i}", lambda: next(jobs)))
    return _as_results(values, folds)


def _as_results(values: np.ndarray, folds: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    results: dict[str, Any] = {
        "params": [{"regularization": float(value)} for value in values],
        "param_regularization": values,
    }
    for i, (scores, gaps) in enumerate(folds):
        results[f"split{i}_test_score"] = scores
        results[f"split{i}_dual_gap"] = gaps
    scores = np.array([scores for scores, _ in folds])
    results["mean_test_score"] = scores.mean(axis=0)
    results["std_test_score"] = scores.std(axis=0)
    ascending = -results["mean_test_score"]
    results["rank_test_score"] = 1 + np.array([(ascending < score).sum() for score in ascending])
    return results


def _kept_splits(keep: Keep, compute: Callable[[], list[Split]]) -> list[Split]:
    """The same splits after an interruption, even where they are drawn at random."""
    flat = keep.arrays("splits", lambda: tuple(part for split in compute() for part in split))
    return list(zip(flat[::2], flat[1::2], strict=True))


def _fold_paths(
    estimator: LargeMarginClassifier,
    X: np.ndarray,
    y: np.ndarray,
    splits: list[Split],
    values: np.ndarray,
    tol: float,
    n_jobs: int | None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What ``_fold_path`` finds on every split, several at the same time, as they are asked for."""
    n_jobs = 1 if is_tensor(X) else n_jobs  # one GPU
    yield from Parallel(n_jobs=n_jobs, return_as="generator")(
        # Threads are those that the folds at the same time leave each other.
        delayed(_fold_path)(
            clone(estimator).set_params(verbose=0, n_jobs=None),
            X,
            y,
            train,
            test,
            values,
            tol,
            os.getpid(),
        )
        for train, test in splits
    )


def _fold_path(
    estimator: LargeMarginClassifier,
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    values: np.ndarray,
    tol: float,
    employer: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies and gaps of one fold; every value starts where the one before ended."""
    end_with(employer)
    X_train, y_train = X[like(np.arange(len(y))[train], X)], y[train]
    X_test = X[like(np.arange(len(y))[test], X)]
    estimator._remember(on_host(X_train), y_train, np.arange(y.max() + 1))
    sizes = len(X_train), len(X_test), X.shape[1]
    scores, gaps, gamma = [], [], None
    plan(_fold_costs(estimator, *sizes, values))
    with estimator._threads():
        preparation = estimator._prepare(X_train, y_train)
        for value in values:
            with stage(_named(value)):
                plan(_value_costs(estimator, *sizes))
                metrics = estimator._learn_metrics(X_train, preparation, float(value), tol, gamma)
                gamma = metrics.gamma
                with stage(SCORING):
                    estimator._set_fitted(X_train, preparation, metrics)
                    predicted = on_host(estimator._predict_codes(X_test))
            scores.append(np.mean(predicted == y[test]))
            gaps.append(metrics.gap)
    return np.array(scores), np.array(gaps)


def _named(value: float) -> str:
    return f"regularization {value:g}"


def _fold_costs(
    estimator: LargeMarginClassifier, n_train: int, n_test: int, d: int, values: np.ndarray
) -> dict[str, float]:
    """The stages of a fold, with rough seconds."""
    a_value = sum(_value_costs(estimator, n_train, n_test, d).values())
    return {
        **estimator._preparation_costs(n_train, d),
        **dict.fromkeys(map(_named, values), a_value),
    }


def _value_costs(
    estimator: LargeMarginClassifier, n_train: int, n_test: int, d: int
) -> dict[str, float]:
    return {
        METRICS: estimator._metrics_cost(n_train, d, SELECTION_ITERATIONS),
        SCORING: search_cost(n_test, n_train, d + getattr(estimator, "n_bases", 1)),
    }


def _largest_first(regularizations: Sequence[float]) -> np.ndarray:
    """The values as a descending array; refuses an empty or non-positive grid."""
    values = np.asarray(regularizations)
    numbers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iuf"
    if not numbers or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"regularizations must be a non-empty sequence of positive numbers, got "
            f"{regularizations!r}"
        )
    return np.unique(values.astype(np.float64))[::-1]
