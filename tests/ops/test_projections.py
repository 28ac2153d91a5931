import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plml.ops.projections import (
    project_box,
    project_psd,
    project_psd_by_sign,
    project_psd_factored,
    project_simplex,
    project_simplex_from,
    psd_factor,
    without,
)

matrices = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-50, 50)
)


@given(matrices)
def test_simplex_projection_is_feasible_and_optimal(V):
    W = project_simplex(V)
    assert W.min() >= 0
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
    # argmin characterisation: <V - W, vertex - W> <= 0 for every vertex of the simplex.
    residual = V - W
    assert (residual.max(axis=1) - (residual * W).sum(axis=1) <= 1e-9).all()


def test_simplex_projection_against_a_convex_solver(rng):
    v = rng.normal(size=7) * 3
    w = cp.Variable(7)
    cp.Problem(cp.Minimize(cp.sum_squares(w - v)), [w >= 0, cp.sum(w) == 1]).solve(
        solver=cp.CLARABEL
    )
    np.testing.assert_allclose(project_simplex(v[None])[0], w.value, atol=1e-6)


def test_simplex_projection_leaves_the_simplex_alone_and_survives_large_numbers():
    inside = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(project_simplex(inside), inside, atol=1e-15)
    np.testing.assert_array_equal(project_simplex(np.array([[1e300, 0.0]])), [[1.0, 0.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3, 1e8])
def test_simplex_projection_from_any_start(rng, dtype, spread):
    V = (spread * rng.normal(size=(200, 7))).astype(dtype)
    exact = project_simplex(V.astype(np.float64))
    for start in (np.full(200, -1.0), rng.uniform(-1.0, -0.1, size=200)):
        threshold = start.astype(dtype)
        found = project_simplex_from(V, threshold)
        # The largest entry is subtracted first, so rounding is relative to one, not to V.
        np.testing.assert_allclose(found, exact, atol=50 * np.finfo(dtype).eps)
        again = project_simplex_from(V, threshold)  # from the answer itself
        np.testing.assert_allclose(again, exact, atol=50 * np.finfo(dtype).eps)


@given(hnp.arrays(np.float64, 5, elements=st.floats(-3, 3)))
def test_box_projection_is_the_nearest_point_of_the_box(v):
    w = project_box(v)
    grid = np.linspace(0, 1, 101)
    nearest = grid[np.abs(grid[:, None] - v).argmin(axis=0)]
    assert ((w >= 0) & (w <= 1)).all()
    assert np.abs(w - nearest).max() <= 0.005 + 1e-12


@pytest.mark.parametrize("d", [1, 3, 8])
def test_psd_projection_against_a_convex_solver(rng, d):
    S = rng.normal(size=(d, d))
    S = S + S.T
    P = cp.Variable((d, d), PSD=True)
    cp.Problem(cp.Minimize(cp.sum_squares(P - S))).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(project_psd(S[None])[0], P.value, atol=1e-5)


def test_psd_projection_of_a_batch_is_psd_and_idempotent(rng):
    S = rng.normal(size=(5, 6, 6))
    S = S + S.swapaxes(1, 2)
    P = project_psd(S)
    assert np.linalg.eigvalsh(P).min() >= -1e-12
    np.testing.assert_allclose(project_psd(P), P, atol=1e-12)


def test_psd_factor_reproduces_the_matrix_and_its_rank(rng):
    A = rng.normal(size=(2, 5))
    L = psd_factor(A.T @ A, rank_tolerance=1e-10)
    assert L.shape == (2, 5)
    np.testing.assert_allclose(L.T @ L, A.T @ A, atol=1e-12)
    assert psd_factor(np.zeros((3, 3))).shape == (1, 3)


def test_the_sign_iteration_is_the_projection(rng):
    A = rng.normal(size=(4, 12, 12))
    S = A + A.swapaxes(1, 2)
    S[1] = 0.0
    S[2] *= 1e6
    S[3] = -A[3] @ A[3].T  # nothing is left of it
    found, expected = project_psd_by_sign(S), project_psd(S)
    for mine, truth, original in zip(found, expected, S, strict=True):
        assert np.linalg.norm(mine - truth) <= 1e-5 * np.linalg.norm(original)
        np.testing.assert_allclose(mine, mine.T, atol=1e-12 * np.abs(original).max())


@pytest.mark.parametrize("d", [31, 32, 40])
def test_factors_of_large_projections(rng, d):
    A = rng.normal(size=(3, d, d))
    S = A + A.swapaxes(1, 2)
    found = project_psd_factored(S)
    assert (found.factors is None) == (d < 32)
    for b in range(3):
        values, vectors = np.linalg.eigh(S[b])
        truth = (vectors * np.maximum(values, 0)) @ vectors.T
        np.testing.assert_allclose(found.matrices[b], truth, atol=1e-10)
        if found.factors is not None:
            L = found.factors[b]
            assert L.shape == (d, int((values > 0).sum()))
            np.testing.assert_allclose(L @ L.T, truth, atol=1e-10)
    np.testing.assert_allclose(project_psd(S), found.matrices)
    np.testing.assert_allclose(project_psd(S[0]), found.matrices[0])


@pytest.mark.parametrize("d", [4, 40])
def test_matrices_that_are_gone(rng, d):
    A = rng.normal(size=(3, d, d))
    found = without(project_psd_factored(A + A.swapaxes(1, 2)), np.array([False, True, False]))
    np.testing.assert_array_equal(found.matrices.any(axis=(1, 2)), [True, False, True])
    if found.factors is not None:
        for L, M in zip(found.factors, found.matrices, strict=True):
            np.testing.assert_allclose(L @ L.T, M, atol=1e-12)
