import numpy as np
import pytest

from plml.metric.feature_split import (
    bilinear_parts,
    leading_directions,
    likeness_parts,
    split_distances,
    spread_of,
)
from plml.ops import topk


class Metrics:
    """Between points and training rows, one matrix per pair."""

    def __init__(self, X, M):
        self.X, self.M = X, M

    def between(self, Q, own, cases):
        return self.M[cases]


@pytest.mark.parametrize("block", [1, 10**6])
def test_both_splits_by_their_definitions(rng, monkeypatch, block):
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", block)
    X, Q, A = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.normal(size=(6, 3, 3))
    metric, cases = Metrics(X, A @ A.swapaxes(1, 2)), rng.integers(6, size=(4, 5))
    bilinear, likeness = (
        split_distances(metric, Q, None, cases, kind) for kind in ("bilinear", "likeness")
    )
    for q in range(4):
        for k in range(5):
            M, difference = metric.M[cases[q, k]], Q[q] - X[cases[q, k]]
            expected = [difference[f] * (M[f] @ difference) for f in range(3)]
            np.testing.assert_allclose(bilinear[q, k], expected)
            kept = [max(part, 0.0) for part in expected]
            scale = sum(expected) / sum(kept)
            np.testing.assert_allclose(likeness[q, k], [scale * part for part in kept])


def test_single_precision_is_split_in_double(rng):
    queries = (1000 + rng.normal(size=(3, 4))).astype(np.float32)
    X = (1000 + rng.normal(size=(5, 4))).astype(np.float32)
    metric, cases = Metrics(X, np.stack([np.eye(4)] * 5)), rng.integers(5, size=(3, 2))
    found = split_distances(metric, queries, None, cases, "bilinear")
    expected = (queries[:, None].astype(float) - X[cases].astype(float)) ** 2
    np.testing.assert_array_equal(found, expected)


def test_a_metric_for_all_cases_of_a_point(rng):
    D, A = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 1, 2, 2))
    M = A @ A.swapaxes(2, 3)
    for split in (bilinear_parts, likeness_parts):
        one_by_one = split(D, np.repeat(M, 4, axis=1))
        np.testing.assert_allclose(split(D, M), one_by_one)


def test_equal_features_and_equal_rows_have_no_part(rng):
    A = rng.normal(size=(1, 1, 3, 3))
    D = np.array([[[0.0, 1.0, -2.0], [0.0, 0.0, 0.0]]])
    for split in (bilinear_parts, likeness_parts):
        parts = split(D, A @ A.swapaxes(2, 3))
        assert parts[0, 0, 0] == 0.0
        assert not parts[0, 1].any()


def test_a_constant_column_has_a_spread_of_one():
    np.testing.assert_array_equal(spread_of(np.array([[1.0, 2.0], [3.0, 2.0]])), [1.0, 1.0])


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
