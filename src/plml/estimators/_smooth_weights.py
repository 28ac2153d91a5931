"""Smooth local weights, as ``PLML`` and ``PLMLCV`` understand their parameters."""

from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from plml.estimators._fit_warnings import warn_of_gap
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import NearestRow, NewPoint, WeightRule
from plml.stages.pipeline import SmoothWeighting

#: Of the parameters that both have.
CONSTRAINTS: dict[str, list[Any]] = {
    "n_bases": [Interval(Integral, 1, None, closed="left")],
    "locality": [Interval(Real, 0, None, closed="left")],
    "smoothness": [Interval(Real, 0, None, closed="left")],
    "n_graph_neighbors": [Interval(Integral, 1, None, closed="left")],
    "query_weights": [StrOptions({"nearest", "optimize"})],
    "random_state": ["random_state"],
}


def smooth_weighting(model: Any) -> SmoothWeighting:
    """Stage 1 by the parameters of an estimator."""
    return SmoothWeighting(
        model.n_bases,
        model.locality,
        model.smoothness,
        model.n_graph_neighbors,
        model.random_state,
    )


def smooth_rule_maker(model: Any) -> RuleMaker:
    """The weights of new points by the parameters of an estimator."""
    if model.query_weights == "nearest":
        return _nearest_row
    return partial(_new_point, smooth_weighting(model), model.tol, model.max_iter)


def _nearest_row(anchors: Any, scales: Any, X: np.ndarray) -> WeightRule:
    return NearestRow()


def _new_point(
    weighting: SmoothWeighting, tol: float, max_iter: int, anchors: Any, scales: Any, X: np.ndarray
) -> WeightRule:
    return NewPoint(
        weighting.rule_for_new_points(anchors, tol, max_iter),
        scales,
        partial(warn_of_gap, "the weights of new points", tol, max_iter, X),
    )
