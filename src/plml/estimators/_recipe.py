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
from plml.stages.earlier import Earlier
from plml.stages.one_machine import OneMachine, case_weights
from plml.stages.pipeline import Settings, Weighting
from plml.stages.triplets import n_triplets, triplets_per_row

#: (anchors in the coordinates of the search, scales of the training rows, the training rows, their
#: sample weights)
RuleMaker = Callable[[Any, Any, np.ndarray, np.ndarray | None], WeightRule]


@dataclass(frozen=True)
class Recipe:
    """How the metric is learned, and how it is asked.

    Parameters
    ----------
    weighting, settings : of the pipeline
    make_rule : weights of new points
    make_case_rule : weights of cases that are added
    neighbor_search : of the fit
    device, approximate : of the search
    rescale : whether the rows are brought to one scale before they are learned from
    """

    weighting: Weighting
    settings: Settings
    make_rule: RuleMaker
    make_case_rule: RuleMaker
    neighbor_search: str
    device: str
    approximate: bool
    rescale: bool = False

    def unit(self, X: Array, sample_weight: np.ndarray | None = None) -> float:
        """The length that the parameters call one, where some rows are learned from."""
        return mean_radius(X, sample_weight) if self.rescale else 1.0

    def triplets_of(
        self, y: np.ndarray, n_classes: int, sample_weight: np.ndarray | None = None
    ) -> float:
        """The total weight of the triplets that are learned from, their number without weights."""
        numbers = self.settings.n_targets, self.settings.n_impostors
        sizes = np.bincount(y, minlength=n_classes)
        if sample_weight is None:
            return n_triplets(sizes, *numbers)
        return float(triplets_per_row(sizes, *numbers) @ np.bincount(y, sample_weight, n_classes))

    def stages(
        self,
        X: Array,
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        earlier: Earlier | None = None,
    ) -> OneMachine:
        """The stages of the pipeline on some rows, from what an earlier fit left."""
        return OneMachine(X, y, self.neighbor_search, sample_weight, earlier)

    def metric(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        M: np.ndarray,
        anchors: np.ndarray | None,
        scales: Any,
        span: Span | None = None,
        sample_weight: np.ndarray | None = None,
        center: np.ndarray | None = None,
    ) -> BasisMetric:
        """What was learned, ready to be asked; all in the coordinates of the data.

        X and y are those of all cases; weights and scales are of the rows that were learned from.
        """
        anchors = None if anchors is None else inside(anchors, span)
        n = len(weights)
        counts = None if sample_weight is None else sample_weight[:n]
        rule, case_rule = (
            make(anchors, scales, X[:n], counts) for make in (self.make_rule, self.make_case_rule)
        )
        how: dict[str, Any] = {
            "case_rule": case_rule,
            "center": center,
            "span": span,
            "device": self.device,
            "approximate": self.approximate,
        }
        kind, m = self.settings.case_metrics, weights.shape[1]
        if kind is None:
            return BasisMetric(X, weights, M, rule, **how)
        cases = case_weights(kind, y, weights) if kind == "class" else None  # their own
        return TwoSidedMetric(X, weights, M[:m], rule, cases, M[m:], **how)
