"""The linear vote against ridge regression, for every kind of metric."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge

from plml import DANN, LMNNMM, PLML, SML
from plml.metric.votes import RIDGE, class_shares, linear_shares
from plml.ops import topk
from plml.ops.distances import reconstruction_weights
from plml.ops.projections import psd_factor
from plml.stages.search import inverse_distances, nested_votes, vote

K = 12


def by_ridge_regression(query, rows, labels, metric, n_classes):
    """Fit the classes of the neighbours by affine functions under the metric, and read them off."""
    Z = (rows - query) @ psd_factor(metric).T
    penalty = RIDGE * np.sum(Z**2) / len(Z)
    model = Ridge(alpha=penalty).fit(Z, np.eye(n_classes)[labels])
    raw = np.maximum(model.predict(np.zeros((1, Z.shape[1])))[0], 0.0)
    return raw / raw.sum()


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2] + 0.05


@pytest.mark.parametrize(
    "model",
    [
        SML(),
        PLML(n_bases=3, random_state=0),
        PLML(n_bases=3, case_metrics="class", pull=0.1, random_state=0),
        DANN(),
        LMNNMM(),
    ],
    ids=lambda model: f"{type(model).__name__}{getattr(model, 'case_metrics', '') or ''}",
)
def test_it_is_ridge_regression_on_the_neighbours(model, iris):
    X, y, Q = iris
    model = model.set_params(n_neighbors=K, vote="linear").fit(X, y)
    found, shares = model.kneighbors(Q, return_distance=False), model.predict_proba(Q)
    for i in range(0, len(Q), 7):
        metric = _metric_between(model, X, y, Q[i : i + 1], found[i])
        expected = by_ridge_regression(Q[i], X[found[i]], y[found[i]], metric, 3)
        np.testing.assert_allclose(shares[i], expected, atol=1e-8)


def _metric_between(model, X, y, query, cases):
    """At the query, or the average of those at its cases."""
    if isinstance(model, LMNNMM):
        return model.basis_metrics_[model.metric_of_[cases]].mean(axis=0)
    if getattr(model, "case_metrics", None) is None:
        return model.get_mahalanobis_matrix(query)[0]
    at_query = np.einsum("b,bde->de", model.local_weights(query)[0], model.basis_metrics_)
    return at_query + model.case_metrics_[y[cases]].mean(axis=0)


def test_weights_make_up_the_query(rng):
    """Under a small ridge, a point among its neighbours is their combination."""
    X, q = rng.normal(size=(8, 3)), rng.normal(size=(1, 3)) * 0.1
    near = np.arange(8)[None]
    (v,) = reconstruction_weights(q, X, near, lambda _: np.eye(3)[None], 1e-9, (8,))
    np.testing.assert_allclose(v[0] @ X, q[0], atol=1e-6)
    assert v.sum() == pytest.approx(1.0)


def test_several_sizes_are_those_of_one_by_one(iris):
    X, y, Q = iris
    metric = PLML(n_bases=3, random_state=0).fit(X, y)._metric
    squared, nearest = metric.search(Q, 20)
    together = linear_shares(metric, Q, nearest, y, 3, (5, 20))
    for k, shares in zip((5, 20), together, strict=True):
        alone = class_shares(metric, Q, squared[:, :k], nearest[:, :k], y, 3, "linear")
        np.testing.assert_allclose(shares, alone, atol=1e-12)


def test_copies_of_the_query_share_the_vote():
    X = np.zeros((4, 2))
    v = reconstruction_weights(X[:1], X, np.arange(4)[None], lambda _: np.eye(2)[None], 0.1, (4,))
    np.testing.assert_allclose(v[0], np.full((1, 4), 0.25))


def test_it_follows_a_slope_that_counting_does_not_see():
    """One class on one side of a line, the other on the other, with more rows on one side."""
    left = np.column_stack([np.linspace(-1.0, -0.02, 9), np.zeros(9)])
    right = np.column_stack([np.linspace(0.1, 1.0, 3), np.zeros(3)])
    X, y = np.concatenate([left, right]), np.repeat([0, 1], [9, 3])
    query = np.array([[0.3, 0.0]])
    model = SML(prior="identity", regularization=1e9, n_neighbors=12).fit(X, y)
    assert model.predict(query) == [0]
    assert model.set_params(vote="linear").predict(query) == [1]


def test_training_rows_vote_without_themselves(iris):
    X, y, _ = iris
    model = PLML(n_bases=3, n_neighbors=9, vote="linear", random_state=0).fit(X, y)
    found = model.explain()
    squared, nearest = model._metric.search(None, 9)
    shares = class_shares(model._metric, None, squared, nearest, y, 3, "linear")
    np.testing.assert_array_equal(found.predictions, shares.argmax(axis=1))


@pytest.mark.parametrize("block", [1, 10**6])
@pytest.mark.parametrize("weighed", [False, True])
def test_votes_of_fewer_neighbours_are_those_counted_alone(rng, monkeypatch, block, weighed):
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", block)
    labels, sizes = rng.integers(4, size=(7, 9)), (5, 1, 9)
    squared = np.sort(rng.random((7, 9)), axis=1)
    squared[2, :2] = 0.0
    weights = inverse_distances(squared) if weighed else None
    found = nested_votes(labels, 4, sizes, weights)
    for k, shares in zip(sizes, found, strict=True):
        alone = inverse_distances(squared[:, :k]) if weighed else None
        np.testing.assert_allclose(shares, vote(labels[:, :k], 4, alone))
