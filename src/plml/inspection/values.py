"""Values as they were in the table: integers as integers, categories as words."""

from typing import Any

import numpy as np

from plml.backend.arrays import is_tensor, on_host
from plml.install import as_pandas
from plml.preprocessing.date_encoder import date_texts
from plml.preprocessing.dates import days_of

#: Digits of a column that survive its way through scalers and back, by the bytes of a number.
_DIGITS = {8: 12, 4: 5}
#: What a truth value became on its way.
_TRUTHS = {"True": True, "False": False, "1.0": True, "0.0": False, "1": True, "0": False}


def table_values(X: Any) -> np.ndarray:
    """The entries of an array or a data frame as they are, (n, n_columns)."""
    X = as_pandas(X)
    if hasattr(X, "columns"):
        return np.stack([_entries(X[name]) for name in X.columns], axis=1)
    return np.asarray(on_host(X) if is_tensor(X) else X, dtype=object)


def _entries(column: Any) -> np.ndarray:
    """The entries of a column of a data frame; dates as texts."""
    if not str(column.dtype).startswith("datetime64"):
        entries = np.array(column, dtype=object)
        if hasattr(column, "isna"):  # what pandas calls missing cannot be compared
            entries[np.asarray(column.isna())] = np.nan
        return entries
    days = days_of(column)
    missing = np.isnan(days)
    texts = date_texts(np.where(missing, 0.0, days), with_time=bool((days[~missing] % 1.0).any()))
    texts[missing] = np.nan
    return texts


def snapped(values: np.ndarray, precision: Any = np.float64) -> np.ndarray:
    """Numbers without the rounding noise of scalers, by the size of their column.

    Parameters
    ----------
    values : (n, n_columns) array
    precision : dtype that the numbers had on their way
    """
    result = values.astype(object)
    digits = _DIGITS.get(np.dtype(precision).itemsize, _DIGITS[8])
    for c in range(values.shape[1]):
        if not _all_numbers(result[:, c]):
            continue
        numbers = result[:, c].astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        largest = float(np.abs(finite).max(initial=0.0)) or 1.0
        result[:, c] = np.round(numbers, digits - int(np.ceil(np.log10(largest)))) + 0.0
    return result


def _all_numbers(values: np.ndarray) -> bool:
    kinds = float | int | np.floating | np.integer
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)


def alike(values: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Values of stored cases in the types that the queries have them in.

    On their way through a model whole numbers become floats and truth values numbers or words.

    Parameters
    ----------
    values : (..., n_columns)
    queries : (q, n_columns)
    """
    if queries.dtype != object:
        return values
    result = np.array(values, dtype=object)
    for c in range(queries.shape[1]):
        known = [value for value in queries[:, c] if value is not None and value == value]
        if known and all(isinstance(value, bool | np.bool_) for value in known):
            result[..., c] = _each(_as_truth, result[..., c])
        elif known and all(_is_whole_type(value) for value in known):
            result[..., c] = _each(_as_whole, result[..., c])
    return result


def _each(change: Any, values: np.ndarray) -> np.ndarray:
    return np.vectorize(change, otypes=[object])(values) if values.size else values


def _as_truth(value: Any) -> Any:
    return _TRUTHS.get(str(value), value)


def _as_whole(value: Any) -> Any:
    is_float = isinstance(value, float | np.floating)
    return int(value) if is_float and float(value).is_integer() else value


def _is_whole_type(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
