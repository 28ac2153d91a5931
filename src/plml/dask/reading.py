"""Dask collections as a table of checked blocks of rows."""

import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from sklearn.utils.multiclass import check_classification_targets

from plml.backend.arrays import is_collection
from plml.dask.cluster import Cluster, offsets_of
from plml.preprocessing.servable import check_kinds
from plml.validation import (
    ColumnRanges,
    check_labels,
    check_spread,
    class_codes,
    column_names,
    column_ranges,
    finite,
    largest_safe,
    missing_labels,
    numbers,
    safe_floats,
)


class Block(NamedTuple):
    """Rows as the user gave them."""

    X: np.ndarray
    codes: np.ndarray  # class numbers


class Table(NamedTuple):
    """The training data on the cluster, and what is known of all of it."""

    blocks: list[Future]  # of Block
    sizes: list[int]
    classes: np.ndarray
    class_sizes: np.ndarray
    names: np.ndarray | None
    dtype: np.dtype
    mean: np.ndarray  # float64
    largest: float  # entry of the centred data, from above

    @property
    def n_rows(self) -> int:
        """Rows of all blocks together."""
        return sum(self.sizes)

    @property
    def n_features(self) -> int:
        """Columns of every block."""
        return len(self.mean)


class _Survey(NamedTuple):
    """What one block says of itself."""

    n_rows: int
    total: np.ndarray
    low: np.ndarray
    high: np.ndarray
    labels: np.ndarray
    counts: np.ndarray


def read_table(cluster: Cluster, X: Any, y: Any) -> Table:
    """Checked blocks of a Dask array or data frame and its labels.

    Parameters
    ----------
    X : Dask array (n_samples, n_features) or Dask data frame
    y : Dask array or series with the same blocks, or anything with one label per row
    """
    names, dtype = column_names(X), _float_type(X)
    check_kinds(X, names)
    with warnings.catch_warnings():  # data frames do not carry the names of stages
        warnings.filterwarnings("ignore", "Dask annotations", UserWarning)
        parts = cluster.client.compute(row_blocks(X))
        labels = _labels(cluster, parts, y)
    while True:
        read = cluster.map(_read, parts, labels, known=(dtype, names))
        read, surveys = _surveyed(cluster, read, names)
        low = np.min([survey.low for survey in surveys], axis=0)
        high = np.max([survey.high for survey in surveys], axis=0)
        if dtype == np.float64 or max(high.max(), -low.min()) <= largest_safe(dtype):
            break
        dtype = np.dtype(np.float64)  # whose range is larger
    check_spread(low, high, dtype)
    sizes = [survey.n_rows for survey in surveys]
    mean = np.sum([survey.total for survey in surveys], axis=0) / sum(sizes)
    classes, class_sizes = _classes(surveys)
    return Table(
        cluster.map(_numbered, read, known=(cluster.put(classes),)),
        sizes,
        classes,
        class_sizes,
        names,
        dtype,
        mean,
        float(np.maximum(high - mean, mean - low).max()),
    )


def row_blocks(X: Any) -> list[Any]:
    """Delayed blocks of rows with all columns."""
    if X.ndim != 2 or not X.shape[1]:
        raise ValueError(f"X must have two dimensions and at least one column, got {X.shape}")
    if hasattr(X, "to_dask_array"):  # a data frame
        return list(X.to_delayed())
    return list(X.rechunk({1: -1}).to_delayed().ravel())


def _labels(cluster: Cluster, parts: list[Future], y: Any) -> list[Future]:
    """The labels of every block."""
    if y is None:
        raise ValueError("PLML requires y to be passed, but the target y is None")
    sizes = cluster.gather(cluster.map(len, parts))
    if not is_collection(y):
        check_labels(y)
        y = np.asarray(y)
        if y.ndim != 1 or len(y) != sum(sizes):
            raise ValueError(f"y has shape {y.shape}; X has {sum(sizes)} rows")
        return [cluster.put(part) for part in np.split(y, offsets_of(sizes)[1:-1])]
    if y.ndim != 1:
        raise ValueError(f"y must have one dimension, got {y.ndim}")
    labels = cluster.client.compute(list(np.ravel(y.to_delayed())))
    found = cluster.gather(cluster.map(_n_labels, labels))
    if sum(found) != sum(sizes):
        raise ValueError(f"y has {sum(found)} labels; X has {sum(sizes)} rows")
    return labels if found == sizes else _recut(cluster, labels, found, sizes)


