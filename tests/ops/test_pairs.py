from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import judge
from plml.backend.threads import Crew
from plml.ops.pairs import PairOperator


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
            shared = PairOperator(X, W, pairs, Crew(pool, 3))
            np.testing.assert_allclose(shared.distances(M), alone.distances(M), rtol=1e-10)
            np.testing.assert_allclose(shared.scatter(s), alone.scatter(s), atol=1e-8)
