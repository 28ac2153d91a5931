"""Several steps in one pass over memory, on a GPU with kernels of our own.

Elsewhere, and where kernels cannot be compiled, the steps are taken one after the other.
"""

from plml.backend.arrays import Array, add_product, device, is_on_gpu, row_dot
from plml.backend.graphs import can_compile

#: Entries of a row that one program of a kernel can hold.
_IN_ONE_KERNEL = 1024


def in_one_kernel(x: Array, *others: Array) -> bool:
    """Whether kernels can work on rows like those of x, an (n, d) array, and on other arrays.

    Tensors as users give them may have their rows in any order in memory.
    """
    if not is_on_gpu(x) or x.shape[1] > _IN_ONE_KERNEL or not can_compile(device(x)):
        return False
    return all(array.is_contiguous() for array in (x, *others))


def dots_of_pairs(A: Array, B: Array, first: Array, second: Array) -> Array:
    """<a_i, b_j> of (p,) pairs of rows i of A and j of B, (n, d) and (n', d)."""
    if in_one_kernel(A, B, first, second):
        from plml.backend import kernels

        return kernels.dots_of_pairs(A, B, first, second)
    return row_dot(A[first], B[second])


def sums_of_products(V: Array, A: Array, W: Array, B: Array) -> Array:
    """v_ib a_i + w_ib b_i, (n, m, d), of weights (n, m) and rows (n, d)."""
    if in_one_kernel(A, B, V, W):
        from plml.backend import kernels

        return kernels.sums_of_products(V, A, W, B)
    result = V[:, :, None] * A[:, None, :]
    add_product(result, W[:, :, None], B[:, None, :])
    return result


def forms_and_mean(P: Array, X: Array, W: Array, forms: Array, mean: Array) -> None:
    """Write <p_ib, x_i> to ``forms``, (n, m), and sum_b w_ib p_ib to ``mean``, (n, d).

    P is an (n, m, d) array, X (n, d), W (n, m).
    """
    if in_one_kernel(X, P, W, forms, mean):
        from plml.backend import kernels

        kernels.forms_and_mean(P, X, W, forms, mean)
        return
    forms[...] = (P @ X[:, :, None])[:, :, 0]
    mean[...] = (W[:, None, :] @ P)[:, 0, :]
