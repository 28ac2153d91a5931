"""The columns of a user's table: which are numbers, categories and dates, and what is wrong."""

import re
from dataclasses import dataclass
from datetime import date, time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plml.install import pandas
from plml.preprocessing.dates import orders_of_dates, read_dates

if TYPE_CHECKING:
    import pandas as pd

#: What a missing category is called where missing values are imputed.
MISSING = "(missing)"
#: A column of texts with more different values than this, in most of its rows, is a name.
_MOST_CATEGORIES = 50
#: A column of texts is a column of numbers gone wrong where this share of it parses, into more
#: different numbers than categories would have.
_NEARLY_ALL = 0.8
_MORE_THAN_CODES = 10
#: What is lost as a number: 01234 is not 1234, and floats end at 15 digits.
CODE = r"[-+]?0\d+|[-+]?\d{16,}"
#: Names of identifiers.
NAMED_KEY = re.compile(
    r"unnamed: ?\d+|index|row|rownames?|.*id|id[ _.-].*|.*uuid|.*guid|.*key|.*number|.*nummer|nr\.?"
    r"|.*[ _.-](no|nr|num)\.?|lfd.*|.*(kennung|zeichen|serial|barcode|ssn|ean|isbn).*"
    r"|(patient|customer|kunde|client|account|konto|case|fall|subject|sample|record|person|user)s?",
    re.IGNORECASE,
)
#: Sums of squares of larger numbers may overflow.
HUGE = 1e140
#: Fewer rows than this do not tell a key from a measurement.
_FEWEST_ROWS = 20


