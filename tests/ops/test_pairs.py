from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import judge
from plml.backend.arrays import on_host, to_device
from plml.backend.threads import ThreadTeam
from plml.ops.pairs import PairOperator
from plml.ops.projections import PsdMatrices


@pytest.fixture(params=["narrow dense", "narrow sparse", "wide dense", "wide sparse"])
def problem(request, rng):
    shape, kind = request.param.split()
    n, d, m, p = (40, 5, 4, 120) if shape == "narrow" else (300, 45, 4, 500)
    X = rng.normal(size=(n, d))
    W = rng.dirichlet(np.ones(m), size=n)
    if kind == "sparse":
        # One anchor an instance, so that every basis touches a minority of the rows.
        W = np.eye(m)[rng.choice(m, size=n, p=[0.1, 0.1, 0.1, 0.7])]
    pairs = np.array([rng.choice(n, size=2, replace=False) for _ in range(p)])
    A = rng.normal(size=(m, d, d))
    return X, W, pairs, A @ A.swapaxes(1, 2), rng.normal(size=p)


def test_distances_against_a_naive_loop(problem):
    X, W, pairs, M, _ = problem
    expected = [judge.local_distance(X[i], X[j], W[i], M) for i, j in pairs]
    np.testing.assert_allclose(PairOperator(X, W, pairs).distances(M), expected, rtol=1e-9)


def test_scatter_against_a_naive_loop(problem):
    X, W, pairs, M, s = problem
    expected = np.zeros_like(M)
    for (i, j), coefficient in zip(pairs, s, strict=True):
        difference = X[i] - X[j]
        for b in range(len(M)):
            expected[b] += W[i, b] * coefficient * np.outer(difference, difference)
    np.testing.assert_allclose(PairOperator(X, W, pairs).scatter(s), expected, atol=1e-9)


def test_sizes_of_the_terms_of_a_scatter(problem):
    X, W, pairs, M, s = problem
    expected = np.zeros(len(M))
    for (i, j), coefficient in zip(pairs, s, strict=True):
        expected += W[i] * abs(coefficient) * (X[i] @ X[i] + X[j] @ X[j])
    np.testing.assert_allclose(PairOperator(X, W, pairs).scatter_sizes(s), expected)


def test_scatter_is_the_adjoint_of_distances(problem):
    X, W, pairs, M, s = problem
    operator = PairOperator(X, W, pairs)
    assert np.vdot(operator.distances(M), s) == pytest.approx(np.vdot(M, operator.scatter(s)))


def test_float32_products_stay_close_to_float64(problem):
    X, W, pairs, M, s = problem
    single = PairOperator(X.astype(np.float32), W, pairs)
    double = PairOperator(X, W, pairs)
    assert single.distances(M).dtype == np.float64
    np.testing.assert_allclose(single.distances(M), double.distances(M), rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(single.scatter(s), double.scatter(s), rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("n_bases", [1, 4])
def test_threads_do_not_change_the_result(rng, n_bases):
    for d in (6, 45):
        X = rng.normal(size=(3000, d))
        W = rng.dirichlet(np.full(n_bases, 0.3), size=3000)
        pairs = rng.integers(3000, size=(9000, 2))
        A = rng.normal(size=(n_bases, d, d))
        M, s = A @ A.swapaxes(1, 2), rng.normal(size=9000)
        alone = PairOperator(X, W, pairs)
        with ThreadPoolExecutor(3) as pool:
            shared = PairOperator(X, W, pairs, ThreadTeam(pool, 3))
            np.testing.assert_allclose(shared.distances(M), alone.distances(M), rtol=1e-10)
            np.testing.assert_allclose(shared.scatter(s), alone.scatter(s), atol=1e-8)


@pytest.mark.parametrize("rank", [3, 22, 23, 45])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_low_rank_metrics_by_their_factors(problem, rng, rank, dtype):
    X, W, pairs, M, _ = problem
    d = X.shape[1]
    L = [rng.normal(size=(d, min(rank, d))) for _ in M]
    matrices = PsdMatrices(np.stack([part @ part.T for part in L]), L)
    operator = PairOperator(X.astype(dtype), W, pairs)
    found = operator.distances(matrices)
    expected = [judge.local_distance(X[i], X[j], W[i], matrices.matrices) for i, j in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == np.float32 else 1e-9)


def test_factors_are_what_is_used_where_the_rank_is_low(rng):
    """The matrices that come with them are not looked at: here they are wrong on purpose."""
    X, W = rng.normal(size=(30, 45)), np.ones((30, 1))
    pairs = np.array([[0, 1], [2, 3]])
    L = rng.normal(size=(45, 4))
    found = PairOperator(X, W, pairs).distances(PsdMatrices(np.zeros((1, 45, 45)), [L]))
    expected = [((X[i] - X[j]) @ L) @ ((X[i] - X[j]) @ L) for i, j in pairs]
    np.testing.assert_allclose(found, expected)
    full = rng.normal(size=(45, 23))  # no longer worth it
    found = PairOperator(X, W, pairs).distances(PsdMatrices(np.eye(45)[None], [full]))
    np.testing.assert_allclose(found, [np.sum((X[i] - X[j]) ** 2) for i, j in pairs])


def test_rows_that_a_basis_never_meets_are_left_out(rng):
    X = rng.normal(size=(600, 45))
    W = np.zeros((600, 2))
    W[:100, 0] = 1.0  # basis 0 lives on the first hundred rows, and on what they are paired with
    W[100:, 1] = 1.0
    pairs = np.array([[0, 1], [2, 599], [300, 5]])
    operator = PairOperator(X, W, pairs)
    members = [
        np.arange(rows.start, rows.stop)[block[0]]
        for rows, block in zip(operator._blocks, operator._members, strict=True)
    ]
    assert np.concatenate(members).tolist() == [*range(100), 599]
    everyone = [block[1] for block in operator._members]
    assert any(isinstance(rows, slice) for rows in everyone)


def test_tensors_give_what_arrays_give(rng):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    X, W = rng.normal(size=(300, 45)), np.eye(3)[rng.integers(3, size=300)]
    pairs = rng.integers(300, size=(80, 2))
    A = rng.normal(size=(3, 45, 45))
    placed = [to_device(part, "torch") for part in (X, W, A @ A.swapaxes(1, 2))]
    operator = PairOperator(placed[0], placed[1], pairs)
    expected = PairOperator(X, W, pairs).distances(A @ A.swapaxes(1, 2))
    np.testing.assert_allclose(on_host(operator.distances(placed[2])), expected, atol=1e-10)
