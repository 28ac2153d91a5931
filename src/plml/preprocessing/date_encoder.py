"""Dates as numbers that a distance can use: when, at what time of the year, week and day."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from plml.preprocessing.columns import pandas
from plml.preprocessing.dates import days_of

#: Names and lengths of the cycles, in days.
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}
#: A cycle is of use to dates that spread over at least this much of it.
_PART = 0.25


class DateEncoder(TransformerMixin, BaseEstimator):
    """Each date as its day, and as a place on the circles of the year, the week and the day.

    The features of a column have together the variance of one standardised number. Circles that
    the dates hardly move on are left out: dates without a time of day have none of the day.
    skrub's ``DatetimeEncoder`` makes circles whether dates move on them or not, in no common scale,
    and has no way back to the dates, which explanations need.
    Missing dates become the median.

    Attributes
    ----------
    medians_, means_, scales_ : (n_columns,) of the days since 1970
    cycles_ : list of tuple of str
        The circles of each column.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the circles that are of use.

        Parameters
        ----------
        X : (n_samples, n_columns) data frame of dates
        y : ignored
        """
        days = _days(X)
        self.feature_names_in_ = np.array([str(name) for name in X.columns], dtype=object)
        self.n_features_in_ = days.shape[1]
        self.medians_ = np.nanmedian(days, axis=0)
        days = np.where(np.isnan(days), self.medians_, days)
        self.means_, self.scales_ = days.mean(axis=0), days.std(axis=0)
        self.scales_[self.scales_ == 0.0] = 1.0
        self.cycles_ = [tuple(c for c in CYCLES if _moves(column, CYCLES[c])) for column in days.T]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features of all columns, (n_queries, n_features_out).

        Parameters
        ----------
        X : (n_queries, n_columns) data frame of dates
        """
        check_is_fitted(self)
        days = _days(X)
        days = np.where(np.isnan(days), self.medians_, days)
        parts = []
        for column, day in enumerate(days.T):
            angles = [2.0 * np.pi * day / CYCLES[cycle] for cycle in self.cycles_[column]]
            features = [(day - self.means_[column]) / self.scales_[column]]
            for angle in angles:
                features += [np.sqrt(2.0) * np.sin(angle), np.sqrt(2.0) * np.cos(angle)]
            parts.append(np.stack(features, axis=1) / np.sqrt(len(features)))
        return np.concatenate(parts, axis=1)

    def inverse_transform(self, rows: np.ndarray) -> np.ndarray:
        """The dates as texts, (n, n_columns).

        Parameters
        ----------
        rows : (n, n_features_out) array
        """
        owner = self.owner
        texts = np.empty((len(rows), self.n_features_in_), dtype=object)
        for column in range(self.n_features_in_):
            (features,) = np.nonzero(owner == column)
            standard = rows[:, features[0]] * np.sqrt(len(features))
            days = standard * self.scales_[column] + self.means_[column]
            texts[:, column] = date_texts(days, with_time="day" in self.cycles_[column])
        return texts

    @property
    def owner(self) -> np.ndarray:
        """(n_features_out,) the column of each feature."""
        return np.repeat(np.arange(len(self.cycles_)), [1 + 2 * len(c) for c in self.cycles_])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """``column``, ``column_year_sin``, ``column_year_cos`` and so on."""
        check_is_fitted(self)
        names = []
        for name, cycles in zip(self.feature_names_in_, self.cycles_, strict=True):
            names += [name, *(f"{name}_{c}_{wave}" for c in cycles for wave in ("sin", "cos"))]
        return np.array(names, dtype=object)


def date_texts(days: np.ndarray, with_time: bool) -> np.ndarray:
    """Days since 1970 as ISO texts, to the minute where there are times of day."""
    unit = "m" if with_time else "D"
    seconds = np.rint(days * 86400.0)  # without the rounding noise of scalers
    whole = np.floor(seconds / (60.0 if with_time else 86400.0)).astype("int64")
    texts = np.datetime_as_string(whole.astype(f"datetime64[{unit}]"))
    return np.char.replace(texts, "T", " ").astype(object)


def _days(X: Any) -> np.ndarray:
    frame = pandas().DataFrame(X)
    return np.stack([days_of(frame[name]) for name in frame.columns], axis=1)


def _moves(days: np.ndarray, length: float) -> bool:
    """Whether days spread over a part of a cycle, at more than two places of it."""
    places = np.unique(np.round(days % length / length, 6) % 1.0)
    if len(places) < 3:
        return False
    widest_gap = np.diff(np.append(places, places[0] + 1.0)).max()
    return bool(1.0 - widest_gap >= _PART)
