"""Context variables that hold a value for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextmanager
def holding(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Inside, the variable has this value; afterwards the one it had before."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
