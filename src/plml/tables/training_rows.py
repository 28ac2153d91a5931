"""The rows of a table that a fit learns from, and what else a model keeps of the table."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.backend.progress import stage
from plml.evaluation.stratified import stratified_part
from plml.preprocessing.columns import Columns, listed, pandas
from plml.preprocessing.keys import keys_of
from plml.tables.column_report import ColumnReport, describe, no_classes
from plml.tables.training_profile import TrainingProfile
from plml.validation import rows_that_count
from plml.wording import rows_told

if TYPE_CHECKING:
    import pandas as pd

#: Of more rows than this a fit learns from a stratified part, unless it is told otherwise: what it
#: keeps of each row while it learns is a hundred numbers and more.
MOST_ROWS = 50_000
#: The stage in which columns become numbers.
ENCODING = "encoding"


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What is learned from; nothing in it refers to the table, which may go.

    Attributes
    ----------
    target : the column of the labels
    columns : the columns that are learned from
    report : of all columns
    profile : of all rows
    values : of the rows that are learned from, tidy
    labels, weights, keys : of these rows; None where there are no weights or keys
    key : the column of the keys
    """

    target: str
    columns: Columns
    report: ColumnReport
    profile: TrainingProfile
    values: "pd.DataFrame"
    labels: np.ndarray
    weights: np.ndarray | None
    keys: np.ndarray | None
    key: str | None


def training_rows(
    table: "pd.DataFrame",
    target: str,
    name: str,
    *,
    imputes: bool,
    keep: Sequence[str],
    drop: Sequence[str],
    uses: Mapping[str, str] | None,
    doubts: Mapping[str, str] | None,
    units: Mapping[str, str] | None,
    key: str | None,
    weight: str | None,
    max_rows: int,
    random_state: Any,
    tell: Callable[[ColumnReport], None],
) -> TrainingRows:
    """Find out what the columns of a table are, and take the rows to learn from.

    Parameters
    ----------
    imputes : whether missing values may be filled in
    random_state : that draws the stratified part
    table, target, name, keep, drop, uses, doubts, units : as in ``fit``
    key, weight, max_rows, tell : as in ``fit``
    """
    if key is not None and key not in table.columns:
        raise ValueError(f"{name} has no column {key!r}; it has {listed(table.columns)}")
    if target in (*drop, key, weight):
        raise ValueError(
            f"{name}: column {target!r} is the target, so it can neither be dropped nor be the key "
            "or the weight"
        )
    labels = _plain(labels_of(table, target, name), f"{name}: column {target!r}")
    if len(labels) and (labels == labels[0]).all():
        only = f"{name}: column {target!r} has one class only ({str(labels[0])!r})"
        raise ValueError(f"{only}; at least two classes are needed")
    table, labels, weights = _that_count(table, labels, weight, name)
    apart = [column for column in dict.fromkeys((key, weight)) if column is not None]
    report = describe(
        table.drop(columns=apart),
        target,
        source=name,
        keep=keep,
        drop=[column for column in drop if column not in apart],
        uses=uses,
        doubts=doubts,
    )
    tell(report)
    report.check_usable()
    for column, doubt in (doubts or {}).items():
        if column in table.columns and column not in (target, *apart, *keep, *drop, *(uses or {})):
            raise ValueError(f"{name}: column {column!r}: {doubt}, or --drop it")
    columns = report.plan(imputes=imputes)
    unused = [*apart, *(fact.name for fact in report.left_out)]
    with stage(ENCODING):
        values = columns.tidy(table, name)
        profile = TrainingProfile.of(columns, values, unused, units)
        part = _part(labels, max_rows, random_state)
        if len(part) < len(values):
            values, labels, table = values.iloc[part], labels[part], table.iloc[part]
            weights = None if weights is None else weights[part]
    keys = None if key is None else _keys(table[key], f"{name}: column {key!r}")
    return TrainingRows(target, columns, report, profile, values, labels, weights, keys, key)


def _part(labels: np.ndarray, most: int, seed: Any) -> np.ndarray:
    """The rows to learn from: all, or a stratified part."""
    if most < 2:
        raise ValueError(f"max_rows must be at least 2, got {most}")
    return stratified_part(np.unique(labels, return_inverse=True)[1], most, seed)


def row_weights(table: "pd.DataFrame", weight: str | None, name: str) -> np.ndarray | None:
    """The weights of the rows of a table, as floats; None without such a column.

    Parameters
    ----------
    table : with the weights in a column
    weight : the name of that column, or None
    name : what messages call the table

    Returns
    -------
    (n,) array or None

    Examples
    --------
    >>> import pandas as pd
    >>> from plml.tables import row_weights
    >>> row_weights(pd.DataFrame({"size": [1.5, 2.5], "count": [3, 1]}), "count", "sizes.csv")
    array([3., 1.])
    """
    if weight is None:
        return None
    if weight not in table.columns:
        raise ValueError(f"{name} has no column {weight!r}; it has {listed(table.columns)}")
    numbers = pandas().to_numeric(table[weight], errors="coerce")
    wrong = np.flatnonzero(numbers.isna())
    if len(wrong):
        found = table[weight].iloc[wrong[0]]
        raise ValueError(
            f"{name}: column {weight!r} holds {str(found)!r} in row {wrong[0]}, and weights are "
            "numbers; correct it"
        )
    return numbers.to_numpy(dtype=np.float64)


def _that_count(
    table: "pd.DataFrame", labels: np.ndarray, weight: str | None, name: str
) -> tuple["pd.DataFrame", np.ndarray, np.ndarray | None]:
    """The rows whose weight is not zero, with their labels and weights."""
    try:
        return rows_that_count(table, labels, row_weights(table, weight, name))[:3]
    except ValueError as error:
        message = str(error).replace("sample_weight", f"{name}: the weight in column {weight!r}")
        raise ValueError(message) from error


def _keys(values: "pd.Series", where: str) -> np.ndarray:
    """The keys in a column, with a warning where they do not tell the rows apart."""
    n_repeated = int(values.duplicated().sum())
    if n_repeated:
        warnings.warn(
            f"{where} names {n_repeated} rows by a key that another row has; the nearest case is "
            "then not one row alone",
            stacklevel=3,
        )
    return keys_of(values)


def labels_of(table: "pd.DataFrame", target: str, name: str) -> "pd.Series":
    """The labels of a table, none of them missing.

    Parameters
    ----------
    table, target : with the labels in a column
    name : what messages call the table
    """
    if target not in table.columns:
        raise ValueError(f"{name} has no column {target!r}; it has {listed(table.columns)}")
    labels = table[target]
    lost = np.flatnonzero(labels.isna())
    if len(lost):
        raise ValueError(
            f"{name}: column {target!r} has no label in {rows_told(lost)}; drop "
            f"{'it' if len(lost) == 1 else 'these rows'}"
        )
    return labels


def _plain(labels: "pd.Series", where: str) -> np.ndarray:
    """Labels as NumPy values: strings, booleans or whole numbers."""
    values = labels.to_numpy()
    if reason := no_classes(labels):
        raise ValueError(f"{where} {reason}")
    return np.array([str(v) for v in values]) if values.dtype.kind not in "biuf" else values
