"""The public tables with fixed folds that ordinary use is judged on (KEEL, see docs/data.md)."""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np


class FoldedTable(NamedTuple):
    """A table of numbers and the fold in which each row is a test row."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,) labels as they are written
    folds: np.ndarray  # (n,), from 1


def names(folder: Path) -> list[str]:
    """The tables of a folder."""
    found = sorted(path.name.removesuffix(".csv.gz") for path in folder.glob("*.csv.gz"))
    if not found:
        raise ValueError(f"{folder} holds no tables (.csv.gz)")
    return found


def read(folder: Path, name: str) -> FoldedTable:
    """One table; its rows are ``feature,...,label;fold``, compressed, without a header.

    Parameters
    ----------
    folder : Path
        With files ``name.csv.gz``.
    name : str
        Of the table.

    Returns
    -------
    FoldedTable
        ``X``, ``y`` and ``folds``, the fold in which each row is a test row.

    Examples
    --------
    >>> import gzip
    >>> from pathlib import Path
    >>> from plml_study import tables
    >>> with gzip.open("tiny.csv.gz", "wt") as stream:
    ...     print("1.5,2.0,yes;1", "2.5,0.5,no;2", sep=chr(10), file=stream)
    >>> tables.read(Path(), "tiny").folds
    array([1, 2])
    """
    with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8") as stream:
        rows = [line.strip().rpartition(";") for line in stream if line.strip()]
    cells = [row.split(",") for row, _, _ in rows]
    return FoldedTable(
        np.array([[float(cell) for cell in row[:-1]] for row in cells]),
        np.array([row[-1] for row in cells]),
        np.array([int(fold) for _, _, fold in rows]),
    )
