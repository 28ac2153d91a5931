"""What a user gives, checked before the work starts: every refusal names the cause and the cure."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from plml.backend.arrays import is_tensor, on_host

FLOAT_TYPES = (np.float64, np.float32)


def training_data(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Checked X, the classes, and the number of each row's class; sets the names of features."""
    names = column_names(X)
    X, y = (on_host(part) if is_tensor(part) else part for part in (X, y))
    check_kinds(X, names)
    check_labels(y)
    _check_present(missing_labels(y))
    with _naming_the_column(X, names):
        X, y = validate_data(
            estimator, X, y, dtype=FLOAT_TYPES, ensure_min_samples=2, ensure_all_finite=False
        )
    if names is not None:
        estimator.feature_names_in_ = names  # of frames that scikit-learn does not know, too
    check_classification_targets(y)
    X = safe_floats(finite(X, names), names)
    check_spread(X.min(axis=0), X.max(axis=0), X.dtype)
    return X, *class_codes(y)


def query_data(estimator: Any, X: Any) -> np.ndarray:
    """Checked X of new points, with the columns of the training data."""
    names, fitted_names = column_names(X), getattr(estimator, "feature_names_in_", None)
    X = on_host(X) if is_tensor(X) else X
    check_kinds(X, names)
    with _naming_the_column(X, names):
        X = validate_data(estimator, X, dtype=FLOAT_TYPES, reset=False, ensure_all_finite=False)
    if names is not None and fitted_names is not None and list(names) != list(fitted_names):
        raise ValueError(
            "The feature names should match those that were passed during fit, in that order: "
            f"{', '.join(fitted_names[:5])}{', ...' if len(fitted_names) > 5 else ''}"
        )
    return safe_floats(finite(X, fitted_names), fitted_names)


def numbers(X: Any, names: np.ndarray | None) -> np.ndarray:
    """Some rows as floats, possibly none, and possibly not finite."""
    check_kinds(X, names)
    with _naming_the_column(X, names):
        return check_array(X, dtype=FLOAT_TYPES, ensure_all_finite=False, ensure_min_samples=0)


def refuse_keywords(estimator: Any, unknown: dict[str, Any]) -> None:
    """A ``TypeError`` that names the estimator as the user knows it, and what to do instead."""
    for name in unknown:
        cure = "; repeat rows instead of weighting them" if name == "sample_weight" else ""
        raise TypeError(
            f"{type(estimator).__name__}.fit() got an unexpected keyword argument {name!r}{cure}"
        )


def positive_integer(name: str, value: Any) -> int:
    """The value of a parameter that counts something."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def pair_points(estimator: Any, pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second points of (n_pairs, 2, n_features) pairs, checked."""
    check_kinds(pairs, None)
    pairs, d = on_host(pairs), estimator.n_features_in_
    if pairs.ndim != 3 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must have shape (n_pairs, 2, {d}), got {pairs.shape}")
    if pairs.shape[2] != d:
        raise ValueError(
            f"pairs have {pairs.shape[2]} features, but {type(estimator).__name__} was fitted "
            f"with {d}"
        )
    first, second = (safe_floats(check_array(pairs[:, i], dtype=FLOAT_TYPES)) for i in range(2))
    return first, second


def class_codes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes and the number of each label; refuses a single class."""
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only ({str(classes[0])!r}); at least two classes are needed"
        )
    return classes, codes


def finite(X: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
    """X, where every entry is a number."""
    with np.errstate(invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):  # a sum that overflows is looked at again
            return X
    bad = ~np.isfinite(X)
    if not bad.any():
        return X
    row, column = (int(where[0]) for where in np.nonzero(bad))
    what = "NaN" if np.isnan(X[row, column]) else "infinity"
    cure = "fill it (sklearn.impute.SimpleImputer) or drop the row"
    raise ValueError(
        f"Input X contains {what} in {_feature(column, names)}, row {row}"
        f"{f' ({bad.sum()} such entries)' if bad.sum() > 1 else ''}; {cure}"
    )


def safe_floats(X: np.ndarray, names: np.ndarray | None = None) -> np.ndarray:
    """X in a dtype that holds what the objective sums, fourth powers; refuses what none holds."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    if X.dtype == np.float32 and not (largest <= largest_safe(np.float32)).all():
        X = X.astype(np.float64)
    if not (largest <= largest_safe(X.dtype)).all():
        worst = int(largest.argmax())
        raise ValueError(
            f"{_feature(worst, names)} reaches {largest[worst]:.3g}, too large to compute with; "
            f"standardise the features (sklearn.preprocessing.StandardScaler)"
        )
    return X


