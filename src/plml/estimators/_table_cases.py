"""The cases of a table and their neighbours, told in its columns: for models of encoded rows."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.estimators._calibration import calibrated
from plml.estimators._fitted_state import of_one_fit
from plml.inspection.explaining import CaseBase, Election, joined
from plml.inspection.explanation import Explanation
from plml.inspection.lineage import Lineage, in_columns, known_values, lineage
from plml.inspection.values import table_values
from plml.metric.votes import Voting
from plml.preprocessing.table_encoder import TableEncoder, unpacked_gaps
from plml.validation import case_numbers, check_rows

if TYPE_CHECKING:
    from plml.evaluation.staleness import Staleness


class TableCases:
    """Mixin for an estimator that encodes a table and has models of the encoded rows that vote."""

    encoder_: TableEncoder
    model_: Any
    classes_: np.ndarray
    calibration_: tuple[float, ...]
    n_features_in_: int
    #: (n, ...) bits: numbers and dates that were missing; models of older files have none.
    _gaps: np.ndarray | None = None

    @abstractmethod
    def committee(self) -> list[tuple[Any, list[tuple[float, Voting]]]]:
        """The models that vote, each with its votes and their weights."""

    @of_one_fit
    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """The nearest training instances under the metric of ``model_``, nearest first.

        Parameters
        ----------
        X, n_neighbors, return_distance : as in ``PLML``
        """
        return self.model_.kneighbors(self._encoded(X), n_neighbors, return_distance)

    @of_one_fit
    def training_cases(self) -> tuple[np.ndarray, np.ndarray]:
        """The encoded cases, numbers in the units of the table, and where in ``classes_`` the class
        of each one is; the first ``n_learned`` are the rows that were learned from.
        """
        rows, codes = self.model_.training_cases()
        return self.encoder_.in_units_of_the_table(rows), codes

    @of_one_fit
    def training_values(self, rows: np.ndarray | None = None) -> np.ndarray:
        """The cases as they were in the table.

        Parameters
        ----------
        rows : (n,) numbers of some of them; None for all
        """
        cases = self.model_.training_cases()[0]
        rows = np.arange(len(cases)) if rows is None else case_numbers(rows, len(cases))
        values = known_values(self._columns(), cases, rows)
        if self._gaps is not None:
            values[unpacked_gaps(self._gaps[rows], self.n_features_in_)] = np.nan
        return values

    def training_names(self) -> np.ndarray | None:
        """As ``PLML.training_names``."""
        return vars(self).get("_row_names")

    def training_weights(self) -> np.ndarray | None:
        """As ``PLML.training_weights``."""
        return self.model_.training_weights()

    def _columns(self) -> Lineage:
        """The columns of the table that the features were made from."""
        unnamed = [f"x{i}" for i in range(self.n_features_in_)]
        return lineage(self.encoder_, list(getattr(self, "feature_names_in_", unnamed)))

    @of_one_fit
    def explain(self, X: Any = None, n_neighbors: int | None = None) -> Explanation:
        """The votes behind each prediction, why this class and not the next, the nearest cases.

        In the columns of the table. All metrics vote; cases are near under that of ``model_``.

        Parameters
        ----------
        X, n_neighbors : as in ``PLML``
        """
        if X is not None:
            check_rows(X)
        rows = self._encoded(X)
        found, base = self._election(rows), self._case_base()
        most = max(ballot.n_neighbors for ballot in found.ballots)
        k = self.model_.n_listed(X, n_neighbors, most)
        told = base.explanation(rows, k, found, calibrated(found.shares, *self.calibration_))
        columns, encoder = self._columns(), self.encoder_
        here = self.training_values() if X is None else table_values(encoder.with_dates(X))
        told = in_columns(told, columns, self.training_values, here)
        return told.named(X, self.training_names())

    @of_one_fit
    def local_importance(self, X: Any = None) -> np.ndarray:
        """As ``PLML.local_importance``, under the metric of ``model_``, by columns of the table.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        return self._by_column(self._case_base().local_importance(self._encoded(X)))

    @of_one_fit
    def average_importance(self) -> np.ndarray:
        """As ``PLML.average_importance``, by columns of the table."""
        return self._by_column(self._case_base().average_importance())

    @of_one_fit
    def staleness(self, X: Any, y: Any, *, n_parts: int = 2, random_state: int = 0) -> "Staleness":
        """As ``PLML.staleness``.

        Parameters
        ----------
        X, y, n_parts, random_state : as in ``PLML.staleness``
        """
        from plml.evaluation.staleness import staleness

        return staleness(self, X, y, n_parts=n_parts, random_state=random_state)

    def _case_base(self) -> CaseBase:
        """Of ``model_``, with the columns of the table that its features were made from."""
        return self.model_.case_base(self._columns().owner)

    def _by_column(self, parts: np.ndarray) -> np.ndarray:
        """(..., n_features_out) parts of encoded features, added up by their columns."""
        sums = np.eye(self.n_features_in_)[self._columns().owner]
        return parts @ sums

    def _election(self, rows: np.ndarray | None) -> Election:
        """The votes of all members."""
        return joined(
            [model.case_base().election(rows, pairs) for model, pairs in self.committee()]
        )

    @of_one_fit
    def index_vectors(self, rows: Any = None) -> np.ndarray:
        """As ``PLML.index_vectors``, of the encoded training rows.

        Parameters
        ----------
        rows : (n,) numbers of some cases; None for all
        """
        return self.model_.index_vectors(rows)

    @of_one_fit
    def query_vectors(self, X: Any = None) -> np.ndarray:
        """As ``PLML.query_vectors``, of encoded queries.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        return self.model_.query_vectors(self._encoded(X))

    def _encoded(self, X: Any) -> np.ndarray | None:
        return None if X is None else self.encoder_.transform(X)
