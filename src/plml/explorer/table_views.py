"""From the rows of a user to features, and from training rows back to values as they were."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from plml.estimators.auto_plml import AutoPLML
from plml.preprocessing.columns import MISSING, pandas

#: What a rare category is called, as in ``plml explain``.
_RARE = "(rare)"
#: Relative to the spread of a column: what coding and decoding a number may change.
_NOISE = {"float32": 1e-6, "float64": 1e-10}


class Column(NamedTuple):
    """A column of the user's table.

    Attributes
    ----------
    name : as in the table
    low, high : the range of the numbers in the training rows
    whole : whether these are all whole numbers
    choices : the categories, none where the column has numbers
    optional : whether a number may be missing
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the column has numbers."""
        return not self.choices


class TableModel(Protocol):
    """What is used of a model of ``plml fit`` (``plml.tables.Model``)."""

    pipeline: Any
    columns: Any

    def prepared(self, table: Any, name: str) -> Any:
        """As the classifier sees the rows."""

    def _owners(self) -> np.ndarray: ...

    def _encoded_order(self) -> list[str]: ...

    def _in_the_table(self, rows: np.ndarray) -> Any: ...


class TableView(ABC):
    """The columns of a table, and the way to the features of a classifier and back.

    Attributes
    ----------
    columns : of the table
    owner : (n_features,) the column that each feature was made from
    feature_names : (n_features,)
    """

    columns: tuple[Column, ...]
    owner: np.ndarray
    feature_names: np.ndarray

    @abstractmethod
    def encoded(self, X: Any) -> np.ndarray:
        """Rows of the user as the features that distances are computed of."""

    @abstractmethod
    def values(self, X: Any) -> np.ndarray:
        """(q, n_columns) values of the user's rows."""

    @abstractmethod
    def training_values(self, rows: np.ndarray) -> np.ndarray:
        """(q, n_columns) values of training rows."""

    @abstractmethod
    def one_row(self, values: Sequence[Any]) -> Any:
        """A row of the user with these values."""

    def parsed(self, texts: Sequence[str], unchanged: Sequence[str] = ()) -> Any:
        """A row from what a person typed; a ``ValueError`` names the column that is wrong.

        Parameters
        ----------
        texts : one per column
        unchanged : texts of the case before; a category that the model never saw may stay
        """
        if len(texts) != len(self.columns):
            raise ValueError(f"{len(self.columns)} values are needed, got {len(texts)}")
        before = [*unchanged, *[None] * (len(texts) - len(unchanged))]
        values = zip(self.columns, texts, before, strict=True)
        return self.one_row([_parsed(column, str(text), old) for column, text, old in values])


