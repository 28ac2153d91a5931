import numpy as np
import pytest

from plml.metric.feature_split import (
    feature_contributions,
    feature_importance,
    leading_directions,
)
from plml.ops import topk


@pytest.mark.parametrize("block", [1, 10**6])
def test_contributions_by_the_definition(rng, monkeypatch, block):
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", block)
    A = rng.normal(size=(2, 3, 3))
    M, W = A @ A.swapaxes(1, 2), rng.dirichlet(np.ones(2), size=4)
    queries, cases = rng.normal(size=(4, 3)), rng.normal(size=(4, 5, 3))
    found = feature_contributions(queries, cases, W, M)
    assert found.shape == (4, 5, 3)
    for q in range(4):
        metric = W[q, 0] * M[0] + W[q, 1] * M[1]
        for k in range(5):
            difference = queries[q] - cases[q, k]
            expected = [difference[f] * (metric[f] @ difference) for f in range(3)]
            np.testing.assert_allclose(found[q, k], expected)


def test_contributions_of_single_precision_are_computed_in_double(rng):
    queries = (1000 + rng.normal(size=(3, 4))).astype(np.float32)
    cases = (1000 + rng.normal(size=(3, 2, 4))).astype(np.float32)
    found = feature_contributions(queries, cases, np.ones((3, 1)), np.eye(4)[None])
    expected = (queries[:, None].astype(float) - cases.astype(float)) ** 2
    np.testing.assert_array_equal(found, expected)


def test_directions_are_leading_eigenvectors_with_a_fixed_sign(rng):
    A = rng.normal(size=(6, 4, 4))
    M = A @ A.swapaxes(1, 2)
    M[0] = np.diag([1.0, 4.0, 3.0, 2.0])
    values, vectors = leading_directions(M, 2)
    assert (values.shape, vectors.shape) == ((6, 2), (6, 2, 4))
    np.testing.assert_allclose(values[0], [4.0, 3.0])
    np.testing.assert_allclose(np.abs(vectors[0]), np.eye(4)[[1, 2]], atol=1e-12)
    for q in range(6):
        for k in range(2):
            v = vectors[q, k]
            np.testing.assert_allclose(M[q] @ v, values[q, k] * v, atol=1e-9)
            assert v[np.abs(v).argmax()] > 0
            assert np.linalg.norm(v) == pytest.approx(1.0)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(M)[:, ::-1][:, :2])
    # Rounding below zero is zero.
    assert leading_directions(-1e-12 * np.eye(2)[None], 2)[0].tolist() == [[0.0, 0.0]]


def test_importance_is_a_share_in_units_of_the_spread():
    diagonals = np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    found = feature_importance(diagonals, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(found[0], [1 / 18, 8 / 18, 9 / 18])
    np.testing.assert_array_equal(found[1], 0.0)  # a metric of zero has no shares
