"""What Dask should know of our objects: where they are large, work goes to them, and they spill."""

from operator import attrgetter
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from plml.backend.sparse import Edges
from plml.dask.cells import CellIndex
from plml.ops.pairs import PairOperator
from plml.stages.metrics import MetricsDual

#: Objects that are looked into.
_OURS = (Edges, MetricsDual, PairOperator)


@sizeof.register(_OURS)
def n_bytes(value: Any, seen: set[int] | None = None) -> int:
    """Of the arrays within, each counted once."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts: Any = value if isinstance(value, (list, tuple)) else ()
    if isinstance(value, _OURS):
        parts = vars(value).values()
    return sum(n_bytes(part, seen) for part in parts)


sizeof.register(CellIndex, attrgetter("nbytes"))
