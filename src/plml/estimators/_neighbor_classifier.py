"""What every nearest-neighbour classifier of this library shares: the fit and the vote."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from plml.backend.arrays import (
    Array,
    check_device,
    is_on_gpu,
    like,
    namespace,
    on_host,
    to_available_device,
)
from plml.estimators._callbacks import FRAMES, with_callbacks
from plml.estimators._fit_warnings import rows_left_out
from plml.estimators._fitted_state import of_one_fit, refitted
from plml.estimators._living_cases import LivingCases
from plml.estimators._metric_queries import follow
from plml.estimators._parameters import COUNT, Parameters, parameter
from plml.io.checkpoints import Checkpoint
from plml.metric.votes import VOTES, Voting, class_shares, shares_by_voting
from plml.ops.span import Span, inside, round_center, span_of
from plml.solvers.problem import Checkpointer
from plml.stages.earlier import Earlier
from plml.stages.run import Run
from plml.stages.search import vote
from plml.validation import (
    refuse_keywords,
    row_names,
    rows_that_count,
    training_data,
    with_class_weight,
)


@dataclass(kw_only=True, eq=False, repr=False)
class NeighborClassifier(LivingCases, Parameters, ClassifierMixin, BaseEstimator):
    """k-nearest-neighbour classification under a learned metric.

    A subclass learns in ``_learn`` and makes the metric that answers questions in
    ``_make_metric``.
    """

    n_neighbors: int = parameter(1, COUNT)
    vote: str = parameter("uniform", StrOptions(set(VOTES)))
    class_weight: dict[Any, float] | str | None = parameter(
        None, dict, StrOptions({"balanced"}), None
    )
    weigh_votes: bool = parameter(False, "boolean")
    n_jobs: int | None = parameter(None, Integral, None)

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **unknown: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : (n_samples,) class labels
        sample_weight : (n_samples,) how often each row counts; one of weight zero is left out
        """
        refuse_keywords(self, unknown)
        return self._fit(X, y, sample_weight)

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        checkpoint: Checkpoint | None = None,
        within: Run | None = None,
    ) -> Self:
        """Learn in a run of its own, or within another one."""
        self._validate_params()
        with refitted(self) as model:
            X, codes = model._validated(*rows_that_count(X, y, sample_weight))
            run = within or model._run()
            if checkpoint is not None:
                parameters = {"estimator": type(self).__name__, **model.get_params()}
                counted = model._fit_weights
                weighted = [] if counted is None else [counted]
                saved = checkpoint.open(parameters, model._fit_X, codes, *weighted)
                run = replace(run, checkpoint=saved)
            run = replace(run, earlier=self._earlier(model, run.checkpoint))
            with nullcontext() if within else run.shown():
                X = to_available_device(X, model.device)
                model._origin = round_center(X)
                span = model._set_span(X)
                model._learn(inside(X, span), codes, run)
                _ = model._metric  # made now: a prediction changes nothing of a fitted estimator
        if within is None:
            for warning in chain(rows_left_out(model), model.fit_warnings()):
                warnings.warn(warning, stacklevel=3 + FRAMES)
        return self

    def _set_span(self, X: Array) -> Span | None:
        """Keep the directions in which the rows differ, and return them."""
        span = span_of(X)
        if span is not None:
            self._span_center, self._span_basis = span.center, span.basis
        return span

    def fit_within(self, X: Any, y: Any, run: Run, sample_weight: np.ndarray | None = None) -> Self:
        """``fit`` as a part of a longer run, whose limits and checkpoint hold for it.

        Nothing is warned of; ``fit_warnings`` has what a user should know.

        Parameters
        ----------
        X, y, sample_weight : as in ``fit``
        run : see ``plml.stages.run``
        """
        return self._fit(X, y, sample_weight, within=run)

    @abstractmethod
    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        """Set the fitted attributes from rows in their span and class codes y."""

    def _earlier(self, model: Self, checkpoint: Checkpointer) -> Earlier | None:
        """What the last fit leaves for the next one, ``model``, to start from."""
        return None

    def fit_warnings(self) -> Iterator[Warning]:
        """What a user should know of the fit."""
        yield from ()

    def _validated(
        self, X: Any, y: Any, weights: np.ndarray | None, kept: np.ndarray | None
    ) -> tuple[Array, np.ndarray]:
        """Checked data and class codes, remembered; a tensor on a GPU where it can stay there."""
        check_device(self.device)
        tensor, self._row_names = X, row_names(X)
        if kept is not None:
            self.kept_rows_ = kept
            self._row_names = kept if self._row_names is None else self._row_names
        X, self.classes_, codes = training_data(self, X, y)
        self._fit_weights = with_class_weight(weights, self.class_weight, self.classes_, codes)
        # A copy: whoever changes the array later does not change the model.
        self._fit_X, self._fit_codes, self._n_learned = X.copy(), codes, len(X)
        self._check_enough_rows()
        self._class_sizes = np.bincount(codes, minlength=len(self.classes_))
        stays = is_on_gpu(tensor) and str(tensor.dtype).endswith(X.dtype.name)
        return (tensor if stays else self._fit_X), codes

    def _check_enough_rows(self) -> None:
        k, _ = self._voting()
        if k > len(self._fit_X):
            raise ValueError(f"n_neighbors={k} is more than the {len(self._fit_X)} training rows")

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest share in ``predict_proba``; ties to the first class.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        if (remote := self._remote_queries(X)) is not None:
            return remote.predict(X)
        shares = self._shares(self._validate_queries(X))
        codes = namespace(shares).argmax(shares, axis=1)
        if self.classes_.dtype.kind in "biuf":
            return follow(like(self.classes_, codes)[codes], X)
        return self.classes_[on_host(codes)]

    @of_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Share of each class in the votes of the neighbours, in the order of ``classes_``.

        (With the energy rule of ``LMNN`` and ``LMNNMM``: the softmax of minus the energies.)

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        if (remote := self._remote_queries(X)) is not None:
            return remote.predict_proba(X)
        return follow(self._shares(self._validate_queries(X)), X)

    @of_one_fit
    def vote_shares(self, X: Any, votings: Sequence[tuple[int, str]]) -> list[np.ndarray]:
        """``predict_proba`` for several numbers of neighbours and votes, from one search.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        votings : pairs of ``n_neighbors`` and ``vote``
        """
        pairs = [Voting(*voting) for voting in votings]
        queries, most = self._validate_queries(X), max(k for k, _ in pairs)
        if most > len(self._fit_X):
            raise ValueError(f"{most} neighbours are more than the {len(self._fit_X)} rows")
        labels, n_classes, metric = self._fit_codes, len(self.classes_), self._metric
        with self._run().limits():
            squared, nearest = metric.search(queries, most)
            voters = labels, n_classes, pairs, self._vote_weights
            found = shares_by_voting(metric, queries, squared, nearest, *voters)
        return [on_host(shares) for shares in found]

    def _shares(self, X: Array) -> Array:
        self._check_enough_rows()
        (k, how), n_classes = self._voting(), len(self.classes_)
        with self._run().limits():
            if how == "uniform" and self._vote_weights is None:  # in any order
                return vote(self._metric.nearest_labels(X, k, self._fit_codes), n_classes)
            squared, nearest = self._metric.search(X, k)
            voters = self._fit_codes, n_classes, how, self._vote_weights
            return class_shares(self._metric, X, squared, nearest, *voters)
