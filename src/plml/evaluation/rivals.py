"""What a learned metric has to beat: one answer for all rows, and neighbours without a metric."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from plml.evaluation.stratified import stratified_folds, stratified_part
from plml.stages.search import inverse_distances, nested_votes

#: Names of the rivals.
RIVALS = TUNED, EUCLIDEAN, LARGEST = "tuned kNN", "Euclidean 5-NN", "largest class"
#: What the tuned one is.
TUNING = f"{TUNED}: Euclidean neighbours, their number and weights selected on the training rows"
#: What the tuned one is chosen from, in folds of at most so many rows.
_NEIGHBORS = (1, 3, 5, 9, 13, 19, 27, 41, 61)
_WEIGHTS = ("uniform", "distance")
_MOST_ROWS = 4000
_FOLDS = 5

#: From rows to the (n, n_classes) shares of the classes.
Answer = Callable[[np.ndarray], np.ndarray]


def rivals(rows: np.ndarray, codes: np.ndarray, random_state: int = 0) -> dict[str, Answer]:
    """Trained on the rows that a metric was learned from, and on nothing else.

    Parameters
    ----------
    rows : (n, d) array, standardised
    codes : (n,) classes as 0, 1, ..., all of them present
    random_state : of the folds in which the tuned one is chosen
    """
    plain = KNeighborsClassifier(min(5, len(rows)), algorithm="brute").fit(rows, codes)
    tuned = KNeighborsClassifier(algorithm="brute", **tuned_neighbors(rows, codes, random_state))
    frequencies = np.bincount(codes) / len(codes)
    return {
        TUNED: tuned.fit(rows, codes).predict_proba,
        EUCLIDEAN: plain.predict_proba,
        LARGEST: lambda queries: np.tile(frequencies, (len(queries), 1)),
    }


def tuned_neighbors(rows: np.ndarray, codes: np.ndarray, random_state: int = 0) -> dict[str, Any]:
    """``n_neighbors`` and ``weights`` with the best accuracy in five folds of the rows.

    Parameters
    ----------
    rows, codes, random_state : as in ``rivals``; of more than 4,000 rows a stratified part is used
    """
    part = stratified_part(codes, _MOST_ROWS, random_state)
    rows, codes = rows[part], codes[part]
    n_folds = min(_FOLDS, int(np.bincount(codes).max()))
    if n_folds < 2:  # every row a class of its own
        return {"n_neighbors": 1, "weights": "uniform"}
    folds = stratified_folds(codes, n_folds, random_state)
    fewest = min(len(train) for train, _ in folds)
    sizes = [k for k in _NEIGHBORS if k <= fewest]
    scores = sum(_accuracies(rows, codes, *fold, sizes) for fold in folds)
    size, weights = np.unravel_index(np.argmax(scores), (len(sizes), len(_WEIGHTS)))
    return {"n_neighbors": sizes[size], "weights": _WEIGHTS[weights]}


def _accuracies(
    rows: np.ndarray, codes: np.ndarray, train: np.ndarray, test: np.ndarray, sizes: list[int]
) -> np.ndarray:
    """(n_sizes, n_weights) on the test rows, from one search for the most neighbours."""
    search = NearestNeighbors(n_neighbors=max(sizes), algorithm="brute").fit(rows[train])
    distances, nearest = search.kneighbors(rows[test])
    near, n_classes = codes[train][nearest], int(codes.max()) + 1
    votes = [
        nested_votes(near, n_classes, sizes, weights)
        for weights in (None, inverse_distances(distances**2))
    ]
    return np.array(
        [[np.mean(v.argmax(axis=1) == codes[test]) for v in shares] for shares in votes]
    ).T
