"""TemplateMetric against its definition, question by question."""

import numpy as np
import pytest
from plml.metric.template_metric import TemplateMetric

from plml.metric.feature_split import split_distances
from plml.metric.votes import class_shares

K = 4


@pytest.fixture
def metric(rng):
    return TemplateMetric(rng.normal(size=(40, 3)), rng.uniform(0.5, 2.0, size=40))


@pytest.fixture
def queries(rng):
    return rng.normal(size=(9, 3))


def naive_search(metric, q, leave_out=None):
    """The definition, row by row."""
    d2 = [
        np.inf if j == leave_out else s * np.sum((q - x) ** 2)
        for j, (x, s) in enumerate(zip(metric.X, metric.scales, strict=True))
    ]
    nearest = sorted(range(len(d2)), key=lambda j: (d2[j], j))[:K]
    return [d2[j] for j in nearest], nearest


def test_search(metric, queries):
    squared, nearest = metric.search(queries, K)
    for q, found, rows in zip(queries, squared, nearest, strict=True):
        expected, order = naive_search(metric, q)
        np.testing.assert_allclose(found, expected)
        np.testing.assert_array_equal(rows, order)
    labels = np.arange(len(metric.X))
    np.testing.assert_array_equal(
        np.sort(metric.nearest_labels(queries, K, labels)), np.sort(nearest)
    )


def test_training_rows_are_left_out_of_their_own_neighbors(metric):
    squared, nearest = metric.search(None, K)
    for i, x in enumerate(metric.X):
        expected, order = naive_search(metric, x, leave_out=i)
        np.testing.assert_allclose(squared[i], expected)
        np.testing.assert_array_equal(nearest[i], order)
    rows = np.array([7, 3])
    np.testing.assert_array_equal(metric.search_rows(rows, K)[1], nearest[rows])


def test_a_prediction_does_not_depend_on_its_batch(metric, queries):
    together = metric.search(queries, K)[1]
    alone = [metric.search(q[None], K)[1][0] for q in queries]
    np.testing.assert_array_equal(together, alone)


def test_the_metric_at_a_point_is_that_of_its_nearest_row(metric, queries):
    for q, M in zip(queries, metric.matrix(queries), strict=True):
        nearest = naive_search(metric, q)[1][0]
        np.testing.assert_allclose(M, metric.scales[nearest] * np.eye(3))
    np.testing.assert_allclose(metric.matrix(None)[:, 0, 0], metric.scales)


def test_distances_of_pairs(metric, queries):
    difference = queries - queries[::-1]
    expected = np.einsum("qd,qde,qe->q", difference, metric.matrix(queries), difference)
    np.testing.assert_allclose(metric.pair_distances(queries, queries[::-1]), expected)


@pytest.mark.parametrize("kind", ["bilinear", "likeness"])
def test_distances_split_over_the_features(metric, queries, kind):
    squared, nearest = metric.search(queries, K)
    parts = split_distances(metric, queries, None, nearest, kind)
    np.testing.assert_allclose(parts.sum(axis=2), squared)


@pytest.mark.parametrize("how", ["uniform", "distance", "linear"])
def test_every_vote(metric, queries, how):
    squared, nearest = metric.search(queries, K)
    labels = np.arange(len(metric.X)) % 2
    shares = class_shares(metric, queries, squared, nearest, labels, 2, how)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
