"""Passes that a GPU makes at once, compared with plain loops; and the kernels, without a GPU."""

import os
import subprocess
import sys

import numpy as np
import pytest

from backend_devices import DEVICES
from plml.backend.arrays import fetch, on_host, to_device
from plml.backend.fused import dots_of_pairs, forms_and_mean, sums_of_products
from plml.backend.graphs import Repeated, Replayed


@pytest.fixture(params=DEVICES)
def placed(request):
    return lambda *values: [to_device(value, request.param) for value in values]


@pytest.fixture(params=["float32", "float64"])
def tolerance(request):
    return {"float32": 1e-4, "float64": 1e-11}[request.param], request.param


SHAPES = [(1, 1, 1), (30, 5, 7), (9, 3, 130), (4, 2, 600)]


@pytest.mark.parametrize("shape", SHAPES)
def test_dots_of_pairs(rng, placed, tolerance, shape):
    n, _, d = shape
    A, B = rng.normal(size=(2, n, d)).astype(tolerance[1])
    i, j = rng.integers(n, size=(2, 57))
    expected = [float(A[a].astype(float) @ B[b].astype(float)) for a, b in zip(i, j, strict=True)]
    found = on_host(dots_of_pairs(*placed(A, B, i, j)))
    assert found.dtype == tolerance[1]
    np.testing.assert_allclose(found, expected, atol=tolerance[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_products(rng, placed, tolerance, shape):
    n, m, d = shape
    V, W = rng.normal(size=(2, n, m)).astype(tolerance[1])
    A, B = rng.normal(size=(2, n, d)).astype(tolerance[1])
    expected = np.empty((n, m, d))
    for i in range(n):
        for b in range(m):
            expected[i, b] = V[i, b] * A[i].astype(float) + W[i, b] * B[i].astype(float)
    found = on_host(sums_of_products(*placed(V, A, W, B)))
    assert found.dtype == tolerance[1]
    np.testing.assert_allclose(found, expected, atol=tolerance[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_forms_and_mean(rng, placed, tolerance, shape):
    n, m, d = shape
    P, X = rng.normal(size=shape).astype(tolerance[1]), rng.normal(size=(n, d)).astype(tolerance[1])
    W = rng.normal(size=(n, m)).astype(tolerance[1])
    arrays = placed(P, X, W, np.empty_like(W), np.empty_like(X))
    forms_and_mean(*arrays)
    forms, mean = (on_host(array) for array in arrays[3:])
    for i in range(n):
        np.testing.assert_allclose(forms[i], P[i].astype(float) @ X[i], atol=tolerance[0])
        expected = sum(float(W[i, b]) * P[i, b].astype(float) for b in range(m))
        np.testing.assert_allclose(mean[i], expected, atol=tolerance[0])


INTERPRETED = """
import numpy as np
import torch
from plml.backend import fused, kernels
from plml.backend.sparse import sparse_product
from plml.ops.projections import project_simplex
rng = np.random.default_rng(0)
for shape in ((50, 6), (3, 1), (200, 20), (70, 33)):
    V = torch.tensor(rng.normal(size=shape))
    np.testing.assert_allclose(kernels.simplex_rows(V), project_simplex(V), atol=1e-15)
for n, m, d in ((1, 1, 1), (30, 5, 7), (9, 3, 130), (4, 2, 600)):
    V, W = torch.tensor(rng.normal(size=(2, n, m)))
    A, B = torch.tensor(rng.normal(size=(2, n, d)))
    i, j = torch.tensor(rng.integers(n, size=(2, 57)))
    P, near = torch.tensor(rng.normal(size=(n, m, d))), {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(
        kernels.dots_of_pairs(A, B, i, j), fused.dots_of_pairs(A, B, i, j), **near
    )
    np.testing.assert_allclose(
        kernels.sums_of_products(V, A, W, B), fused.sums_of_products(V, A, W, B), **near
    )
    for write in (kernels.forms_and_mean, fused.forms_and_mean):
        forms, mean = torch.empty_like(V), torch.empty_like(A)
        write(P, A, V, forms, mean)
        np.testing.assert_allclose(forms, (P * A[:, None]).sum(2), **near)
        np.testing.assert_allclose(mean, (P * V[:, :, None]).sum(1), **near)
for n, m, filled in ((1, 1, 1.0), (40, 20, 0.7), (30, 3, 0.05), (60, 40, 0.0)):
    S = torch.tensor(rng.normal(size=(n, n)) * (rng.random((n, n)) < filled))
    x, rows = torch.tensor(rng.normal(size=(n, m))), S.to_sparse_csr()
    found = kernels.sparse_rows(rows.values(), rows.col_indices(), rows.crow_indices(), x)
    np.testing.assert_allclose(found, S @ x, rtol=1e-12, atol=1e-12)

# Tensors whose rows are not one after the other in memory, where kernels are used.
fused.is_on_gpu = lambda x: True
orders = {
    "by column": lambda x: torch.tensor(np.asfortranarray(x)),
    "every second column": lambda x: torch.tensor(np.repeat(x, 2, axis=-1))[..., ::2],
}
for name, placed in orders.items():
    V, W, A, B = rng.normal(size=(4, 9, 5))
    P, S, (i, j) = rng.normal(size=(9, 5, 5)), rng.normal(size=(9, 9)), rng.integers(9, size=(2, 7))
    assert fused.in_one_kernel(torch.tensor(A)), "kernels are not used here"
    assert not placed(A).is_contiguous()
    some = [placed(x) for x in (V, W, A, B, P)]
    for v, w, a, b, p in (some, [some[0], *map(torch.tensor, (W, A, B, P))]):
        pairs = torch.tensor(i), torch.tensor(j)
        near["err_msg"] = name
        np.testing.assert_allclose(fused.dots_of_pairs(a, b, *pairs), (A[i] * B[j]).sum(1), **near)
        np.testing.assert_allclose(
            fused.sums_of_products(v, a, w, b),
            V[:, :, None] * A[:, None] + W[:, :, None] * B[:, None],
            **near,
        )
        forms, mean = torch.zeros_like(v), torch.zeros_like(a)
        fused.forms_and_mean(p, a, w, forms, mean)
        np.testing.assert_allclose(forms, (P * A[:, None]).sum(2), **near)
        np.testing.assert_allclose(mean, (P * W[:, :, None]).sum(1), **near)
    product = sparse_product(torch.tensor(S).to_sparse_csr(), torch.tensor(A))
    np.testing.assert_allclose(product(placed(A)), S @ A, **near)
"""


def test_the_kernels_do_the_same_without_a_gpu():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, env=environment
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("Triton interprets loops only with an older NumPy")
    assert done.returncode == 0, done.stderr


def test_work_is_done_as_often_as_it_is_asked_for(placed):
    x, count = placed(np.arange(3.0), np.zeros(1))
    one = Repeated(lambda: count.__iadd__(x[1]), x)
    for _ in range(4):
        one()
    assert fetch(count[0]) == [4.0]


def test_a_function_is_replayed_for_what_it_is_given(placed):
    (x,) = placed(np.arange(3.0))
    double = Replayed(lambda values: 2.0 * values)
    results = [double(x + shift) for shift in range(4)]  # none is overwritten by a later one
    for shift, found in enumerate(results):
        np.testing.assert_array_equal(on_host(found), 2.0 * (np.arange(3.0) + shift))
