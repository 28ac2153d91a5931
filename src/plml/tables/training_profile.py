"""What the training rows were like, column by column, and what new rows have that they had not."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from plml.inspection.lineage import RARE_CATEGORY, UNKNOWN_CATEGORY
from plml.preprocessing.columns import MISSING, Columns, listed, pandas
from plml.preprocessing.date_encoder import date_texts
from plml.preprocessing.dates import days_of
from plml.wording import counted

if TYPE_CHECKING:
    import pandas as pd

#: A value is far outside where it is beyond the range by more than this share of its width.
_FAR = 0.5
#: What categories are called that are not told apart in the rows of a model.
_SHARED_CATEGORIES = (RARE_CATEGORY, UNKNOWN_CATEGORY)
#: Columns that one error names.
_MOST_ERRORS = 5


@dataclass(frozen=True)
class TrainingProfile:
    """The columns of the training rows.

    Attributes
    ----------
    ranges : the least and the largest value of every column of numbers, and of dates in days
    categories : those of every other column
    n_missing : missing values of every column
    unused : columns of the table that were not learned from
    units : of numbers that were written with one; None where nobody knows
    """

    ranges: dict[str, tuple[float, float]]
    categories: dict[str, frozenset[str]]
    n_missing: dict[str, int]
    unused: tuple[str, ...] = ()
    units: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        columns: Columns,
        tidied: "pd.DataFrame",
        unused: Iterable[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> Self:
        """Of a table as the columns tidied it.

        Parameters
        ----------
        columns : of the model
        tidied : floats and texts
        unused : columns that were left out
        units : of the columns
        """
        categories = list(columns.categories)
        numbers = {c: _in_days(tidied[c]) for c in columns.names if c not in categories}
        ranges = {c: (float(values.min()), float(values.max())) for c, values in numbers.items()}
        lost = {c: int(values.isna().sum()) for c, values in numbers.items()}
        lost |= {c: int((tidied[c] == MISSING).sum()) for c in categories}
        seen = {c: frozenset(tidied[c].unique()) for c in categories}
        return cls(ranges, seen, lost, tuple(unused), units)

    def joined(self, columns: Columns, tidied: "pd.DataFrame") -> Self:
        """After more rows have joined.

        Parameters
        ----------
        columns, tidied : as in ``of``
        """
        more = type(self).of(columns, tidied)
        ranges = {
            name: (
                float(np.fmin(low, more.ranges[name][0])),
                float(np.fmax(high, more.ranges[name][1])),
            )
            for name, (low, high) in self.ranges.items()
        }
        categories = {name: seen | more.categories[name] for name, seen in self.categories.items()}
        lost = {name: n + more.n_missing[name] for name, n in self.n_missing.items()}
        return replace(self, ranges=ranges, categories=categories, n_missing=lost)

    def without(self, columns: Columns, gone: np.ndarray, stay: np.ndarray) -> Self:
        """After some rows have gone: the ranges of the others, without categories of these alone.

        Parameters
        ----------
        columns : of the model
        gone, stay : (r, n_columns), (s, n_columns) values of the rows
        """
        ranges, categories, lost = dict(self.ranges), dict(self.categories), dict(self.n_missing)
        for place, name in enumerate(columns.names):
            before, after = gone[:, place], stay[:, place]
            if name in categories:
                shared = np.isin(before.astype(str), _SHARED_CATEGORIES).any()
                named = {str(value) for value in after}
                own = {str(value) for value in before} - named
                categories[name] = frozenset(
                    named - set(_SHARED_CATEGORIES) if shared else categories[name] - own
                )
                lost[name] = max(0, lost[name] - int((before == MISSING).sum()))
            else:
                numbers, others = (_as_numbers(v, name in columns.dates) for v in (before, after))
                lost[name] = max(0, lost[name] - int(np.isnan(numbers).sum()))
                if not np.isnan(others).all():
                    ranges[name] = float(np.nanmin(others)), float(np.nanmax(others))
        return replace(self, ranges=ranges, categories=categories, n_missing=lost)

    def record(self) -> dict[str, Any]:
        """For a model file: arrays, lists and dictionaries."""
        return {
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "categories": {name: np.array(sorted(c)) for name, c in self.categories.items()},
            "missing": dict(self.n_missing),
            "unused": list(self.unused),
            "units": None if self.units is None else dict(self.units),
        }

    @classmethod
    def from_record(cls, record: Any, columns: Columns) -> Self:
        """What ``record`` gave; a ``ValueError`` for anything else.

        Parameters
        ----------
        record : of a file
        columns : of the model
        """
        try:
            numbers = [c for c in columns.names if c not in columns.categories]
            ranges = {c: _ends(record["ranges"][c]) for c in numbers}
            seen = {c: frozenset(map(str, record["categories"][c])) for c in columns.categories}
            lost = {c: int(record["missing"][c]) for c in columns.names}
            units = record.get("units")  # not in older files
            units = None if units is None else {str(c): str(unit) for c, unit in units.items()}
            return cls(ranges, seen, lost, tuple(map(str, record["unused"])), units)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError("the profile of the training rows is damaged") from error


def _as_numbers(values: np.ndarray, are_dates: bool) -> np.ndarray:
    """Values of a column of numbers as floats, dates in days since 1970."""
    if not are_dates:
        return values.astype(np.float64)
    return days_of(pandas().Series(pandas().to_datetime(pandas().Series(values), format="mixed")))


def _in_days(values: "pd.Series") -> "pd.Series":
    """Numbers as they are, dates in days since 1970."""
    if not pandas().api.types.is_datetime64_any_dtype(values):
        return values
    return pandas().Series(days_of(values), index=values.index)


def _ends(given: Any) -> tuple[float, float]:
    low, high = given
    return float(low), float(high)


class Misfits(NamedTuple):
    """Where new rows do not fit a model: what makes prediction impossible, and what does not."""

    errors: list[str]
    warnings: list[str]

    def tell(self, name: str) -> None:
        """A warning for every misfit that is no error, and a ``ValueError`` of one line for these.

        Parameters
        ----------
        name : of the file
        """
        for words in self.warnings:
            warnings.warn(f"{name}: {words}", stacklevel=3)
        if self.errors:
            more = len(self.errors) - _MOST_ERRORS
            shown = self.errors[:_MOST_ERRORS] + ([f"{more} columns more"] if more > 0 else [])
            raise ValueError(f"{name} does not fit the model: {'; also, '.join(shown)}")


def misfits(
    columns: Columns,
    profile: TrainingProfile | None,
    table: "pd.DataFrame",
    known: Iterable[str] = (),
    units: Mapping[str, str] | None = None,
) -> Misfits:
    """What of a table is not as the training rows were, column by column.

    Parameters
    ----------
    columns : of the model
    profile : of its training rows; None where its file has none
    table : new rows
    known : columns that are used otherwise: the labels, the key
    units : of the columns; None where nobody knows
    """
    unused = () if profile is None else profile.unused
    new = [c for c in table.columns if c not in (*columns.names, *known, *unused)]
    gone = [name for name in columns.names if name not in table.columns]
    errors, tidied = ([_gone(gone, new)] if gone else []), {}
    for name in (name for name in columns.names if name not in gone):
        try:
            tidied[name] = _tidied(columns, name, table)
        except ValueError as error:
            errors.append(str(error))
    if profile is None:
        return Misfits(errors, [])
    told = []
    if new and not gone:
        told.append(f"nothing was learned from the new columns {listed(new)}")
    for name, values in tidied.items():
        if name in profile.ranges and units is not None and profile.units is not None:
            told += _other_unit(name, units, profile.units)
        told += [f"column {name!r} {words}" for words in _oddities(profile, name, values)]
    return Misfits(errors, told)


def _gone(names: list[str], new: list[str]) -> str:
    """Columns that the model needs, and what they may be called now."""
    plain = {name.strip().casefold(): name for name in new}
    near = {name: get_close_matches(name.strip().casefold(), plain, 1, 0.7) for name in names}
    renamed = [f"{plain[found[0]]!r} may be {name!r}" for name, found in near.items() if found]
    hint = f" ({', '.join(renamed[:4])})" if renamed else ""
    columns, it = ("column", "it") if len(names) == 1 else ("columns", "them")
    others = f"; columns that the model does not use: {listed(new)}" if new else ""
    return f"it lacks the {columns} {listed(names)}{hint}; add {it}, or fit without {it}{others}"


def _tidied(columns: Columns, name: str, table: "pd.DataFrame") -> "pd.Series":
    """One column as floats or texts; a ``ValueError`` that begins with its name."""
    try:
        return replace(columns, names=(name,)).tidy(table[[name]], "")[name]
    except ValueError as error:
        raise ValueError(str(error).removeprefix(": ")) from error


def _other_unit(name: str, units: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """That a column is in another unit than it was in the training rows; empty for the same."""
    if units.get(name) == before.get(name):
        return []
    here, there = (f"in {u[name]!r}" if name in u else "without a unit" for u in (units, before))
    return [f"column {name!r} is {here}, and in the training rows it was {there}"]


def _oddities(profile: TrainingProfile, name: str, values: "pd.Series") -> Iterator[str]:
    """What one column has that the training rows had not."""
    lost = values.isna() if name in profile.ranges else values == MISSING
    if lost.any() and not profile.n_missing[name]:
        gaps, are = counted(int(lost.sum()), "missing value"), "is" if lost.sum() == 1 else "are"
        yield f"has {gaps}, which {are} filled in; no training row has one"
    elif lost.all():
        yield "is empty; it is filled in"
    present = values[~lost]
    if name in profile.ranges:
        is_date = pandas().api.types.is_datetime64_any_dtype(values)
        yield from _far_outside(*profile.ranges[name], _in_days(present), is_date)
    else:
        yield from _unseen(profile.categories[name] - {MISSING}, present)


def _far_outside(low: float, high: float, present: "pd.Series", is_date: bool) -> Iterator[str]:
    margin = _FAR * (high - low)
    far = ((present < low - margin) | (present > high + margin)).to_numpy()
    if far.any():
        first = float(present.iloc[int(np.flatnonzero(far)[0])])
        ends = np.array([low, high, first])
        texts = date_texts(ends, with_time=False) if is_date else [f"{end:g}" for end in ends]
        yield (
            f"has {counted(int(far.sum()), 'value')} far outside the range of the training rows, "
            f"{texts[0]} to {texts[1]}, such as {texts[2]}"
        )


def _unseen(known: frozenset[str], present: "pd.Series") -> Iterator[str]:
    unseen = present[~present.isin(known)]
    if not len(unseen):
        return
    such = f"{listed(unseen.unique(), 4)}; they have {listed(sorted(known), 4)}"
    if len(unseen) == len(present):
        yield f"has no value that the training rows have, but {such}"
    else:
        yield f"has {counted(len(unseen), 'value')} that no training row has, {such}"
