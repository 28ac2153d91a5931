"""Which column of a table each feature of a model was made from, and the way back to its values."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder

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


def lineage(
    transformer: Any, names: Sequence[str], outputs: Sequence[str] | None = None
) -> Lineage:
    """The lineage of the features that a fitted transformer makes of some columns.

    Steps that keep their columns one by one (scalers, imputers) or only some of them (selectors),
    one-hot encoders, column transformers and ``TableEncoder`` are followed. A step that mixes
    columns, as PCA does, or that does not say whether it does, begins anew: its outputs are the
    columns then.

    Parameters
    ----------
    transformer : fitted, or "passthrough"
    names : of the columns that go in
    outputs : names of what comes out, for a step that mixes columns
    """
    names = [str(name) for name in names]
    if isinstance(transformer, Pipeline):
        return lineage_of_steps([step for _, step in transformer.steps], names, outputs)
    if isinstance(transformer, ColumnTransformer):
        return _of_column_transformer(transformer, names)
    if isinstance(transformer, TableEncoder):
        return lineage(transformer.transformer, names)
    if transformer is None or isinstance(transformer, str):
        return Lineage(names, np.arange(len(names)), _as_they_are)
    if isinstance(transformer, SelectorMixin):
        return _of_selector(transformer, names)
    return _despite_gaps(_of_one_step(transformer, names, outputs))


def _of_one_step(step: Any, names: list[str], outputs: Sequence[str] | None) -> Lineage:
    """Of a step that is not made of others."""
    if isinstance(step, OneHotEncoder):
        return _of_one_hot(step, names)
    if isinstance(step, DateEncoder):
        return Lineage(names, step.owner, step.inverse_transform)
    if isinstance(step, SimpleImputer) and step.indicator_ is not None:
        return _of_indicator(step, names)
    if _is_one_to_one(step):
        return _of_one_to_one(step, names)
    made = names if outputs is None else list(outputs)
    return Lineage(made, np.arange(len(made)), _as_they_are, is_table=False)


def _despite_gaps(found: Lineage) -> Lineage:
    """With values that are unknown where those of the features are."""
    n_columns = len(found.names)

    def values(rows: np.ndarray) -> np.ndarray:
        unknown = _unknown(rows)
        if not unknown.any():
            return found.values(rows)
        if not np.array_equal(found.owner, np.arange(n_columns)):
            return np.full((len(rows), n_columns), None, dtype=object)
        known = np.array(found.values(np.where(unknown, 0.0, rows)), dtype=object)
        known[:, unknown] = None
        return known

    return found._replace(values=values)


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


def lineage_of_steps(
    steps: list[Any], names: Sequence[str], outputs: Sequence[str] | None = None
) -> Lineage:
    """``lineage`` through one step after another.

    Parameters
    ----------
    steps : fitted transformers
    names : of the columns that go in
    outputs : names of what comes out in the end, where the last step has none
    """
    names = [str(name) for name in names]
    found = Lineage(names, np.arange(len(names)), _as_they_are)
    for place, step in enumerate(steps):
        numbers = [str(number) for number in range(len(found.owner))]
        given = getattr(step, "feature_names_in_", numbers)
        made = inputs_of(steps[place + 1], step) if place + 1 < len(steps) else outputs
        inner = lineage(step, given, names_out(step) or made)
        if not inner.is_table:
            found = inner
            continue
        found = Lineage(
            found.names, found.owner[inner.owner], _chained(found, inner), found.is_table
        )
    return found


def inputs_of(step: Any, before: Any) -> list[str] | None:
    """What a fitted step calls the outputs of the one before it; None where it does not know.

    Parameters
    ----------
    step, before : fitted
    """
    names = getattr(step, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    n = getattr(step, "n_features_in_", None)
    return None if n is None else _numbered(before, n)


def _numbered(step: Any, n: int) -> list[str]:
    """Names of outputs, as scikit-learn gives them: that of the class and a number."""
    return [f"{type(step).__name__.lower()}{i}" for i in range(n)]


def names_out(step: Any) -> list[str] | None:
    """What a step calls its outputs."""
    try:
        return [str(name) for name in step.get_feature_names_out()]
    except (AttributeError, ValueError, NotImplementedError):
        return None


def _chained(outer: Lineage, inner: Lineage) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: outer.values(inner.values(rows))


def _unknown(values: np.ndarray) -> np.ndarray:
    """(k,) which columns of (n, k) values hold one that is unknown."""
    if values.dtype != object:
        return np.zeros(values.shape[1], dtype=bool)
    return np.array([any(value is None for value in column) for column in values.T], dtype=bool)


def _of_column_transformer(transformer: ColumnTransformer, names: list[str]) -> Lineage:
    known = getattr(transformer, "feature_names_in_", names)  # an array has none, but its steps do
    place = {str(name): i for i, name in enumerate(known)}
    columns, is_table = list(names), True
    parts: list[tuple[slice, Lineage, list[int]]] = []
    for name, inner, chosen in transformer.transformers_:
        numbers = _positions(chosen, place, len(names))
        if not numbers or (isinstance(inner, str) and inner == "drop"):
            continue
        features = transformer.output_indices_[name]
        made = names_out(inner) or _numbered(inner, features.stop - features.start)
        inside = lineage(inner, [names[c] for c in numbers], made)
        if not inside.is_table:  # its outputs are columns of their own
            is_table = False
            numbers = list(range(len(columns), len(columns) + len(inside.names)))
            columns += inside.names
        parts.append((features, inside, numbers))
    owner = np.zeros(max(features.stop for features, _, _ in parts), dtype=np.int64)
    for features, inside, numbers in parts:
        owner[features] = np.array(numbers)[inside.owner]

    def values(rows: np.ndarray) -> np.ndarray:
        result = np.full((len(rows), len(columns)), None, dtype=object)
        for features, inside, numbers in parts:
            result[:, numbers] = inside.values(rows[:, features])
        return result

    return Lineage(columns, owner, values, is_table)


def _positions(columns: Any, place: dict[str, int], n_columns: int) -> list[int]:
    """The columns of a step of a column transformer, as numbers."""
    if isinstance(columns, str):
        return [place[columns]]
    if isinstance(columns, slice):
        return _sliced(columns, place, n_columns)
    listed = np.atleast_1d(np.asarray(columns, dtype=object)).tolist()
    if listed and all(isinstance(c, bool | np.bool_) for c in listed):
        return [i for i, taken in enumerate(listed) if taken]
    return [place[str(c)] if isinstance(c, str) else int(c) for c in listed]


def _sliced(columns: slice, place: dict[str, int], n_columns: int) -> list[int]:
    """A slice of columns; of names, which include the last, or of numbers."""
    start, stop = columns.start, columns.stop
    first = place[start] if isinstance(start, str) else start
    last = place[stop] + 1 if isinstance(stop, str) else stop
    return list(range(n_columns))[first : last : columns.step]


def _of_one_hot(encoder: OneHotEncoder, names: list[str]) -> Lineage:
    sizes = []
    for i, known in enumerate(encoder.categories_):
        rare = getattr(encoder, "infrequent_categories_", [None] * len(names))[i]
        dropped = encoder.drop_idx_ is not None and encoder.drop_idx_[i] is not None
        sizes.append(len(known) - (0 if rare is None else len(rare) - 1) - dropped)

    def values(rows: np.ndarray) -> np.ndarray:
        if not sum(sizes):  # the only category of each column was dropped
            return np.full((len(rows), len(names)), None, dtype=object)
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


def _of_selector(selector: Any, names: list[str]) -> Lineage:
    kept = selector.get_support(indices=True)

    def values(rows: np.ndarray) -> np.ndarray:
        result = np.full((len(rows), len(names)), None, dtype=object)
        result[:, kept] = rows
        return result

    return Lineage(names, kept, values)


def _is_one_to_one(step: Any) -> bool:
    """Whether the outputs of a step are its inputs one by one, as far as it says."""
    if isinstance(step, FunctionTransformer):
        declared = step.feature_names_out == "one-to-one"
        return declared or step.func is None or isinstance(step.func, np.ufunc)
    given = getattr(step, "feature_names_in_", None)
    if given is None:
        given = [f"x{i}" for i in range(getattr(step, "n_features_in_", 0))]
    return names_out(step) == [str(name) for name in given]


def _of_one_to_one(step: Any, names: list[str]) -> Lineage:
    keeps_values, forgets = "Imputer" in type(step).__name__, _forgets(step)

    def values(rows: np.ndarray) -> np.ndarray:
        if keeps_values:
            return rows
        if forgets:
            return np.full(rows.shape, None, dtype=object)
        return np.asarray(step.inverse_transform(np.asarray(rows, dtype=np.float64)))

    return Lineage(names, np.arange(len(names)), values)


def _forgets(step: Any) -> bool:
    """Whether there is no way back to the values, as from bins or from rows of unit length."""
    if isinstance(step, FunctionTransformer):  # without an inverse it returns what it was given
        return step.func is not None and step.inverse_func is None
    return isinstance(step, KBinsDiscretizer) or not hasattr(step, "inverse_transform")


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
