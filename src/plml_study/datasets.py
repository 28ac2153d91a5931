"""The six data sets of the paper, read from their original files or fetched from OpenML."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import fetch_openml, load_digits

DATA_VARIABLE = "PLML_DATA"


class Dataset(NamedTuple):
    """Instances, labels, and the default split where the data has one."""

    name: str
    X: np.ndarray
    y: np.ndarray
    n_train: int | None  # the first n_train rows are the training part; None: no default split
    source: str = "files"  # or "OpenML", whose rows may be in another order


class Unavailable(OSError):
    """A data set that is not at hand and could not be fetched."""


class Source(NamedTuple):
    """Where a data set comes from and what it must look like."""

    files: tuple[str, ...]  # training part first
    read: Callable[[list[Path]], tuple[np.ndarray, np.ndarray]]
    openml: str
    shape: tuple[int, int]
    n_classes: int
    n_train: int | None
    openml_version: int = 1


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by its name, one of ``NAMES``.

    Parameters
    ----------
    name : str
    data_dir : folder of the original files, gzip-compressed or plain; by default the environment
        variable ``PLML_DATA``. Without one the data set is fetched from OpenML. ``"digits"`` is
        embedded in scikit-learn and needs neither.

    Returns
    -------
    Dataset
        ``name``, ``X``, ``y``, ``source``, and ``n_train``: the rows before it are the training
        part; None without a default split.

    Examples
    --------
    >>> from plml_study import datasets
    >>> datasets.load("digits").X.shape
    (1797, 64)
    """
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return Dataset(name, X.astype(np.float64), y, None)
    if name not in SOURCES:
        raise ValueError(f"unknown data set {name!r}; choose from {', '.join(NAMES)}")
    source, paths = SOURCES[name], find_files(name, data_dir)
    X, y = _read(name, source, paths) if paths else _fetch(name, source)
    _check(name, source, X, y)
    return Dataset(name, X, y, source.n_train, "files" if paths else "OpenML")


def find_files(name: str, data_dir: str | os.PathLike[str] | None = None) -> list[Path]:
    """The original files of a data set; none where it is embedded or comes from OpenML.

    An error says which file to put where.
    """
    named = data_dir or os.environ.get(DATA_VARIABLE)
    if name == "digits" or not named:
        return []
    folder, files = Path(named), SOURCES[name].files
    found = {
        file: [path for path in (folder / f"{file}.gz", folder / file) if path.is_file()]
        for file in files
    }
    missing = [file for file in files if not found[file]]
    if missing:
        there = "" if folder.is_dir() else " (there is no such folder)"
        raise FileNotFoundError(
            f"data set {name!r}: put {', '.join(missing)}, plain or with .gz, into "
            f"{folder}{there}, or name no folder (--data-dir, {DATA_VARIABLE}) to fetch it from "
            "OpenML"
        )
    return [paths[0] for paths in found.values()]


def _read(name: str, source: Source, paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    try:
        return source.read(paths)
    except (ValueError, OSError, EOFError, IndexError) as error:
        files, folder = ", ".join(path.name for path in paths), paths[0].parent
        raise ValueError(f"data set {name!r}: cannot read {files} in {folder}: {error}") from error


def _fetch(name: str, source: Source) -> tuple[np.ndarray, np.ndarray]:
    try:
        table = fetch_openml(
            source.openml, version=source.openml_version, as_frame=False, parser="liac-arff"
        )
    except Exception as error:  # whatever the network has to say
        raise Unavailable(
            f"data set {name!r} could not be fetched from OpenML ({error}); put "
            f"{', '.join(source.files)} into a folder and name it with --data-dir or "
            f"{DATA_VARIABLE}"
        ) from error
    return np.asarray(table.data, dtype=np.float64), np.asarray(table.target)


def _check(name: str, source: Source, X: np.ndarray, y: np.ndarray) -> None:
    found = (*X.shape, len(np.unique(y)))
    expected = (*source.shape, source.n_classes)
    if found != expected:
        words = "{} rows, {} features and {} classes"
        raise ValueError(
            f"data set {name!r} has {words.format(*found)}; expected {words.format(*expected)}"
        )
    if not np.isfinite(X).all():
        raise ValueError(f"data set {name!r} has values that are not finite")


def _table(paths: list[Path], delimiter: str | None, dtype: Any = np.float64) -> np.ndarray:
    return np.concatenate([np.loadtxt(path, delimiter=delimiter, dtype=dtype) for path in paths])


def _read_letter(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    table = _table(paths, ",", str)
    return table[:, 1:].astype(np.float64), table[:, 0]


def _read_label_last(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    table = _table(paths, ",")
    return table[:, :-1], table[:, -1].astype(np.int64)


def _read_usps(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    table = _table(paths, None)
    return table[:, 1:], table[:, 0].astype(np.int64)


def _read_mnist(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    images = [read_idx(path) for path in paths[::2]]
    labels = [read_idx(path) for path in paths[1::2]]
    X = np.concatenate([part.reshape(len(part), -1) for part in images])
    return X.astype(np.float64), np.concatenate(labels).astype(np.int64)


def read_idx(path: Path) -> np.ndarray:
    """An array in the IDX format: big-endian magic 0x0000 08 ndim, the sizes, then the bytes."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    magic = int.from_bytes(content[:4], "big")
    n_dimensions = magic & 0xFF
    if magic >> 8 != 8 or len(content) < 4 + 4 * n_dimensions:
        raise ValueError(f"{path.name} is not an IDX file of bytes")
    sizes = np.frombuffer(content, ">u4", n_dimensions, offset=4).astype(int)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * n_dimensions).reshape(sizes)


SOURCES = {
    "letter": Source(("letter-recognition.data",), _read_letter, "letter", (20000, 16), 26, None),
    "pendigits": Source(
        ("pendigits.tra", "pendigits.tes"), _read_label_last, "pendigits", (10992, 16), 10, 7494
    ),
    "optdigits": Source(
        ("optdigits.tra", "optdigits.tes"), _read_label_last, "optdigits", (5620, 64), 10, 3823
    ),
    "isolet": Source(
        ("isolet1+2+3+4.data", "isolet5.data"), _read_label_last, "isolet", (7797, 617), 26, 6238
    ),
    # Pooled and cross-validated in the paper: 7291 + 2007 rows.
    "usps": Source(("zip.train", "zip.test"), _read_usps, "USPS", (9298, 256), 10, None, 2),
    "mnist": Source(
        (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        ),
        _read_mnist,
        "mnist_784",
        (70000, 784),
        10,
        60000,
    ),
}
NAMES = ("digits", *SOURCES)
