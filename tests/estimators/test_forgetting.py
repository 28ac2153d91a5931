"""What is forgotten is in no byte of a saved model: rows, their numbers, what was made of one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from living import LIVING
from model_bytes import is_in, members
from plml import CBLML, GLML, PLML, load, save
from plml.ops.span import round_center, span_of
from plml.stages.anchors import anchors_without, kmeans_anchors
from plml.stages.graph import scales_without
from plml.stages.neighbors import euclidean_neighbors

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
#: Far from all others: a cluster of its own.
OUTLIER = np.array([31.234567, -17.345678, 23.456789, 41.567891])


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def data(request, rng):
    X, y = load_iris(return_X_y=True)
    X = (X + 0.1 * rng.normal(size=X.shape))[::2]
    X[7] = OUTLIER
    return X.astype(request.param), y[::2]


@pytest.mark.parametrize("name", LIVING)
def test_no_byte_of_a_forgotten_row_is_left(data, name, tmp_path):
    (X, y), path = data, tmp_path / "model.skops"
    frame = pd.DataFrame(X, columns=list("abcd"), index=[f"person-{i:03d}" for i in range(len(X))])
    model = LIVING[name]().fit(frame, y)
    new = pd.DataFrame(
        X[:3] + X.dtype.type(0.01234567), columns=list("abcd"), index=["x", "y", "z"]
    )
    model.add_cases(new, y[:3])
    rows = np.vstack([X[[7, 20]], new.to_numpy()[[1]]])
    private = [float(v) for v in rows.ravel()] + ["person-007", "person-020"]
    save(model, path)
    assert len(is_in(path, private)) == len(private)
    model.predict(frame)
    model.forget_cases([7, 20, len(X) + 1])
    save(model, path)
    assert is_in(path, private) == []
    everything = b"".join(members(path))
    for row in rows:
        assert row.tobytes() not in everything
        assert row.astype(np.float64).tobytes() not in everything
    found = load(path)
    kept = np.delete(np.vstack([X, new.to_numpy()]), [7, 20, len(X) + 1], axis=0)
    np.testing.assert_array_equal(found.training_cases()[0], kept)
    np.testing.assert_array_equal(found.predict_proba(kept), model.predict_proba(kept))


def test_nothing_is_left_where_rows_lie_in_a_span(data, rng, tmp_path):
    X, y = data
    X = (X @ rng.normal(size=(4, 7))).astype(X.dtype)
    model = LIVING["PLML-optimize"]().fit(X, y).forget_cases([7])
    save(model, tmp_path / "m.skops")
    assert is_in(tmp_path / "m.skops", [float(v) for v in X[7]]) == []


@pytest.mark.parametrize("name", LIVING)
def test_no_distance_to_a_forgotten_row_is_left(rng, name, tmp_path):
    """Who knows some distances to a row, and the rows that they are from, knows the row."""
    X, path, gone = rng.normal(size=(60, 2)), tmp_path / "model.skops", [4, 9, 22, 31, 40, 55]
    model = LIVING[name]().fit(X, (X[:, 0] > 0).astype(int)).forget_cases(gone)
    save(model, path)
    distances = np.linalg.norm(np.delete(X, gone, axis=0)[:, None] - X[gone], axis=2)
    assert is_in(path, distances.ravel().tolist()) == []


def test_the_scales_of_the_graph_are_those_of_the_rows_that_stay(rng):
    X = np.round(rng.normal(size=(80, 2)), 1)  # some rows are equal
    scales = np.sqrt(euclidean_neighbors(X, 7)[0][:, 6])
    gone, moved = np.array([3, 17, 40, 41]), np.array([5, 6])
    stay, places = np.setdiff1d(np.arange(80), gone), np.concatenate([X[gone], X[[7, 8]]])
    X[[7, 8]] += 0.5  # the rows 5 and 6 of those that stay
    found = scales_without(scales[stay], X[stay], places, moved)
    expected = np.sqrt(euclidean_neighbors(X[stay], 7)[0][:, 6])
    near = np.linalg.norm(X[stay][:, None] - places, axis=2).min(axis=1) <= scales[stay] + 1e-9
    near[moved] = True
    assert 10 < near.sum() < len(stay)
    np.testing.assert_allclose(found, np.where(near, expected, scales[stay]))


@pytest.mark.parametrize("make", [PLML, CBLML])
def test_a_cluster_of_one(data, make):
    X, y = data
    model = make(n_bases=4, random_state=0).fit(X, y)
    own = np.flatnonzero(np.isclose(model.anchors_, X[7], rtol=1e-6).all(axis=1))
    assert len(own) == 1  # the row itself
    nearest = ((np.delete(X, 7, axis=0) - X[7]) ** 2).sum(axis=1).argmin()
    model.forget_cases([7])
    np.testing.assert_array_equal(model.anchors_[own[0]], np.delete(X, 7, axis=0)[nearest])


def test_anchors_are_the_means_of_the_rows_that_stay(rng):
    X = rng.normal(size=(60, 3)) + 100.0
    found = kmeans_anchors(X, 5, 0)
    stay = np.setdiff1d(np.arange(60), [4, 9, 30])
    anchors = anchors_without(found.centers, X[stay], X[[4, 9, 30]])
    for b in range(5):
        members_of = stay[found.labels[stay] == b]
        touched = np.isin([4, 9, 30], np.flatnonzero(found.labels == b)).any()
        expected = X[members_of].mean(axis=0) if touched else found.centers[b]
        np.testing.assert_allclose(anchors[b], expected)


def test_the_densities_are_those_of_the_rows_that_stay(data):
    X, y = data
    model = GLML(metric_shrinkage=0.5).fit(X, y).add_cases(X[:2] + X.dtype.type(0.1), y[:2])
    model.forget_cases([7, 40])
    expected = GLML(metric_shrinkage=0.5).fit(np.delete(X, [7, 40], axis=0), np.delete(y, [7, 40]))
    np.testing.assert_allclose(model.means_, expected.means_)
    np.testing.assert_allclose(model.precisions_, expected.precisions_)


def test_the_center_gives_no_row_away(rng):
    """Who knows all other rows and the mean knows the row; the center is a round number near it."""
    X = rng.normal(size=(50, 6)) * 10.0 ** np.arange(-3, 3) + 7.0
    center, spread = round_center(X), X.std(axis=0)
    assert (np.abs(center - X.mean(axis=0)) <= spread / 16.0).all()
    steps = 8.0 * center / 2.0 ** np.floor(np.log2(spread))
    np.testing.assert_array_equal(steps, np.round(steps))
    other = X.copy()
    other[3] += 0.5 * spread
    assert (round_center(other) == center).mean() > 0.5
    constant = np.column_stack([X, np.full(50, 3.3)])
    assert round_center(constant)[-1] == 3.3
    flat = X @ rng.normal(size=(6, 9))
    span = span_of(flat)
    np.testing.assert_allclose(span.points(span.coordinates(flat)), flat, rtol=1e-9, atol=1e-9)