def _n_labels(part: Any) -> int:
    check_labels(part)
    return len(part)


def _recut(
    cluster: Cluster, parts: list[Future], found: list[int], sizes: list[int]
) -> list[Future]:
    """The same labels in the same order, in blocks of other sizes.

    Dask reads a narrow column of a table in fewer, longer blocks than its wide ones.
    """
    starts, cuts = offsets_of(found), offsets_of(sizes)
    blocks = []
    for first, last in pairwise(cuts):
        # Some part even of an empty block.
        near = np.flatnonzero((starts[1:] > first) & (starts[:-1] < last)).tolist() or [0]
        begin = int(first - starts[near[0]])
        some = [parts[b] for b in near]
        blocks.append(cluster.submit(_piece, some, begin, begin + int(last - first)))
    return blocks


def _piece(parts: list[Any], first: int, last: int) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])[first:last]


def _float_type(X: Any) -> np.dtype:
    dtypes = list(X.dtypes) if hasattr(X, "dtypes") else [X.dtype]
    return np.dtype(np.float32 if all(dtype == np.float32 for dtype in dtypes) else np.float64)


def _read(X: Any, y: Any, dtype: np.dtype, names: np.ndarray | None) -> Block | str:
    """A block in a dtype, or what is wrong with it."""
    try:
        X = numbers(X, names)
    except (ValueError, TypeError) as error:
        return str(error)
    y = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    return Block(np.ascontiguousarray(X, dtype=dtype), y)


def _surveyed(
    cluster: Cluster, blocks: list[Future], names: np.ndarray | None
) -> tuple[list[Future], list[_Survey]]:
    """Blocks that have rows, and what they say; the first complaint of any is raised."""
    found = cluster.watched(cluster.map(_survey, blocks, known=(names,)))
    for number, survey in enumerate(found):
        if isinstance(survey, str):
            raise ValueError(f"{survey} (in block {number})")
    if sum(survey.n_rows for survey in found) < 2:
        raise ValueError("Found fewer than two samples, where at least 2 are required")
    filled = [number for number, survey in enumerate(found) if survey.n_rows]
    return [blocks[number] for number in filled], [found[number] for number in filled]


def _survey(block: Block | str, names: np.ndarray | None) -> _Survey | str:
    if isinstance(block, str):
        return block
    try:
        ranges = column_ranges(block.X)
        X = finite(block.X, names, ranges)
        if X.dtype == np.float64:
            safe_floats(X, names, ranges)
        if missing_labels(block.codes).any():
            raise ValueError("Input y contains NaN")
        labels, counts = np.unique(block.codes, return_counts=True)
    except (ValueError, TypeError) as error:
        return str(error)
    if not len(X):  # neither is a smallest or largest entry of others
        ranges = ColumnRanges(ranges.low + np.inf, ranges.high - np.inf)
    return _Survey(len(X), X.sum(axis=0, dtype=np.float64), *ranges, labels, counts)


def _classes(surveys: list[_Survey]) -> tuple[np.ndarray, np.ndarray]:
    classes, codes = class_codes(np.concatenate([s.labels for s in surveys]))
    check_classification_targets(np.repeat(classes, 3))  # a class of one would look like a number
    counts = np.concatenate([s.counts for s in surveys])
    return classes, np.bincount(codes, counts).astype(np.int64)


def _numbered(block: Block, classes: np.ndarray) -> Block:
    return Block(block.X, np.searchsorted(classes, block.codes))
