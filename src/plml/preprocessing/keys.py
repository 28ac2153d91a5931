"""Keys of cases: whole numbers stay numbers, and all else is text."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.preprocessing.columns import pandas, plain_text

if TYPE_CHECKING:
    import pandas as pd


def keys_of(values: "pd.Series") -> np.ndarray:
    """The keys in a column: a column of whole numbers as it is, all else as texts, gaps as "".

    Parameters
    ----------
    values : the column
    """
    keys = values.to_numpy()
    return keys if keys.dtype.kind in "iu" else key_texts(values)


def key_texts(keys: Iterable[Any]) -> np.ndarray:
    """Keys as texts, by which they are compared: a gap makes floats of whole numbers.

    Parameters
    ----------
    keys : column, array or list
    """
    return np.array(["" if pandas().isna(key) else plain_text(key) for key in keys], dtype=str)


def joined_keys(keys: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Keys and those behind them, as numbers where both are.

    Parameters
    ----------
    keys, more : of ``keys_of``
    """
    same = keys.dtype.kind == more.dtype.kind and keys.dtype.kind in "iu"
    return np.concatenate([keys, more] if same else [key_texts(keys), key_texts(more)])
