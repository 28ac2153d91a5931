"""Classifiers that learn basis metrics in the large-margin dual (stage 2) for given weights."""

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from plml.backend.arrays import is_collection, like, on_host
from plml.checkpoint import Checkpoint
from plml.estimators._basis import BasisMetricClassifier
from plml.estimators._callbacks import (
    CallbackSupportMixin,
    begin_fit,
    end_fit,
    stage_callback,
    with_callbacks,
)
from plml.estimators._costs import METRICS_ITERATIONS, metrics_cost, search_cost
from plml.estimators._gaps import GapWarning, cures_of
from plml.estimators._validation import refuse_keywords
from plml.progress import plan, solver_stage, stage
from plml.solvers.problem import NOTHING_KEPT, Callback, Keep, history_arrays
from plml.stages.metrics import Metrics, learn_metrics
from plml.stages.neighbors import NEEDED, Neighbors, can_approximate
from plml.stages.search import vanishing
from plml.stages.triplets import Triplets, check_targets, neighbor_triplets

#: Stages as progress and callbacks name them.
TRIPLETS, METRICS = "triplets", "stage 2, metrics"


@dataclass(frozen=True)
class Preparation:
    """What stage 2 needs and no choice of ``regularization`` changes."""

    weights: np.ndarray  # (n, m)
    triplets: Triplets
    recall: dict[str, float]  # of the neighbour searches


class LargeMarginClassifier(CallbackSupportMixin, BasisMetricClassifier):
    """Stage 2 on top of whatever weights a subclass prepares in ``_prepare``."""

    #: While a fit runs: where the user wants it saved, and what is kept of its parts.
    _checkpoint: Checkpoint | None = None
    _kept: Keep = NOTHING_KEPT

    _n_stages = 1

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasisMetricClassifier._parameter_constraints,
        "regularization": [Interval(Real, 0, None, closed="neither")],
        "pull": [Interval(Real, 0, None, closed="left")],
        "n_targets": [Interval(Integral, 1, None, closed="left")],
        "n_impostors": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions({"auto", "fista"})],
        "neighbor_search": [StrOptions({"auto", "exact", "approximate"})],
        "search_backend": [StrOptions({"exact", "approximate"})],
        "device": [str],
        "n_jobs": [Integral, None],
        "working_memory": [Interval(Real, 0, None, closed="neither"), None],
        "verbose": ["verbose"],
    }

    regularization: float
    pull: float
    n_targets: int
    n_impostors: int
    tol: float
    max_iter: int
    solver: str
    neighbor_search: str
    search_backend: str
    working_memory: float | None
    verbose: int

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        **unknown: Any,
    ) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : (n_samples,) class labels
        checkpoint : path of a file in which the state of the fit is saved every half minute, or a
            ``plml.Checkpoint``; a fit that was cut short goes on from there
        """
        refuse_keywords(self, unknown)
        if is_collection(X):
            return self._fit_collection(X, y, checkpoint)
        self._checkpoint = None if checkpoint is None else Checkpoint.of(checkpoint)
        try:
            return self._fit(X, y)
        finally:
            self.__dict__.pop("_checkpoint", None)
            self.__dict__.pop("_kept", None)

    def _fit_collection(self, X: Any, y: Any, checkpoint: Any) -> Self:
        """Learn from Dask collections, where that is possible."""
        raise ValueError(
            f"{type(self).__name__} learns on one machine; give it X.compute() and y.compute(), or "
            "use PLML, which learns from Dask collections"
        )

    @abstractmethod
    def _prepare(self, X: np.ndarray, y: np.ndarray) -> Preparation:
        """Weights and triplets."""

    def _set_preparation(self, preparation: Any, dtype: np.dtype) -> None:
        """Set the fitted attributes that do not depend on ``regularization``."""
        self.weights_ = on_host(preparation.weights).astype(dtype, copy=False)
        self.neighbor_recall_ = preparation.recall

    def _set_anchors(self, anchors: np.ndarray, dtype: np.dtype) -> None:
        anchors = anchors if self._span is None else self._span.points(anchors)
        self.anchors_ = anchors.astype(dtype, copy=False)

    def _learn(self, X: np.ndarray, y: np.ndarray) -> None:
        self._open_checkpoint()
        self._learn_at(X, y, self.regularization)

    def _open_checkpoint(self) -> None:
        """Where a user asked for one, go on where the last fit was cut short."""
        if self._checkpoint is not None:
            parameters = {"estimator": type(self).__name__, **self.get_params()}
            self._kept = self._checkpoint.open(parameters, self._fit_X, self._fit_codes)

    def _learn_at(self, X: np.ndarray, y: np.ndarray, regularization: float) -> None:
        check_targets(y)
        if self.search_backend == "approximate" and not can_approximate(X):
            raise ValueError(f'search_backend="approximate" {NEEDED}; use "exact"')
        begin_fit(self, self._n_stages)
        plan(self._costs(*X.shape))
        preparation = self._prepare(X, y)
        metrics = self._learn_metrics(X, preparation, regularization, self.tol)
        self._set_fitted(X, preparation, metrics)
        self._kept.finish()
        end_fit(self)

    def _costs(self, n: int, d: int) -> dict[str, float]:
        """The stages of a fit, with rough seconds."""
        return {**self._preparation_costs(n, d), METRICS: self._metrics_cost(n, d)}

    def _preparation_costs(self, n: int, d: int) -> dict[str, float]:
        """The stages of ``_prepare``, with rough seconds."""
        return {TRIPLETS: search_cost(n, n, d)}

    def _metrics_cost(self, n: int, d: int, n_iter: int = METRICS_ITERATIONS) -> float:
        return metrics_cost(n, d, getattr(self, "n_bases", 1), n_iter)

    @contextmanager
    def _stage(self, name: str, tol: float) -> Iterator[Callback]:
        """What a solver calls at its iterates: the progress bar, and the user's callbacks."""
        with (
            solver_stage(name, tol, self.max_iter) as show,
            stage_callback(self, name, show) as callback,
        ):
            yield callback

    def _triplets(self, neighbors: Neighbors) -> Triplets:
        sizes = self.n_targets, self.n_impostors
        with stage(TRIPLETS):
            kept = self._kept.arrays("triplets", lambda: neighbor_triplets(neighbors, *sizes))
        return Triplets(*kept)._replace(n_target_pairs=int(kept[1]))

    def _recall(self, neighbors: Neighbors) -> dict[str, float]:
        """What the searches of a fit found, those before an interruption as well."""
        purposes, shares = self._kept.arrays(
            "recall", lambda: (list(neighbors.recall), list(neighbors.recall.values()))
        )
        return {str(name): float(share) for name, share in zip(purposes, shares, strict=True)}

    def _learn_metrics(
        self,
        X: np.ndarray,
        preparation: Preparation,
        regularization: float,
        tol: float,
        gamma: np.ndarray | None = None,
    ) -> Metrics:
        with self._stage(METRICS, tol) as callback:
            return learn_metrics(
                X,
                like(preparation.weights, X, X.dtype),
                preparation.triplets,
                regularization,
                self.pull,
                solver=self.solver,
                tol=tol,
                max_iter=self.max_iter,
                gamma=gamma,
                callback=callback,
                keep=self._kept,
            )

    def _set_fitted(self, X: np.ndarray, preparation: Preparation, metrics: Metrics) -> None:
        self._forget_copies()
        self._set_preparation(preparation, on_host(X[:1]).dtype)
        self.basis_metrics_ = self._outward(on_host(metrics.M))
        self.objective_ = metrics.objective
        self.dual_gap_ = metrics.gap
        self.converged_ = bool(metrics.gap <= self.tol)
        self.n_iter_ = metrics.n_iter
        self.history_ = {"metrics": history_arrays(metrics.history)}
        self._cut = ["metrics"] if metrics.interrupted else []  # stages that a callback stopped
        self.search_recall_ = self._placed(X).recall(min(self.n_neighbors, len(X) - 1))

    def _troubles(self) -> Iterator[Warning]:
        yield from classes_of_one(self._class_sizes, self.classes_)
        yield from self._gap_trouble("stage 2 (metrics)", self.dual_gap_, "metrics" in self._cut)
        if self.dual_gap_ <= self.tol:
            yield from zero_metric(self.basis_metrics_)
            if self.basis_metrics_.any() and isinstance(self.weights_, np.ndarray):
                yield from flat_rows(self.weights_, self.basis_metrics_)

    def _gap_trouble(self, stage: str, gap: float, cut: bool = False) -> Iterator[Warning]:
        if gap > self.tol:
            yield GapWarning(
                stage,
                gap,
                tol=self.tol,
                max_iter=self.max_iter,
                cures=cures_of(self._fit_X),
                reason="a callback stopped it" if cut else "",
            )


