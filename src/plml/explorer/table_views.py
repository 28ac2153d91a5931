"""From the rows of a user to features, and from training rows back to values as they were."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from plml.inspection.explain_any import classifier_of, with_dates
from plml.inspection.lineage import inputs_of, known_values, lineage_of_steps, names_out
from plml.inspection.values import snapped, table_values
from plml.preprocessing.columns import MISSING, pandas
from plml.preprocessing.dates import days_of
from plml.validation import query_data


class Column(NamedTuple):
    """A column of the user's table.

    Attributes
    ----------
    name : as in the table
    low, high : the range of the numbers in the training rows, of dates in days since 1970
    whole : whether these are all whole numbers
    choices : the categories, none where the column has numbers
    optional : whether a number or a date may be missing
    date : whether the column has dates
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    date: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the column has numbers."""
        return not self.choices and not self.date


class TableView:
    """The columns of a table, and the way to the features of a classifier and back.

    Parameters
    ----------
    steps : what comes before the classifier, or None
    classifier : fitted
    tidy : from rows of the user to what the steps take
    imputes : whether entries may be missing
    dates : names of the columns of dates

    Attributes
    ----------
    columns : of the table
    owner : (n_features,) the column that each feature was made from
    feature_names : (n_features,) a number is called as its column is
    is_table : whether the columns are those of the user's rows, not outputs of a step
    """

    def __init__(
        self,
        steps: Any,
        classifier: Any,
        tidy: Callable[[Any], Any],
        imputes: bool,
        dates: Sequence[str] = (),
    ) -> None:
        self._steps, self._classifier, self._tidy = steps, classifier, tidy
        self._encoder = getattr(classifier, "encoder_", None)
        learner = classifier if self._encoder is None else classifier.model_
        self._cases = learner.training_cases()[0]
        first = classifier if steps is None else steps
        names = getattr(first, "feature_names_in_", None)
        self._is_named = names is not None
        if names is None:
            names = [f"x{i}" for i in range(first.n_features_in_)]
        before = [] if steps is None else [step for _, step in steps.steps]
        made = inputs_of(classifier, before[-1]) if before else None
        if self._encoder is not None:
            before.append(self._encoder)
        found = lineage_of_steps(before, names, made)
        self._used, self.owner = np.unique(found.owner, return_inverse=True)
        self._lineage, self.is_table = found, found.is_table
        self._names = [found.names[column] for column in self._used]
        self.columns = _columns(
            self._names, self.training_values(np.arange(len(self._cases))), imputes, dates
        )
        last = steps if self._encoder is None else self._encoder
        self.feature_names = self._named_features(names_out(last) or learner.case_base().names)

    @property
    def numbers(self) -> np.ndarray:
        """The features that are numbers of the table, not marks of what is missing in it."""
        first = np.unique(self.owner, return_index=True)[1]
        return np.array([f for f in first if self.columns[self.owner[f]].is_number], dtype=int)

    def _named_features(self, made: Sequence[str]) -> np.ndarray:
        names = np.asarray(made, dtype=object).copy()
        for f in self.numbers:
            names[f] = self.columns[self.owner[f]].name
        return names

    def encoded(self, X: Any) -> np.ndarray:
        """Rows of the user as the features that distances are computed of."""
        rows = self._tidy(X)
        if self._steps is not None:
            rows = self._steps.transform(rows)
        if self._encoder is not None:
            return self._encoder.transform(rows)
        return query_data(self._classifier, rows)

    def values(self, X: Any) -> np.ndarray:
        """(q, n_columns) values of the user's rows."""
        if not self.is_table:
            return snapped(np.asarray(self._lineage.values(self.encoded(X))))[:, self._used]
        rows = self._tidy(X)
        return table_values(rows)[:, self._places(rows)]

    def _places(self, rows: Any) -> list[int]:
        """Where the columns are in rows: by their names, if the model knows these."""
        if not self._is_named or not hasattr(rows, "columns"):
            return self._used.tolist()
        given = [str(name) for name in rows.columns]
        return [given.index(name) for name in self._names]

    def training_values(self, rows: np.ndarray) -> np.ndarray:
        """(q, n_columns) values of training rows."""
        if self._steps is None:
            known = self._encoder is not None
            return self._classifier.training_values(rows) if known else self._cases[rows]
        return known_values(self._lineage, self._cases, rows)[:, self._used]

    def changed(self, row: Any, before: Sequence[str], texts: Sequence[str]) -> Any:
        """A row of the user with what a person typed; a ``ValueError`` names what is wrong.

        What was not touched stays as it is.

        Parameters
        ----------
        row : one row, as the model takes it
        before, texts : one text per column, as they were and as they are now
        """
        if not self.is_table:
            raise ValueError("a step of this pipeline mixes columns, so they cannot be changed")
        if len(texts) != len(self.columns):
            raise ValueError(f"{len(self.columns)} values are needed, got {len(texts)}")
        touched = {
            place: _parsed(column, text)
            for place, column, old, text in zip(
                self._places(row), self.columns, before, texts, strict=True
            )
            if text != old
        }
        if not hasattr(row, "columns"):
            values = np.array(row, dtype=np.float64)
            values[0, list(touched)] = list(touched.values())
            return values
        result = row.copy()
        for place, value in touched.items():
            result[row.columns[place]] = [value]
        return result


