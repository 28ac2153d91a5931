"""How gaps in numbers are filled, chosen by cross-validation on the training rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from plml.evaluation.stratified import stratified_folds
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
    table: Any,
    codes: np.ndarray,
    standardize: bool,
    seed: int,
    sample_weight: np.ndarray | None = None,
) -> dict[str, float]:
    """The accuracy of Euclidean neighbours on held-out rows by each way to fill gaps.

    Columns with so few values that a fold has none to learn from are left out; empty where no
    other column is there, or every row is a class of its own.

    Parameters
    ----------
    table : rows as ``TableEncoder.tidied`` gives them
    codes : the classes of the rows
    standardize : of ``TableEncoder``
    seed : of the folds, and of the rows that are taken where there are many
    sample_weight : (n,) how much the rows count, or None
    """
    if len(codes) > _MOST_ROWS:
        rows, _ = train_test_split(np.arange(len(codes)), train_size=_MOST_ROWS, random_state=seed)
        table, codes = taken(table, rows), codes[rows]
        sample_weight = None if sample_weight is None else sample_weight[rows]
    n_folds = min(_FOLDS, int(np.bincount(codes).max()))
    if n_folds < 2:
        return {}
    folds = stratified_folds(codes, n_folds, seed)
    known = _known(table)
    columns = np.flatnonzero(np.all([known[train].any(axis=0) for train, _ in folds], axis=0))
    if not len(columns):
        return {}
    table = table.iloc[:, columns] if hasattr(table, "iloc") else table[:, columns]
    encoders = {fill: TableEncoder(standardize, fill) for fill in FILLS}
    return {fill: _score(table, codes, folds, one, sample_weight) for fill, one in encoders.items()}


def _known(table: Any) -> np.ndarray:
    """(n, n_columns) where a table has values."""
    return table.notna().to_numpy() if hasattr(table, "notna") else ~np.isnan(table)


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
    table: Any,
    codes: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    encoder: TableEncoder,
    sample_weight: np.ndarray | None,
) -> float:
    """The accuracy of Euclidean neighbours at their best number, on held-out rows."""
    hits = np.zeros((len(_NEIGHBORS), len(codes)))
    for train, test in folds:
        known, counts = taken(table, train), None if sample_weight is None else sample_weight[train]
        Z = encoder.fit(known, None, counts).transform(known)
        Q = encoder.transform(taken(table, test))
        for which, k in enumerate(_NEIGHBORS):
            near = KNeighborsClassifier(min(k, len(train)), algorithm="brute").fit(Z, codes[train])
            hits[which, test] = near.predict(Q) == codes[test]
    return float(np.average(hits, axis=1, weights=sample_weight).max())
