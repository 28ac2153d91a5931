"""The rows of a text file, as DuckDB cuts them: numbers as floats, all else as texts.

The file is read twice, to tell the kinds of the columns and to fill them, so that nothing but the
numbers themselves stays in memory (``python benchmarks/million_rows.py``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plml.backend.progress import plan, stage
from plml.install import install
from plml.preprocessing.columns import pandas
from plml.preprocessing.text_numbers import Marks
from plml.tables.dialects import Dialect, misfit, rewritten, without_top

if TYPE_CHECKING:
    import pandas as pd

_LOOKING, _FILLING = "telling the kinds of the columns", "reading the rows"
#: Bytes that DuckDB reads at once, blocks of 2048 rows that it hands over, and rows that tell the
#: decimal mark.
_BUFFER, _BLOCKS, _FIRST_ROWS = 2**22, 16, 10_000
#: For DuckDB: a number that loses no digit as a float, unlike 01234; and a whole one. D stands for
#: the decimal mark.
_FLOAT = r"[-+]?((0|[1-9]\d{0,14})([D]\d*)?|[D]\d+)([eE][-+]?\d{1,3})?"
_NUMBER = rf"\s*({_FLOAT}|[-+]?(inf|Inf|Infinity))?\s*"
_WHOLE = r"[-+]?\d+"


def parsed(path: Path, dialect: Dialect, given: Marks) -> tuple["pd.DataFrame", Marks]:
    """The rows, with numbers in the columns that are all numbers, and the marks in these.

    Parameters
    ----------
    path : file in UTF-8, in a folder for copies of it
    dialect : of it
    given : marks that are known
    """
    plan({_LOOKING: 2, _FILLING: 3})
    with _duckdb() as database:
        rows = _rows(database, path, dialect)
        marks = given if given.decimal else Marks.of(rows.texts(_FIRST_ROWS))
        table = rows.table(marks.decimal or ".")
        if marks.decimal is None and Marks.of(table).decimal == ",":  # told by a later row
            return rows.table(","), Marks(",")
    return table, marks


class _Kind(NamedTuple):
    """What a column is for DuckDB."""

    number: bool
    whole: bool


class _Rows:
    """The rows of a file, to be asked for by DuckDB."""

    def __init__(self, database: Any, path: Path, dialect: Dialect, skip: int) -> None:
        self._database = database
        self._names = [f"column{number}" for number in range(dialect.n_columns)]
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in self._names)
        how = (
            f"header = false, auto_detect = false, buffer_size = {_BUFFER}, columns = {{{columns}}}"
        )
        self._source = f"read_csv(?, delim = ?, quote = ?, escape = ?, skip = ?, {how})"
        self._given = [str(path), dialect.sep, dialect.quote, dialect.escape, skip]
        self.count = self._select("count(*)").fetchone()[0]

    def texts(self, most: int) -> "pd.DataFrame":
        """The first rows, nothing taken for a number."""
        return self._select(", ".join(map(_text, self._names)), f"LIMIT {most}").df()

    def table(self, decimal: str) -> "pd.DataFrame":
        """All rows, with numbers where a whole column is written as such."""
        kinds = self._kinds(decimal)
        columns: dict[str, Any] = {
            name: np.empty(self.count) if kind.number else [] for name, kind in kinds.items()
        }
        casts = [_number(n, decimal) if kind.number else _text(n) for n, kind in kinds.items()]
        done = 0
        with stage(_FILLING, named=False) as progress:
            found = self._select(", ".join(casts))
            while len(part := found.fetch_df_chunk(_BLOCKS)):
                for name, column in columns.items():
                    if isinstance(column, list):
                        column.append(part[name])
                    else:
                        column[done : done + len(part)] = part[name]
                done += len(part)
                progress.report(f"{done} of {self.count} rows", done / self.count)
        return _frame(columns, kinds)

    def _kinds(self, decimal: str) -> dict[str, _Kind]:
        number, tests = _NUMBER.replace("D", decimal), []
        for name in self._names:
            is_whole = f"regexp_full_match(trim({name}), '{_WHOLE}')"
            tests.append(f"bool_and(regexp_full_match({name}, '{number}')) AND count({name}) > 0")
            tests.append(
                f"bool_and(CASE WHEN contains({name}, '{decimal}') THEN false ELSE {is_whole} END)"
            )
        with stage(_LOOKING, named=False) as progress:
            progress.report(f"{self.count} rows", 0.0)
            found = self._select(", ".join(tests)).fetchone()
        pairs = zip(self._names, found[::2], found[1::2], strict=True)
        return {name: _Kind(bool(number), bool(whole)) for name, number, whole in pairs}

    def _select(self, what: str, more: str = "") -> Any:
        return self._database.execute(f"SELECT {what} FROM {self._source} {more}", self._given)


def _rows(database: Any, path: Path, dialect: Dialect) -> _Rows:
    """The rows of a file; what DuckDB refuses and ``csv`` does not is written anew.

    DuckDB counts a line break within quotes as none where lines are left out, so it is asked to
    leave out one line and no more.
    """
    copy = path.with_name("copy")
    try:
        if dialect.sep == " ":
            raise ValueError("DuckDB knows no runs of spaces")
        if dialect.start <= 2:
            return _Rows(database, path, dialect, dialect.start - 1)
        without_top(path, copy, dialect)
        return _Rows(database, copy, dialect, 0)
    except Exception:  # DuckDB has many
        if reason := misfit(path, dialect):
            raise ValueError(reason) from None
    rewritten(path, copy, dialect)
    plain = Dialect(",", n_columns=dialect.n_columns)
    return _Rows(database, copy, plain, 0)


def _text(name: str) -> str:
    """For DuckDB: a text without spaces around it."""
    return f"nullif(trim({name}), '') AS {name}"


def _number(name: str, decimal: str) -> str:
    return f"CAST(nullif(trim(replace({name}, '{decimal}', '.')), '') AS DOUBLE) AS {name}"


def _frame(columns: dict[str, Any], kinds: dict[str, _Kind]) -> "pd.DataFrame":
    """A data frame that takes the columns as they are."""
    for name in list(columns):
        if isinstance(columns[name], list):
            parts = columns[name]
            columns[name] = pandas().concat(parts, ignore_index=True) if parts else []
        elif kinds[name].whole and not np.isnan(columns[name]).any():
            columns[name] = columns[name].astype(np.int64)
    return pandas().DataFrame(columns, copy=False)


@contextmanager
def _duckdb() -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise ValueError(f"text files need DuckDB: {install('cli')}") from None
    with duckdb.connect(config={"threads": 1}) as database:
        yield database
