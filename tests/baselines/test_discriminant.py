import numpy as np
import pytest
from scipy.linalg import sqrtm

from plml.baselines.discriminant import _RIDGE, discriminant_metrics, tricube


def naive_dann(X, y, x, n_local, epsilon, n_iterations, leave_out=None):
    """Hastie and Tibshirani's metric at one point, term by term."""
    d = X.shape[1]
    M = np.eye(d)
    for _ in range(n_iterations):
        distances = np.array([np.sqrt((x - z) @ M @ (x - z)) for z in X])
        candidates = [i for i in range(len(X)) if i != leave_out]
        local = sorted(candidates, key=lambda i: (distances[i], i))[:n_local]
        h = distances[local].max()
        k = np.array([(1 - (distances[i] / h) ** 3) ** 3 for i in local])
        total = k.sum()
        mean = sum(w * X[i] for w, i in zip(k, local, strict=True)) / total
        W, B = np.zeros((d, d)), np.zeros((d, d))
        for c in np.unique(y[local]):
            inside = [(w, i) for w, i in zip(k, local, strict=True) if y[i] == c]
            share = sum(w for w, _ in inside)
            if share == 0:
                continue
            center = sum(w * X[i] for w, i in inside) / share
            W += sum(w * np.outer(X[i] - center, X[i] - center) for w, i in inside) / total
            B += share / total * np.outer(center - mean, center - mean)
        W += _RIDGE * X.var(axis=0).mean() * np.eye(d)
        root = np.linalg.inv(np.real(sqrtm(W)))
        M = root @ (root @ B @ root + epsilon * np.eye(d)) @ root
    return M


@pytest.mark.parametrize("n_iterations", [1, 3])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_against_a_naive_implementation(rng, n_iterations, epsilon):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 3)) + np.eye(3)[y]
    Q = rng.normal(size=(7, 3))
    options = {"n_local": 20, "epsilon": epsilon, "n_iterations": n_iterations}
    metrics = discriminant_metrics(X, y, Q, n_classes=3, **options)
    for x, M in zip(Q, metrics, strict=True):
        np.testing.assert_allclose(M, naive_dann(X, y, x, **options), rtol=1e-6)
    own = np.array([4, 9])
    training = discriminant_metrics(X, y, X[own], n_classes=3, own=own, **options)
    for i, M in zip(own, training, strict=True):
        np.testing.assert_allclose(M, naive_dann(X, y, X[i], leave_out=i, **options), rtol=1e-6)


def test_tricube():
    np.testing.assert_allclose(tricube(np.array([[0.0, 1.0, 2.0]])), [[1.0, (7 / 8) ** 3, 0.0]])
    np.testing.assert_array_equal(tricube(np.zeros((1, 3))), [[1.0, 1.0, 1.0]])


def test_duplicates_and_flat_neighborhoods_stay_finite(rng):
    X = np.repeat(rng.normal(size=(4, 2)), 10, axis=0)
    y = np.repeat([0, 1, 0, 1], 10)
    metrics = discriminant_metrics(X, y, X[:3], n_classes=2, n_local=5, epsilon=1.0, n_iterations=2)
    assert np.isfinite(metrics).all()