def table_view(model: Any, classifier: Any, name: str) -> TableView:
    """The columns in which a model's cases are described.

    Parameters
    ----------
    model : of ``plml fit``, a fitted pipeline, or an estimator
    classifier : its classifier, or the estimator itself
    name : what messages call the new rows
    """
    if hasattr(model, "columns") and hasattr(model, "pipeline"):
        columns = model.columns
        tidy = partial(_tidied, columns, name)
        steps = classifier_of(model.pipeline)[0]
        return TableView(steps, classifier, tidy, columns.imputes, columns.dates)
    steps = model[:-1] if hasattr(model, "steps") and len(model.steps) > 1 else None
    encoder = getattr(classifier, "encoder_", None)
    dates = getattr(encoder, "dates_", ())
    return TableView(steps, classifier, partial(with_dates, model), encoder is not None, dates)


def _tidied(columns: Any, name: str, X: Any) -> Any:
    return columns.tidy(X, name)


def _columns(
    names: Sequence[str], values: np.ndarray, imputes: bool, dates: Sequence[str]
) -> tuple[Column, ...]:
    """Numbers and dates with their ranges, and categories."""
    found = []
    for name, column in zip(names, values.T, strict=True):
        if values.dtype == object and any(value is None for value in column):
            raise ValueError(
                f"the values of {name!r} in the training rows are unknown behind this pipeline: a "
                "step forgets them, as Normalizer does"
            )
        if name in dates:
            days = days_of(pandas().Series(column, dtype=object))
            low, high = float(np.nanmin(days)), float(np.nanmax(days))
            found.append(Column(name, low, high, optional=imputes, date=True))
        elif values.dtype != object or all(
            isinstance(value, float | int | np.number) for value in column
        ):
            numbers = column.astype(np.float64)
            numbers = numbers[~np.isnan(numbers)]
            whole = bool((numbers == np.rint(numbers)).all())
            low, high = float(numbers.min()), float(numbers.max())
            found.append(Column(name, low, high, whole, optional=imputes))
        else:
            found.append(Column(name, choices=tuple(sorted({str(value) for value in column}))))
    return tuple(found)


def _parsed(column: Column, text: str) -> Any:
    if column.choices:
        if text not in column.choices:
            raise ValueError(f"{column.name}: {text[:40]!r} is not one of its categories")
        return text
    text = text.strip()
    if column.optional and text in ("", MISSING):
        return pandas().NaT if column.date else np.nan
    if column.date:
        return _parsed_date(column.name, text)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column.name}: {text[:40]!r} is not a number") from None
    if not np.isfinite(value):
        raise ValueError(f"{column.name}: {text[:40]!r} is not a finite number")
    return value


def _parsed_date(name: str, text: str) -> Any:
    date = pandas().to_datetime(text, errors="coerce", utc=True)
    if not text[:4].isdigit() or pandas().isna(date):
        raise ValueError(f"{name}: {text[:40]!r} is not a date; give it as year-month-day")
    return date.tz_convert(None)
