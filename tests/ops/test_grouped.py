from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from plml.backend.threads import ThreadTeam
from plml.ops import grouped
from plml.ops.grouped import GroupedPairs
from plml.ops.projections import PsdMatrices


@pytest.fixture(params=["one group", "few", "many", "an empty one"])
def problem(request, rng):
    n, d, p = 60, 4, 250
    n_groups = {"one group": 1, "few": 3, "many": 40, "an empty one": 4}[request.param]
    groups = rng.integers(n_groups, size=n)
    if request.param == "an empty one":
        groups[groups == 2] = 1
    pairs = np.array([rng.choice(n, size=2, replace=False) for _ in range(p)])
    A = rng.normal(size=(n_groups, d, d))
    return rng.normal(size=(n, d)), groups, n_groups, pairs, A @ A.swapaxes(1, 2)


def naive_distances(X, groups, pairs, M):
    return [(X[i] - X[j]) @ M[groups[i]] @ (X[i] - X[j]) for i, j in pairs]


def test_distances_against_a_naive_loop(problem):
    X, groups, n_groups, pairs, M = problem
    found = GroupedPairs(X, groups, n_groups, pairs).distances(M)
    np.testing.assert_allclose(found, naive_distances(X, groups, pairs, M), rtol=1e-9)


def test_scatter_against_a_naive_loop(problem, rng):
    X, groups, n_groups, pairs, M = problem
    s = rng.normal(size=len(pairs))
    expected = np.zeros_like(M)
    for (i, j), coefficient in zip(pairs, s, strict=True):
        expected[groups[i]] += coefficient * np.outer(X[i] - X[j], X[i] - X[j])
    found = GroupedPairs(X, groups, n_groups, pairs).scatter(s)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_other_coordinates(problem, rng):
    X, groups, n_groups, pairs, N = problem
    B = rng.normal(size=N.shape)
    plain = GroupedPairs(X, groups, n_groups, pairs)
    turned = plain.in_coordinates(B)
    M = B @ N @ B.swapaxes(1, 2)
    np.testing.assert_allclose(turned.distances(N), plain.distances(M), rtol=1e-9)
    s = rng.normal(size=len(pairs))
    assert np.vdot(turned.distances(N), s) == pytest.approx(np.vdot(N, turned.scatter(s)))
    L = [rng.normal(size=(4, 1)) for _ in N]  # of low rank; the matrices are wrong on purpose
    found = turned.distances(PsdMatrices(np.zeros_like(N), L))
    M = np.stack([C @ part @ part.T @ C.T for C, part in zip(B, L, strict=True)])
    np.testing.assert_allclose(found, naive_distances(X, groups, pairs, M), rtol=1e-9)


def test_blocks_and_threads_do_not_change_the_result(problem, rng, monkeypatch):
    X, groups, n_groups, pairs, M = problem
    s = rng.normal(size=len(pairs))
    whole = GroupedPairs(X, groups, n_groups, pairs)
    monkeypatch.setattr(grouped, "_BLOCK_ELEMENTS", 20)
    with ThreadPoolExecutor(3) as pool:
        cut = GroupedPairs(X, groups, n_groups, pairs, ThreadTeam(pool, 3))
        assert sum(map(len, cut._runs)) > sum(map(len, whole._runs))
        np.testing.assert_allclose(cut.distances(M), whole.distances(M), rtol=1e-10)
        np.testing.assert_allclose(cut.scatter(s), whole.scatter(s), atol=1e-10)


def test_float32_products_stay_close_to_float64(problem):
    X, groups, n_groups, pairs, M = problem
    expected = naive_distances(X, groups, pairs, M)
    single = GroupedPairs(X.astype(np.float32), groups, n_groups, pairs)
    for operator in (single, GroupedPairs(X, groups, n_groups, pairs).astype(np.float32)):
        assert operator.X.dtype == np.float32
        found = operator.distances(M)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_metric_meets_its_members_and_their_partners_alone(rng):
    """Work grows with the pairs, not with the groups times the rows."""
    X, groups = rng.normal(size=(100, 3)), np.arange(100) // 2
    pairs = np.array([[0, 1], [0, 7], [1, 7], [2, 99]])
    operator = GroupedPairs(X, groups, 50, pairs)
    met = {piece.group: piece.rows.tolist() for run in operator._runs for piece in run}
    assert met[0] == [0, 1, 7]
    assert met[1] == [2, 3, 99]
    assert sum(map(len, met.values())) == 102
