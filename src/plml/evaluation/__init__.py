"""What a model is worth, beside what simpler ones are worth on the same rows."""

from plml.evaluation.measuring import cross_evaluate, evaluate
from plml.evaluation.scorecard import Figures, Scorecard
from plml.evaluation.staleness import Staleness, staleness

__all__ = ["Figures", "Scorecard", "Staleness", "cross_evaluate", "evaluate", "staleness"]