def largest_safe(dtype: Any) -> float:
    """The largest number whose fourth power, summed often, stays in range."""
    return float(np.finfo(dtype).max) ** 0.25 / 2**12


def column_names(X: Any) -> np.ndarray | None:
    """The names of a data frame's columns, where all of them are strings."""
    names = getattr(X, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return np.asarray(list(names), dtype=object)


def check_spread(low: np.ndarray, high: np.ndarray, dtype: Any) -> None:
    """Refuse differences whose squares vanish: all points would be equally near."""
    spread = float((high - low).max(initial=0.0))
    if 0.0 < spread < float(np.finfo(dtype).tiny) ** 0.5 * 2**12:
        raise ValueError(
            f"no feature spreads over more than {spread:.3g}, too little to compute with; "
            f"standardise the features (sklearn.preprocessing.StandardScaler)"
        )


def check_kinds(X: Any, names: np.ndarray | None) -> None:
    """Refuse dates and durations, which convert to numbers without a meaning, and masks."""
    if _is_masked(X):
        raise ValueError(
            "X is a masked array, and masked entries are missing values; fill them "
            "(sklearn.impute.SimpleImputer)"
        )
    dtypes = getattr(X, "dtypes", None)
    dtypes = [getattr(X, "dtype", None)] if dtypes is None else list(dtypes)
    for column, dtype in enumerate(dtypes):
        if str(dtype).lower().startswith(("datetime", "timedelta", "date", "duration")):
            where = _feature(column, names) if hasattr(X, "dtypes") else "X"
            raise ValueError(
                f"{where} holds dates or durations ({dtype}); turn them into numbers with a "
                "meaning, such as days since a date"
            )


def check_labels(y: Any) -> None:
    """Refuse masks, and missing values that cannot be compared: they are no labels."""
    if _is_masked(y):
        raise ValueError(
            "y is a masked array, and masked entries are missing labels; drop these rows"
        )
    if str(getattr(y, "dtype", "")).startswith("string"):
        _check_present(y.isna())


def missing_labels(y: Any) -> np.ndarray:
    """A mask of the labels that are None, NaN, NaT or what pandas calls missing."""
    if hasattr(y, "isna"):
        return np.asarray(y.isna())
    labels = np.asarray(y)
    if labels.dtype != object:
        return np.asarray(labels != labels)
    # What pandas calls missing is not even equal to itself in a way that can be asked for.
    found = [
        label is None or type(label).__name__ == "NAType" or bool(label != label)
        for label in (labels.ravel() if labels.ndim else ())
    ]
    return np.array(found, dtype=bool)


def _check_present(missing: Any) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise ValueError(
            f"Input y contains NaN: missing labels, the first in row {rows[0]}; drop these rows"
        )


def _is_masked(values: Any) -> bool:
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.getmaskarray(values).any())


@contextmanager
def _naming_the_column(X: Any, names: np.ndarray | None) -> Iterator[None]:
    """Where a text is not a number, a better error, with the column and the cure."""
    try:
        yield
    except ValueError as error:
        columns = np.asarray(X, dtype=object)
        if "could not convert string" not in str(error) or columns.ndim != 2:
            raise
        for (column, _), value in np.ndenumerate(columns.T):
            if not _is_number(value):
                raise ValueError(
                    f"{_feature(column, names)} holds {value!r}: could not convert string to "
                    "float; encode it (sklearn.preprocessing.OneHotEncoder) or drop the column"
                ) from error
        raise


def _is_number(value: Any) -> bool:
    with suppress(TypeError, ValueError):
        float(value)
        return True
    return False


def _feature(column: int, names: np.ndarray | None) -> str:
    return f"feature {column}" if names is None else f"feature {names[column]!r}"
