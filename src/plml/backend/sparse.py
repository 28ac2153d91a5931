"""Sparse matrices in compressed rows: SciPy arrays here, PyTorch tensors where the rows are."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from plml.backend.arrays import Array, is_tensor, like, namespace
from plml.backend.fused import in_one_kernel
from plml.backend.threads import ThreadTeam


def sparse_product(
    matrix: Any, like_x: Array, scale: float = 1.0, rows: slice = slice(None)
) -> Callable[[Array], Array]:
    """The function x -> scale * matrix[rows] @ x, in the dtype and on the device of ``like_x``.

    The matrix is a SciPy array, or a sparse tensor.
    """
    dtype = like_x.dtype
    if not is_tensor(like_x):
        part = (scale * matrix[rows]).astype(dtype)
        return lambda x: part @ x
    if is_tensor(matrix):
        parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    else:
        parts = (matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32))
    data, indices, starts = (like(part, like_x) for part in parts)
    first, last, _ = rows.indices(matrix.shape[0])
    if last - first < matrix.shape[0]:
        begin, end = int(starts[first]), int(starts[last])
        data, indices = data[begin:end], indices[begin:end]
        starts = starts[first : last + 1] - begin
    data = (scale * data).to(dtype)
    if in_one_kernel(like_x):
        from plml.backend import kernels

        return lambda x: kernels.sparse_rows(data, indices, starts, x.contiguous())
    tensor = _tensor_csr(data, indices, starts, (last - first, matrix.shape[1]))
    return lambda x: tensor @ x


def sparse_tensor(rows: Array, columns: Array, values: Array, n: int) -> Array:
    """An (n, n) sparse tensor of entries in any order, no two of them at one place."""
    import torch

    order = (rows * n + columns).argsort()
    starts = torch.zeros(n + 1, dtype=torch.int64, device=rows.device)
    starts[1:] = torch.bincount(rows, minlength=n).cumsum(0)
    indices, starts = (part.to(torch.int32) for part in (columns[order], starts))
    return _tensor_csr(values[order], indices, starts, (n, n))


def entries_of(matrix: Any) -> tuple[Array, ...]:
    """Rows, columns and values of the entries of a sparse array or tensor."""
    if not is_tensor(matrix):
        entries = matrix.tocoo()
        return *entries.coords, entries.data
    columns = matrix.col_indices()
    numbers = namespace(columns).arange(matrix.shape[0], device=columns.device)
    rows = numbers.repeat_interleave(matrix.crow_indices().diff(), output_size=len(columns))
    return rows, columns, matrix.values()


class Edges:
    """A sparse matrix with fixed positions and changing entries, one per pair (i, j).

    Parameters
    ----------
    pairs : (n_pairs, 2) integer array of rows and columns
    n : the matrix is n x n
    like_x : an array of the namespace and device of the products
    """

    def __init__(self, pairs: np.ndarray, n: int, like_x: Array) -> None:
        self.n = n
        # On the host: slicing must not wait for a device.
        self._starts = _row_starts(pairs[:, 0], n)
        rows, columns = (like(np.ascontiguousarray(part), like_x) for part in pairs.T)
        self._order, self._indptr, self._indices = _compressed(rows, columns, self._starts)
        if is_tensor(like_x):
            self._transposed = _compressed(columns, rows, _row_starts(pairs[:, 1], n))

    def entries(self, values: Array, dtype: Any) -> Array:
        """Values of the pairs in the order and dtype that the products need."""
        return namespace(values).astype(values[self._order], dtype, copy=False)

    def half_laplacian(
        self, entries: Array, x: Array, team: ThreadTeam, blocks: list[slice]
    ) -> Array:
        """(D / 2 - S) x with S this matrix and D the diagonal of its row sums, block by block."""
        result = namespace(x).empty_like(x)

        def fill(rows: slice) -> None:
            sums, product = self._product(entries, x, rows)
            result[rows] = 0.5 * sums[:, None] * x[rows] - product

        team.map(fill, blocks)
        return result

    def _product(self, entries: Array, x: Array, rows: slice) -> tuple[Array, Array]:
        """Row sums of some rows of the matrix, and those rows of its product with x."""
        first, last = (int(self._starts[row]) for row in (rows.start, rows.stop))
        indptr = self._indptr[rows.start : rows.stop + 1] - first
        parts = (entries[first:last], self._indices[first:last], indptr)
        shape = (rows.stop - rows.start, self.n)
        if not is_tensor(x):
            matrix = sparse.csr_array(parts, shape=shape)
            return np.asarray(matrix.sum(axis=1)).ravel(), matrix @ x
        matrix = _tensor_csr(*parts, shape)
        return matrix @ x.new_ones(self.n), matrix @ x

    def transposed_product(self, values: Array, entries: Array, x: Array) -> Array:
        """The transposed matrix times x; the values are those of the entries."""
        if not is_tensor(x):
            parts = (entries, self._indices, self._indptr)
            return sparse.csr_array(parts, shape=(self.n, self.n)).T @ x
        order, indptr, indices = self._transposed
        return _tensor_csr(values[order].to(x.dtype), indices, indptr, (self.n, self.n)) @ x


def _row_starts(rows: np.ndarray, n: int) -> np.ndarray:
    """Where each of n rows begins among entries sorted by row, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])


def _compressed(rows: Array, columns: Array, starts: np.ndarray) -> tuple[Array, ...]:
    """Order of the entries, row pointers and columns of a matrix in compressed rows."""
    order = namespace(rows).argsort(rows, stable=True)
    return order, like(starts, rows), columns[order]


def _tensor_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> Array:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(indptr, indices, data, size=shape, check_invariants=False)
