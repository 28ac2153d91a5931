"""Half precision proposes on a GPU; the same code runs here on PyTorch's processor."""

import numpy as np
import pytest

from plml.backend.arrays import on_host
from plml.ops import half, topk
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def halves(monkeypatch):
    """Half precision whenever it can be used; yields how many queries float32 had to search."""
    searched = []

    def by_halves(queries, vectors, k, blocks, search):
        def counted(some):
            searched.append(len(some))
            return search(some)

        return half.largest_by_halves(queries, vectors, k, blocks, counted)

    monkeypatch.setattr(topk, "halves_pay", lambda *_: True)
    monkeypatch.setattr(topk, "largest_by_halves", by_halves)
    return searched


def unit_rows(rng, n, d):
    X = rng.normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("d", [1, 3, 40, 700])
def test_no_product_is_further_off_than_the_bound(rng, d):
    """Against float64, with vectors of very different coordinates as well."""
    spread = np.exp(rng.normal(size=d) * [[0.0], [4.0]])
    for scale in spread:
        Q, V = (rng.normal(size=(n, d)) * scale for n in (50, 400))
        Q, V = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (Q, V))
        rough = (
            half._aligned(torch.tensor(Q, dtype=torch.float32))
            @ half._aligned(torch.tensor(V, dtype=torch.float32)).T
        )
        error = np.abs(on_host(rough)[:50, :400].astype(np.float64) - Q @ V.T).max()
        assert error < half.rounding_of_halves(d)


@pytest.mark.parametrize("n", [5, 90, 333])
def test_what_is_left_out_is_smaller(rng, halves, n):
    Q, V = (torch.tensor(unit_rows(rng, m, 6), dtype=torch.float32) for m in (41, n))
    k = min(7, n)
    scores, indices = (on_host(x) for x in topk.largest_inner_products(Q, V, k))
    products = on_host(Q).astype(np.float64) @ on_host(V).T
    found = np.take_along_axis(products, indices, axis=1)
    np.testing.assert_allclose(scores, found, atol=1e-6)
    assert all(len(set(row)) == k for row in indices.tolist())
    np.put_along_axis(products, indices, -np.inf, axis=1)
    assert (products.max(axis=1) <= scores[:, -1] + 1e-6).all()


def test_most_queries_need_no_other_search(rng, halves):
    X = torch.tensor(rng.normal(size=(1500, 12)), dtype=torch.float32)
    found = euclidean_neighbors(X, 7)
    assert sum(halves) < 0.1 * len(X)
    np.testing.assert_array_equal(on_host(found[1]), euclidean_neighbors(on_host(X), 7)[1])


def test_queries_that_half_precision_leaves_open_are_searched_again(rng, halves):
    """A row far away makes all others look the same."""
    X = rng.normal(size=(400, 5))
    X[7] = 3e3
    y = rng.integers(0, 3, size=400)
    found, expected = ExactNeighbors(torch.tensor(X), y), ExactNeighbors(X, y)
    np.testing.assert_array_equal(found.graph(7)[1], expected.graph(7)[1])
    assert sum(halves) > 0
    np.testing.assert_array_equal(found.targets(3), expected.targets(3))
    np.testing.assert_array_equal(found.impostors(3), expected.impostors(3))


def test_the_bound_is_what_makes_it_right(rng, halves, monkeypatch):
    X = 0.02 * rng.normal(size=(400, 5)) + rng.choice([-1.0, 1.0], size=(400, 1))
    expected = euclidean_neighbors(X, 7)[1]
    assert (on_host(euclidean_neighbors(torch.tensor(X), 7)[1]) == expected).all()
    monkeypatch.setattr(half, "rounding_of_halves", lambda d: -np.inf)
    assert not (on_host(euclidean_neighbors(torch.tensor(X), 7)[1]) == expected).all()


def test_the_processor_does_without():
    large = torch.zeros(2**14, 1)
    assert not half.halves_pay(large, large)
