"""``plml.counterfactual``: the smallest change of a row that turns its prediction."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from plml.inspection.explain_any import (
    case_values,
    classifier_of,
    explain,
    input_names,
    known_cases,
    with_dates,
)
from plml.inspection.explanation import Explanation
from plml.inspection.explanation_text import percent, short
from plml.inspection.values import table_values
from plml.install import as_pandas, pandas
from plml.preprocessing.date_encoder import date_texts
from plml.preprocessing.dates import days_of
from plml.validation import check_rows

#: Cases of the other class that a counterfactual may go towards.
_GOALS = 20
#: Columns of which all combinations are tried; of more, those that count most come first.
_TRIED_TOGETHER = 8
#: Changes whose way is shortened, those that move the least.
_SHORTENED = 5
#: Halvings of the way to a case.
_HALVINGS = 12


class Counterfactual(NamedTuple):
    """A row with a few columns changed, and its prediction.

    Attributes
    ----------
    prediction, changed_prediction : label
        What is predicted before and after the change.
    probability : float
        Of the class after the change.
    changes : dict
        Column: value before and after.
    row : data frame or array
        The changed row, one row: a data frame of pandas where any data frame was given.
    towards : int
        The training row that the values come from.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import plml
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = plml.SML(n_neighbors=5).fit(X, y)
    >>> change = plml.counterfactual(model, X.iloc[[70]], max_columns=2)
    >>> bool(model.predict(change.row)[0] == change.changed_prediction)
    True
    """

    prediction: Any  # before
    changed_prediction: Any  # after
    probability: float  # of the class after the change
    changes: dict[str, tuple[Any, Any]]  # column: value before and after
    row: Any  # the changed row, a data frame or an array of one row
    towards: int  # the training row that the values come from

    def __str__(self) -> str:
        changes = ", ".join(
            f"{name} from {short(before)} to {short(after)}"
            for name, (before, after) in self.changes.items()
        )
        return (
            f"{self.changed_prediction} (probability {percent(self.probability)}) instead of "
            f"{self.prediction}: {changes}"
        )


def counterfactual(
    model: Any,
    X: Any,
    columns: Sequence[Any] | None = None,
    max_columns: int = 3,
    target: Any = None,
    *,
    cases: Any = None,
) -> Counterfactual | None:
    """The smallest change of a few columns that changes a prediction, found by predicting it.

    Values move towards those of a stored case of another class: as few columns as possible, then as
    little as is needed to change the prediction. None if no case within reach changes it.

    Parameters
    ----------
    model : as in ``explain``
    X : one row, as ``model.predict`` takes it
    columns : names or numbers of the columns that may change; by default all
    max_columns : the largest number of columns to change
    target : the class to reach; by default any other
    cases : as in ``explain``

    Returns
    -------
    Counterfactual or None
        The changed row, what it is predicted as, and from which values to which it was changed.

    See Also
    --------
    explain : Why a row is predicted as it is.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import plml
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = plml.AutoPLML(random_state=0).fit(X, y)
    >>> change = plml.counterfactual(model, X.iloc[[70]], ["petal width (cm)", "petal length (cm)"])
    >>> print(change.prediction, change.changed_prediction)
    1 2
    """
    check_rows(X)
    if len(X) != 1:
        raise ValueError(f"give one row, got {len(X)}")
    model = getattr(model, "best_estimator_", model)
    X, cases = with_dates(model, as_pandas(X)), known_cases(model, cases)
    found = explain(model, X)
    names = [str(name) for name in found.feature_names]
    places = _places(input_names(model, X), names)
    allowed = _allowed(names, places, columns, X)
    if not isinstance(max_columns, Integral) or isinstance(max_columns, bool) or max_columns < 1:
        raise ValueError(f"max_columns must be at least 1, a whole number, got {max_columns}")
    before = model.predict(X)[0]
    if target is not None and (np.ndim(target) or target not in found.classes):
        raise ValueError(f"target must be one of the classes, got {target!r}")
    if target is not None and target == before:
        raise ValueError(f"{target!r} is what is predicted already; give another target")
    goals = _goals(model, X, before, target, places, cases)
    if any(value is None for value in goals.values.ravel()):
        raise ValueError(
            "the values of the stored cases are unknown behind this pipeline; give the table that "
            "it was fitted to, cases=X_train"
        )
    turned = _Turned(model, before, target)
    works = _fewest_columns(model, X, found, places, goals, allowed, max_columns, turned)
    if not works:
        return None
    ways = [_shortened(X, places, goals, trial, turned) for trial in works]
    moved = np.concatenate([_moved(model, X, row) for row, _ in ways])
    row, (goal, chosen) = ways[int(moved.argmin())]
    after = model.predict(row)[0]
    place = list(found.classes).index(after)
    old, new = table_values(X)[0], table_values(row)[0]
    return Counterfactual(
        before,
        after,
        float(model.predict_proba(row)[0][place]),
        {names[c]: (old[places[c]], new[places[c]]) for c in chosen},
        row,
        int(goals.rows[goal]),
    )


class _Turned(NamedTuple):
    """Whether rows are predicted as something else, or as what is asked for."""

    model: Any
    before: Any
    target: Any

    def __call__(self, rows: Any) -> np.ndarray:
        predicted = self.model.predict(rows)
        return predicted != self.before if self.target is None else predicted == self.target


def _fewest_columns(
    model: Any,
    X: Any,
    found: Explanation,
    places: list[int],
    goals: "_Goals",
    allowed: list[int],
    most: int,
    turned: _Turned,
) -> list[tuple[int, tuple[int, ...]]]:
    """Numbers of goals with columns that turn the prediction: as few as do, the nearest rows."""
    for size in range(1, min(most, len(allowed)) + 1):
        trials = [
            (goal, chosen)
            for goal in range(len(goals.rows))
            for chosen in _combinations(found, allowed, goals.values[goal], size)
        ]
        if not trials:
            continue
        rows = _changed_rows(X, places, [(goals.values[g], chosen) for g, chosen in trials])
        works = np.flatnonzero(turned(rows))
        if len(works):
            moved = _moved(model, X, rows.iloc[works] if hasattr(rows, "iloc") else rows[works])
            return [trials[works[i]] for i in np.argsort(moved, kind="stable")[:_SHORTENED]]
    return []


class _Goals(NamedTuple):
    rows: np.ndarray  # numbers of training rows
    values: np.ndarray  # (g, n_columns) their values


def _goals(model: Any, X: Any, before: Any, target: Any, places: list[int], cases: Any) -> _Goals:
    """The nearest cases of other classes, or of the one that is asked for."""
    steps, last = classifier_of(model)
    labels = last.classes_[last.training_cases()[1]]
    features, n_found = X if steps is None else steps.transform(X), min(len(labels), 16 * _GOALS)
    while True:
        near = last.kneighbors(features, n_found, return_distance=False)[0]
        wanted = labels[near] != before if target is None else labels[near] == target
        if wanted.sum() >= _GOALS or n_found == len(labels):
            rows = near[wanted][:_GOALS]
            return _Goals(rows, case_values(model, places, rows, cases))
        n_found = min(len(labels), 8 * n_found)


def _places(inputs: list[str], names: list[str]) -> list[int]:
    """Where the columns of an explanation are in the rows of a user."""
    if not set(names) <= set(inputs):
        raise ValueError(
            "a step of this pipeline mixes columns, so none of them can be said to have changed; "
            "give its last step the rows that this sees"
        )
    return [inputs.index(name) for name in names]


def _allowed(names: list[str], places: list[int], columns: Any, X: Any) -> list[int]:
    """Numbers, among those of an explanation, of the columns that may change."""
    if columns is None:
        return list(range(len(names)))
    given = [columns] if np.ndim(columns) == 0 else columns
    chosen = [_number_of(column, names, places, X) for column in given]
    if not chosen:
        raise ValueError("columns names no column that may change; None allows all")
    return chosen


def _number_of(column: Any, names: list[str], places: list[int], X: Any) -> int:
    """The number of a column that is given by its name or by its place in the rows."""
    if str(column) in names:
        return names.index(str(column))
    if isinstance(column, Integral) and not isinstance(column, bool) and column in places:
        return places.index(int(column))
    if str(column) in [str(name) for name in getattr(X, "columns", ())]:
        raise ValueError(f"the model makes no use of the column {column!r}; leave it out")
    raise ValueError(f"there is no column {column!r}; there are {', '.join(names[:8])}")


def _combinations(
    found: Explanation, allowed: list[int], values: np.ndarray, size: int
) -> list[tuple[int, ...]]:
    """Sets of columns in which a case differs, those that set the classes apart first."""
    differing = [c for c in allowed if _differs(found.queries[0, c], values[c])]
    order = sorted(differing, key=lambda c: -abs(found.contrasts[0, c]))[:_TRIED_TOGETHER]
    return list(combinations(order, size)) if size > 1 else [(c,) for c in differing]


def _differs(here: Any, there: Any) -> bool:
    return not (here == there or (here != here and there != there))


def _changed_rows(
    X: Any, places: list[int], changes: list[tuple[np.ndarray, tuple[int, ...]]]
) -> Any:
    """Copies of one row, each with some columns replaced."""
    if not hasattr(X, "columns"):
        rows = np.repeat(np.asarray(X), len(changes), axis=0).astype(float)
        for row, (values, chosen) in zip(rows, changes, strict=True):
            for c in chosen:
                row[places[c]] = values[c]
        return rows
    repeated = X.iloc[np.zeros(len(changes), dtype=int)].reset_index(drop=True)
    for c in {c for _, chosen in changes for c in chosen}:
        label = X.columns[places[c]]
        column = repeated[label].astype(object)
        for i, (values, chosen) in enumerate(changes):
            if c in chosen:
                column.iloc[i] = values[c]
        repeated[label] = _like(column, X[label])
    return repeated


def _like(column: Any, before: Any) -> Any:
    """A changed column in its old type, where that can hold the values."""
    if before.dtype.kind in "iuf":
        numbers = column.astype(float)
        whole = before.dtype.kind in "iu" and (numbers == numbers.round()).all()
        return numbers.astype(before.dtype) if whole else numbers
    if str(before.dtype) == "category" and not column.isin(before.cat.categories).all():
        return column
    try:
        return column.astype(before.dtype)
    except (TypeError, ValueError):
        return column


def _shortened(X: Any, places: list[int], goals: _Goals, trial: Any, turned: _Turned) -> Any:
    """The first row found on the way to a case that turns the prediction, and the trial.

    Numbers and dates move together along a straight line, categories change at once. Columns of
    whole numbers stay whole.
    """
    goal, chosen = trial
    start = table_values(X)[0]
    ways = {c: _way(start[places[c]], goals.values[goal][c], _dated(X, places[c])) for c in chosen}

    def row_at(part: float) -> Any:
        values = goals.values[goal].copy()
        for c, way in ways.items():
            if way is not None:
                values[c] = way(part)
        return _changed_rows(X, places, [(values, chosen)])

    low, high, row = 0.0, 1.0, row_at(1.0)
    for _ in range(_HALVINGS if any(ways.values()) else 0):
        middle = 0.5 * (low + high)
        candidate = row_at(middle)
        if turned(candidate)[0]:
            high, row = middle, candidate
        else:
            low = middle
    return row, trial


def _moved(model: Any, X: Any, rows: Any) -> np.ndarray:
    """The learned distances between a row and changed copies of it."""
    steps, last = classifier_of(model)
    both = [part if steps is None else steps.transform(part) for part in (X, rows)]
    if hasattr(last, "encoder_"):
        both, last = [last.encoder_.transform(part) for part in both], last.model_
    one, others = (np.asarray(part, dtype=np.float64) for part in both)
    return last.pair_distance(np.stack([np.broadcast_to(one, others.shape), others], axis=1))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and value == value


def _dated(X: Any, place: int) -> bool:
    """Whether a column of a user's rows has dates, see ``with_dates``."""
    return hasattr(X, "columns") and str(X.dtypes.iloc[place]).startswith("datetime64")


