"""NumPy and PyTorch behind one array namespace, and what the array API lacks.

The stages and solvers are written against the array namespace of their input (array-api-compat).
What it does not have is here: a choice of device, inner products, segment sums, the largest entries
of a row. Sparse matrices are in ``sparse.py``.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from math import inf
from typing import Any

import numpy as np

from plml.backend.context import holding
from plml.backend.threads import SERIAL, ThreadTeam
from plml.install import install

try:
    import array_api_compat
except ImportError:  # scikit-learn brings a copy
    from sklearn.externals import array_api_compat  # type: ignore[no-redef]

#: A NumPy array or a PyTorch tensor.
Array = Any

#: Elements in the largest temporary array, as set by ``working_memory``.
_LARGEST_BLOCK: ContextVar[float] = ContextVar("largest_block", default=inf)
#: A float64 and a temporary of the same size, for each of two threads.
_BYTES_PER_ELEMENT = 32
_NUMPY = array_api_compat.array_namespace(np.empty(0))
#: Columns whose largest entry is compared before the entries themselves: for tensors, and here.
_GROUP, _GROUP_HERE = 32, 16
#: The number of groups of a tensor is a multiple of this: memory is read in pieces.
_PIECE = 8


def namespace(*arrays: Array) -> Any:
    """The array namespace of the arrays."""
    if all(type(array) is np.ndarray for array in arrays):  # without a look at other libraries
        return _NUMPY
    return array_api_compat.array_namespace(*arrays)


def device(x: Array) -> Any:
    """The device of x, as the ``device=`` of the namespace's functions."""
    if type(x) is np.ndarray:
        return "cpu"
    return array_api_compat.device(x)


def is_tensor(x: object) -> bool:
    """Whether x is a PyTorch tensor; torch is not imported to find out."""
    if type(x) is np.ndarray:
        return False
    return bool(array_api_compat.is_torch_array(x))


def is_chunked(x: object) -> bool:
    """Whether x is a Dask array; dask is not imported to find out."""
    return bool(array_api_compat.is_dask_array(x))


def is_collection(x: object) -> bool:
    """Whether x is a Dask array, data frame or series; dask is not imported to find out."""
    return type(x).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(x, "dask")


def check_device(device: str) -> None:
    """Raise a ``ValueError`` of one line if nothing can run on the device."""
    if device == "cpu":
        return
    kind, _, number = device.partition(":")
    if kind not in ("cuda", "torch"):
        raise ValueError(f'unknown device {device!r}: use "cpu", "cuda" or "cuda:0"')
    try:
        import torch
    except ImportError:
        raise ValueError(
            f'device={device!r} needs PyTorch: {install("gpu")}, or use device="cpu"'
        ) from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r}: PyTorch {torch.__version__} finds no GPU; install its CUDA build "
            'and a driver, or use device="cpu"'
        )
    n_gpus = torch.cuda.device_count()
    if kind == "cuda" and number and not (number.isdigit() and int(number) < n_gpus):
        raise ValueError(f"device={device!r}: there are {n_gpus} GPUs, numbered from 0")


def to_available_device(x: Array, name: str) -> Array:
    """``to_device``, or a NumPy array if there is no such device here.

    So a model that was fitted on a GPU works on machines without one.
    """
    try:
        check_device(name)
    except ValueError:
        return on_host(x)
    return to_device(x, name)


def to_device(x: Array, device: str) -> Array:
    """A NumPy array for "cpu", otherwise a tensor on the device.

    ``"torch"`` is PyTorch on the processor, so that the same code can be tested without a GPU.
    A tensor that is already on a GPU stays there.
    """
    if is_on_gpu(x):
        return x
    if device == "cpu":
        return on_host(x)
    import torch

    place = "cpu" if device == "torch" else device
    return torch.as_tensor(x, device=place) if is_tensor(x) else torch.tensor(x, device=place)


