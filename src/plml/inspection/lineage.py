"""Which column of a table each feature of a model was made from, and the way back to its values."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from plml.inspection.explanation import Explanation
from plml.inspection.values import snapped
from plml.preprocessing.date_encoder import DateEncoder
from plml.preprocessing.table_encoder import TableEncoder

#: Rows that show how large the numbers of a column are.
_SAMPLE = 1000
#: What categories that share a column are called.
RARE_CATEGORY = "(rare)"
#: What a category is called that was in no row that was learned from.
UNKNOWN_CATEGORY = "(unknown)"


class Lineage(NamedTuple):
    """Columns, and what became of them."""

    names: list[str]  # of the columns
    owner: np.ndarray  # (n_features,) the column of each feature
    values: Callable[[np.ndarray], np.ndarray]  # (n, n_features) rows -> (n, n_columns) values
    is_table: bool = True  # whether the columns are those that were given


def lineage(transformer: Any, names: Sequence[str]) -> Lineage:
    """The lineage of the features that a fitted transformer makes of some columns.

    Steps that keep their columns one by one (scalers, imputers), one-hot encoders, column
    transformers and ``TableEncoder`` are followed. A step that mixes columns, as PCA does, begins
    anew: its outputs are the columns then.

    Parameters
    ----------
    transformer : fitted, or "passthrough"
    names : of the columns that go in
    """
    names = [str(name) for name in names]
    if isinstance(transformer, Pipeline):
        return lineage_of_steps([step for _, step in transformer.steps], names)
    if isinstance(transformer, ColumnTransformer):
        return _of_column_transformer(transformer, names)
    if isinstance(transformer, OneHotEncoder):
        return _of_one_hot(transformer, names)
    if isinstance(transformer, DateEncoder):
        return Lineage(names, transformer.owner, transformer.inverse_transform)
    if isinstance(transformer, SimpleImputer) and transformer.indicator_ is not None:
        return _of_indicator(transformer, names)
    if isinstance(transformer, TableEncoder):
        return lineage(transformer.transformer, names)
    if transformer is None or isinstance(transformer, str):
        return Lineage(names, np.arange(len(names)), _as_they_are)
    return _of_one_to_one(transformer, names)


def in_columns(
    found: Explanation,
    columns: Lineage,
    stored: Callable[[np.ndarray], np.ndarray],
    queries: np.ndarray,
) -> Explanation:
    """An explanation in the columns that the features of a model were made from.

    Parameters
    ----------
    found : in features
    columns : their lineage
    stored : from numbers of training rows, (n,), to their values, (n, n_columns)
    queries : (q, n_columns) values of the queries
    """
    used, owner = np.unique(columns.owner, return_inverse=True)  # others feed no feature

    def values(numbers: np.ndarray) -> np.ndarray:
        known, place = np.unique(numbers, return_inverse=True)
        return stored(known)[:, used][place.reshape(numbers.shape)]

    return found.in_columns([columns.names[c] for c in used], owner, queries[:, used], values)


def lineage_of_steps(steps: list[Any], names: Sequence[str]) -> Lineage:
    """``lineage`` through one step after another.

    Parameters
    ----------
    steps : fitted transformers
    names : of the columns that go in
    """
    names = [str(name) for name in names]
    found = Lineage(names, np.arange(len(names)), _as_they_are)
    for step in steps:
        given = getattr(step, "feature_names_in_", None)
        inner = lineage(step, range(len(found.owner)) if given is None else given)  # type: ignore[arg-type]
        if not inner.is_table:
            found = inner
            continue
        found = Lineage(
            found.names, found.owner[inner.owner], _chained(found, inner), found.is_table
        )
    return found


def _chained(outer: Lineage, inner: Lineage) -> Callable[[np.ndarray], np.ndarray]:
    def values(rows: np.ndarray) -> np.ndarray:
        between = inner.values(rows)
        if outer.values is _as_they_are or not _known(between):
            return between
        return outer.values(between)

    return values


def _known(values: np.ndarray) -> bool:
    return values.dtype != object or not any(value is None for value in values.ravel())


def _of_column_transformer(transformer: ColumnTransformer, names: list[str]) -> Lineage:
    known = getattr(transformer, "feature_names_in_", names)  # an array has none, but its steps do
    place = {str(name): i for i, name in enumerate(known)}
    parts: list[tuple[slice, Lineage, list[int]]] = []
    for name, inner, columns in transformer.transformers_:
        numbers = _positions(columns, place, len(names))
        if numbers and not (isinstance(inner, str) and inner == "drop"):
            inside = lineage(inner, [names[c] for c in numbers])
            parts.append((transformer.output_indices_[name], inside, numbers))
    owner = np.zeros(max(features.stop for features, _, _ in parts), dtype=np.int64)
    for features, inside, numbers in parts:
        owner[features] = np.array(numbers)[inside.owner]

    def values(rows: np.ndarray) -> np.ndarray:
        result = np.full((len(rows), len(names)), None, dtype=object)
        for features, inside, numbers in parts:
            result[:, numbers] = inside.values(rows[:, features])
        return result

    return Lineage(names, owner, values)


def _positions(columns: Any, place: dict[str, int], n_columns: int) -> list[int]:
    """The columns of a step of a column transformer, as numbers."""
    if isinstance(columns, str):
        return [place[columns]]
    if isinstance(columns, slice) and not isinstance(columns.start, str):
        return list(range(n_columns))[columns]
    listed = np.atleast_1d(np.asarray(columns, dtype=object)).tolist()
    if listed and all(isinstance(c, bool | np.bool_) for c in listed):
        return [i for i, taken in enumerate(listed) if taken]
    return [place[str(c)] if isinstance(c, str) else int(c) for c in listed]


def _of_one_hot(encoder: OneHotEncoder, names: list[str]) -> Lineage:
    sizes = []
    for i, known in enumerate(encoder.categories_):
        rare = getattr(encoder, "infrequent_categories_", [None] * len(names))[i]
        dropped = encoder.drop_idx_ is not None and encoder.drop_idx_[i] is not None
        sizes.append(len(known) - (0 if rare is None else len(rare) - 1) - dropped)

    def values(rows: np.ndarray) -> np.ndarray:
        texts = np.asarray(encoder.inverse_transform(np.asarray(rows)), dtype=object)
        texts[texts == "infrequent_sklearn"] = RARE_CATEGORY
        texts[texts == None] = UNKNOWN_CATEGORY  # noqa: E711
        return texts

    return Lineage(names, np.repeat(np.arange(len(names)), sizes), values)


def _of_indicator(imputer: SimpleImputer, names: list[str]) -> Lineage:
    marked = imputer.indicator_.features_

    def values(rows: np.ndarray) -> np.ndarray:
        known = np.array(rows[:, : len(names)], dtype=np.float64)
        missing = np.zeros(known.shape, dtype=bool)
        missing[:, marked] = np.asarray(rows[:, len(names) :], dtype=np.float64) > 0.5
        known[missing] = np.nan
        return known

    return Lineage(names, np.concatenate([np.arange(len(names)), marked]), values)


def _of_one_to_one(step: Any, names: list[str]) -> Lineage:
    """Of a step whose outputs are its inputs one by one, or new columns where they are not."""
    try:
        out = [str(name) for name in step.get_feature_names_out()]
    except (AttributeError, ValueError, NotImplementedError):
        out = list(names)
    if hasattr(step, "components_") or len(out) != len(names):
        return Lineage(out, np.arange(len(out)), _as_they_are, is_table=False)
    keeps_values = "Imputer" in type(step).__name__

    def values(rows: np.ndarray) -> np.ndarray:
        if keeps_values:
            return rows
        if not hasattr(step, "inverse_transform"):  # as of Normalizer: the lengths are gone
            return np.full(rows.shape, None, dtype=object)
        return np.asarray(step.inverse_transform(np.asarray(rows, dtype=np.float64)))

    return Lineage(names, np.arange(len(names)), values)


def _as_they_are(rows: np.ndarray) -> np.ndarray:
    return rows


def known_values(columns: Lineage, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """(n, n_columns) values of some rows, without the rounding noise of scalers.

    Parameters
    ----------
    columns : the lineage of the features
    rows : (n_rows, n_features) all of them
    numbers : (n,) which
    """
    sample = rows[:: -(-len(rows) // _SAMPLE)]
    there = np.concatenate([columns.values(rows[numbers]), columns.values(sample)])
    return snapped(there, rows.dtype)[: len(numbers)]
