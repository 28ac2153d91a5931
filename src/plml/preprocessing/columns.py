"""The columns of a user's table: which are numbers, which are categories, and what is wrong."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plml.install import install

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


@dataclass(frozen=True)
class Columns:
    """What a model has to know of the columns it was fitted on.

    Attributes
    ----------
    names : of all columns, in order
    categories : of those that are not numbers
    imputes : whether missing values are filled in
    """

    names: tuple[str, ...]
    categories: tuple[str, ...]
    imputes: bool

    @classmethod
    def of(cls, features: "pd.DataFrame", table: str, imputes: bool) -> Self:
        """The kinds of the columns; refuses what is neither numbers nor categories.

        Parameters
        ----------
        features : columns to learn from
        table : name of the file, for messages
        imputes : whether missing values are filled in
        """
        categories = [c for c in features if _is_category(features[c], f"{table}: column {c!r}")]
        return cls(tuple(features.columns), tuple(categories), imputes)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that are not categories."""
        return tuple(name for name in self.names if name not in self.categories)

    def tidy(self, table: "pd.DataFrame", name: str) -> "pd.DataFrame":
        """These columns as floats and texts, without a missing text.

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
            convert = _categories if column in self.categories else _numbers
            tidied[column] = convert(table[column], where, self.imputes)
        return pandas().DataFrame(tidied, index=table.index)


def _is_category(values: "pd.Series", where: str) -> bool:
    types = pandas().api.types
    if types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values):
        raise ValueError(f"{where} holds dates; turn it into numbers, or leave it out")
    present = values[values.notna()]
    if not len(present):
        raise ValueError(f"{where} is empty; leave it out")
    if types.is_numeric_dtype(values) and not types.is_bool_dtype(values):
        return False
    strange = [kind for kind in present.map(type).unique() if not issubclass(kind, _scalar_types())]
    if strange:
        raise ValueError(f"{where} holds a {strange[0].__name__} a row; leave it out")
    parsed = _parsed(present)
    good = parsed.notna()
    if good.all() and not types.is_bool_dtype(values):
        return False
    if good.mean() >= _NEARLY_ALL and parsed.nunique() > _MORE_THAN_CODES:
        row = int(np.flatnonzero(values.notna())[np.flatnonzero(~good)[0]])
        raise ValueError(
            f"{where} holds numbers, but {str(values.iloc[row])!r} in row {row}; correct it, or "
            "leave it empty"
        )
    n_values = present.astype(str).nunique()
    if n_values > _MOST_CATEGORIES and n_values > 0.5 * len(values):
        raise ValueError(
            f"{where} has {n_values} different values in {len(values)} rows, so it says nothing "
            "of its class; leave it out"
        )
    return True


def _numbers(values: "pd.Series", where: str, imputes: bool) -> np.ndarray:
    parsed = _parsed(values)
    wrong = (parsed.isna() & values.notna()).to_numpy()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{where} holds {str(values.iloc[row])!r} in row {row}, which is not a number"
        )
    numbers = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise ValueError(f"{where} holds infinite values, the first in row {row}")
    _check_missing(np.isnan(numbers), where, imputes)
    return numbers


def _categories(values: "pd.Series", where: str, imputes: bool) -> np.ndarray:
    lost = values.isna().to_numpy()
    _check_missing(lost, where, imputes)
    texts = [
        MISSING if gone else _text(value) for value, gone in zip(values, lost.tolist(), strict=True)
    ]
    return np.array(texts, dtype=object)


def _text(value: Any) -> str:
    """A category as a text; whole numbers the same whether they were read as floats or not."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value)


def _parsed(values: "pd.Series") -> "pd.Series":
    """Numbers where the values are, or can be read as, these; missing elsewhere."""
    types = pandas().api.types
    if types.is_bool_dtype(values):
        return values.astype(object).map(lambda _: np.nan).astype(float)
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


def pandas() -> Any:
    """Imported where tables are used."""
    try:
        import pandas
    except ImportError:
        raise ValueError(f"tables need pandas: {install('cli')}") from None
    return pandas
