"""What the parameters of an estimator mean to the pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from plml.backend.arrays import Array
from plml.metric.basis_metric import BasisMetric
from plml.metric.two_sided_metric import TwoSidedMetric
from plml.metric.weight_rules import WeightRule
from plml.ops.distances import mean_radius
from plml.ops.span import Span, inside
from plml.stages.one_machine import OneMachine, case_weights
from plml.stages.pipeline import Settings, Weighting
from plml.stages.triplets import n_triplets

#: (anchors in the coordinates of the search, scales of the training rows, the training rows)
RuleMaker = Callable[[Any, Any, np.ndarray], WeightRule]


@dataclass(frozen=True)
class Recipe:
    """How the metric is learned, and how it is asked.

    Parameters
    ----------
    weighting, settings : of the pipeline
    make_rule : weights of new points
    neighbor_search : of the fit
    device, approximate : of the search
    rescale : whether the rows are brought to one scale before they are learned from
    """

    weighting: Weighting
    settings: Settings
    make_rule: RuleMaker
    neighbor_search: str
    device: str
    approximate: bool
    rescale: bool = False

    def unit(self, X: Array) -> float:
        """The length that the parameters call one, where some rows are learned from."""
        return mean_radius(X) if self.rescale else 1.0

    def triplets_of(self, class_sizes: np.ndarray) -> int:
        """How many triplets are learned from, given the sizes of the classes."""
        return n_triplets(class_sizes, self.settings.n_targets, self.settings.n_impostors)

    def stages(self, X: Array, y: np.ndarray) -> OneMachine:
        """The stages of the pipeline on some rows."""
        return OneMachine(X, y, self.neighbor_search)

    def metric(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        M: np.ndarray,
        anchors: np.ndarray | None,
        scales: Any,
        span: Span | None = None,
    ) -> BasisMetric:
        """What was learned, ready to be asked; all in the coordinates of the data."""
        anchors = None if anchors is None else inside(anchors, span)
        rule = self.make_rule(anchors, scales, X)
        how: dict[str, Any] = {
            "span": span,
            "device": self.device,
            "approximate": self.approximate,
        }
        cases = case_weights(self.settings.case_metrics, y, weights)
        if cases is None:
            return BasisMetric(X, weights, M, rule, **how)
        m = weights.shape[1]
        return TwoSidedMetric(X, weights, M[:m], rule, cases, M[m:], **how)