def fewer_anchors(
    asked: int, found: int, n_samples: int, parameter: str = "n_bases"
) -> Iterator[Warning]:
    """A warning where k-means found fewer clusters than were asked for."""
    if found < asked:
        yield UserWarning(
            f"{parameter}={asked} anchors were asked for; the {n_samples} training rows give "
            f"{found} distinct clusters, so {found} are used"
        )


def zero_metric(M: np.ndarray) -> Iterator[Warning]:
    """A warning where nothing was learned."""
    if not M.any():
        yield UserWarning(
            "the learned metric is zero, so neighbours are the Euclidean ones: same-class "
            "neighbours are no nearer than other-class ones; check the labels, the features and "
            "their scale, or lower pull or regularization"
        )


def flat_rows(weights: np.ndarray, M: np.ndarray) -> Iterator[Warning]:
    """A warning where the metrics of some rows vanish."""
    flat = int(vanishing(weights, np.trace(M, axis1=1, axis2=2, dtype=np.float64)).sum())
    if flat:
        yield UserWarning(
            f"at {flat} of the {len(weights)} training rows the learned metric is zero, so "
            "distances there are zero and neighbours are the Euclidean ones; lower pull or "
            "regularization, or take fewer bases"
        )


def classes_of_one(sizes: np.ndarray, classes: np.ndarray) -> Iterator[Warning]:
    """A warning that names the classes with one member."""
    alone = classes[sizes == 1].tolist()
    if alone:
        named = ", ".join(repr(label) for label in alone[:5]) + (", ..." if len(alone) > 5 else "")
        yield UserWarning(
            f"classes with one member have no same-class neighbour and give no triplets: {named}"
        )
