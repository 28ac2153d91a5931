"""Folds of an inner cross-validation, checked before the work starts."""

import warnings
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

Split = tuple[np.ndarray, np.ndarray]

_CURE = "give the class more rows, or set the parameter instead of selecting it"


def checked_splits(
    cv: Any, X: Any, y: np.ndarray, classes: np.ndarray, n_neighbors: int = 1
) -> list[Split]:
    """Rows to train on and rows to test on, for every fold.

    Parameters
    ----------
    cv : scikit-learn's meaning
    X, y : instances and class codes
    classes : (n_classes,) names of the classes, for messages
    n_neighbors : that vote in a fold
    """
    splits = _split(cv, X, y, classes)
    everyone = np.arange(len(y))
    smallest = min((len(everyone[train]) for train, _ in splits), default=0)
    if smallest <= n_neighbors or any(len(test) == 0 for _, test in splits):
        raise ValueError(
            f"cv gives {len(splits)} folds, the smallest with {smallest} rows to train on; "
            f"every fold needs more than n_neighbors={n_neighbors} training rows and a test row"
        )
    for number, (train, _) in enumerate(splits, 1):
        left = np.unique(y[train])
        if len(left) < 2:
            raise ValueError(
                f"fold {number} of the cross-validation (cv={cv!r}) leaves one class to train on, "
                f"{str(classes[left[0]])!r}; {_CURE}"
            )
    return splits


def _split(cv: Any, X: Any, y: np.ndarray, classes: np.ndarray) -> list[Split]:
    """The folds, with errors that speak of cv and of the classes as the user knows them."""
    try:
        with warnings.catch_warnings():
            # A class that is missing from some fold is no reason to stop.
            warnings.filterwarnings("ignore", "The least populated class")
            found = list(check_cv(cv, y, classifier=True).split(X, y))
    except ValueError as error:
        sizes = np.bincount(y, minlength=len(classes))
        if "n_splits" not in str(error):
            raise
        raise ValueError(
            f"cross-validation with cv={cv!r} needs a class with that many rows; the largest, "
            f"{str(classes[sizes.argmax()])!r}, has {sizes.max()}; {_CURE}"
        ) from error
    return [(np.asarray(train), np.asarray(test)) for train, test in found]
