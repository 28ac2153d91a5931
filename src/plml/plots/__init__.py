"""Pictures. The Display classes are for users; matplotlib is imported when one is drawn."""

from plml.plots.displays import (
    ConvergenceDisplay,
    ExplanationDisplay,
    LocalMetricDisplay,
    NeighborsDisplay,
    WeightsDisplay,
)
from plml.plots.importance import ImportanceDisplay

__all__ = [
    "ConvergenceDisplay",
    "ExplanationDisplay",
    "ImportanceDisplay",
    "LocalMetricDisplay",
    "NeighborsDisplay",
    "WeightsDisplay",
]
