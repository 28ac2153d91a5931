"""What a user gives, checked before the work starts: every refusal names the cause and the cure."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _num_samples,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from plml.backend.arrays import is_tensor, like, on_host
from plml.preprocessing.servable import check_kinds, feature_name, refuse_unservable

FLOAT_TYPES = (np.float64, np.float32)
#: Characters of the label of a row that are kept.
_LONGEST_NAME = 80
#: What is said of entries that are no numbers.
_NO_NUMBER = ("could not convert string", "float() argument", "setting an array element")
#: Weights are at most so large, and at least one over this: single precision holds their products.
_LARGEST_WEIGHT = 1e12


def training_data(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Checked X, the classes, and the number of each row's class; sets the names of features."""
    refuse_unservable(X)
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
    ranges = column_ranges(X)
    X = safe_floats(finite(X, names, ranges), names, ranges)
    check_spread(*ranges, X.dtype)
    return X, *class_codes(y)


def query_data(estimator: Any, X: Any) -> np.ndarray:
    """Checked X of new points, with the columns of the training data."""
    refuse_unservable(X)
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
    ranges = column_ranges(X)
    return safe_floats(finite(X, fitted_names, ranges), fitted_names, ranges)


def numbers(X: Any, names: np.ndarray | None) -> np.ndarray:
    """Some rows as floats, possibly none, and possibly not finite."""
    refuse_unservable(X)
    check_kinds(X, names)
    with _naming_the_column(X, names):
        return check_array(X, dtype=FLOAT_TYPES, ensure_all_finite=False, ensure_min_samples=0)


class WeightedRows(NamedTuple):
    """Rows that count, as a user gave them, and how much each one does."""

    X: Any
    y: Any
    weights: np.ndarray | None  # (n,) float64, positive; None where all are one
    kept: np.ndarray | None  # (n,) where the rows were in X; None where none was left out


def rows_that_count(X: Any, y: Any, sample_weight: Any) -> WeightedRows:
    """The rows whose weight is not zero: one of weight zero is as if it were not there.

    Parameters
    ----------
    X, y : as a user gives them
    sample_weight : (n,) numbers that are not negative, or None
    """
    if sample_weight is None:
        return WeightedRows(X, y, None, None)
    check_consistent_length(X, y)
    weights = _numbers_per_row(sample_weight, _num_samples(X))
    kept = np.flatnonzero(weights)
    if len(kept) == len(weights):
        return WeightedRows(X, y, weights, None)
    if not len(kept):
        raise ValueError("sample_weight is zero in every row; give some rows a weight")
    rest = None if y is None else taken(y, kept)
    if y is not None:
        _check_classes_left(y, rest)
    return WeightedRows(taken(X, kept), rest, weights[kept], kept)


def with_class_weight(
    weights: np.ndarray | None, class_weight: Any, classes: np.ndarray, codes: np.ndarray
) -> np.ndarray | None:
    """Weights times those of the classes; None where all are one.

    Parameters
    ----------
    weights : (n,) array, or None
    class_weight : {"balanced"}, a dictionary from classes to weights, or None. Balanced classes
        have the same total weight.
    classes, codes : as ``training_data`` returns them
    """
    if class_weight is not None:
        weights = np.ones(len(codes)) if weights is None else weights
        if isinstance(class_weight, str):
            totals = np.bincount(codes, weights, len(classes))
            of_classes = totals.sum() / (len(classes) * totals)
        else:
            of_classes = _numbers_per_class(class_weight, classes)
        weights = weights * of_classes[codes]
        if not 1.0 / _LARGEST_WEIGHT <= weights.min() <= weights.max() <= _LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight times class_weight is {weights.min():g} to {weights.max():g}; it "
                f"must be between {1.0 / _LARGEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}"
            )
    return None if weights is None or (weights == 1.0).all() else weights


