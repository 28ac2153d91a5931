"""How gaps in numbers are filled, chosen by cross-validation on the training rows."""

import warnings
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier

from plml.preprocessing.table_encoder import FILLS, TableEncoder
from plml.validation import taken

#: Ways to fill gaps, as a reader knows them.
IN_WORDS = {
    "median": "the median",
    "indicator": "the median with a mark",
    "neighbors": "the average of near rows",
}
#: Rows that are compared on, at most.
_MOST_ROWS = 3000
#: Folds, and numbers of neighbours of which the best is taken.
_FOLDS, _NEIGHBORS = 5, (1, 5, 15)


def fill_scores(
    X: Any,
    codes: np.ndarray,
    standardize: bool,
    seed: int,
    sample_weight: np.ndarray | None = None,
) -> dict[str, float]:
    """The accuracy of Euclidean neighbours on held-out rows by each way to fill gaps.

    Parameters
    ----------
    X, codes : the table and the classes of its rows
    standardize : of ``TableEncoder``
    seed : of the folds, and of the rows that are taken where there are many
    sample_weight : (n,) how much the rows count, or None
    """
    rows = np.arange(len(codes))
    if len(rows) > _MOST_ROWS:
        rows, _ = train_test_split(rows, train_size=_MOST_ROWS, random_state=seed)
    counts = None if sample_weight is None else sample_weight[rows]
    encoders = {fill: TableEncoder(standardize, fill) for fill in FILLS}
    return {fill: _score(X, codes, rows, one, seed, counts) for fill, one in encoders.items()}


def fill_line(missing: str, scores: dict[str, float]) -> str:
    """What was chosen, in a line.

    Parameters
    ----------
    missing : the way that was chosen
    scores : of all ways
    """
    tried = ", ".join(f"{IN_WORDS[fill]} {score:.2%}" for fill, score in scores.items())
    return f"missing numbers: {IN_WORDS[missing]}, chosen by Euclidean neighbours ({tried})"


def _score(
    X: Any,
    codes: np.ndarray,
    rows: np.ndarray,
    encoder: TableEncoder,
    seed: int,
    counts: np.ndarray | None,
) -> float:
    """The accuracy of Euclidean neighbours at their best number, on held-out rows."""
    hits = np.zeros((len(_NEIGHBORS), len(rows)))
    n_folds = min(_FOLDS, int(np.bincount(codes[rows]).max()))
    if n_folds < 2:
        return 0.0  # no class has two rows: no way is better than another
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    for train, test in _splits(folds, rows, codes[rows]):
        known = taken(X, rows[train])
        Z = encoder.fit(known, None, None if counts is None else counts[train]).transform(known)
        Q = encoder.transform(taken(X, rows[test]))
        for which, k in enumerate(_NEIGHBORS):
            near = KNeighborsClassifier(min(k, len(train)), algorithm="brute")
            near.fit(Z, codes[rows[train]])
            hits[which, test] = near.predict(Q) == codes[rows[test]]
    return float(np.average(hits, axis=1, weights=counts).max())


def _splits(folds: Any, rows: np.ndarray, labels: np.ndarray) -> Any:
    with warnings.catch_warnings():  # of classes with fewer rows than folds
        warnings.simplefilter("ignore", UserWarning)
        yield from folds.split(rows, labels)
