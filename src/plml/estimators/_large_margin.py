"""Classifiers that the pipeline learns: basis metrics in the large-margin dual."""

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils._param_validation import StrOptions

from plml.backend.arrays import Array, is_collection, on_host
from plml.estimators._basis_queries import BasisMetricQueries
from plml.estimators._callbacks import CallbackSupportMixin, begin_fit, end_fit, with_callbacks
from plml.estimators._fit_warnings import (
    classes_of_one,
    cut_directions,
    fewer_anchors,
    flat_rows,
    open_gap,
    zero_metric,
)
from plml.estimators._neighbor_classifier import NeighborClassifier
from plml.estimators._parameters import COUNT, NOT_NEGATIVE, POSITIVE, parameter
from plml.estimators._recipe import Recipe, RuleMaker
from plml.estimators._warm_start import duals_of, earlier_fit, kept_duals
from plml.io.checkpoints import Checkpoint
from plml.metric.basis_metric import BasisMetric
from plml.metric.case_metric import with_mean_metrics
from plml.ops.span import Span, inside, span_of
from plml.solvers.problem import Checkpointer, history_arrays
from plml.stages.anchors import anchors_without
from plml.stages.earlier import Earlier
from plml.stages.graph import scales_without
from plml.stages.metrics import Metrics
from plml.stages.neighbors import NEEDED, can_approximate
from plml.stages.pipeline import Learned, Settings, Weighting, Weights, in_units, learn
from plml.stages.run import Run
from plml.stages.triplets import check_targets
from plml.validation import refuse_keywords, refuse_weights_of_collections


