"""Pictures. The Display classes are for users; matplotlib is imported when one is drawn."""

from plml.inspection.displays import (
    ConvergenceDisplay,
    ExplanationDisplay,
    LocalMetricDisplay,
    NeighborsDisplay,
    WeightsDisplay,
)
from plml.inspection.importance_display import ImportanceDisplay

__all__ = [
    "ConvergenceDisplay",
    "ExplanationDisplay",
    "ImportanceDisplay",
    "LocalMetricDisplay",
    "NeighborsDisplay",
    "WeightsDisplay",
]
