"""Template against its definition, and scikit-learn's checks."""

import numpy as np
import pytest
from plml.baselines.template_learning import learn_template
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from plml import Template
from sklearn_expectations import NOT_FOR_NEIGHBOURS


@parametrize_with_checks([Template()], expected_failed_checks=lambda _: NOT_FOR_NEIGHBOURS)
def test_sklearn_checks(estimator, check):
    check(estimator)


def objective(M, X, y, shrinkage):
    """Term by term."""
    n, d = X.shape
    scatter = np.zeros((d, d))
    for i in range(n):
        away = X[i] - X[y == y[i]].mean(axis=0)
        scatter += np.outer(away, away) / n
    S = (1 - shrinkage) * scatter + shrinkage * np.trace(scatter) / d * np.eye(d)
    return np.sum(M * S) - np.linalg.slogdet(M)[1]


@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 1.0])
def test_no_metric_near_it_is_better(blobs, rng, shrinkage):
    X, y = blobs
    M = learn_template(X, y, shrinkage=shrinkage)
    least = objective(M, X, y, shrinkage)
    for _ in range(20):
        step = rng.normal(size=M.shape)
        step = 1e-3 * np.linalg.norm(M) * (step + step.T) / np.linalg.norm(step)
        assert objective(M + step, X, y, shrinkage) > least


def test_the_estimator_has_that_metric(blobs):
    X, y = blobs
    model = Template(shrinkage=0.3).fit(X, y)
    np.testing.assert_allclose(model.basis_metrics_[0], learn_template(X, y, shrinkage=0.3))
    np.testing.assert_allclose(model.components_.T @ model.components_, model.basis_metrics_[0])


def test_it_is_worth_something():
    X, y = load_wine(return_X_y=True)
    accuracy, euclidean = (
        cross_val_score(model, X, y, cv=5).mean()
        for model in (Template(shrinkage=1e-6), KNeighborsClassifier(1))
    )
    assert accuracy > euclidean + 0.1
