"""Keys of cases: whole numbers, or texts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def keys_of(values: "pd.Series") -> np.ndarray:
    """The keys in a column: a column of whole numbers as it is, all else as texts, gaps as "".

    Parameters
    ----------
    values : the column
    """
    keys = values.to_numpy()
    if keys.dtype.kind in "iu":
        return keys
    lost = values.isna().to_numpy()
    return np.where(lost, "", key_texts(keys)) if len(keys) else np.empty(0, dtype=str)


def key_texts(keys: Iterable[Any]) -> np.ndarray:
    """Keys as texts; a column of whole numbers with a gap has floats, and 7.0 is the key 7.

    Parameters
    ----------
    keys : numbers or texts
    """
    return np.array([_text(key) for key in keys], dtype=str)


def joined_keys(keys: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Keys and those behind them, as numbers where both are.

    Parameters
    ----------
    keys, more : of ``keys_of``
    """
    same = keys.dtype.kind == more.dtype.kind and keys.dtype.kind in "iu"
    return np.concatenate([keys, more] if same else [key_texts(keys), key_texts(more)])


def _text(key: Any) -> str:
    whole = isinstance(key, float | np.floating) and float(key).is_integer()
    return str(int(key)) if whole else str(key)