def _numbers_per_row(given: Any, n_rows: int) -> np.ndarray:
    """Weights as float64, one per row of X."""
    try:
        values = np.asarray(on_host(given) if is_tensor(given) else given)
    except ValueError:
        raise ValueError("sample_weight is ragged; give one number per row") from None
    if values.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {values.shape}, and X has {n_rows} rows: give one number per "
            "row"
        )
    if _is_masked(given):
        raise ValueError("sample_weight is a masked array, with missing weights; fill them")
    try:
        if values.dtype.kind in "cmM":
            raise TypeError
        weights = values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight holds {values.dtype} values, not numbers; give one number per row"
        ) from None
    sizes = np.abs(weights)
    wrong = ~((weights >= 0.0) & (sizes <= _LARGEST_WEIGHT))
    wrong |= (weights > 0.0) & (sizes < 1.0 / _LARGEST_WEIGHT)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"sample_weight is {weights[row]:g} in row {row}; a weight must be zero, or between "
            f"{1.0 / _LARGEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}"
        )
    return weights


def _numbers_per_class(given: Any, classes: np.ndarray) -> np.ndarray:
    """(n_classes,) weights; a class that is not named has weight one."""
    labels = classes.tolist()
    unknown = [label for label in given if label not in labels]
    if unknown:
        raise ValueError(
            f"class_weight names {unknown[0]!r}, which is not a class of y; the classes are "
            f"{', '.join(map(repr, labels[:8]))}{', ...' if len(labels) > 8 else ''}"
        )
    for label, value in given.items():
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number and 1.0 / _LARGEST_WEIGHT <= value <= _LARGEST_WEIGHT):
            raise ValueError(
                f"class_weight of class {label!r} is {value!r}; it must be a positive number "
                f"between {1.0 / _LARGEST_WEIGHT:g} and {_LARGEST_WEIGHT:g}"
            )
    return np.array([float(given.get(label, 1.0)) for label in labels])


def _check_classes_left(y: Any, rest: Any) -> None:
    """Refuse weights under which a class has no row."""
    every, left = (np.asarray(on_host(part) if is_tensor(part) else part) for part in (y, rest))
    known = set(left.ravel().tolist())
    lost = [label for label in every.ravel().tolist() if label == label and label not in known]
    if lost:
        raise ValueError(
            f"every row of class {lost[0]!r} has sample_weight zero; give one of them a weight, or "
            "drop these rows"
        )


def taken(values: Any, rows: np.ndarray) -> Any:
    """Some rows of whatever a user gives.

    Parameters
    ----------
    values : array, tensor, data frame or list
    rows : (r,) their numbers
    """
    return values[like(rows, values)] if is_tensor(values) else _safe_indexing(values, rows)


def refuse_weights_of_collections(sample_weight: Any) -> None:
    """A ``ValueError`` where rows on a Dask cluster are to have weights."""
    if sample_weight is not None:
        raise ValueError(
            "sample_weight is for rows on one machine: X.compute(), y.compute() and the weights as "
            "an array; on a Dask cluster leave it out"
        )


def refuse_keywords(estimator: Any, unknown: dict[str, Any]) -> None:
    """A ``TypeError`` that names the estimator as the user knows it."""
    for name in unknown:
        raise TypeError(
            f"{type(estimator).__name__}.fit() got an unexpected keyword argument {name!r}"
        )


def positive_integer(name: str, value: Any) -> int:
    """The value of a parameter that counts something."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def pair_points(estimator: Any, pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second points of (n_pairs, 2, n_features) pairs, checked."""
    refuse_unservable(pairs, "pairs", ndim=None)
    check_kinds(pairs, None)
    pairs, d = on_host(pairs), estimator.n_features_in_
    if pairs.ndim != 3 or pairs.shape[1] != 2:
        raise ValueError(f"pairs must have shape (n_pairs, 2, {d}), got {pairs.shape}")
    if pairs.shape[2] != d:
        raise ValueError(
            f"pairs have {pairs.shape[2]} features, but {type(estimator).__name__} was fitted "
            f"with {d}"
        )
    ends = (check_array(pairs[:, i], dtype=FLOAT_TYPES) for i in range(2))
    first, second = (safe_floats(end, None, column_ranges(end)) for end in ends)
    return first, second


