"""More directions than one wants to learn in."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from plml import CBLML, PLML, PLMLCV, SML, AutoPLML
from plml.ops import span

DIGITS = load_digits(return_X_y=True)


def halves():
    X, y = DIGITS[0] / 60.0, DIGITS[1]
    return X[:400], y[:400], X[400:700]


@pytest.mark.parametrize("Estimator", [PLML, SML, CBLML])
def test_cut_to_principal_components(Estimator):
    X, y, Q = halves()
    how = {} if Estimator is SML else {"n_bases": 4, "random_state": 0}
    pca = PCA(12, svd_solver="full").fit(X)
    cut = Estimator(n_directions=12, **how).fit(X, y)
    there = Estimator(n_directions=None, **how).fit(pca.transform(X), y)
    assert cut.variance_kept_ == pytest.approx(pca.explained_variance_ratio_.sum())
    assert there.variance_kept_ == 1.0
    assert cut.dual_gap_ <= cut.tol
    assert cut.objective_ == pytest.approx(there.objective_, rel=cut.tol)
    assert np.mean(cut.predict(Q) == there.predict(pca.transform(Q))) > 0.98
    assert np.linalg.matrix_rank(cut.basis_metrics_[0], hermitian=True) <= 12


def test_the_metrics_are_in_the_coordinates_of_the_data():
    X, y, Q = halves()
    model = PLML(n_directions=9, n_bases=3, random_state=0).fit(X, y)
    distances, near = model.kneighbors(Q, 4)
    M = model.get_mahalanobis_matrix(Q)
    D = Q[:, None] - X[near]
    squared = np.einsum("qkd,qde,qke->qk", D, M, D)
    np.testing.assert_allclose(distances**2, squared, atol=1e-9)


def test_many_directions_are_cut_with_a_warning(monkeypatch):
    monkeypatch.setattr(span, "_MANY", 30)
    monkeypatch.setattr(span, "_LEADING", 10)
    X, y, _ = halves()
    with pytest.warns(UserWarning, match=r"of 64 features the 10 directions .* n_directions"):
        model = PLML(n_bases=3, random_state=0).fit(X, y)
    assert model.variance_kept_ < 1.0
    with pytest.warns(UserWarning, match="the 10 directions"):
        AutoPLML(random_state=0, standardize=False, n_members=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PLML(n_bases=3, random_state=0, n_directions=None).fit(X, y)
        chosen = PLMLCV(n_bases=3, random_state=0, n_directions=7).fit(X, y)
    assert np.linalg.matrix_rank(chosen.basis_metrics_[0], hermitian=True) <= 7


def test_as_many_as_there_are_change_nothing():
    X, y, _ = halves()
    all_of_them = SML(n_directions=None).fit(X, y)
    most = SML(n_directions=64).fit(X, y)
    np.testing.assert_array_equal(all_of_them.basis_metrics_, most.basis_metrics_)
    assert most.variance_kept_ == 1.0