class NumberView(TableView):
    """An estimator whose features are the columns."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._cases, _ = estimator.training_cases()
        unnamed = [f"x{i}" for i in range(estimator.n_features_in_)]
        self._named = hasattr(estimator, "feature_names_in_")
        names = [str(name) for name in getattr(estimator, "feature_names_in_", unnamed)]
        self.columns = number_columns(names, self._cases)
        self.owner = np.arange(len(names))
        self.feature_names = np.asarray(names, dtype=object)

    def encoded(self, X: Any) -> np.ndarray:
        """The checked rows themselves."""
        return self._estimator._validate_on_host(X)

    def values(self, X: Any) -> np.ndarray:
        """The numbers."""
        return np.asarray(X, dtype=np.float64)

    def training_values(self, rows: np.ndarray) -> np.ndarray:
        """The numbers."""
        return self._cases[rows]

    def one_row(self, values: Sequence[Any]) -> Any:
        """An array, or a data frame where the estimator knows names."""
        row = np.asarray([values], dtype=np.float64)
        names = [column.name for column in self.columns]
        return pandas().DataFrame(row, columns=names) if self._named else row


class EncoderView(TableView):
    """``AutoPLML``, which encodes a table itself."""

    def __init__(self, classifier: AutoPLML) -> None:
        self._encoder = classifier.encoder_
        self._cases = classifier.models_[0].training_cases()[0]
        self.feature_names = self._encoder.get_feature_names_out()
        transformers = getattr(self._encoder._encoder, "named_transformers_", {})
        unnamed = [f"x{i}" for i in range(classifier.n_features_in_)]
        self._named = hasattr(classifier, "feature_names_in_") or bool(transformers)
        names = [str(name) for name in getattr(classifier, "feature_names_in_", unnamed)]
        self._onehot = transformers.get("category")
        self._categories = list(self._encoder.categories_)
        self._numbers = [name for name in names if name not in self._categories]
        self.owner, choices = _owners_of(names, self._numbers, self._categories, self._onehot)
        numbers = self._encoder.in_units_of_the_table(self._cases)[:, : len(self._numbers)]
        found = {c.name: c for c in number_columns(self._numbers, numbers, optional=True)}
        self.columns = tuple(
            found[name] if name in found else Column(name, choices=choices[name]) for name in names
        )

    def encoded(self, X: Any) -> np.ndarray:
        """Standardised numbers, and zeros and ones."""
        return self._encoder.transform(X)

    def values(self, X: Any) -> np.ndarray:
        """As they are in the table."""
        return np.asarray(X, dtype=object) if self._categories else np.asarray(X, dtype=float)

    def training_values(self, rows: np.ndarray) -> np.ndarray:
        """As they were in the table."""
        coded = self._cases[rows]
        numbers = self._encoder.in_units_of_the_table(coded)[:, : len(self._numbers)]
        parts = dict(zip(self._numbers, without_noise(numbers, self._cases.dtype).T, strict=True))
        if self._onehot is not None:
            texts = self._onehot.inverse_transform(coded[:, len(self._numbers) :])
            parts |= dict(zip(self._categories, _with_rare(texts).T, strict=True))
        kind = object if self._categories else np.float64
        return np.stack([parts[c.name].astype(kind) for c in self.columns], axis=1)

    def one_row(self, values: Sequence[Any]) -> Any:
        """An array, or a data frame where there are names."""
        if not self._named:
            return np.asarray([values], dtype=np.float64)
        names = [column.name for column in self.columns]
        return pandas().DataFrame({n: [v] for n, v in zip(names, values, strict=True)})


class SavedView(TableView):
    """A model of ``plml fit``, with the table it was fitted on."""

    def __init__(self, model: TableModel, classifier: Any, name: str) -> None:
        self._model, self._name = model, name
        self._inner = EncoderView(classifier) if isinstance(classifier, AutoPLML) else None
        self._cases = classifier.training_cases()[0]  # in the units of what the pipeline prepared
        self._classifier = classifier
        order = model._encoded_order()
        names = list(model.columns.names)
        place = np.array([names.index(name) for name in order])
        self.owner = place[model._owners().argmax(axis=1)]
        self.feature_names = np.asarray(classifier.feature_names_in_, dtype=object)
        self._names = names
        found = {column.name: column for column in self._number_columns()}
        choices = {}
        if model.columns.categories:
            onehot = model.pipeline["encode"].named_transformers_["category"][0]
            known = zip(model.columns.categories, onehot.categories_, strict=True)
            choices = {name: tuple(str(value) for value in values) for name, values in known}
        self.columns = tuple(
            found[name] if name in found else Column(name, choices=choices[name]) for name in names
        )

    def _number_columns(self) -> tuple[Column, ...]:
        numbers = list(self._model.columns.numbers)
        if not numbers:
            return ()
        scaled = self._cases * self._model.pipeline["scale"].scale_
        standard = self._model.pipeline["encode"].named_transformers_["number"][-1]
        values = standard.inverse_transform(scaled[:, : len(numbers)])
        return number_columns(numbers, values, optional=self._model.columns.imputes)

    def encoded(self, X: Any) -> np.ndarray:
        """As the metric sees the rows."""
        rows = self._model.prepared(X, self._name)
        if self._inner is not None:
            return self._inner.encoded(rows)
        return self._classifier._validate_on_host(rows)

    def values(self, X: Any) -> np.ndarray:
        """As they are in the table."""
        return self._model.columns.tidy(X, self._name).to_numpy(dtype=object)

    def training_values(self, rows: np.ndarray) -> np.ndarray:
        """As they were in the table."""
        table = self._model._in_the_table(self._cases[rows])
        numbers = list(self._model.columns.numbers)
        if numbers:
            table[numbers] = without_noise(table[numbers].to_numpy(), self._cases.dtype)
        return table[self._names].to_numpy(dtype=object)

    def one_row(self, values: Sequence[Any]) -> Any:
        """A table of one row."""
        return pandas().DataFrame({n: [v] for n, v in zip(self._names, values, strict=True)})


def table_view(model: Any, classifier: Any, name: str) -> TableView:
    """The columns in which a model's cases are described.

    Parameters
    ----------
    model, classifier : a model of ``plml fit`` and its classifier, or twice the same estimator
    name : what messages call the new rows
    """
    if hasattr(model, "prepared"):
        return SavedView(model, classifier, name)
    return EncoderView(classifier) if isinstance(classifier, AutoPLML) else NumberView(classifier)


def number_columns(
    names: Sequence[str], values: np.ndarray, optional: bool = False
) -> tuple[Column, ...]:
    """Columns of numbers with their ranges.

    Parameters
    ----------
    names, values : of the columns, and (n, n_columns) their numbers
    optional : whether a number may be missing
    """
    if not len(names):
        return ()
    values = np.asarray(values, dtype=np.float64)
    near = np.abs(values - np.rint(values)) <= 1e-6 * np.maximum(1.0, np.abs(values))
    ranges = zip(names, values.min(axis=0), values.max(axis=0), near.all(axis=0), strict=True)
    return tuple(
        Column(str(name), float(low), float(high), bool(whole), optional=optional)
        for name, low, high, whole in ranges
    )


def without_noise(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers that were coded and decoded, whole ones exactly.

    Parameters
    ----------
    numbers : (q, n_columns)
    dtype : that they were coded in
    """
    numbers = np.asarray(numbers, dtype=np.float64)
    whole = np.rint(numbers)
    allowed = _NOISE.get(np.dtype(dtype).name, 1e-10) * np.maximum(1.0, np.abs(numbers))
    return np.where(np.abs(numbers - whole) <= allowed, whole + 0.0, numbers)


