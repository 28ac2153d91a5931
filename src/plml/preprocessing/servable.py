"""Tables that nothing here can work with, refused in one line that says what to give instead."""

from typing import Any

import numpy as np
from scipy import sparse

#: What is said of arrays by their number of dimensions, where a table is needed.
_TABLE = "a table has one row per point and one column per feature"


def refuse_unservable(X: Any, what: str = "X", ndim: int | None = 2) -> None:
    """Raise a ``ValueError`` for sparse, masked, complex and distributed data, and wrong shapes.

    Parameters
    ----------
    X : array, data frame or nested lists
    what : its name in messages
    ndim : 2, or None where the shape is looked at elsewhere
    """
    _refuse_other_forms(X, what)
    if hasattr(X, "columns"):
        return
    shape, dtype = _shape_of(X, what)
    if "complex" in str(dtype):
        _refuse_complex(what, f"{what} holds complex numbers")
    if ndim is None or len(shape) == ndim:
        return
    if not shape:
        raise ValueError(f"Expected 2D array, got {type(X).__name__} for {what}; {_TABLE}")
    if len(shape) == 1:
        series = f", {what}.to_frame().T or {what}.to_frame()" if hasattr(X, "to_frame") else ""
        raise ValueError(
            f"Expected 2D array, got one dimension, {shape[0]} values, for {what}. Reshape your "
            f"data: [{what}] is a table of one row, {what}.reshape(-1, 1) one of one column{series}"
        )
    raise ValueError(
        f"Expected 2D array, found array with dim {len(shape)} for {what}, of shape {shape}; "
        f"{_TABLE}: reshape it to ({shape[0]}, {int(np.prod(shape[1:]))})"
    )


def _refuse_other_forms(X: Any, what: str) -> None:
    """What is no plain table of numbers, by its type and the types of its columns."""
    dense = "sparse input is not supported, for distances are those of all features"
    if sparse.issparse(X) or type(X).__module__.partition(".")[0] == "sparse":
        cure = "toarray" if hasattr(X, "toarray") else "todense"
        raise ValueError(f"{what} is a sparse matrix; {dense}: give {what}.{cure}()")
    if "sparse" in str(getattr(X, "layout", "")):
        raise ValueError(f"{what} is a sparse tensor; {dense}: give {what}.to_dense()")
    if type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask"):
        raise ValueError(
            f"{what} is a Dask collection, which this cannot use: give {what}.compute()"
        )
    if isinstance(X, np.ma.MaskedArray) and np.ma.getmaskarray(X).any():
        raise ValueError(
            f"{what} is a masked array, and masked entries are missing values; fill them "
            "(sklearn.impute.SimpleImputer)"
        )
    if type(X).__name__ == "LazyFrame":
        raise ValueError(
            f"{what} is a LazyFrame, whose rows are not there yet: give {what}.collect()"
        )
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    columns = list(X.columns)
    if len(set(columns)) < len(columns):
        twice = next(name for place, name in enumerate(columns) if name in columns[:place])
        raise ValueError(
            f"Expected unique column names, got {twice!r} twice in {what}; give every column its "
            "own name"
        )
    for name, dtype in zip(columns, X.dtypes, strict=False):
        if str(dtype).startswith("Sparse["):
            raise ValueError(
                f"column {name!r} of {what} is sparse; {dense}: give {what}.sparse.to_dense()"
            )
        if str(dtype).startswith("complex"):
            _refuse_complex(what, f"column {name!r} of {what} holds complex numbers")


def _refuse_complex(what: str, where: str) -> None:
    raise ValueError(
        f"Complex data not supported: {where}; give their real and imaginary parts as columns"
    )


def _shape_of(X: Any, what: str) -> tuple[tuple[int, ...], Any]:
    """The shape and, where there is one, the dtype."""
    if hasattr(X, "shape"):
        return tuple(X.shape), getattr(X, "dtype", None)
    try:
        array = np.asarray(X)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        sizes = [np.size(row) for row in X]
        odd = next((i for i, size in enumerate(sizes) if size != sizes[0]), 0)
        raise ValueError(
            f"the rows of {what} are an inhomogeneous array: row {odd} has {sizes[odd]} values, "
            f"row 0 has {sizes[0]}; give all rows one value per feature"
        ) from None
    return array.shape, array.dtype


def check_kinds(X: Any, names: np.ndarray | None) -> None:
    """Refuse dates and durations, which convert to numbers without a meaning."""
    dtypes = getattr(X, "dtypes", None)
    dtypes = [getattr(X, "dtype", None)] if dtypes is None else list(dtypes)
    for column, dtype in enumerate(dtypes):
        if str(dtype).lower().startswith(("datetime", "timedelta", "date", "duration")):
            where = feature_name(column, names) if hasattr(X, "dtypes") else "X"
            raise ValueError(
                f"{where} holds dates or durations ({dtype}); turn them into numbers with a "
                "meaning, such as days since a date"
            )


def feature_name(column: int, names: np.ndarray | None) -> str:
    """What a message calls a column."""
    return f"feature {column}" if names is None else f"feature {names[column]!r}"