def class_codes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes and the number of each label; refuses a single class."""
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only ({str(classes[0])!r}); at least two classes are needed"
        )
    return classes, codes


class ColumnRanges(NamedTuple):
    """The least and the largest entry of every column, (d,) float64; NaN where one is NaN."""

    low: np.ndarray
    high: np.ndarray


def column_ranges(X: np.ndarray) -> ColumnRanges:
    """Those of (n, d) rows; zero where there are no rows."""
    if not len(X):
        return ColumnRanges(*np.zeros((2, X.shape[1])))
    with np.errstate(invalid="ignore"):
        return ColumnRanges(*(part(axis=0).astype(np.float64) for part in (X.min, X.max)))


def finite(X: np.ndarray, names: np.ndarray | None, ranges: ColumnRanges) -> np.ndarray:
    """X, where every entry is a number; the ranges are those of its columns."""
    if all(np.isfinite(part).all() for part in ranges):
        return X
    bad = ~np.isfinite(X)
    row, column = (int(where[0]) for where in np.nonzero(bad))
    what = "NaN" if np.isnan(X[row, column]) else "infinity"
    cure = "fill it (sklearn.impute.SimpleImputer) or drop the row"
    raise ValueError(
        f"Input X contains {what} in {feature_name(column, names)}, row {row}"
        f"{f' ({bad.sum()} such entries)' if bad.sum() > 1 else ''}; {cure}"
    )


def check_range(X: np.ndarray, dtype: Any) -> np.ndarray:
    """Checked rows in the dtype of a model; refuses what that cannot hold."""
    largest = np.abs(X).max(initial=0.0)
    if not largest <= largest_safe(dtype):
        raise ValueError(
            f"X reaches {largest:.3g}, too large for a model of {np.dtype(dtype).name}; give it in "
            "the units of the training rows, or fit in float64"
        )
    return X.astype(dtype, copy=False)


def case_labels(
    y: Any, n_rows: int, classes: np.ndarray, new_classes: str
) -> tuple[np.ndarray, np.ndarray]:
    """The classes of a model after cases with labels y joined, and the codes of these labels.

    Parameters
    ----------
    y : (n_rows,) labels
    classes : that the model knows
    new_classes : {"refuse", "allow"}
    """
    if new_classes not in ("refuse", "allow"):
        raise ValueError(f'new_classes must be "refuse" or "allow", got {new_classes!r}')
    y = labels_of_rows(y, n_rows, classes)
    check_classification_targets(y)
    unknown = np.setdiff1d(y, classes)
    if len(unknown) and new_classes == "refuse":
        shown = [repr(str(label)) for label in unknown[:5]] + ["..."] * (len(unknown) > 5)
        raise ValueError(
            f"y has classes that the model does not know: {', '.join(shown)}; "
            'fit again to learn them, or take them as cases with new_classes="allow" '
            "(plml add --new-classes allow)"
        )
    classes = np.union1d(classes, unknown) if len(unknown) else classes
    return classes, np.searchsorted(classes, y)


def labels_of_rows(y: Any, n_rows: int, classes: np.ndarray | None = None) -> np.ndarray:
    """One label per row, none of them missing.

    Parameters
    ----------
    y : as a user gives them
    n_rows : of X
    classes : of a model, to be texts or numbers as these are; None where there is no model
    """
    y = on_host(y) if is_tensor(y) else y
    check_labels(y)
    _check_present(missing_labels(y))
    y = column_or_1d(y)
    if len(y) != n_rows:
        raise ValueError(f"X has {n_rows} rows and y has {len(y)} labels; give one label per row")
    if classes is None:
        return y
    texts, known_texts = (labels.dtype.kind not in "biuf" for labels in (y, classes))
    if texts != known_texts:
        kinds = "texts" if texts else "numbers", "texts" if known_texts else "numbers"
        raise ValueError(f"y holds {kinds[0]}, and the classes of the model are {kinds[1]}")
    return y


def case_numbers(indices: Any, n_rows: int, name: str = "rows") -> np.ndarray:
    """Some of n cases by their numbers, in the order given, or by a mask of all cases.

    Parameters
    ----------
    name : of the parameter, for messages
    """
    given = np.atleast_1d(on_host(indices) if is_tensor(indices) else np.asarray(indices))
    if given.dtype == bool and given.shape == (n_rows,):
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be numbers of cases from 0 to {n_rows - 1}, or a mask of {n_rows}; got "
            f"{given.dtype} of shape {given.shape}"
        )
    if given.size and (given.min() < 0 or given.max() >= n_rows):
        wrong = given.max() if given.max() >= n_rows else given.min()
        raise ValueError(f"there is no case {wrong}; the cases are numbered from 0 to {n_rows - 1}")
    return given.astype(np.int64)


def row_numbers(indices: Any, n_rows: int) -> np.ndarray:
    """As ``case_numbers``, sorted, each case once."""
    rows, counts = np.unique(case_numbers(indices, n_rows, "indices"), return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"case {rows[counts > 1][0]} is named more than once")
    return rows


def safe_floats(X: np.ndarray, names: np.ndarray | None, ranges: ColumnRanges) -> np.ndarray:
    """X in a dtype that holds what the objective sums, fourth powers; refuses what none holds.

    The ranges are those of the columns of X.
    """
    largest = np.maximum(np.abs(ranges.low), np.abs(ranges.high))
    if X.dtype == np.float32 and not (largest <= largest_safe(np.float32)).all():
        X = X.astype(np.float64)
    if not (largest <= largest_safe(X.dtype)).all():
        worst = int(largest.argmax())
        raise ValueError(
            f"{feature_name(worst, names)} reaches {largest[worst]:.3g}, too large to compute "
            "with; standardise the features (sklearn.preprocessing.StandardScaler)"
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


def row_names(X: Any) -> np.ndarray | None:
    """The labels of a pandas data frame's index; None where they are the numbers of the rows."""
    index = getattr(X, "index", None)
    if index is None or not hasattr(X, "columns") or not hasattr(index, "to_numpy"):
        return None
    names = index.to_numpy()
    if names.dtype.kind not in "iu":
        return np.array([str(name)[:_LONGEST_NAME] for name in names])
    return None if np.array_equal(names, np.arange(len(names))) else names


