"""Pictures. The Display classes are for users; matplotlib is imported when one is drawn."""

from plml.plots.displays import (
    ConvergenceDisplay,
    ExplanationDisplay,
    LocalMetricDisplay,
    NeighborsDisplay,
    WeightsDisplay,
)

__all__ = [
    "ConvergenceDisplay",
    "ExplanationDisplay",
    "LocalMetricDisplay",
    "NeighborsDisplay",
    "WeightsDisplay",
]
