"""Directions in which rows differ."""

import numpy as np
import pytest

from backend_devices import DEVICES
from plml.backend.arrays import on_host, to_device
from plml.ops.distances import rounding_of
from plml.ops.span import Span, span_of


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", DEVICES)
def test_distances_are_the_same_in_the_span(rng, device, dtype):
    A, R = rng.normal(size=(60, 4)), np.linalg.qr(rng.normal(size=(9, 4)))[0]
    X = to_device((A @ R.T + 3.0).astype(dtype), device)
    span = span_of(X)
    assert span.basis.shape == (9, 4)
    np.testing.assert_allclose(span.basis.T @ span.basis, np.eye(4), atol=1e-12)
    Z = on_host(span.coordinates(X))
    assert Z.dtype == dtype
    between = ((A[:, None] - A) ** 2).sum(axis=2)
    np.testing.assert_allclose(((Z[:, None] - Z) ** 2).sum(axis=2), between, atol=1e-4)
    np.testing.assert_allclose(span.points(Z), on_host(X), atol=1e-5)
    M = rng.normal(size=(2, 4, 4))
    np.testing.assert_allclose(span.inward(span.outward(M)), M, atol=1e-12)


def test_independent_columns_are_left_alone(rng):
    X = rng.normal(size=(50, 6))
    assert span_of(X) is None
    assert span_of(np.ones((5, 3))) is None  # no direction at all: nothing to rotate into
    assert span_of(X + 1e6) is None


def test_constant_columns_are_left_out_as_they_are(rng):
    X = np.column_stack([rng.integers(0, 5, size=50), np.full(50, 7.0), rng.normal(size=50)])
    span = span_of(X)
    np.testing.assert_array_equal(span.coordinates(X), X[:, [0, 2]])  # to the last bit


@pytest.mark.parametrize("unit", [1e-320, 1e-170, 1e-17, 1e17])
def test_a_column_in_other_units_is_not_lost(rng, unit):
    """Too small to be seen among the others, it may be all that matters."""
    X = rng.normal(size=(50, 3)) * [1.0, unit, 1.0]
    assert span_of(X) is None
    redundant = np.column_stack([X, X[:, 0] - X[:, 2]])
    assert span_of(redundant) is None
    assert span_of(np.column_stack([redundant, np.ones(50)])).basis.shape == (5, 4)


def test_more_columns_than_rows(rng):
    span = span_of(rng.normal(size=(10, 200)))
    assert span.basis.shape == (200, 9)


def test_ties_are_ties_in_the_span(rng):
    """Distances of whole and half numbers are exact; in the span equal ones differ by rounding."""
    for _ in range(100):
        A = rng.integers(-5, 6, size=(40, int(rng.integers(1, 6))))
        X = np.hstack([A] * int(rng.integers(2, 9))).astype(float)
        Q = 0.5 * (X[rng.integers(0, 40, size=20)] + X[rng.integers(0, 40, size=20)])
        span = span_of(X)
        rows, queries = span.coordinates(X), span.coordinates(Q)
        squared = ((queries[:, None] - rows) ** 2).sum(axis=2)
        rounding = rounding_of(squared, queries - rows.mean(axis=0))
        exact = ((Q[:, None] - X) ** 2).sum(axis=2)
        order = np.argsort(exact, axis=1, kind="stable")
        exact, squared, rounding = (
            np.take_along_axis(part, order, axis=1) for part in (exact, squared, rounding)
        )
        ties = np.diff(exact, axis=1) == 0.0
        assert (np.abs(np.diff(squared, axis=1)) <= rounding[:, 1:])[ties].all()


@pytest.mark.parametrize("unit", [1e-140, 1e-9, 1.0, 1e9])
def test_coordinates_are_right_to_the_last_digit_in_any_company(rng, unit):
    X = unit * np.hstack([rng.normal(size=(50, 30)) * 10.0 ** rng.integers(-3, 4, size=30)] * 9)
    center, basis = X.mean(axis=0), np.linalg.qr(rng.normal(size=(270, 30)))[0]
    Z = Span(center, basis).coordinates(X)
    alone = np.concatenate([Span(center, basis).coordinates(row[None]) for row in X])
    np.testing.assert_array_equal(Z, alone)
    exact = ((X - center).astype(np.longdouble) @ basis).astype(float)
    size = np.linalg.norm(X - center, axis=1, keepdims=True)
    assert (np.abs(Z - exact) <= 2e-17 * size + np.spacing(np.abs(exact))).all()


def test_leading_directions_are_weighted(rng):
    X, counts = rng.normal(size=(40, 6)) * [5, 4, 3, 2, 1, 1], rng.integers(1, 5, size=40)
    weighted = span_of(X, 3, counts.astype(float))
    repeated = span_of(np.repeat(X, counts, axis=0), 3)
    np.testing.assert_allclose(weighted.center, repeated.center)
    projections = [span.basis @ span.basis.T for span in (weighted, repeated)]
    np.testing.assert_allclose(*projections, atol=1e-10)
    assert weighted.kept == pytest.approx(repeated.kept)
    assert np.abs(span_of(X, 3).basis @ span_of(X, 3).basis.T - projections[0]).max() > 1e-3
