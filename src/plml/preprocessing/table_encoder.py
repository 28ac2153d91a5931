"""A table of numbers and categories, some of them missing, as the numbers that distances need."""

from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from plml.preprocessing.columns import Columns, pandas

#: Categories rarer than this share one column.
RARE = 0.005
#: Sums of squares of larger numbers may overflow.
_HUGE = 1e140


class TableEncoder(TransformerMixin, BaseEstimator):
    """Numbers standardised, gaps filled with medians; categories as columns of zeros and ones.

    A category that is missing is a category of its own; rare ones (less than one row in 200) share
    a column with those that were never seen. Two rows that differ in a category alone are as far
    apart as two rows whose difference in one number is of average size.

    Parameters
    ----------
    standardize : bool
        Whether numbers are standardised; otherwise they stay as they are.

    Attributes
    ----------
    categories_ : list of str
        Columns that are categories.
    n_missing_ : int
        Entries that were missing.
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> import pandas as pd
    >>> from plml.preprocessing import TableEncoder
    >>> table = pd.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", None]})
    >>> TableEncoder().fit(table).get_feature_names_out().tolist()
    ['size', 'colour_(missing)', 'colour_blue', 'colour_red']
    """

    def __init__(self, standardize: bool = True) -> None:
        self.standardize = standardize

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find out what the columns are.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : ignored
        """
        rows = self._checked(X, reset=True)
        if isinstance(rows, np.ndarray):
            _refuse_empty(rows)
            self.categories_: list[str] = []
            self.n_missing_ = int(np.isnan(rows).sum())
            self._encoder: Any = _numbers(self.standardize)
        else:
            columns = Columns.of(rows, "X", imputes=True)
            self.categories_ = list(columns.categories)
            self.n_missing_ = int(rows.isna().to_numpy().sum())
            kinds = [
                ("number", _numbers(self.standardize), list(columns.numbers)),
                ("category", _categories(), list(columns.categories)),
            ]
            kinds = [kind for kind in kinds if kind[2]]
            self._encoder = ColumnTransformer(kinds, verbose_feature_names_out=False)
            rows = columns.tidy(rows, "X")
        self._encoder.fit(rows)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The rows as numbers, (n_queries, n_features_out) float64.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        if not isinstance(rows, np.ndarray):
            names = [str(name) for name in rows.columns]
            rows = Columns(tuple(names), tuple(self.categories_), imputes=True).tidy(rows, "X")
        return np.asarray(self._encoder.transform(rows), dtype=np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the numbers: those of the columns, and ``column_category``."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = np.array([f"x{i}" for i in range(self.n_features_in_)], dtype=object)
        if isinstance(self._encoder, ColumnTransformer):
            return self._encoder.get_feature_names_out()
        return names

    def in_units_of_the_table(self, rows: np.ndarray) -> np.ndarray:
        """Encoded rows with the numbers as they were in the table; categories stay zeros and ones.

        Parameters
        ----------
        rows : (..., n_features_out) array
        """
        scaler: Any = self._encoder
        if isinstance(scaler, ColumnTransformer):
            scaler = scaler.named_transformers_.get("number")
        if scaler is None:
            return rows
        standard, rows = scaler[-1], np.array(rows)
        if not self.standardize:
            return rows
        n_numbers = len(standard.scale_)
        rows[..., :n_numbers] = rows[..., :n_numbers] * standard.scale_ + standard.mean_
        return rows

    @property
    def transformer(self) -> Any:
        """What turns the columns into numbers: a scikit-learn transformer."""
        check_is_fitted(self)
        return self._encoder

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """An array of floats, or a pandas data frame where there are categories."""
        if not reset and isinstance(self._encoder, ColumnTransformer):
            validate_data(self, X, reset=False, skip_check_array=True)
            return self._frame(X)
        if hasattr(X, "columns") or (not issparse(X) and np.asarray(X).dtype.kind in "OSU"):
            numbers = _as_numbers(X)
            if numbers is None:
                validate_data(self, X, reset=reset, skip_check_array=True)
                return self._frame(X)
        rows = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        _refuse_huge(rows)
        return rows

    def _frame(self, X: Any) -> Any:
        frame = pandas().DataFrame(X) if not hasattr(X, "columns") else X
        if not isinstance(frame, pandas().DataFrame):
            frame = X.to_pandas()
        return frame.set_axis([str(name) for name in frame.columns], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def _numbers(standardize: bool) -> Any:
    scaler = StandardScaler(with_mean=standardize, with_std=standardize)
    return make_pipeline(SimpleImputer(strategy="median"), scaler)


def _categories() -> Any:
    return OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=RARE, sparse_output=False
    )


def _as_numbers(X: Any) -> np.ndarray | None:
    """The same as floats, where every column is numbers."""
    kinds = [str(kind) for kind in getattr(X, "dtypes", [])]
    if any(kind in ("object", "category", "bool", "boolean") or "str" in kind for kind in kinds):
        return None
    try:
        return check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=0)
    except (TypeError, ValueError):
        return None


def _refuse_huge(rows: np.ndarray) -> None:
    """Refuse numbers whose squares overflow."""
    with np.errstate(invalid="ignore"):
        largest = np.abs(rows).max(axis=0, initial=0.0)
    huge = np.flatnonzero(largest > _HUGE)
    if len(huge):
        raise ValueError(
            f"column {huge[0]} of X reaches {largest[huge[0]]:.3g}, too large to compute with; "
            "give it in a larger unit, or leave it out"
        )


def _refuse_empty(rows: np.ndarray) -> None:
    empty = np.flatnonzero(np.isnan(rows).all(axis=0))
    if len(empty):
        raise ValueError(f"column {empty[0]} of X is empty; leave it out")
