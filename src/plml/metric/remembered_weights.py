"""Weights of new points, computed once for a search and the explanation that follows it."""

from copy import copy
from typing import Any

import numpy as np


class RememberedWeights:
    """A rule for the weights of new points that does not compute the same ones twice in a row.

    Parameters
    ----------
    rule : see ``plml.metric.weight_rules``
    """

    def __init__(self, rule: Any) -> None:
        self._rule = rule
        self._last: tuple[bytes, Any] = (b"", None)

    def weights(self, points: Any, indexes: Any) -> Any:
        """As the rule has them."""
        if not isinstance(points, np.ndarray):
            return self._rule.weights(points, indexes)
        key, (known, found) = points.tobytes(), self._last
        if key != known:
            found = self._rule.weights(points, indexes)
            self._last = (key, found)
        return found


def with_memory(metric: Any) -> Any:
    """The same metric; one whose weights follow a rule remembers those of the last points."""
    if not hasattr(metric, "rule"):
        return metric
    remembering = copy(metric)
    remembering.rule = RememberedWeights(metric.rule)
    # Indexes are of the metric that makes them, and end with it: this one may end first.
    remembering.indexes_on = metric.indexes_on
    return remembering
