"""Adding and forgetting cases: labelled cases come and go while the learned metric stays.

The cases of a model vote. The first of them are the rows that its metric was learned from, and
these alone say what the metric is at any point, by their weights; cases that were added come after
them. So an added case changes no distance, and what a model answers does not depend on the order in
which cases came and went.
"""

from typing import Any, Self

import numpy as np

from plml.backend.arrays import is_collection
from plml.estimators._fitted_state import change_in_one_step
from plml.estimators._metric_queries import MetricQueries
from plml.ops.growing import appended
from plml.ops.span import round_center
from plml.validation import case_labels, check_range, joined_names, row_names, row_numbers


class LivingCases(MetricQueries):
    """Mixin for estimators whose cases can be added to and forgotten."""

    #: Fitted arrays with an entry per case, and with one per row that was learned from.
    _per_case: tuple[str, ...] = ("_fit_X", "_fit_codes")
    _per_learned_row: tuple[str, ...] = ("weights_", "_scales", "kept_rows_")

    def add_cases(self, X: Any, y: Any, new_classes: str = "refuse") -> Self:
        """Add labelled cases, which vote at once; the metric stays as it is.

        Weights of the basis metrics at a new case solve the stage-1 problem for that case alone,
        given those of the rows that were learned from; the weights of queries come from these rows
        as before. If rows have weights, a new case gets the average weight of the rows of its
        class that were learned from (of all of them, if the class has none).

        Parameters
        ----------
        X : (n_new, n_features) array or data frame
        y : (n_new,) class labels
        new_classes : {"refuse", "allow"}
            Whether labels may be classes that the model has not seen. Where every class has a
            metric, a new class gets the mean of the others.
        """
        change_in_one_step(self, lambda model: model._add(X, y, new_classes))
        return self

    def forget_cases(self, indices: Any) -> Self:
        """Remove cases from the model; the other cases are renumbered.

        What was learned from them stays in the metric (see the documentation, "Adding and
        forgetting cases").

        Parameters
        ----------
        indices : (n_forgotten,) numbers of cases, as ``kneighbors`` gives them, or a mask of all
        """
        change_in_one_step(self, lambda model: model._forget(indices))
        return self

    @property
    def n_learned(self) -> int:
        """The number of cases that were learned from; they come first."""
        return vars(self).get("_n_learned", len(self._fit_X))

    def _add(self, X: Any, y: Any, new_classes: str) -> None:
        self._check_here(X)
        rows = check_range(self._validate_on_host(X), self._fit_X.dtype)
        classes, codes = case_labels(y, len(rows), self.classes_, new_classes)
        self._settle()
        n_before = len(self._fit_X)
        if len(classes) > len(self.classes_):
            self._take_classes(classes)
        names = joined_names(self.training_names(), n_before, row_names(X), len(rows))
        new = {"_fit_X": rows, "_fit_codes": codes, **self._of_new_cases(rows, codes)}
        for name in self._per_case:
            setattr(self, name, appended(getattr(self, name), new[name]))
        self._weigh_added(self._fit_weights)
        self._row_names = names
        self._cases_changed(np.empty(0, dtype=np.int64))

    def _forget(self, indices: Any) -> None:
        self._check_here()
        rows = row_numbers(indices, len(self._fit_X))
        if not len(rows):
            return
        self._check_rest(rows)
        self._settle()
        learned = rows[rows < self.n_learned]
        gone = self._fit_X[learned]
        for name in self._per_case:
            setattr(self, name, np.delete(getattr(self, name), rows, axis=0))
        self._keep_learned(np.delete(np.arange(self.n_learned), learned))
        names = self.training_names()
        self._row_names = None if names is None else np.delete(names, rows)
        self._n_learned = self.n_learned - len(learned)
        weights = self._fit_weights
        self._weigh_added(None if weights is None else np.delete(weights, rows))
        if len(learned):
            self._forget_statistics(gone, np.empty(0, dtype=np.int64))
        self._cases_changed(rows)

    def _weigh_added(self, weights: np.ndarray | None) -> None:
        """Give added cases the average weight of what is left of their class.

        Parameters
        ----------
        weights : the first ``n_learned`` are those of the rows that were learned from; or None
        """
        if weights is not None:
            learned, codes = weights[: self.n_learned], self._fit_codes
            added = mean_weights(learned, codes[: len(learned)], codes[len(learned) :])
            self._fit_weights = np.concatenate([learned, added])

    def _replace_rows(self, X: np.ndarray) -> None:
        """The same cases in other places, which the metric is made anew for."""
        before, self._fit_X = self._fit_X, X.astype(self._fit_X.dtype, copy=False)
        moved = np.flatnonzero((before != self._fit_X).any(axis=1))
        learned = moved[moved < self.n_learned]
        self._forget_statistics(before[learned], learned)
        self._made_metric = None

    def _keep_learned(self, kept: np.ndarray) -> None:
        """Leave out what belongs to rows that were learned from and are not there any more.

        Parameters
        ----------
        kept : (n_kept,) numbers of those that stay
        """
        for name in self._per_learned_row:
            if name in vars(self):
                setattr(self, name, getattr(self, name)[kept])

    def _of_new_cases(self, rows: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
        """What else every new case has, by the name of the array."""
        return {}

    def _take_classes(self, classes: np.ndarray) -> None:
        """Know more classes than before."""
        places = np.searchsorted(classes, self.classes_)
        self.classes_, self._fit_codes = classes, places[self._fit_codes]
        self._made_metric = None  # with one metric per class it has more of them now

    def _forget_statistics(self, gone: np.ndarray, moved: np.ndarray) -> None:
        """Compute again what is a plain statistic of the rows that were learned from.

        Parameters
        ----------
        gone : (r, d) those that are not there any more
        moved : numbers of those that were there and are in other places now
        """

    def _cases_changed(self, left_out: np.ndarray) -> None:
        """Bring the metric up to date: its indexes shrink or grow, and are not built again."""
        made, parameters = self._made_metric, self._metric_parameters()
        self._made_metric = None
        if made is not None and made[0] == parameters:
            self._made_metric = parameters, self._metric_after(made[1], left_out)

    def _metric_after(self, before: Any, left_out: np.ndarray) -> Any:
        """The metric of the cases of now, from that of before.

        Parameters
        ----------
        before : metric of cases of which some are left out now, or without the last ones
        left_out : numbers of cases that are not there any more
        """
        metric = self._make_metric()
        metric.adopt(before, left_out)
        return metric

    def _settle(self) -> None:
        """Fix what models of older files, and those from a cluster, leave open."""
        if "_n_learned" not in vars(self):
            self._n_learned = len(self._fit_X)
        if self._origin is None:
            self._origin = round_center(self._fit_X)
            if self._span is not None:
                self._span_center = self._span.about(self._origin).center
            self._made_metric = None

    def _check_here(self, X: Any = None) -> None:
        if "_training" in vars(self):
            raise ValueError(
                "the training data of this model is on a Dask cluster; before cases are added or "
                "forgotten, bring it here with plml.dask.collect(model)"
            )
        if is_collection(X):
            raise ValueError("cases are added on one machine; give X.compute() and y.compute()")

    def _check_rest(self, rows: np.ndarray) -> None:
        """Refuse to forget so much that the model could not answer any more."""
        codes, learned = np.delete(self._fit_codes, rows), int((rows < self.n_learned).sum())
        empty = np.flatnonzero(np.bincount(codes, minlength=len(self.classes_)) == 0)
        if len(empty):
            raise ValueError(
                f"class {str(self.classes_[empty[0]])!r} would have no case left; to be rid of the "
                "class, fit again without it"
            )
        if learned == self.n_learned:
            raise ValueError(
                f"none of the {learned} rows that were learned from would be left, and the metric "
                "is known by them; fit again"
            )
        k = self._voting()[0]
        if k > len(codes):
            raise ValueError(f"n_neighbors={k} is more than the {len(codes)} cases that would stay")


def mean_weights(weights: np.ndarray, codes: np.ndarray, new_codes: np.ndarray) -> np.ndarray:
    """The average weight of the rows of a class, for every added case; of all where it has none.

    Parameters
    ----------
    weights, codes : (n,) of the rows that were learned from
    new_codes : (r,) classes of the cases that were added
    """
    n_classes = int(max(codes.max(), new_codes.max(initial=0))) + 1
    sums, sizes = np.bincount(codes, weights, n_classes), np.bincount(codes, minlength=n_classes)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), weights.mean())
    return means[new_codes]