def joined_names(
    names: np.ndarray | None, n: int, more: np.ndarray | None, n_more: int
) -> np.ndarray | None:
    """The names of n rows and of those behind them; numbers where some have no names.

    Numbers of rows that join others follow the largest number that is a name already.
    """
    if names is None and more is None:
        return None
    if names is not None and names.dtype.kind in "iu":
        n = max(n, int(names.max(initial=-1)) + 1)
    both = [
        np.arange(first, first + size) if given is None else given
        for given, first, size in ((names, 0, n), (more, n, n_more))
    ]
    if any(part.dtype.kind not in "iu" for part in both):
        both = [part.astype(str) for part in both]
    return np.concatenate(both)


def check_rows(X: Any) -> None:
    """Refuse a single row that is no table, and a table without rows."""
    if not hasattr(X, "shape") or len(X.shape) != 1:
        refuse_unservable(X)
    shape = np.shape(X)
    if len(shape) == 1 and hasattr(X, "to_frame"):
        raise ValueError(
            f"X is a Series with {shape[0]} values: give a table of one row, X.iloc[[i]] or "
            "X.to_frame().T"
        )
    if len(shape) == 1:
        raise ValueError(f"X has one dimension, {shape[0]} values: give a table of one row, [X]")
    if not shape[0]:
        raise ValueError("X has no rows: give a table of at least one")


def check_spread(low: np.ndarray, high: np.ndarray, dtype: Any) -> None:
    """Refuse differences whose squares vanish: all points would be equally near."""
    spread = float((high - low).max(initial=0.0))
    if 0.0 < spread < float(np.finfo(dtype).tiny) ** 0.5 * 2**12:
        raise ValueError(
            f"no feature spreads over more than {spread:.3g}, too little to compute with; "
            f"standardise the features (sklearn.preprocessing.StandardScaler)"
        )


def check_labels(y: Any) -> None:
    """Refuse masks, and missing values that cannot be compared: they are no labels."""
    if issparse(y):
        raise ValueError("y is a sparse matrix; give y.toarray().ravel()")
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
    """Where something is not a number, a better error, with the column and the cure."""
    try:
        yield
    except (TypeError, ValueError) as error:
        reason = str(error).partition(":")[0].rstrip(".")
        columns = np.asarray(X, dtype=object)
        if not any(words in reason for words in _NO_NUMBER) or columns.ndim != 2:
            raise
        for (column, _), value in np.ndenumerate(columns.T):
            if not _is_number(value):
                raise type(error)(
                    f"{feature_name(column, names)} holds {value!r}: {reason}; encode it "
                    "(sklearn.preprocessing.OneHotEncoder) or drop the column"
                ) from error
        raise


def _is_number(value: Any) -> bool:
    with suppress(TypeError, ValueError):
        float(value)
        return True
    return False