def on_host(x: Array) -> np.ndarray:
    """The same values as a NumPy array."""
    if not is_tensor(x):
        return np.asarray(x)
    x = x.detach().cpu()
    return (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()


def like(values: Any, x: Array, dtype: Any = None) -> Array:
    """Values in the namespace and on the device of x, in the given dtype or their own."""
    if not is_tensor(x):
        return np.asarray(on_host(values), dtype=dtype)
    import torch

    if is_tensor(values):
        return values.to(device=x.device, dtype=dtype)
    # The driver copies pageable memory at once; there is no need to wait for the device.
    host = torch.from_numpy(np.asarray(values, order="C")).to(dtype)
    return host.to(x.device, non_blocking=True)


def dtype_name(dtype: Any) -> str:
    """``"float32"`` for the dtype of any namespace."""
    return str(np.dtype(dtype) if isinstance(dtype, type) else dtype).rpartition(".")[2]


def is_on_gpu(x: object) -> bool:
    """Whether x is a tensor on a GPU."""
    return is_tensor(x) and x.is_cuda  # type: ignore[attr-defined]


def dot(a: Array, b: Array) -> Array:
    """<a, b> over all entries, as a number on the device."""
    if is_tensor(a):
        return a.reshape(-1) @ b.reshape(-1)
    return np.float64(np.vdot(a, b))


def row_dot(a: Array, b: Array) -> Array:
    """<a_i, b_i> of all rows (over the last axis)."""
    if is_tensor(a):
        return (a * b).sum(-1)
    return np.einsum("...d,...d->...", a, b)


def columns_as_rows(x: Array) -> Array:
    """The transpose of an (n, m) array; for tensors a copy, since PyTorch adds up short rows slowly
    and short columns fast.
    """
    return x.T.contiguous() if is_tensor(x) else x.T


def weighted_dot(weights: Array, a: Array, b: Array) -> Array:
    """sum_i w_i <a_i, b_i> of rows (n, m) with weights (n, 1), as a number on the device."""
    if is_tensor(a):  # sums over short rows are slow on a GPU
        return dot(weights * a, b)
    return np.sum(weights[:, 0] * row_dot(a, b))


def downhill(y: Array, half: Array, linear: Array, metric: Array) -> Array:
    """Return y - (2 half + linear) / metric."""
    if is_tensor(y):  # in as few passes as possible: a GPU does little else here
        return y.addcdiv(linear.add(half, alpha=2.0), metric, value=-1.0)
    gradient = half * 2.0
    gradient += linear
    gradient /= metric
    return y - gradient


def beyond(point: Array, move: Array, length: Array, out: Array) -> None:
    """Write point + length * move to ``out``, which may be the move."""
    if is_tensor(point):
        import torch

        torch.addcmul(point, move, length, out=out)
        return
    np.multiply(move, length, out=out)
    out += point


def add_product(out: Array, a: Array, b: Array) -> None:
    """Add a * b to ``out``, entry by entry; a and b may be broadcast."""
    if is_tensor(out):
        out.addcmul_(a, b)  # without an array for the product
    else:
        out += a * b


def matrix_products(A: Array, B: Array, scale: float, plus: Array, times: float) -> Array:
    """Return scale A B + times plus, all (m, d, d) stacks of matrices, in one pass."""
    if is_tensor(A):
        return plus.baddbmm(A, B, beta=times, alpha=scale)
    return scale * (A @ B) + times * plus


def add_matrix_product(out: Array, A: Array, B: Array) -> None:
    """Add A @ B to ``out``."""
    if is_tensor(out):
        out.addmm_(A, B)
    else:
        out += A @ B


def extrapolate(before: Array, after: Array, momentum: Array, out: Array) -> None:
    """Write after + momentum * (after - before) to ``out``, which may be ``before``."""
    if is_tensor(out):
        import torch

        torch.lerp(before, after, 1.0 + momentum, out=out)
        return
    np.subtract(after, before, out=out)
    out *= momentum
    out += after


def total(x: Array) -> Array:
    """The sum of all entries, accumulated in float64, as a number on the device."""
    xp = namespace(x)
    return xp.sum(x, dtype=xp.float64)


def fetch(*values: Array) -> list[Any]:
    """Numbers as floats and arrays as NumPy arrays, brought to the host in one transfer."""
    tensors = [value for value in values if is_tensor(value)]
    if not tensors:
        return [value if np.ndim(value) else float(value) for value in values]
    import torch

    flat = torch.cat([value.reshape(-1).to(torch.float64) for value in tensors]).cpu().numpy()
    fetched, start = [], 0
    for value in values:
        if not is_tensor(value):
            fetched.append(value)
            continue
        part = flat[start : start + value.numel()].reshape(tuple(value.shape))
        fetched.append(part if value.ndim else float(part))
        start += value.numel()
    return fetched


def segment_sum(values: Array, segments: Array, n: int) -> Array:
    """Sums of the (p,) values of every segment 0 to n - 1, given (p,) segments, in float64."""
    if not is_tensor(values):
        return np.bincount(segments, values, n)
    import torch

    result = torch.zeros(n, dtype=torch.float64, device=values.device)
    return result.index_add_(0, segments, values.to(torch.float64))


def largest_of_rows(scores: Array, k: int) -> Array:
    """Column numbers (n, k) of the k largest of every row, largest first.

    They are in the k groups of columns with the largest maxima, which one pass finds. A group is
    every so many columns: maxima of whole rows are found faster.
    """
    xp, place, (n, columns) = namespace(scores), device(scores), scores.shape
    size, piece = (_GROUP, _PIECE) if is_tensor(scores) else (_GROUP_HERE, 1)
    n_groups = columns // size // piece * piece
    if n_groups <= 4 * k:
        return _sorted_columns(scores, k)
    grouped = n_groups * size
    maxima = xp.max(xp.reshape(scores[:, :grouped], (n, size, n_groups)), axis=1)
    members = (
        _some_columns(maxima, k)[:, None, :] + n_groups * xp.arange(size, device=place)[:, None]
    )
    rest = xp.broadcast_to(xp.arange(grouped, columns, device=place), (n, columns - grouped))
    members = xp.concat([xp.reshape(members, (n, -1)), rest], axis=1)
    best = _sorted_columns(at_columns(scores, members), k)
    return at_columns(members, best)


def at_columns(x: Array, columns: Array) -> Array:
    """x_ij of the column numbers j of every row, (n, k) integers that are not negative."""
    if is_tensor(x):
        return x.gather(1, columns)
    return np.take_along_axis(x, columns, axis=1)


def _some_columns(scores: Array, k: int) -> Array:
    """Those of the k largest of every row, in any order."""
    if is_tensor(scores):
        return scores.topk(k, dim=1, sorted=False).indices
    first = scores.shape[1] - k
    return np.argpartition(scores, first, axis=1)[:, first:]


def _sorted_columns(scores: Array, k: int) -> Array:
    """Those of the k largest of every row, largest first."""
    if is_tensor(scores):
        return scores.topk(k, dim=1).indices
    top = _some_columns(scores, k)
    order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
    return np.take_along_axis(top, order, axis=1)


def working_memory(mebibytes: float | None) -> AbstractContextManager[None]:
    """Limit the temporary arrays that are cut into blocks; None leaves their usual sizes."""
    cap = inf if mebibytes is None else mebibytes * 2**20 / _BYTES_PER_ELEMENT
    return holding(_LARGEST_BLOCK, cap)


def share_of_memory(x: Array, on_processor: int) -> int:
    """How many elements a temporary array may have: a fixed number on the processor, a share of
    the free memory on a GPU, and no more than ``working_memory`` allows.
    """
    elements = on_processor
    if is_on_gpu(x):
        import torch

        free, _ = torch.cuda.mem_get_info(x.device)
        elements = max(on_processor, free // (16 * x.element_size()))
    return int(max(1, min(elements, _LARGEST_BLOCK.get())))


def lost_in_products(x: Array) -> float:
    """How much of the float32 factors of a product is rounded off before they are multiplied.

    Nothing, unless PyTorch was told to multiply in a shorter format.
    """
    if not is_tensor(x):
        return 0.0
    import torch

    kind = torch.backends.cuda if x.is_cuda else torch.backends.mkldnn
    precision = getattr(getattr(kind, "matmul", None), "fp32_precision", None)
    if precision is None:  # PyTorch up to 2.8
        shorter = x.is_cuda and torch.backends.cuda.matmul.allow_tf32
        precision = "tf32" if shorter else "ieee"
    return {"tf32": 2.0**-11, "bf16": 2.0**-8}.get(precision, 0.0)


@contextmanager
def no_autocast() -> Iterator[None]:
    """Switch off PyTorch's automatic half precision and its recording of gradients."""
    torch = sys.modules.get("torch")  # if it has not been imported, there is no tensor
    if torch is None:
        yield
        return
    gpu = torch.autocast("cuda", enabled=False) if torch.cuda.is_available() else nullcontext()
    with torch.no_grad(), torch.autocast("cpu", enabled=False), gpu:
        yield


def team_for(x: Array, team: ThreadTeam) -> ThreadTeam:
    """The team for work on x: PyTorch has threads of its own."""
    return SERIAL if is_tensor(x) else team
