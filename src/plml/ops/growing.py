"""Arrays whose rows come and go.

Rows are appended in place where there is room behind them, so that a row at a time costs no copy
of all. Nobody sees another array change: an array of n rows is a view of the first n of its buffer,
and what is written goes behind the rows of everybody.
"""

from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np

from plml.backend.arrays import Array, is_tensor, like, namespace

#: One row in this many is what a new buffer has room for beyond its rows.
_SPARE = 4
#: Rows that are in use, by the number of the buffer.
_used: dict[int, int] = {}
_lock = Lock()


def appended(rows: Array, more: Array) -> Array:
    """The rows, with more of them behind: (n, ...) and (r, ...) -> (n + r, ...), in their dtype."""
    if is_tensor(rows):
        return namespace(rows).concat([rows, like(more, rows, rows.dtype)], axis=0)
    n, total = len(rows), len(rows) + len(more)
    buffer = _buffer_behind(rows, total)
    if buffer is None:
        buffer = _buffer_for(total, rows, rows.dtype)
        buffer[:n] = rows
    buffer[n:total] = more
    return buffer[:total]


def with_room(rows: Array, dtype: Any) -> Array:
    """A copy of the rows in a dtype, with room for more behind them.

    The room is memory that is asked for and not touched, which takes none on most systems.
    """
    if is_tensor(rows):
        return namespace(rows).astype(rows, dtype)
    copied = _buffer_for(len(rows), rows, dtype)[: len(rows)]
    copied[...] = rows
    return copied


def _buffer_for(n: int, rows: np.ndarray, dtype: Any) -> np.ndarray:
    """An array with n rows in use, and more behind them, for rows like these."""
    buffer = np.empty((n + n // _SPARE, *rows.shape[1:]), dtype=dtype)
    with _lock:
        _used[id(buffer)] = n
    finalize(buffer, _used.pop, id(buffer), None)
    return buffer


def _buffer_behind(rows: np.ndarray, total: int) -> np.ndarray | None:
    """The buffer of these rows, where nobody else has written behind them and there is room."""
    buffer = rows.base
    if not isinstance(buffer, np.ndarray):
        return None
    with _lock:
        mine = _used.get(id(buffer)) == len(rows) and len(buffer) >= total
        mine = mine and _layout(buffer) == _layout(rows)  # and no view of some columns
        if mine:
            _used[id(buffer)] = total
    return buffer if mine else None


def _layout(rows: np.ndarray) -> tuple[Any, ...]:
    """Where rows begin, and what they are."""
    return rows.ctypes.data, rows.dtype, rows.shape[1:], rows.strides


def without_rows(rows: Array, left_out: np.ndarray) -> Array:
    """The rows without some, (r,) their numbers; the others keep their order."""
    if not is_tensor(rows):
        return np.delete(rows, left_out, axis=0)
    stay = np.ones(len(rows), dtype=bool)
    stay[left_out] = False
    return rows[like(stay, rows)]
