"""Cases of a table that come and go: ``AutoPLML`` passes them on to its models, encoded."""

from typing import Any, Self

import numpy as np

from plml.backend.arrays import is_collection
from plml.estimators._fitted_state import change_in_one_step, changed
from plml.estimators._table_cases import TableCases
from plml.ops.growing import appended
from plml.preprocessing.forgetting import Rows, encoder_without
from plml.preprocessing.table_encoder import unpacked_gaps
from plml.validation import joined_names, row_names, row_numbers


class LivingTable(TableCases):
    """Mixin for an estimator that encodes a table and has models of the encoded rows."""

    models_: list[Any]
    kept_rows_: np.ndarray

    def add_cases(self, X: Any, y: Any, new_classes: str = "refuse") -> Self:
        """As ``PLML.add_cases``, of rows of the table; the encoding stays as it is.

        Parameters
        ----------
        X : (n_new, n_features) array or data frame
        y : (n_new,) class labels
        new_classes : {"refuse", "allow"}
        """
        change_in_one_step(self, lambda model: model._add(X, y, new_classes))
        return self

    def forget_cases(self, indices: Any) -> Self:
        """As ``PLML.forget_cases``; names of categories, medians and donors of gaps go as well.

        Parameters
        ----------
        indices : (n_forgotten,) numbers of cases, or a mask of all
        """
        change_in_one_step(self, lambda model: model._forget(indices))
        return self

    @property
    def n_learned(self) -> int:
        """The number of cases that were learned from; they come first."""
        return self.models_[0].n_learned

    def _add(self, X: Any, y: Any, new_classes: str) -> None:
        if is_collection(X):
            raise ValueError("cases are added on one machine; give X.compute() and y.compute()")
        rows, n_before = self.encoder_.transform(X), len(self.models_[0].training_cases()[1])
        self._set_models(
            [changed(model, lambda m: m._add(rows, y, new_classes)) for model in self.models_]
        )
        names = vars(self).get("_row_names")
        self._row_names = joined_names(names, n_before, row_names(X), len(rows))
        if self._gaps is not None:
            self._gaps = appended(self._gaps, self.encoder_.gaps(X))

    def _forget(self, indices: Any) -> None:
        n_cases = len(self.models_[0].training_cases()[1])
        rows = row_numbers(indices, n_cases)
        if not len(rows):
            return
        k = max(voting.n_neighbors for _, pairs in self.committee() for _, voting in pairs)
        if k > n_cases - len(rows):
            raise ValueError(
                f"n_neighbors={k} is more than the {n_cases - len(rows)} cases that would stay"
            )
        if "kept_rows_" in vars(self):
            self.kept_rows_ = np.delete(self.kept_rows_, rows[rows < self.n_learned])
        models = [changed(model, lambda m: m._forget(rows)) for model in self.models_]
        self._set_models(self._with_encoder(models, rows))
        names = vars(self).get("_row_names")
        self._row_names = None if names is None else np.delete(names, rows)
        if self._gaps is not None:
            self._gaps = np.delete(self._gaps, rows, axis=0)

    def _with_encoder(self, models: list[Any], rows: np.ndarray) -> list[Any]:
        """Models whose rows are filled as an encoder does that has forgotten some rows."""
        before = self.models_[0].training_cases()[0]
        shape = len(before), self.n_features_in_
        gaps = np.zeros(shape, dtype=bool)
        if self._gaps is not None:
            gaps = unpacked_gaps(self._gaps, self.n_features_in_)
        gone = Rows(before[rows], gaps[rows])
        stay = Rows(np.delete(before, rows, axis=0), np.delete(gaps, rows, axis=0))
        self.encoder_, filled = encoder_without(self.encoder_, gone, stay)
        if np.array_equal(filled.encoded, stay.encoded):
            return models
        return [changed(model, lambda m: m._replace_rows(filled.encoded)) for model in models]

    def _set_models(self, models: list[Any]) -> None:
        self.models_, self.model_ = models, models[0]
        self.classes_ = models[0].classes_
