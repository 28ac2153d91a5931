"""A prediction does not depend on the batch it is made in, nor on rows that repeat."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from every_estimator import ESTIMATORS

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
WITH_NEIGHBORS = [name for name in ESTIMATORS if name != "KernelSVM"]


def rank_deficient(rng):
    """Labels without a meaning in a plane of nine dimensions."""
    X = rng.normal(size=(90, 2)) @ rng.normal(size=(2, 9))
    return X, rng.integers(0, 3, size=90), X + 0.1 * rng.normal(size=X.shape)


def ties(rng):
    """A small grid: most distances are equal, many rows repeat, with other labels."""
    X = rng.integers(0, 3, size=(120, 3)).astype(float)
    return X, rng.integers(0, 3, size=120), rng.integers(0, 3, size=(60, 3)) + 0.5


def line(rng):
    """Queries half way between rows of a straight line, which is one dimension of three."""
    X = np.repeat(np.arange(27.0), 3).reshape(27, 3)
    return X, rng.integers(0, 3, size=27), X + 0.5


def coincident(rng):
    """All points are the same."""
    return np.ones((40, 3)), np.arange(40) % 2, np.ones((40, 3))


def iris(rng):
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2]


def wide(rng):
    """More features than rows."""
    return rng.normal(size=(30, 60)), np.arange(30) % 3, rng.normal(size=(40, 60))


@pytest.mark.parametrize("data", [rank_deficient, ties, line, coincident, iris, wide])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_by_one_and_in_any_company(rng, name, data):
    X, y, Q = data(rng)
    model = ESTIMATORS[name]().fit(X, y)
    batch = model.predict(Q)
    np.testing.assert_array_equal([model.predict(q[None])[0] for q in Q], batch)
    order = rng.permutation(len(Q))
    np.testing.assert_array_equal(model.predict(Q[order]), batch[order])
    np.testing.assert_array_equal(model.predict(Q[:7]), batch[:7])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PLML", {"max_iter": 2}),
        ("PLML-optimize", {"max_iter": 2}),
        ("PLML-optimize", {"max_iter": 7, "n_bases": 9}),
        ("SML", {"max_iter": 1}),
        ("LMNN", {"max_iter": 1}),
        ("LMNNMM", {"max_iter": 1}),
    ],
)
@pytest.mark.parametrize("data", [rank_deficient, ties, iris])
def test_unconverged_fits(rng, name, options, data):
    X, y, Q = data(rng)
    model = ESTIMATORS[name](**options).fit(X, y)
    one_by_one = [model.predict(q[None])[0] for q in Q]
    np.testing.assert_array_equal(one_by_one, model.predict(Q))


@pytest.mark.parametrize("n_features", [3, 17, 40])
@pytest.mark.parametrize("name", WITH_NEIGHBORS)
def test_rows_that_repeat_are_found_in_their_order(rng, name, n_features):
    """Equal rows are equally far, however the products are cut: the lower number comes first."""
    distinct = rng.normal(size=(20, n_features)) * rng.uniform(0.1, 9, n_features)
    which = rng.permutation(np.repeat(np.arange(20), 4))
    X, y = distinct[which], which % 3
    model = ESTIMATORS[name]().fit(X, y)
    Q = rng.normal(size=(25, n_features))
    distances, neighbors = model.kneighbors(Q, 12)
    for row, far in zip(neighbors, distances, strict=True):
        for start in range(0, 12, 4):
            group = row[start : start + 4]
            assert (X[group] == X[group[0]]).all()
            np.testing.assert_array_equal(group, np.sort(group))
        assert (np.diff(far) >= -1e-9 * far[-1]).all()
    alone = np.concatenate([model.kneighbors(q[None], 12)[1] for q in Q])
    np.testing.assert_array_equal(alone, neighbors)
