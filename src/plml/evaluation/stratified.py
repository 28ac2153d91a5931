"""Parts and folds of labelled rows, with every class in proportion."""

import warnings
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state


def stratified_part(y: np.ndarray, most: int, random_state: Any) -> np.ndarray:
    """Rows to select on: all, or about so many, every class in proportion with at least two.

    Parameters
    ----------
    y : (n,) class codes
    most : of more rows than this, a part is drawn
    random_state : seeds it
    """
    if len(y) <= most:
        return np.arange(len(y))
    order = check_random_state(random_state).permutation(len(y))
    members = [order[y[order] == label] for label in np.unique(y)]
    return np.sort(np.concatenate([m[: max(2, int(most / len(y) * len(m)))] for m in members]))


def stratified_folds(
    labels: np.ndarray, n_folds: int, random_state: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of shuffled folds; a class may have fewer rows than there are folds.

    Parameters
    ----------
    labels : (n,) classes
    n_folds : at least two
    random_state : of the shuffling
    """
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        return list(folds.split(labels, labels))
