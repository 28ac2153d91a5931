"""What many tasks leave, put together: sums, and named tuples of arrays with a row per thing."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

#: What one task adds up.
_AT_ONCE = 8


def summed(parts: list[Any]) -> Any:
    """Field by field, where they have some."""
    first = parts[0]
    if isinstance(first, tuple):
        return type(first)(*(sum(column) for column in zip(*parts, strict=True)))
    return sum(parts)


def stacked(parts: list[Any]) -> Any:
    """Named tuples of arrays, the rows of one after those of the other."""
    return type(parts[0])(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def rows_of(part: Any, chosen: np.ndarray | slice) -> Any:
    """Some rows of a named tuple of arrays."""
    return type(part)(*(array[chosen] for array in part))


class RunningSum:
    """A sum of many parts of which few are in memory at a time.

    Parameters
    ----------
    add_up : makes one part of a list of them, later or elsewhere
    parts : futures, or delayed
    """

    def __init__(self, add_up: Callable[[list[Any]], Any], parts: Iterable[Any] = ()) -> None:
        self._add_up = add_up
        self._levels: list[list[Any]] = [[]]
        for part in parts:
            self.add(part)

    def add(self, part: Any) -> None:
        """One more; as soon as there are a few, they are replaced by their sum."""
        for level in self._levels:
            level.append(part)
            if len(level) <= _AT_ONCE:
                return
            part = self._add_up(level[:-1])
            level[:] = level[-1:]
        self._levels.append([part])

    @property
    def parts(self) -> list[Any]:
        """At most a few, whose sum is the sum of all."""
        parts = [part for level in reversed(self._levels) for part in level]
        while len(parts) > _AT_ONCE:
            parts[-_AT_ONCE:] = [self._add_up(parts[-_AT_ONCE:])]
        return parts
