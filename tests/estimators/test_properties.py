"""What must not matter: the order of rows, classes and features, and the axes themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from plml import PLML, SML
from plml.stages.graph import graph_laplacian, similarity_graph
from plml.stages.metrics import learn_metrics
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors
from plml.stages.search import LocalMetricIndex
from plml.stages.triplets import neighbor_triplets
from plml.stages.weights import WeightProblem, learn_weights, row_terms

OPTIONS = {"n_bases": 3, "tol": 1e-6, "max_iter": 20_000, "random_state": 0}
seeds = st.integers(0, 10_000)


def sample(seed, n=36, d=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 2.0 * np.eye(3, d)[y]
    Q = rng.normal(size=(12, d)) + 0.5
    return rng, X, y, Q


def fit_stages(X, y, U):
    """The method with its anchors given: k-means alone may depend on the order of the rows."""
    L = graph_laplacian(similarity_graph(*euclidean_neighbors(X, 7), 6))
    weights = learn_weights(
        WeightProblem(row_terms(X, U, 1.0), U, 100.0, L), solver="auto", tol=1e-8, max_iter=20_000
    )
    triplets = neighbor_triplets(ExactNeighbors(X, y), 3, 3)
    metrics = learn_metrics(
        X, weights.x, triplets, 1.0, 1.0, solver="auto", tol=1e-6, max_iter=20_000
    )
    return weights, metrics


@given(seeds)
def test_order_of_rows(seed):
    rng, X, y, Q = sample(seed)
    U = X[[0, 1, 2]]
    order = rng.permutation(len(X))
    weights, metrics = fit_stages(X, y, U)
    weights_p, metrics_p = fit_stages(X[order], y[order], U)
    assert weights_p.value == pytest.approx(weights.value, rel=1e-7)
    assert metrics_p.objective == pytest.approx(metrics.objective, rel=1e-5)
    nearest = euclidean_neighbors(X, 1, Q)[1][:, 0]
    where = np.argsort(order)
    np.testing.assert_allclose(weights_p.x[where], weights.x, atol=1e-2)
    found = LocalMetricIndex(X, metrics.M).search(Q, weights.x[nearest], 1)[1]
    found_p = LocalMetricIndex(X[order], metrics.M).search(Q, weights.x[nearest], 1)[1]
    np.testing.assert_array_equal(order[found_p], found)


@given(seeds)
def test_names_of_classes(seed):
    _, X, y, Q = sample(seed)
    renamed = np.array(["zebra", "ape", "mule"])
    model, other = PLML(**OPTIONS).fit(X, y), PLML(**OPTIONS).fit(X, renamed[y])
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-5)
    agree = renamed[model.predict(Q)] == other.predict(Q)
    assert agree.mean() >= 11 / 12  # gammas are summed in another order


@given(seeds)
def test_order_of_features(seed):
    rng, X, y, Q = sample(seed)
    order = rng.permutation(3)
    model, other = SML(tol=1e-7, max_iter=20_000), SML(tol=1e-7, max_iter=20_000)
    model.fit(X, y)
    other.fit(X[:, order], y)
    assert other.objective_ == pytest.approx(model.objective_, rel=1e-6)
    permuted = model.basis_metrics_[0][np.ix_(order, order)]
    np.testing.assert_allclose(other.basis_metrics_[0], permuted, atol=1e-2)
    assert (model.predict(Q) == other.predict(Q[:, order])).mean() >= 11 / 12


@given(seeds)
def test_rotation_of_the_feature_space(seed):
    rng, X, y, _ = sample(seed)
    R = ortho_group.rvs(3, random_state=rng)
    U = X[[0, 1, 2]]
    weights, metrics = fit_stages(X, y, U)
    weights_r, metrics_r = fit_stages(X @ R, y, U @ R)
    assert weights_r.value == pytest.approx(weights.value, rel=1e-6)
    assert metrics_r.objective == pytest.approx(metrics.objective, rel=1e-5)
    back = R @ metrics_r.M @ R.T
    scale = np.abs(metrics.M).max()
    np.testing.assert_allclose(back, metrics.M, atol=2e-2 * scale)


@given(seeds, st.integers(2, 9))
def test_duplicated_rows(seed, copies):
    _, X, y, Q = sample(seed, n=12)
    X_d, y_d = np.repeat(X, copies, axis=0), np.repeat(y, copies)
    model = PLML(n_bases=3, random_state=0).fit(X_d, y_d)
    assert np.isfinite(model.basis_metrics_).all()
    assert model.dual_gap_ <= model.tol
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), y)
    # Ties between copies go to the first of them: a query's neighbours are its copies in order.
    distances, indices = model.kneighbors(Q, copies)
    assert (indices // copies == indices[:, :1] // copies).all()
    np.testing.assert_array_equal(indices % copies, np.tile(np.arange(copies), (len(Q), 1)))
    np.testing.assert_allclose(distances, np.repeat(distances[:, :1], copies, axis=1), rtol=1e-9)
