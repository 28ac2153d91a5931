import numpy as np
import pytest
from sklearn.datasets import load_wine, make_classification
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import scale

from plml.evaluation.rivals import EUCLIDEAN, LARGEST, TUNED, rivals, tuned_neighbors


@pytest.fixture(scope="module")
def noisy():
    X, y = make_classification(300, 6, n_informative=3, flip_y=0.2, random_state=1)
    return scale(X), y


def test_the_tuned_neighbours_are_the_best_of_a_plain_cross_validation(noisy):
    X, y = noisy
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    scores = {
        (k, weights): cross_val_score(KNeighborsClassifier(k, weights=weights), X, y, cv=folds)
        for k in (1, 3, 5, 9, 13, 19, 27, 41, 61)
        for weights in ("uniform", "distance")
    }
    found = tuned_neighbors(X, y, 3)
    mine = scores[found["n_neighbors"], found["weights"]].mean()
    assert mine == pytest.approx(max(score.mean() for score in scores.values()))
    assert mine > scores[1, "uniform"].mean()  # so that there was something to choose


def test_shares_are_those_of_naive_loops():
    X, y = load_wine(return_X_y=True)
    X = scale(X)
    answers = rivals(X[::2], y[::2])
    queries, train, codes = X[1::2][:20], X[::2], y[::2]
    for query, shares in zip(queries, answers[EUCLIDEAN](queries), strict=True):
        nearest = np.argsort(np.linalg.norm(train - query, axis=1))[:5]
        assert shares == pytest.approx([np.mean(codes[nearest] == c) for c in range(3)])
    constant = answers[LARGEST](queries)
    assert constant[7] == pytest.approx([np.mean(codes == c) for c in range(3)])
    assert np.ptp(constant, axis=0).max() == 0
    assert answers[TUNED](queries).shape == (20, 3)


@pytest.mark.parametrize("codes", [[0, 1], [0, 0, 1], [0, 0, 0, 0, 1, 2]])
def test_few_rows_are_enough(codes):
    codes = np.array(codes)
    rows = np.arange(float(len(codes)))[:, None]
    for answer in rivals(rows, codes).values():
        assert answer(rows) @ np.ones(codes.max() + 1) == pytest.approx(np.ones(len(rows)))
