"""Kernels of our own for a GPU, in Triton, which comes with PyTorch for CUDA on Linux."""

import torch
import triton
from triton import language as tl

from plml.backend.arrays import Array

#: Entries that one program of a kernel keeps in its registers.
_ENTRIES = 1024


def simplex_rows(V: Array) -> Array:
    """The projections of the rows of V, (n, m), onto the simplex, in one pass over memory."""
    (n, m), V, result = V.shape, V.contiguous(), torch.empty_like(V)
    columns = triton.next_power_of_2(m)
    rows = max(1, _ENTRIES // columns)
    with torch.cuda.device_of(V):
        _simplex_rows[(triton.cdiv(n, rows),)](V, result, n, m, ROWS=rows, COLUMNS=columns)
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
