"""Pictures. The Display classes are for users; matplotlib is imported when one is drawn."""

from plml.inspection.explanation_displays import ExplanationDisplay, NeighborsDisplay
from plml.inspection.importance_display import ImportanceDisplay
from plml.inspection.model_displays import ConvergenceDisplay, LocalMetricDisplay, WeightsDisplay

__all__ = [
    "ConvergenceDisplay",
    "ExplanationDisplay",
    "ImportanceDisplay",
    "LocalMetricDisplay",
    "NeighborsDisplay",
    "WeightsDisplay",
]