def _way(a: Any, b: Any, dated: bool) -> Callable[[float], Any] | None:
    """The values on the way from a to b, given how much of it is gone; None for no way between.

    Parameters
    ----------
    a, b : numbers, dates as texts, or anything else
    dated : whether texts are dates
    """
    if _is_number(a) and _is_number(b):
        return partial(_between, float(a), float(b))
    if not (dated and isinstance(a, str) and isinstance(b, str)):
        return None
    with_time = ":" in a + b
    steps = 1440 if with_time else 1  # per day
    one, other = np.rint(days_of(pandas().Series([a, b], dtype=object)) * steps).tolist()
    return lambda part: date_texts(np.array([_between(one, other, part) / steps]), with_time)[0]


def _between(a: float, b: float, part: float) -> float:
    """A point on the way from a to b, rounded towards b where both are whole.

    Others have four digits, or more where the ends differ in later ones only.
    """
    value = a + part * (b - a)
    if a.is_integer() and b.is_integer():
        return float(np.ceil(value) if b > a else np.floor(value))
    if a == b or part == 1.0:
        return b
    digits = int(np.clip(3 + np.ceil(np.log10(max(abs(a), abs(b)) / abs(b - a))), 4, 17))
    return float(np.clip(float(f"{value:.{digits}g}"), min(a, b), max(a, b)))
