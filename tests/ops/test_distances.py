"""Distances of given pairs: in float64 whatever the data, on NumPy and on PyTorch."""

import numpy as np
import pytest

import judge
from backend_devices import DEVICES
from plml.backend.arrays import on_host, to_device
from plml.ops import topk
from plml.ops.distances import Transformed, combine_bases, euclidean_pairs, local_pairs


@pytest.fixture(params=DEVICES)
def place(request):
    return lambda array: to_device(array, request.param)


@pytest.fixture(params=["float32", "float64"])
def data(request, rng):
    X, Q = (100 + rng.normal(size=(n, 4)) for n in (30, 8))
    A = rng.normal(size=(3, 4, 4))
    weights = rng.dirichlet(np.ones(3), size=8)
    candidates = rng.integers(30, size=(8, 5))
    parts = X, Q, A @ A.swapaxes(1, 2), weights
    return *(part.astype(request.param) for part in parts), candidates


@pytest.mark.parametrize("block", [1, 2**22])
def test_local_distances_by_the_definition(data, place, monkeypatch, block):
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", block)
    X, Q, M, weights, candidates = data
    found = local_pairs(*map(place, (Q, weights, M, X, candidates)))
    assert str(found.dtype).endswith("float64")
    X, Q, M, weights = (part.astype(np.float64) for part in (X, Q, M, weights))
    for i in range(8):
        for c, j in enumerate(candidates[i]):
            expected = judge.local_distance(Q[i], X[j], weights[i], M)
            assert float(found[i, c]) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_euclidean_distances_by_the_definition(data, place):
    X, Q, _, _, candidates = data
    found = euclidean_pairs(*map(place, (Q, X, candidates)))
    assert str(found.dtype).endswith("float64")
    exact = ((Q[:, None].astype(float) - X[candidates].astype(float)) ** 2).sum(axis=2)
    np.testing.assert_allclose(on_host(found), exact, rtol=1e-12)


def test_combined_metrics_are_in_double_precision(data, place):
    _, _, M, weights, _ = data
    found = combine_bases(place(weights), place(M))
    assert str(found.dtype).endswith("float64")
    exact = np.einsum("nb,bde->nde", weights.astype(float), M.astype(float))
    np.testing.assert_allclose(on_host(found), exact, rtol=1e-12)


def test_rounding_never_makes_a_distance_negative(place):
    M = np.array([[[1.0, -1.0], [-1.0, 1.0]]])  # flat along (1, 1)
    X = np.array([[0.1, 0.1], [0.3, 0.3 + 1e-17]])
    found = local_pairs(*map(place, (X[:1] * 3, np.ones((1, 1)), M - 1e-16, X, np.array([[0, 1]]))))
    assert (on_host(found) >= 0.0).all()


def test_points_under_a_linear_map(data, place):
    X, Q, M, _, _ = data
    found = on_host(Transformed(place(X), M[0].astype(float)).distances(place(Q)))
    differences = Q[:, None].astype(float) - X.astype(float)
    exact = np.einsum("qnd,de,qne->qn", differences, M[0].astype(float), differences)
    tolerance = 1e-9 if X.dtype == np.float64 else 2e-2 * 100
    np.testing.assert_allclose(found, exact, atol=tolerance)
    assert (found >= 0).all()
