import builtins

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plml.ops import topk
from plml.ops.distances import euclidean_pairs
from plml.stages.neighbors import euclidean_neighbors


def naive(X, Q, k, exclude_self):
    d2 = ((Q[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    if exclude_self:
        np.fill_diagonal(d2, np.inf)
    columns = np.broadcast_to(np.arange(len(X)), d2.shape)
    order = np.lexsort((columns, d2), axis=1)[:, :k]
    return np.take_along_axis(d2, order, axis=1), order


@pytest.fixture(params=["faiss", "blocked"])
def engine(request, monkeypatch):
    if request.param == "blocked":
        real_import = builtins.__import__

        def no_faiss(name, *args, **kwargs):
            if name == "faiss":
                raise ImportError(name)
            return real_import(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", no_faiss)
    else:
        pytest.importorskip("faiss")
    return request.param


@pytest.mark.parametrize("n", [2, 9, 300])
@pytest.mark.parametrize("exclude_self", [True, False])
def test_neighbors_are_those_of_the_definition(engine, rng, n, exclude_self):
    X = rng.normal(size=(n, 4)) * [1, 10, 0.1, 1]
    Q = X if exclude_self else rng.normal(size=(50, 4))
    d2, indices = euclidean_neighbors(X, 5, None if exclude_self else Q)
    expected_d2, expected = naive(X, Q, min(5, n - exclude_self), exclude_self)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(d2, expected_d2, rtol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_ties_are_broken_by_index(seed, n_values):
    # A small grid: most distances are equal, many rows are duplicates.
    X = np.random.default_rng(seed).integers(0, n_values, size=(60, 3)).astype(float)
    d2, indices = euclidean_neighbors(X, 4)
    expected_d2, expected = naive(X, X, 4, True)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(d2, expected_d2)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e120])
def test_exact_far_beyond_float32(engine, rng, offset, scale):
    # Neighbours a millionth apart are equal in float32; only the float64 proof tells them apart.
    X = (offset + 1e-6 * rng.normal(size=(400, 3)) + rng.integers(0, 2, size=(400, 1))) * scale
    _, indices = euclidean_neighbors(X, 3)
    np.testing.assert_array_equal(indices, naive(X, X, 3, True)[1])


def test_the_rounding_bound_is_what_makes_it_exact(rng, monkeypatch):
    X = 1e-6 * rng.normal(size=(400, 3)) + 30.0 * rng.integers(0, 2, size=(400, 1))
    expected = naive(X, X, 3, True)[1]
    assert (euclidean_neighbors(X, 3)[1] == expected).all()
    monkeypatch.setattr(topk, "_ROUNDOFF", 0.0)
    assert not (euclidean_neighbors(X, 3)[1] == expected).all()


def test_memory_is_bounded_by_blocks(rng, monkeypatch):
    X = rng.normal(size=(70, 6))
    expected = euclidean_neighbors(X, 3)[1]
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", 100)
    np.testing.assert_array_equal(euclidean_neighbors(X, 3)[1], expected)
    assert max(b.stop - b.start for b in topk.row_blocks(1000, 30)) == 3
    assert topk.row_blocks(0, 5) == []
    assert topk.row_blocks(2, 1000) == [slice(0, 1), slice(1, 2)]


def test_pair_distances(rng):
    Q, X = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    candidates = np.array([[0, 4], [1, 1], [3, 2]])
    expected = [[np.sum((Q[i] - X[j]) ** 2) for j in candidates[i]] for i in range(3)]
    np.testing.assert_allclose(euclidean_pairs(Q, X, candidates), expected)