@dataclass(kw_only=True, eq=False, repr=False)
class LargeMarginClassifier(CallbackSupportMixin, BasisMetricQueries, NeighborClassifier):
    """Basis metrics over whatever weighting a subclass chooses."""

    pull: float = parameter(1.0, NOT_NEGATIVE)
    n_targets: int = parameter(3, COUNT)
    n_impostors: int = parameter(3, COUNT)
    tol: float = parameter(1e-3, POSITIVE)
    max_iter: int = parameter(1000, COUNT)
    solver: str = parameter("auto", StrOptions({"auto", "fista"}))
    rescale: bool = parameter(True, "boolean")
    prior: str | None = parameter(None, StrOptions({"identity", "within"}), None)
    n_directions: int | str | None = parameter("auto", COUNT, StrOptions({"auto"}), None)
    neighbor_search: str = parameter("auto", StrOptions({"auto", "exact", "approximate"}))
    search_backend: str = parameter("exact", StrOptions({"exact", "approximate"}))
    device: str = parameter("cpu", str)
    working_memory: float | None = parameter(None, POSITIVE, None)
    warm_start: bool = parameter(False, "boolean")
    verbose: int = parameter(0, "verbose")

    #: The length that the parameters call one; models of the first format have no other.
    scale_ = 1.0
    #: The share of the variance that was learned from; all of it in models of older formats.
    variance_kept_ = 1.0
    #: What the metrics at the stored cases go by in this fit; the parameter may have changed since.
    _fitted_case_side = None

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        **unknown: Any,
    ) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : (n_samples,) class labels
        sample_weight : (n_samples,) how often each row counts; one of weight zero is left out
        checkpoint : path of a file in which the state of the fit is saved every half minute, or a
            ``plml.Checkpoint``; after an interruption the same call continues from it
        """
        refuse_keywords(self, unknown)
        if is_collection(X):
            refuse_weights_of_collections(sample_weight)
            return self._fit_collection(X, y, checkpoint)
        checkpoint = None if checkpoint is None else Checkpoint.of(checkpoint)
        return self._fit(X, y, sample_weight, checkpoint)

    def _fit_collection(self, X: Any, y: Any, checkpoint: Any) -> Self:
        """Learn from Dask collections, where that is possible."""
        raise ValueError(
            f"{type(self).__name__} learns on one machine; give it X.compute() and y.compute(), or "
            "use PLML, which learns from Dask collections"
        )

    @abstractmethod
    def _weighting(self) -> Weighting:
        """How the weights of the basis metrics come about, by the parameters."""

    @abstractmethod
    def _rule_maker(self, weighting: Weighting) -> RuleMaker:
        """How the weights of new points come about, by the parameters."""

    def _case_rule_maker(self, weighting: Weighting) -> RuleMaker:
        """How the weights of cases that are added come about."""
        return self._rule_maker(weighting)

    def _earlier(self, model: Self, checkpoint: Checkpointer) -> Earlier | None:
        return earlier_fit(self, model, checkpoint) if self.warm_start else None

    def _case_side(self) -> str | None:
        """What the metrics at the stored cases go by, where there are any."""
        return None

    def _chosen(self, name: str) -> Any:
        """A parameter, or the value that ``PLMLCV`` selected for it."""
        return getattr(self, name)

    def recipe(self, unit: float = 1.0) -> Recipe:
        """What the parameters mean to the pipeline.

        Parameters
        ----------
        unit : the length that the parameters call one, in the units of the rows
        """
        settings = Settings(
            regularization=self._chosen("regularization"),
            pull=self.pull,
            n_targets=self.n_targets,
            n_impostors=self.n_impostors,
            tol=self.tol,
            max_iter=self.max_iter,
            solver=self.solver,
            case_metrics=self._case_side(),
            prior=self.prior,
        )
        weighting, settings = in_units(self._weighting(), settings, unit)
        return Recipe(
            weighting,
            settings,
            self._rule_maker(weighting),
            self._case_rule_maker(weighting),
            self.neighbor_search,
            self.device,
            self.search_backend == "approximate",
            self.rescale,
        )

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        recipe = self.recipe()
        check_targets(y)
        if recipe.approximate and not can_approximate(X):
            raise ValueError(f'search_backend="approximate" {NEEDED}; use "exact"')
        begin_fit(self, 1 + recipe.weighting.n_solvers)
        self.scale_ = recipe.unit(X, self._fit_weights)
        X = X if self.scale_ == 1.0 else X / self.scale_
        earlier = None if run.earlier is None else run.earlier.inside(self._span, self.scale_)
        stages = recipe.stages(X, y, self._fit_weights, earlier)
        learned = learn(stages, recipe.weighting, recipe.settings, run)
        if self.warm_start and stages.found is not None:
            self._dual_rows, self._duals = kept_duals(stages.found, learned.metrics.gamma)
        self._set_fitted(learned.in_units(self.scale_))
        self.search_recall_ = self._metric.recall(min(self._voting()[0], len(y) - 1))
        end_fit(self)

    def _set_span(self, X: Array) -> Span | None:
        span = span_of(X, self.n_directions, self._fit_weights)
        if span is not None:
            self._span_center, self._span_basis, self.variance_kept_ = span
        return span

    def _set_fitted(self, learned: Learned) -> None:
        """Set the fitted attributes, in the coordinates of the data."""
        weights, metrics, dtype = learned.weights, learned.metrics, self._fit_X.dtype
        self.weights_ = on_host(weights.weights).astype(dtype, copy=False)
        M, n_bases = self._outward(on_host(metrics.M)), self.weights_.shape[1]
        self.basis_metrics_ = M[:n_bases]
        self._fitted_case_side = self._case_side()
        if self._fitted_case_side is not None:
            self.case_metrics_ = M[n_bases:]
        if weights.anchors is not None:
            anchors = on_host(weights.anchors)
            anchors = anchors if self._span is None else self._span.points(anchors)
            self.anchors_ = anchors.astype(dtype, copy=False)
        self.neighbor_recall_ = learned.recall
        self._set_certificates(learned)

    def _set_certificates(self, learned: Learned) -> None:
        """Set what is known of the solutions of both stages."""
        weights, metrics = learned.weights, learned.metrics
        self.objective_ = metrics.objective
        self.dual_gap_ = metrics.gap
        self.n_iter_ = metrics.n_iter
        self.history_ = {"metrics": history_arrays(metrics.history)}
        self.converged_ = bool(metrics.gap <= self.tol and weights.gap <= self.tol)
        solved: dict[str, Weights | Metrics] = {"weights": weights, "metrics": metrics}
        self._cut = [name for name, stage in solved.items() if stage.interrupted]  # by a callback
        if weights.scales is not None:  # stage 1 was solved
            self._scales = weights.scales
            self.weights_gap_ = weights.gap
            self.weights_n_iter_ = weights.n_iter
            self.history_["weights"] = history_arrays(weights.history)

    def _metric_parameters(self) -> tuple[Any, ...]:
        return self.device, self.search_backend

    def _make_metric(self) -> BasisMetric:
        anchors, scales = getattr(self, "anchors_", None), getattr(self, "_scales", None)
        recipe = self.recipe(self.scale_)
        settings = replace(recipe.settings, case_metrics=self._fitted_case_side)
        return replace(recipe, settings=settings).metric(
            self._fit_X,
            self._fit_codes,
            self.weights_,
            self._all_metrics(),
            anchors,
            scales,
            self._span,
            self._fit_weights,
            self._origin,
        )

    def _take_classes(self, classes: np.ndarray) -> None:
        if self._fitted_case_side == "class":
            places = np.searchsorted(classes, self.classes_)
            self.case_metrics_ = with_mean_metrics(self.case_metrics_, places, len(classes))
        super()._take_classes(classes)

    def _keep_learned(self, kept: np.ndarray) -> None:
        if "_duals" in vars(self):
            self._dual_rows, self._duals = duals_of(self._dual_rows, self._duals, kept)
        super()._keep_learned(kept)

    def _forget_statistics(self, gone: np.ndarray, moved: np.ndarray) -> None:
        X, weights = self._fit_X[: self._n_learned], self._fit_weights
        if hasattr(self, "anchors_"):
            counts = None if weights is None else weights[: self._n_learned]
            self.anchors_ = anchors_without(self.anchors_, X, gone, counts)
        if "_scales" in vars(self):
            X, gone = inside(X, self._span), inside(gone, self._span)
            self._scales = scales_without(self._scales, X, gone, moved)

    def _all_metrics(self) -> np.ndarray:
        """The metrics of the queries, and those of the cases where there are any."""
        if self._fitted_case_side is None:
            return self.basis_metrics_
        return np.concatenate([self.basis_metrics_, self.case_metrics_])

    def fit_warnings(self) -> Iterator[Warning]:
        if self.n_directions == "auto" and self._span_basis is not None:
            n_features, n_kept = self._span_basis.shape
            yield from cut_directions(n_features, n_kept, self.variance_kept_)
        if hasattr(self, "anchors_"):
            asked = self._weighting().n_bases
            yield from fewer_anchors(asked, len(self.anchors_), len(self.weights_))
        if hasattr(self, "weights_gap_"):
            yield from self._open_gap("stage 1 (weights)", self.weights_gap_, "weights")
        yield from classes_of_one(self._class_sizes, self.classes_)
        yield from self._open_gap("stage 2 (metrics)", self.dual_gap_, "metrics")
        if self.dual_gap_ <= self.tol:
            yield from zero_metric(self._all_metrics())
            one_sided = self._fitted_case_side is None
            if one_sided and self.basis_metrics_.any() and isinstance(self.weights_, np.ndarray):
                yield from flat_rows(self.weights_, self.basis_metrics_)

    def _open_gap(self, what: str, gap: float, stage: str) -> Iterator[Warning]:
        reason = "a callback stopped it" if stage in self._cut else ""
        return open_gap(self, what, gap, reason=reason)
