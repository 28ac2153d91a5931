"""Folds of an inner cross-validation, checked before the work starts."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

Split = tuple[np.ndarray, np.ndarray]


def checked_splits(
    cv: Any,
    X: Any,
    y: np.ndarray,
    classes: np.ndarray,
    selected: str,
    n_neighbors: int = 1,
    instead: str = "",
) -> list[Split]:
    """Rows to train on and rows to test on, for every fold.

    Parameters
    ----------
    cv : scikit-learn's meaning
    X, y : instances and class codes
    classes : (n_classes,) names of the classes, for messages
    selected : what the cross-validation is for
    n_neighbors : that vote in a fold
    instead : what to do without it; by default, to set what is selected
    """
    instead = instead or f"set {selected} yourself"
    splits = _split(cv, X, y, classes, selected, instead)
    everyone = np.arange(len(y))
    smallest = min((len(everyone[train]) for train, _ in splits), default=0)
    if smallest <= n_neighbors or any(len(test) == 0 for _, test in splits):
        raise ValueError(
            f"cv gives {len(splits)} folds, the smallest with {smallest} rows to train on; every "
            f"fold needs more than n_neighbors={n_neighbors} training rows and a test row: "
            f"{_cure('more rows', cv, instead)}"
        )
    for number, (train, _) in enumerate(splits, 1):
        left = np.unique(y[train])
        if len(left) < 2:
            others = np.setdiff1d(np.arange(len(classes)), left)
            sizes = np.bincount(y, minlength=len(classes))
            scarce = ", ".join(f"{str(classes[c])!r} has {sizes[c]}" for c in others[:5])
            raise ValueError(
                f"fold {number} of the cross-validation that selects {selected} has one class to "
                f"train on, {str(classes[left[0]])!r}: of the rows {scarce}; "
                f"{_cure('more of those', cv, instead)}"
            )
    return splits


def folds_of_kept(cv: Any, kept: np.ndarray | None) -> Any:
    """``cv`` for the rows that are left of X, where some were left out.

    Folds that are given speak of rows of X, by their numbers or as masks; a number of folds and a
    splitter see the rows that are left.

    Parameters
    ----------
    cv : scikit-learn's meaning
    kept : (n,) where the rows that are left were in X, or None where all are there
    """
    if kept is None or cv is None or isinstance(cv, Integral) or hasattr(cv, "split"):
        return cv

    def left(rows: Any) -> np.ndarray:
        rows = np.asarray(rows)
        return np.flatnonzero(rows[kept] if rows.dtype == bool else np.isin(kept, rows))

    return [(left(train), left(test)) for train, test in cv]


def _cure(missing: str, cv: Any, instead: str) -> str:
    fewer = f", lower cv={cv}" if isinstance(cv, Integral) and int(cv) > 2 else ""
    return f"give {missing}{fewer}, or {instead}"


def _split(
    cv: Any, X: Any, y: np.ndarray, classes: np.ndarray, selected: str, instead: str
) -> list[Split]:
    """The folds, with errors that speak of the classes as the user knows them."""
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
            f"the cross-validation that selects {selected} needs a class with more rows: the "
            f"largest, {str(classes[sizes.argmax()])!r}, has {sizes.max()}; "
            f"{_cure('more rows', cv, instead)}"
        ) from error
    return [(np.asarray(train), np.asarray(test)) for train, test in found]
