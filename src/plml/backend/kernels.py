"""Kernels of our own for a GPU, in Triton, which comes with PyTorch for CUDA on Linux.

Each reads its arguments once, where PyTorch's own functions would write and read arrays between
them. They are for contiguous tensors of float32 or float64.
"""

import torch
import triton
from triton import language as tl

from plml.backend.arrays import Array

#: Entries that one program of a kernel keeps in its registers.
_ENTRIES = 1024
#: Columns that a row is read in.
_COLUMNS = 128
#: Entries of a sparse row that are read at once.
_SPARSE_ENTRIES = 16


def simplex_rows(V: Array) -> Array:
    """The projections of the rows of V, (n, m), onto the simplex."""
    (n, m), V, result = V.shape, V.contiguous(), torch.empty_like(V)
    columns = triton.next_power_of_2(m)
    rows = max(1, _ENTRIES // columns)
    with torch.cuda.device_of(V):
        _simplex_rows[(triton.cdiv(n, rows),)](V, result, n, m, ROWS=rows, COLUMNS=columns)
    return result


def dots_of_pairs(A: Array, B: Array, first: Array, second: Array) -> Array:
    """<a_i, b_j> of (p,) pairs of rows i of A and j of B, (n, d) and (n', d)."""
    (_, d), n_pairs = A.shape, len(first)
    columns = min(_COLUMNS, triton.next_power_of_2(d))
    rows = _ENTRIES // columns
    result = torch.empty(n_pairs, dtype=A.dtype, device=A.device)
    with torch.cuda.device_of(A):
        _dots_of_pairs[(triton.cdiv(n_pairs, rows),)](
            A, B, first, second, result, n_pairs, d, ROWS=rows, COLUMNS=columns
        )
    return result


def sums_of_products(V: Array, A: Array, W: Array, B: Array) -> Array:
    """v_ib a_i + w_ib b_i, (n, m, d), of weights (n, m) and rows (n, d)."""
    (n, m), d = V.shape, A.shape[1]
    result = torch.empty((n, m, d), dtype=A.dtype, device=A.device)
    columns = triton.next_power_of_2(d)
    with torch.cuda.device_of(A):
        _sums_of_products[(n,)](V, A, W, B, result, m, d, COLUMNS=columns)
    return result


def forms_and_mean(P: Array, X: Array, W: Array, forms: Array, mean: Array) -> None:
    """Write <p_ib, x_i> to ``forms``, (n, m), and sum_b w_ib p_ib to ``mean``, (n, d).

    P is an (n, m, d) array, X (n, d), W (n, m).
    """
    n, m, d = P.shape
    columns = triton.next_power_of_2(d)
    with torch.cuda.device_of(P):
        _forms_and_mean[(n,)](P, X, W, forms, mean, m, d, COLUMNS=columns)


def sparse_rows(data: Array, columns: Array, starts: Array, x: Array) -> Array:
    """A sparse matrix in compressed rows times x, (n, m)."""
    n, m = len(starts) - 1, x.shape[1]
    result = torch.empty((n, m), dtype=x.dtype, device=x.device)
    width = triton.next_power_of_2(m)
    with torch.cuda.device_of(x):
        _sparse_rows[(n,)](
            data, columns, starts, x, result, m, ENTRIES=_SPARSE_ENTRIES, COLUMNS=width, num_warps=1
        )
    return result


@triton.jit
def _simplex_rows(source, result, n, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A few rows each. The entries above a threshold give the next one, until none drops out; it
    only rises, so the last one is the threshold of the projection (Michelot, 1986).
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    inside = (rows < n) & (columns < m)
    places = rows.to(tl.int64) * m + columns
    v = tl.load(source + places, mask=inside, other=float("-inf"))
    v = tl.where(rows < n, v, 0.0)  # rows beyond the last one end at once
    # The projection is invariant to a shift of the row; this one keeps the sums small.
    v -= tl.max(v, axis=1)[:, None]
    above = v > -1.0
    threshold = tl.zeros([ROWS], v.dtype) - 1.0
    dropped = 1
    while dropped > 0:
        counts = tl.sum(tl.where(above, 1.0, 0.0).to(v.dtype), axis=1)
        threshold = (tl.sum(tl.where(above, v, 0.0), axis=1) - 1.0) / counts
        still = above & (v > threshold[:, None])
        dropped = tl.sum(tl.sum((above ^ still).to(tl.int32), axis=1), axis=0)
        above = still
    tl.store(result + places, tl.maximum(v - threshold[:, None], 0.0), mask=inside)


@triton.jit
def _dots_of_pairs(  # type: ignore[no-untyped-def]
    A, B, first, second, result, n_pairs, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """A few pairs each."""
    pairs = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = pairs < n_pairs
    i = tl.load(first + pairs, mask=inside, other=0).to(tl.int64)[:, None] * d
    j = tl.load(second + pairs, mask=inside, other=0).to(tl.int64)[:, None] * d
    total = tl.zeros([ROWS, COLUMNS], A.dtype.element_ty)
    for start in range(0, d, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)[None, :]
        there = inside[:, None] & (columns < d)
        a = tl.load(A + i + columns, mask=there, other=0.0)
        total += a * tl.load(B + j + columns, mask=there, other=0.0)
    tl.store(result + pairs, tl.sum(total, axis=1), mask=inside)


@triton.jit
def _sums_of_products(V, A, W, B, result, m, d, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row i each."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < d
    a = tl.load(A + row * d + columns, mask=inside, other=0.0)
    b = tl.load(B + row * d + columns, mask=inside, other=0.0)
    for base in range(m):
        v, w = tl.load(V + row * m + base), tl.load(W + row * m + base)
        tl.store(result + (row * m + base) * d + columns, v * a + w * b, mask=inside)


@triton.jit
def _forms_and_mean(P, X, W, forms, mean, m, d, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row i each."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < d
    x = tl.load(X + row * d + columns, mask=inside, other=0.0)
    total = tl.zeros([COLUMNS], x.dtype)
    for base in range(m):
        p = tl.load(P + (row * m + base) * d + columns, mask=inside, other=0.0)
        tl.store(forms + row * m + base, tl.sum(p * x, axis=0))
        total += tl.load(W + row * m + base) * p
    tl.store(mean + row * d + columns, total, mask=inside)


@triton.jit
def _sparse_rows(  # type: ignore[no-untyped-def]
    data, indices, starts, x, result, m, ENTRIES: tl.constexpr, COLUMNS: tl.constexpr
):
    """One row each, several of its entries at a time."""
    row = tl.program_id(0).to(tl.int64)
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    columns = tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros([ENTRIES, COLUMNS], x.dtype.element_ty)
    for start in range(first, last, ENTRIES):
        entries = start + tl.arange(0, ENTRIES)
        there = entries < last
        value = tl.load(data + entries, mask=there, other=0.0)[:, None]
        index = tl.load(indices + entries, mask=there, other=0).to(tl.int64)[:, None]
        inside = there[:, None] & (columns < m)
        total += value * tl.load(x + index * m + columns, mask=inside, other=0.0)
    places = result + row * m + tl.arange(0, COLUMNS)
    tl.store(places, tl.sum(total, axis=0), mask=tl.arange(0, COLUMNS) < m)