@dataclass(frozen=True)
class Columns:
    """What a model has to know of the columns it was fitted on.

    Attributes
    ----------
    names : of all columns, in order
    categories : those of texts
    imputes : whether missing values are filled in
    dates : those of dates
    day_first : those of dates whose day comes before the month
    """

    names: tuple[str, ...]
    categories: tuple[str, ...]
    imputes: bool
    dates: tuple[str, ...] = ()
    day_first: tuple[str, ...] = ()

    @classmethod
    def of(cls, features: "pd.DataFrame", table: str, imputes: bool) -> Self:
        """The kinds of the columns; refuses what is neither numbers nor categories.

        Parameters
        ----------
        features : columns to learn from
        table : name of the file, for messages
        imputes : whether missing values are filled in
        """
        orders = {c: _orders(features[c], f"{table}: column {c!r}") for c in features}
        dates = [c for c, order in orders.items() if order is not None]
        others = [c for c in features if c not in dates]
        empty = [c for c in features if features[c].isna().all()]
        if empty and not imputes:
            raise ValueError(f"{table}: column {empty[0]!r} is empty; leave it out")
        categories = [c for c in others if _is_category(features[c], f"{table}: column {c!r}")]
        day_first = tuple(c for c in dates if orders[c])
        return cls(tuple(features.columns), tuple(categories), imputes, tuple(dates), day_first)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that are neither categories nor dates."""
        others = {*self.categories, *self.dates}
        return tuple(name for name in self.names if name not in others)

    def tidy(self, table: "pd.DataFrame", name: str) -> "pd.DataFrame":
        """These columns as floats, texts and dates, without a missing text.

        Parameters
        ----------
        table : with at least these columns, in any order
        name : of the file, for messages
        """
        lacking = [column for column in self.names if column not in table.columns]
        if lacking:
            raise ValueError(f"{name} lacks the columns {listed(lacking)}")
        tidied = {}
        for column in self.names:
            where = f"{name}: column {column!r}"
            if column in self.dates:
                dates = _dates(table[column], where, column in self.day_first)
                _check_missing(dates.isna().to_numpy(), where, self.imputes)
                tidied[column] = dates
            else:
                convert = _categories if column in self.categories else _numbers
                tidied[column] = convert(table[column], where, self.imputes)
        return pandas().DataFrame(tidied, index=table.index, copy=False)


def are_keys(values: "pd.Series", name: str) -> bool:
    """Whether whole numbers, all different, are those of the rows or have the name of a key.

    Parameters
    ----------
    values, name : a column
    """
    numbers = values.to_numpy(dtype=np.float64)
    n = len(numbers)
    if n < _FEWEST_ROWS or len(np.unique(numbers)) < n or (numbers != np.rint(numbers)).any():
        return False
    steps = np.diff(numbers)
    in_order = bool((steps == steps[0]).all())
    return in_order or np.ptp(numbers) < 1.05 * n or NAMED_KEY.fullmatch(name.strip()) is not None


def are_spans(values: "pd.Series") -> bool:
    """Whether a column holds spans of time, which count as numbers of days.

    Parameters
    ----------
    values : a column
    """
    return str(values.dtype).startswith(("timedelta", "duration"))


def _orders(values: "pd.Series", where: str) -> bool | None:
    """Whether the day comes first in a column of dates; None for all other columns."""
    types = pandas().api.types
    if types.is_datetime64_any_dtype(values):
        return False
    if isinstance(values.dtype, pandas().CategoricalDtype):
        return None  # it was said to be one
    present = values.dropna()
    may_be = types.is_string_dtype(values) or types.is_object_dtype(values)
    is_text = may_be and len(present) and present.map(type).map(_is_written).all()
    orders = orders_of_dates(present.astype(str).str.strip()) if is_text else []
    if len(orders) > 1:
        raise ValueError(
            f"{where} holds dates, day first or month first; give them as year-month-day"
        )
    return orders[0] if orders else None


def _is_category(values: "pd.Series", where: str) -> bool:
    types = pandas().api.types
    present = values[values.notna()]
    if are_spans(values) or (types.is_numeric_dtype(values) and not types.is_bool_dtype(values)):
        return False
    if isinstance(values.dtype, pandas().CategoricalDtype) or not len(present):
        return True
    strange = [kind for kind in present.map(type).unique() if not issubclass(kind, _scalar_types())]
    if strange:
        raise ValueError(f"{where} holds a {strange[0].__name__} a row; leave it out")
    parsed = as_numbers(present)
    good = parsed.notna()
    texts = present.astype(str).str.strip()
    is_code = types.is_string_dtype(values) and bool(texts.str.fullmatch(CODE).any())
    if good.all() and not types.is_bool_dtype(values) and not is_code:
        return False
    if not is_code and good.mean() >= _NEARLY_ALL and parsed.nunique() > _MORE_THAN_CODES:
        row = int(np.flatnonzero(values.notna())[np.flatnonzero(~good)[0]])
        raise ValueError(
            f"{where} holds numbers, but {str(values.iloc[row])!r} in row {row}; correct it, or "
            "leave it empty"
        )
    n_values = texts.nunique()
    if n_values > _MORE_THAN_CODES and not is_code:
        _refuse_numbers_as_texts(texts, where)
    if n_values > _MOST_CATEGORIES and n_values > 0.5 * len(values):
        raise ValueError(
            f"{where} has {n_values} different values in {len(values)} rows, too many for a "
            "category; leave it out, or make it the index, which names the cases in explanations"
        )
    return True


def _is_written(kind: type) -> bool:
    """Whether entries of a type are texts, or objects that are written as dates and times."""
    return issubclass(kind, (str, date, time))


def _refuse_numbers_as_texts(texts: "pd.Series", where: str) -> None:
    """Raise a ``ValueError`` where texts are numbers with marks or units, but for a few."""
    from plml.preprocessing.text_numbers import numbers_as_texts  # of no use to arrays

    number, other = numbers_as_texts(texts)
    if number:
        besides = f", and {other!r}" if other else ""
        raise ValueError(
            f"{where} holds numbers as texts, such as {number!r}{besides}; let plml.read_table "
            "make numbers of them (read_table(frame)), or make the column categorical"
        )


def _numbers(values: "pd.Series", where: str, imputes: bool) -> np.ndarray:
    if str(values.dtype).startswith(("date", "time", "period")) and not are_spans(values):
        raise ValueError(f"{where} holds dates, and the model knows numbers there")
    parsed = as_numbers(values)
    wrong = (parsed.isna() & values.notna()).to_numpy()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{where} holds {str(values.iloc[row])!r} in row {row}, which is not a number; correct "
            "it, or leave it empty"
        )
    is_float = parsed.dtype == np.float64  # then not one more copy of a column
    numbers = parsed.to_numpy() if is_float else parsed.to_numpy(np.float64, na_value=np.nan)
    if len(huge := np.flatnonzero(np.abs(numbers) > HUGE)):
        row = int(huge[0])
        what = "infinite values" if np.isinf(numbers[row]) else "numbers too large to compute with"
        raise ValueError(
            f"{where} holds {what}, the first in row {row}; correct them, or leave them empty"
        )
    _check_missing(np.isnan(numbers), where, imputes)
    return numbers


def _categories(values: "pd.Series", where: str, imputes: bool) -> Any:
    lost = values.isna().to_numpy()
    _check_missing(lost, where, imputes)
    texts = [
        MISSING if gone else plain_text(value)
        for value, gone in zip(values, lost.tolist(), strict=True)
    ]
    return pandas().Categorical(texts)  # a category even where every text is a number


def _dates(values: "pd.Series", where: str, day_first: bool) -> "pd.Series":
    dates = read_dates(values, day_first)
    wrong = np.flatnonzero(dates.isna() & values.notna())
    if len(wrong):
        row, order = int(wrong[0]), "the day before the month"
        if not day_first:
            order = "the month before the day"
        raise ValueError(
            f"{where} holds {str(values.iloc[row])[:40]!r} in row {row}, which is not a date in "
            f"the form of this column ({order}, or the year first; the same in all rows); give all "
            "as year-month-day"
        )
    return dates


def plain_text(value: Any) -> str:
    """A category or a key as a text; whole numbers the same, whether read as floats or not.

    Parameters
    ----------
    value : not missing
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value)


def as_numbers(values: "pd.Series") -> "pd.Series":
    """Numbers where the values are, or can be read as, these; missing elsewhere.

    Parameters
    ----------
    values : a column; spans of time count in days
    """
    types = pandas().api.types
    if types.is_bool_dtype(values):
        return values.astype(object).map(lambda _: np.nan).astype(float)
    if values.dtype == np.float64:
        return values  # not copied
    if are_spans(values):
        return values.astype("timedelta64[us]") / pandas().Timedelta(days=1)
    if types.is_string_dtype(values):
        values = values.astype(object)  # of texts of Arrow, pandas makes NaN that count as present
    return pandas().to_numeric(values, errors="coerce")


def _check_missing(lost: np.ndarray, where: str, imputes: bool) -> None:
    if lost.any() and not imputes:
        raise ValueError(
            f"{where} has {int(lost.sum())} missing values, the first in row "
            f"{int(np.flatnonzero(lost)[0])}; fill them, or fit with --missing impute"
        )


def _scalar_types() -> tuple[type, ...]:
    from decimal import Decimal

    return (str, bool, int, float, np.generic, Decimal)


def listed(names: Any, most: int = 8) -> str:
    """Some names in quotes."""
    names = [repr(str(name)) for name in names]
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
