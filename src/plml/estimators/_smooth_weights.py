"""Smooth local weights: the parameters of stage 1 and of the weights of new points."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from plml.estimators._fit_warnings import warn_of_gap
from plml.estimators._parameters import COUNT, NOT_NEGATIVE, parameter
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import NearestRow, NewPoint, WeightRule
from plml.stages.pipeline import SmoothWeighting, Weighting

if TYPE_CHECKING:
    from plml.estimators._large_margin import LargeMarginClassifier as Host
else:
    Host = object


@dataclass(kw_only=True, eq=False, repr=False)
class SmoothWeights(Host):
    """Mixin for a large-margin classifier: the metric varies smoothly over the data."""

    n_bases: int = parameter(20, COUNT)
    locality: float = parameter(1.0, NOT_NEGATIVE)
    smoothness: float = parameter(100.0, NOT_NEGATIVE)
    n_graph_neighbors: int = parameter(6, COUNT)
    query_weights: str = parameter("nearest", StrOptions({"nearest", "optimize"}))
    case_metrics: str | None = parameter(None, StrOptions({"class", "local"}), None)
    random_state: int | np.random.RandomState | None = parameter(None, "random_state")

    def _weighting(self) -> SmoothWeighting:
        return SmoothWeighting(
            self._chosen("n_bases"),
            self.locality,
            self.smoothness,
            self.n_graph_neighbors,
            self.random_state,
        )

    def _rule_maker(self, weighting: Weighting) -> RuleMaker:
        if self.query_weights == "nearest" or not isinstance(weighting, SmoothWeighting):
            return _nearest_row
        return partial(_new_point, weighting, self.tol, self.max_iter)

    def _case_rule_maker(self, weighting: Weighting) -> RuleMaker:
        if not isinstance(weighting, SmoothWeighting):
            return super()._case_rule_maker(weighting)
        return partial(_new_point, weighting, self.tol, self.max_iter)

    def _case_side(self) -> str | None:
        return self.case_metrics

    def _metric_parameters(self) -> tuple[Any, ...]:
        rule = self._weighting(), self.query_weights, self.tol, self.max_iter
        return *super()._metric_parameters(), *rule


def _nearest_row(
    anchors: Any, scales: Any, X: np.ndarray, sample_weight: np.ndarray | None
) -> WeightRule:
    return NearestRow()


def _new_point(
    weighting: SmoothWeighting,
    tol: float,
    max_iter: int,
    anchors: Any,
    scales: Any,
    X: np.ndarray,
    sample_weight: np.ndarray | None,
) -> WeightRule:
    return NewPoint(
        weighting.rule_for_new_points(anchors, tol, max_iter),
        scales,
        partial(warn_of_gap, "the weights of new points", tol, max_iter, X),
        sample_weight,
    )
