"""Smooth local weights: what ``PLML`` and ``PLMLCV`` share."""

from collections.abc import Iterator
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from plml.estimators._fit_warnings import warn_of_gap
from plml.estimators._recipe import RuleMaker
from plml.metric.weight_rules import NearestRow, NewPoint, WeightRule
from plml.solvers.problem import history_arrays
from plml.stages.pipeline import Learned, SmoothWeighting


class SmoothWeights:
    """Mixin: stage 1 by equation 4, on this machine or on a Dask cluster."""

    _smooth_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_bases": [Interval(Integral, 1, None, closed="left")],
        "locality": [Interval(Real, 0, None, closed="left")],
        "smoothness": [Interval(Real, 0, None, closed="left")],
        "n_graph_neighbors": [Interval(Integral, 1, None, closed="left")],
        "query_weights": [StrOptions({"nearest", "optimize"})],
        "random_state": ["random_state"],
    }

    n_bases: int
    locality: float
    smoothness: float
    n_graph_neighbors: int
    query_weights: str
    random_state: Any
    tol: float
    max_iter: int

    def _weighting(self) -> SmoothWeighting:
        return SmoothWeighting(
            self.n_bases,
            self.locality,
            self.smoothness,
            self.n_graph_neighbors,
            self.random_state,
        )

    def _rule_maker(self) -> RuleMaker:
        if self.query_weights == "nearest":
            return _nearest_row
        return partial(_new_point, self._weighting(), self.tol, self.max_iter)

    def _metric_parameters(self) -> tuple[Any, ...]:
        return *super()._metric_parameters(), self.query_weights

    def _set_certificates(self, learned: Learned) -> None:
        super()._set_certificates(learned)
        weights = learned.weights
        self._scales = weights.scales
        self.weights_gap_ = weights.gap
        self.weights_n_iter_ = weights.n_iter
        self.history_["weights"] = history_arrays(weights.history)
        self.converged_ = self.converged_ and bool(weights.gap <= self.tol)
        if weights.interrupted:
            self._cut.append("weights")

    def _fit_warnings(self) -> Iterator[Warning]:
        yield from self._gap_warning("stage 1 (weights)", self.weights_gap_, "weights" in self._cut)
        yield from super()._fit_warnings()


def _nearest_row(anchors: Any, scales: Any, X: np.ndarray) -> WeightRule:
    return NearestRow()


def _new_point(
    weighting: SmoothWeighting, tol: float, max_iter: int, anchors: Any, scales: Any, X: np.ndarray
) -> WeightRule:
    return NewPoint(
        anchors,
        scales,
        weighting.locality,
        weighting.smoothness,
        weighting.n_graph_neighbors,
        tol,
        max_iter,
        partial(warn_of_gap, "the weights of new points", tol, max_iter, X),
    )
