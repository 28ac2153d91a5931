"""A table of numbers, categories and dates, some missing, as the numbers that distances need."""

from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_is_fitted,
    validate_data,
)

from plml.install import as_pandas
from plml.preprocessing.columns import HUGE, MISSING, Columns, pandas
from plml.preprocessing.date_encoder import DateEncoder
from plml.preprocessing.servable import check_kinds, feature_name, refuse_unservable
from plml.wording import counted

#: Categories rarer than this share one column, and so do those beyond the most frequent ones.
RARE, MOST_CATEGORIES = 0.005, 30
#: Ways to fill gaps in numbers.
FILLS = ("median", "indicator", "neighbors")
#: Rows that gaps are filled from by their neighbours, at most.
_MOST_DONORS = 2000
#: Kinds of columns that are no numbers yet.
_TIMES = ("date", "time", "duration")


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table into numbers: numbers, categories and dates, with gaps filled.

    Numbers are standardised; categories become columns of zeros and ones.

    A category that is missing is a category of its own; rare ones (less than one row in 200, or
    beyond the 30 most frequent) share a column with those that were never seen. Two rows that
    differ in a category alone are as far apart as two rows whose difference in one number is of
    average size. Dates become days and places on the circles of year, week and day.

    Parameters
    ----------
    standardize : bool
        Whether numbers are standardised; otherwise they stay as they are.
    missing : {"median", "indicator", "neighbors"}
        What a missing number becomes: the median; the median, with a feature that says so; or the
        average of the five nearest rows that have it.

    Attributes
    ----------
    categories_ : list of str
        Columns that are categories.
    dates_, day_first_ : list of str
        Columns that are dates, and those of them whose day comes before the month.
    crowded_ : dict
        Categories with more than 30 values, and how many they have.
    n_missing_, n_missing_categories_ : int
        Missing numbers and dates, which are filled in, and missing categories, which are categories
        of their own.
    empty_ : list of str
        Columns without a value, which tell no rows apart, now or later.
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> import pandas as pd
    >>> from plml.preprocessing import TableEncoder
    >>> table = pd.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", None]})
    >>> TableEncoder().fit(table).get_feature_names_out().tolist()
    ['size', 'colour_(missing)', 'colour_blue', 'colour_red']
    """

    def __init__(self, standardize: bool = True, missing: str = "median") -> None:
        self.standardize = standardize
        self.missing = missing

    def fit(self, X: Any, y: Any = None, sample_weight: np.ndarray | None = None) -> Self:
        """Find out what the columns are.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : ignored
        sample_weight : (n_samples,) how often a row counts in means, deviations and medians; which
            categories are rare, and what gaps are filled from near rows, is a matter of rows
        """
        if self.missing not in FILLS:
            raise ValueError(f"missing must be one of {', '.join(FILLS)}, got {self.missing!r}")
        rows, numbers = self._checked(X, reset=True), _numbers(self.standardize, self.missing)
        if isinstance(rows, np.ndarray):
            self.categories_: list[str] = []
            self.dates_: list[str] = []
            self.day_first_: list[str] = []
            self.crowded_: dict[str, int] = {}
            self.n_missing_, self.n_missing_categories_ = int(np.isnan(rows).sum()), 0
            lost = np.isnan(rows).all(axis=0)
            names = getattr(self, "feature_names_in_", range(rows.shape[1]))
            self.empty_: list[str] = [str(names[i]) for i in np.flatnonzero(lost)]
            rows = np.where(lost, 0.0, rows)
            self._encoder: Any = numbers
        else:
            columns = Columns.of(rows, "X", imputes=True)
            self.categories_, self.dates_ = list(columns.categories), list(columns.dates)
            self.day_first_ = list(columns.day_first)
            sizes = {name: int(rows[name].nunique()) for name in self.categories_}
            self.crowded_ = {name: n for name, n in sizes.items() if n > MOST_CATEGORIES}
            filled = [*columns.numbers, *columns.dates]
            self.n_missing_ = int(rows[filled].isna().to_numpy().sum())
            kinds = [
                ("number", numbers, list(columns.numbers)),
                ("category", _categories(), list(columns.categories)),
                ("date", DateEncoder(), list(columns.dates)),
            ]
            kinds = [kind for kind in kinds if kind[2]]
            self._encoder = ColumnTransformer(kinds, verbose_feature_names_out=False)
            self.empty_ = [name for name in rows if rows[name].isna().all()]
            days = {name: pandas().Timestamp(0) for name in columns.dates}
            fills = {name: days.get(name, 0.0) for name in self.empty_ if name in filled}
            rows = columns.tidy(rows, "X").assign(**fills)
            self.n_missing_categories_ = int((rows[self.categories_] == MISSING).to_numpy().sum())
        self._encoder.fit(rows)
        if sample_weight is not None:
            self._weigh(rows, _check_sample_weight(sample_weight, X, dtype=np.float64))
        _check_names(self.get_feature_names_out())
        return self

    def _weigh(self, rows: Any, sample_weight: np.ndarray) -> None:
        """Fit what is done with numbers again, with weights of the rows."""
        steps, columns = self._encoder, slice(None)
        if isinstance(steps, ColumnTransformer):
            found = {name: (step, own) for name, step, own in steps.transformers_}
            if "number" not in found:
                return
            steps, columns = found["number"]
            rows = rows[columns]
        for _, step in steps.steps:
            if isinstance(step, StandardScaler):
                step.fit(rows, sample_weight=sample_weight)
            elif isinstance(step, SimpleImputer):
                step.statistics_ = weighted_medians(np.asarray(rows, np.float64), sample_weight)
            else:
                step.fit(rows)
            rows = step.transform(rows)

    def transform(self, X: Any) -> np.ndarray:
        """The rows as numbers, (n_queries, n_features_out) float64.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        return np.asarray(self._encoder.transform(self.tidied(X)), dtype=np.float64)

    def tidied(self, X: Any) -> Any:
        """The rows as they are encoded: floats, categories as texts and dates; an array of numbers.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        if isinstance(rows, np.ndarray):
            return rows
        names = [str(name) for name in rows.columns]
        day_first = tuple(getattr(self, "day_first_", ()))  # not in older files
        kinds = tuple(self.categories_), True, tuple(self.dates_), day_first
        return Columns(tuple(names), *kinds).tidy(rows, "X")

    def with_dates(self, X: Any) -> Any:
        """The rows as they are, with the columns of dates as dates, whatever form they had.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        if not self.dates_:
            return X
        rows = self.tidied(X)
        return self._frame(X).assign(**{name: rows[name] for name in self.dates_})

    def gaps(self, X: Any) -> np.ndarray:
        """Which numbers and dates are missing, one bit each; a missing category is a category.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        if isinstance(rows, np.ndarray):
            return np.packbits(np.isnan(rows), axis=1)
        missing = rows.isna().to_numpy() & ~rows.columns.isin(self.categories_)
        return np.packbits(missing, axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the numbers: those of the columns, and ``column_category``."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = np.array([f"x{i}" for i in range(self.n_features_in_)], dtype=object)
        if isinstance(self._encoder, ColumnTransformer):
            groups = self._encoder.named_transformers_
            groups = [groups[kind] for kind, _, _ in self._encoder.transformers]
            return np.concatenate([group.get_feature_names_out() for group in groups])
        return self._encoder.get_feature_names_out(names)

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
        rows = np.array(rows)
        if not self.standardize:
            return rows
        (standard,) = (step for _, step in scaler.steps if isinstance(step, StandardScaler))
        n_numbers = len(standard.scale_)
        rows[..., :n_numbers] = rows[..., :n_numbers] * standard.scale_ + standard.mean_
        return rows

    def summary_lines(self) -> list[str]:
        """What the columns are, in a few lines; none where all are numbers without gaps."""
        check_is_fitted(self)
        others = len(self.categories_) + len(self.dates_)
        if not others and not self.n_missing_:
            return []
        first = (
            f"columns: {self.n_features_in_ - others} of numbers, {len(self.categories_)} of "
            f"categories, {f'{len(self.dates_)} of dates, ' if self.dates_ else ''}"
            f"{self.n_missing_} missing entries filled in"
        )
        if lost := vars(self).get("n_missing_categories_"):  # not in older files
            missing = counted(lost, "missing category", "missing categories")
            first += f", {missing} kept as {MISSING!r}"
        return [first] + [
            f"  {name!r} has {n} values: the {MOST_CATEGORIES} most frequent have a feature each, "
            "the others share one"
            for name, n in self.crowded_.items()
        ]

    @property
    def transformer(self) -> Any:
        """What turns the columns into numbers: a scikit-learn transformer."""
        check_is_fitted(self)
        return self._encoder

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """An array of floats, or a pandas data frame where there are categories."""
        refuse_unservable(X)
        if hasattr(X, "detach"):  # a tensor, maybe with a gradient or of a type that NumPy lacks
            X = X.detach().cpu().double().numpy()
        if not reset and isinstance(self._encoder, ColumnTransformer):
            validate_data(self, X, reset=False, skip_check_array=True)
            return self._frame(X)
        if hasattr(X, "columns") or (not issparse(X) and np.asarray(X).dtype.kind in "OSU"):
            numbers = _as_numbers(X)
            if numbers is None:
                validate_data(self, X, reset=reset, skip_check_array=True)
                return self._frame(X)
        names = getattr(X, "columns", None)
        check_kinds(X, names)
        rows = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
        _refuse_infinity(rows, names)
        _refuse_huge(rows, range(rows.shape[1]) if names is None else names)
        return rows

    def _frame(self, X: Any) -> Any:
        frame = as_pandas(X) if hasattr(X, "columns") else pandas().DataFrame(X)
        return frame.set_axis([str(name) for name in frame.columns], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def weighted_medians(rows: np.ndarray, sample_weight: np.ndarray) -> np.ndarray:
    """(d,) medians of the columns, NaN left out, as if every row were there as often as it counts.

    Parameters
    ----------
    rows : (n, d) array
    sample_weight : (n,) array
    """
    medians = []
    for column in rows.T:
        known = np.flatnonzero(~np.isnan(column) & (sample_weight > 0.0))
        order = known[np.argsort(column[known], kind="stable")]
        below = np.cumsum(sample_weight[order])
        # The first half ends with one row and the second half begins with another, or the same.
        ends = [np.searchsorted(below, 0.5 * below[-1], side) for side in ("left", "right")]
        medians.append(column[order[np.minimum(ends, len(order) - 1)]].mean())
    return np.array(medians)


def unpacked_gaps(gaps: np.ndarray, n_columns: int) -> np.ndarray:
    """(n, n_columns) what ``TableEncoder.gaps`` has in bits."""
    return np.unpackbits(gaps, axis=1, count=n_columns).astype(bool)


class NeighborImputer(KNNImputer):
    """scikit-learn's, with at most 2,000 rows to fill gaps from."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the rows to fill from.

        Parameters
        ----------
        X : (n_samples, n_features)
        y : ignored
        """
        return super().fit(X[:: -(-len(X) // _MOST_DONORS)])


def _numbers(standardize: bool, missing: str) -> Any:
    scaler = StandardScaler(with_mean=standardize, with_std=standardize)
    if missing == "neighbors":
        return make_pipeline(scaler, NeighborImputer(keep_empty_features=True))
    return make_pipeline(
        SimpleImputer(strategy="median", add_indicator=missing == "indicator"), scaler
    )


def _categories() -> Any:
    return OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        min_frequency=RARE,
        max_categories=MOST_CATEGORIES + 1,
        sparse_output=False,
    )


def _as_numbers(X: Any) -> np.ndarray | None:
    """The same as floats, where every column is numbers."""
    kinds = [str(kind) for kind in getattr(X, "dtypes", [])]
    if any(kind in ("object", "category", "bool", "boolean") for kind in kinds):
        return None
    if any("str" in kind or kind.startswith(_TIMES) for kind in kinds):
        return None
    try:
        with np.errstate(invalid="ignore"):  # of infinite values, which are refused by name
            options = {"ensure_all_finite": "allow-nan", "ensure_min_samples": 0}
            return check_array(X, dtype=np.float64, **options)
    except (TypeError, ValueError):
        return None


def _refuse_infinity(rows: np.ndarray, names: Any) -> None:
    places = np.argwhere(np.isinf(rows))
    if len(places):
        row, column = places[0]
        raise ValueError(
            f"Input X contains infinity in {feature_name(column, names)}, row {row}; leave it "
            "empty, or drop the row"
        )


def _refuse_huge(rows: np.ndarray, names: Any) -> None:
    """Refuse numbers whose squares overflow."""
    with np.errstate(invalid="ignore"):
        largest = np.abs(rows).max(axis=0, initial=0.0)
    huge = np.flatnonzero(largest > HUGE)
    if len(huge):
        raise ValueError(
            f"column {names[huge[0]]!r} of X reaches {largest[huge[0]]:.3g}, too large to compute "
            "with; give it in a larger unit, or leave it out"
        )


def _check_names(names: np.ndarray) -> None:
    known: set[str] = set()
    twice = [name for name in names if name in known or known.add(name)]  # type: ignore[func-returns-value]
    if twice:
        raise ValueError(
            f"a column has the name that a category of another column gets, {twice[0]!r}; rename it"
        )
