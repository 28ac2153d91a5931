import numpy as np
import pytest
from scipy.stats import multivariate_normal

from plml.baselines.generative import (
    bias_matrices,
    bias_weights,
    fit_gaussians,
    generative_metrics,
    log_densities,
    shrunk_predictions,
)


@pytest.fixture
def classes(rng):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]]) + np.eye(3, 2)[y]
    return X, y


def density(model, c, x):
    prior_and_scale = np.exp(model.log_constants[c])
    difference = x - model.means[c]
    return prior_and_scale * np.exp(-0.5 * difference @ model.precisions[c] @ difference)


def numeric_hessian(function, x, h=1e-3):
    d = len(x)
    H = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            e, f = h * np.eye(d)[i], h * np.eye(d)[j]
            H[i, j] = (
                function(x + e + f)
                - function(x + e - f)
                - function(x - e + f)
                + function(x - e - f)
            ) / (4 * h * h)
    return H


def test_gaussians_are_those_of_the_classes(classes):
    X, y = classes
    model = fit_gaussians(X, y, 3, shrinkage=0.2)
    for c in range(3):
        members = X[y == c]
        covariance = 0.8 * np.cov(members.T, bias=True) + 0.2 * X.var(axis=0).mean() * np.eye(2)
        np.testing.assert_allclose(model.means[c], members.mean(axis=0))
        np.testing.assert_allclose(model.precisions[c], np.linalg.inv(covariance), rtol=1e-8)
        reference = multivariate_normal(members.mean(axis=0), covariance)
        shared = np.log(2 * np.pi)  # (2 pi)^(-d/2), d = 2, left out of every class
        expected = reference.logpdf(X[:5]) + shared + np.log(1 / 3)
        np.testing.assert_allclose(log_densities(model, X[:5])[:, c], expected, rtol=1e-8)


def test_bias_matrix_against_numerical_differentiation(classes, rng):
    """B from second differences of the densities themselves, up to a positive factor."""
    X, y = classes
    model = fit_gaussians(X, y, 3, shrinkage=0.1)
    for x in rng.normal(size=(6, 2)):
        p = [density(model, c, x) for c in range(3)]
        B = np.zeros((2, 2))
        for c in range(3):
            H = numeric_hessian(lambda z, c=c: density(model, c, z), x)
            B += H * sum(p[o] * (p[o] - p[c]) for o in range(3) if o != c)
        found = bias_matrices(model, x[None])[0]
        factor = np.vdot(found, B) / np.vdot(found, found)
        assert factor > 0
        np.testing.assert_allclose(factor * found, B, atol=1e-4 * np.abs(B).max())


def test_bias_weights_by_their_formula_and_far_from_the_data(rng):
    log_p = rng.normal(size=(20, 4))
    p = np.exp(log_p)
    expected = p * np.array(
        [
            [sum(row[o] * (row[o] - row[c]) for o in range(4) if o != c) for c in range(4)]
            for row in p
        ]
    )
    ordered = -np.sort(-p, axis=1)
    expected /= (ordered[:, 0] ** 2 * ordered[:, 1])[:, None]
    np.testing.assert_allclose(bias_weights(log_p), expected, rtol=1e-9, atol=1e-12)
    far = bias_weights(np.array([[0.0, -2000.0, -5000.0], [-1e6, -1e6 - 1.0, -3e6]]))
    assert np.isfinite(far).all()
    np.testing.assert_allclose(far[0], [-1.0, 1.0, 0.0], atol=1e-12)


def test_metric_has_unit_determinant_and_no_bias(rng):
    S = rng.normal(size=(30, 4, 4))
    B = S + S.swapaxes(1, 2)
    M = generative_metrics(B)
    np.testing.assert_allclose(np.linalg.det(M), 1.0, rtol=1e-6)
    assert np.linalg.eigvalsh(M).min() > 0
    mixed = (np.linalg.eigvalsh(B)[:, 0] < -0.1) & (np.linalg.eigvalsh(B)[:, -1] > 0.1)
    bias = np.trace(np.linalg.inv(M) @ B, axis1=1, axis2=2)
    assert mixed.sum() > 10
    np.testing.assert_allclose(bias[mixed], 0.0, atol=1e-8)


def test_where_the_bias_cannot_vanish_the_metric_minimises_it(rng):
    A = rng.normal(size=(3, 3))
    B = A @ A.T + 0.1 * np.eye(3)
    M = generative_metrics(B[None])[0]
    least = abs(np.trace(np.linalg.inv(M) @ B))
    for _ in range(200):
        C = rng.normal(size=(3, 3))
        other = C @ C.T + 1e-3 * np.eye(3)
        other /= np.linalg.det(other) ** (1 / 3)
        assert abs(np.trace(np.linalg.inv(other) @ B)) >= least * (1 - 1e-9)


def test_no_curvature_is_euclidean():
    np.testing.assert_allclose(generative_metrics(np.zeros((1, 3, 3)))[0], np.eye(3))


def test_singular_classes_are_regularised(rng):
    X = np.vstack([np.ones((5, 3)), rng.normal(size=(1, 3)), rng.normal(size=(4, 3)) * [1, 0, 0]])
    y = np.repeat([0, 1, 2], [5, 1, 4])
    model = fit_gaussians(X, y, 3, shrinkage=0.01)
    M = generative_metrics(bias_matrices(model, rng.normal(size=(10, 3)) * 100))
    assert np.isfinite(M).all()


def test_powers_lead_from_the_identity_to_the_metric(rng):
    S = rng.normal(size=(5, 4, 4))
    B = S + S.swapaxes(1, 2)
    half = generative_metrics(B, 0.5)
    np.testing.assert_allclose(half @ half, generative_metrics(B), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        generative_metrics(B, 0.0), np.tile(np.eye(4), (5, 1, 1)), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(half), 1.0, rtol=1e-9)


@pytest.mark.parametrize("n_neighbors", [1, 5])
def test_predictions_under_powers_by_the_definition(classes, rng, n_neighbors):
    X, y = classes
    model = fit_gaussians(X, y, 3, shrinkage=0.2)
    Q, exponents = rng.normal(size=(20, 2)), np.array([1.0, 0.3, 0.0])
    found = shrunk_predictions(model, X, y, Q, exponents, n_neighbors)
    for row, exponent in zip(found, exponents, strict=True):
        metrics = generative_metrics(bias_matrices(model, Q), exponent)
        for code, x, M in zip(row, Q, metrics, strict=True):
            d2 = np.einsum("nd,de,ne->n", X - x, M, X - x)
            votes = np.bincount(y[np.argsort(d2)[:n_neighbors]], minlength=3)
            assert code == votes.argmax()


def test_a_row_is_rounded_alike_in_any_company(classes, rng):
    X, y = classes
    model = fit_gaussians(X, y, 3, shrinkage=0.1)
    Q = rng.normal(size=(200, 2))
    one_by_one = np.concatenate([bias_matrices(model, q[None]) for q in Q])
    np.testing.assert_array_equal(bias_matrices(model, Q), one_by_one)
