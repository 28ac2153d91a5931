import numpy as np
import pytest

import judge
from plml.ops.pairs import PairOperator


@pytest.fixture(params=["dense", "sparse"])
def problem(request, rng):
    n, d, m, p = 40, 5, 4, 120
    X = rng.normal(size=(n, d))
    W = rng.dirichlet(np.ones(m), size=n)
    if request.param == "sparse":
        # One anchor an instance, so that every basis touches a minority of the rows.
        W = np.eye(m)[rng.choice(m, size=n, p=[0.1, 0.1, 0.1, 0.7])]
    pairs = np.array([rng.choice(n, size=2, replace=False) for _ in range(p)])
    A = rng.normal(size=(m, d, d))
    return X, W, pairs, A @ A.swapaxes(1, 2), rng.normal(size=p)


def test_distances_against_a_naive_loop(problem):
    X, W, pairs, M, _ = problem
    expected = [judge.local_distance(X[i], X[j], W[i], M) for i, j in pairs]
    np.testing.assert_allclose(PairOperator(X, W, pairs).distances(M), expected, rtol=1e-10)


def test_scatter_against_a_naive_loop(problem):
    X, W, pairs, M, s = problem
    expected = np.zeros_like(M)
    for (i, j), coefficient in zip(pairs, s, strict=True):
        difference = X[i] - X[j]
        for b in range(len(M)):
            expected[b] += W[i, b] * coefficient * np.outer(difference, difference)
    np.testing.assert_allclose(PairOperator(X, W, pairs).scatter(s), expected, atol=1e-10)


def test_scatter_is_the_adjoint_of_distances(problem):
    X, W, pairs, M, s = problem
    operator = PairOperator(X, W, pairs)
    assert np.vdot(operator.distances(M), s) == pytest.approx(np.vdot(M, operator.scatter(s)))


def test_float32_products_stay_close_to_float64(problem):
    X, W, pairs, M, s = problem
    single = PairOperator(X.astype(np.float32), W, pairs)
    double = PairOperator(X, W, pairs)
    assert single.distances(M).dtype == np.float64
    np.testing.assert_allclose(single.distances(M), double.distances(M), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(single.scatter(s), double.scatter(s), rtol=1e-4, atol=1e-4)
