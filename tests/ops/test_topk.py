import builtins
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plml.backend.arrays import working_memory
from plml.ops import topk
from plml.ops.distances import euclidean_pairs
from plml.stages.neighbors import EuclideanIndex, euclidean_neighbors


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
        monkeypatch.setattr(topk, "_worth_faiss", lambda *sizes: True)
    return request.param


@pytest.mark.parametrize("n_queries", [1, 500])
def test_the_largest_inner_products_of_many_blocks(engine, rng, n_queries):
    vectors = rng.normal(size=(3007, 6)).astype(np.float32)
    queries = rng.normal(size=(n_queries, 6)).astype(np.float32)
    assert n_queries == 1 or n_queries * len(vectors) > 2 * topk._CACHED_ELEMENTS
    scores, found = topk.largest_inner_products(queries, vectors, 9)
    products = queries.astype(float) @ vectors.T.astype(float)
    largest = -np.sort(-products, axis=1)[:, :9]
    np.testing.assert_allclose(scores, largest, rtol=0, atol=1e-5)
    at_found = np.take_along_axis(products, found, axis=1)
    np.testing.assert_allclose(at_found, largest, rtol=0, atol=1e-5)
    assert all(len(set(row)) == 9 for row in found)


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
    monkeypatch.setattr(topk, "_ROUNDOFF_32", 0.0)
    assert not (euclidean_neighbors(X, 3)[1] == expected).all()


@pytest.mark.parametrize("kind", ["outlier", "cauchy", "binary", "all equal"])
def test_hard_data(rng, kind):
    X = rng.normal(size=(500, 6))
    if kind == "outlier":
        X[7] = 1e5
    elif kind == "cauchy":
        X = rng.standard_cauchy(size=(500, 6))
    elif kind == "binary":
        X = np.sign(X)
    else:
        X = np.ones((500, 6))
    for Q in (None, rng.normal(size=(20, 6))):
        d2, indices = euclidean_neighbors(X, 3, Q)
        expected_d2, expected = naive(X, X if Q is None else Q, 3, Q is None)
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_allclose(d2, expected_d2, rtol=1e-12)


def test_blocks_do_not_change_the_answer(rng, monkeypatch):
    X = np.sign(rng.normal(size=(300, 4)))
    expected = naive(X, X, 3, True)[1]
    monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", 100)
    monkeypatch.setattr(topk, "_COLUMN_BLOCK", 7)
    np.testing.assert_array_equal(euclidean_neighbors(X, 3)[1], expected)


def test_memory_does_not_grow_with_the_index(rng):
    """Queries that all need the float64 search: what it holds is bounded by blocks."""
    peaks = []
    for n in (20_000, 80_000):
        X = np.ones((n, 20))
        X[0] = 2.0
        index = topk.InnerProductIndex(X)
        queries = rng.normal(size=(3, 20))
        tracemalloc.start()
        index.search(queries, 1, lambda rows, columns: topk.Measured(np.abs(columns) * 1.0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Indices of the 80,000 tied rows are all that may grow; a row of vectors is 160 bytes.
    assert peaks[1] - peaks[0] < 60_000 * 100


def test_what_rounding_cannot_tell_apart_is_ordered_by_index():
    d2 = np.array([[1.0, 1.0 + 2e-16, 0.5, np.inf], [3.0, 1.0, 2.0, 0.0]])
    candidates = np.array([[9, 4, 7, 1], [3, 2, 1, 0]])
    rounding = np.full((2, 4), 1e-15)
    squared, nearest = topk.sorted_prefix(topk.Measured(d2, rounding), candidates, 3)
    np.testing.assert_array_equal(nearest, [[7, 4, 9], [0, 2, 1]])
    np.testing.assert_array_equal(squared[0], [0.5, 1.0 + 2e-16, 1.0])
    assert topk.sorted_prefix(topk.Measured(d2), candidates, 3)[1][0].tolist() == [7, 9, 4]


def test_what_decides_between_equals():
    """Equal distances by the second one, equals there by index; a nearer one stays first."""
    first = topk.Measured(
        np.array([[1.0, 1.0 + 2e-16, 1.0, 0.5]]),
        np.full((1, 4), 1e-15),
        topk.Measured(np.array([[3.0, 2.0, 2.0 + 2e-16, 9.0]]), np.full((1, 4), 1e-15)),
    )
    order = topk.neighbor_order(first, np.array([[0, 3, 2, 1]]))
    np.testing.assert_array_equal(order, [[3, 2, 1, 0]])
    np.testing.assert_array_equal(
        topk.neighbor_order(first._replace(then=None), np.array([[0, 3, 2, 1]])), [[3, 0, 2, 1]]
    )


def test_row_blocks():
    assert max(b.stop - b.start for b in topk.row_blocks(10**6, 2**21)) == 2
    assert topk.row_blocks(0, 5) == []
    assert topk.row_blocks(2, 2**23) == [slice(0, 1), slice(1, 2)]


def test_pair_distances(rng):
    Q, X = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    candidates = np.array([[0, 4], [1, 1], [3, 2]])
    expected = [[np.sum((Q[i] - X[j]) ** 2) for j in candidates[i]] for i in range(3)]
    np.testing.assert_allclose(euclidean_pairs(Q, X, candidates), expected)


def test_working_memory_caps_the_blocks(rng):
    X = rng.normal(size=(3000, 20))
    candidates = rng.integers(3000, size=(3000, 50))

    def peak(mebibytes):
        tracemalloc.start()
        with working_memory(mebibytes):
            found = euclidean_pairs(X, X, candidates)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size - found.nbytes, found

    usual, expected = peak(None)
    small, found = peak(1.0)
    assert small < 2**20 < usual
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("k", [1, 4])
def test_the_nearest_in_any_order_are_those_of_the_search(engine, rng, with_own, k):
    """Also where float32 leaves them open: three values per coordinate tie most distances."""
    X = np.concatenate([rng.integers(3, size=(150, 2)) * 1.0, rng.normal(size=(50, 2))])
    X[:20] = X[0]
    index = EuclideanIndex(X)
    own = np.arange(len(X)) if with_own else None
    searched = index.search(X, k, own)[1]
    proposals = index.index._propose(index._inner_products(X, k)[0], k, own)
    assert not proposals.proven.all()  # some have to be measured
    assert proposals.proven.any()
    if not with_own:
        found = index.nearest(X, k)
        np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(searched, axis=1))
    found = index.index.nearest(*index._inner_products(X, k), own)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(searched, axis=1))
    if with_own:
        assert not (found == own[:, None]).any()


def test_shortened_products_widen_the_bound(rng, monkeypatch):
    """With factors of few bits nothing is proven by float32 scores, and all is still found."""
    X = rng.normal(size=(200, 3))
    expected = euclidean_neighbors(X, 3)
    monkeypatch.setattr(topk, "lost_in_products", lambda _: 2.0**-4)
    index = EuclideanIndex(X)
    assert not index.index._propose(index._inner_products(X, 3)[0], 3, None).proven.any()
    for part, truth in zip(euclidean_neighbors(X, 3), expected, strict=True):
        np.testing.assert_array_equal(part, truth)