def _owners_of(
    names: list[str], numbers: list[str], categories: list[str], onehot: Any
) -> tuple[np.ndarray, dict[str, tuple[str, ...]]]:
    """The column of each feature, numbers first, and the categories of the other columns."""
    owner = [names.index(name) for name in numbers]
    choices = {}
    if onehot is not None:
        known = zip(categories, onehot.categories_, onehot.infrequent_categories_, strict=True)
        for name, values, rare in known:
            n_features = len(values) - (0 if rare is None else len(rare) - 1)
            owner += [names.index(name)] * n_features
            choices[name] = tuple(str(value) for value in values)
    return np.array(owner, dtype=int), choices


def _with_rare(texts: np.ndarray) -> np.ndarray:
    texts = np.array(texts, dtype=object)
    texts[texts == "infrequent_sklearn"] = _RARE
    return texts


def _parsed(column: Column, text: str, before: str | None) -> Any:
    if not column.is_number:
        if text not in column.choices and text != before:
            raise ValueError(f"{column.name}: {text[:40]!r} is not one of its categories")
        return text
    text = text.strip()
    if column.optional and text in ("", MISSING):
        return np.nan
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column.name}: {text[:40]!r} is not a number") from None
    if not np.isfinite(value):
        raise ValueError(f"{column.name}: {text[:40]!r} is not a finite number")
    return value
