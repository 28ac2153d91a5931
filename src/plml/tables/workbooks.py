"""A sheet of an Excel workbook: which one, and where its table begins."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from plml.install import install
from plml.preprocessing.columns import listed, pandas
from plml.tables.dialects import Record, counts_up, refuse_second_names

if TYPE_CHECKING:
    import pandas as pd

#: Rows that are looked at, above the table and below its names.
_TOP = 30
#: Rows of a sheet, at most, and how a row beyond them is told.
_MOST_ROWS = 1_048_576
_LONG_NUMBER = re.compile(rb"""\br\s*=\s*["'][A-Z]*([1-9]\d{6,})""")
#: Bytes that are searched at once, and those of the last block that are searched again.
_BLOCK, _OVERLAP = 1 << 20, 64
#: For pandas: a text of digits is no number, and NA is a text.
_AS_THEY_ARE: dict[str, Any] = {"dtype": object, "keep_default_na": False, "na_values": [""]}


def sheet_of(
    path: Path, notes: list[str], sheet: str | None, header: bool | None
) -> tuple["pd.DataFrame", int]:
    """The table of a sheet, and how many rows above it were left out.

    Parameters
    ----------
    path : workbook
    notes : what a reader has to know is added
    sheet : name; by default the first
    header : whether there are names above the columns; None asks where they may be values
    """
    _check_row_numbers(path)
    with _opened(path) as book:
        chosen = _chosen(book.sheet_names, sheet, notes)
        cells = pandas().read_excel(book, sheet_name=chosen, header=None, **_AS_THEY_ARE)
    above = _rows_above(cells.head(_TOP))
    if header is False:
        table = cells[above:].reset_index(drop=True).infer_objects()
        return table.set_axis([f"column{n}" for n in range(table.shape[1])], axis=1), above
    table = cells[above + 1 :].reset_index(drop=True).infer_objects()
    if len(cells):
        top = table.head(_TOP).astype(object).where(table.head(_TOP).notna(), "")
        rows = enumerate(top.astype(str).to_numpy().tolist(), above + 2)
        refuse_second_names([Record(number, number, row) for number, row in rows], "row")
        table.columns = _names(cells.iloc[above], above + 1, table, header)
    return table, above


def _opened(path: Path) -> Any:
    try:
        return pandas().ExcelFile(path, engine="openpyxl")
    except ImportError:
        raise ValueError(f"workbooks need openpyxl: {install('cli')}") from None


def _check_row_numbers(path: Path) -> None:
    """Refuse a row beyond the last one that workbooks have: all before it would be made."""
    with ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.startswith("xl/worksheets/"):
                continue
            with archive.open(name) as stream:
                before = b""
                while block := stream.read(_BLOCK):
                    for number in _LONG_NUMBER.findall(before + block):
                        if len(number) > 7 or int(number) > _MOST_ROWS:
                            raise ValueError(
                                f"its file is damaged: it names a row beyond {_MOST_ROWS}; save it "
                                "again, or as CSV"
                            )
                    before = block[-_OVERLAP:]


def _chosen(names: list[str], sheet: str | None, notes: list[str]) -> str:
    if sheet is not None and sheet not in names:
        raise ValueError(f"it has no sheet {sheet!r}; it has {listed(names)}")
    others = [name for name in names if name != (sheet or names[0])]
    if others and sheet is None:
        notes.append(f"the first sheet {names[0]!r} is read, not {listed(others)}; else --sheet")
    return sheet or names[0]


def _rows_above(top: "pd.DataFrame") -> int:
    """Rows with one cell at most, above rows with more."""
    filled = top.notna().sum(axis=1).tolist()
    above = next((row for row, count in enumerate(filled) if count > 1), 0)
    widest = max(filled, default=0)
    if filled and filled[above] < widest - 1:
        raise ValueError(
            f"row {above + 1} of its sheet has {filled[above]} names for {widest} columns; take "
            "away what is above the table, or name the columns"
        )
    return above


def _names(row: Any, number: int, table: "pd.DataFrame", header: bool | None) -> list[str]:
    """Names as they are written; refuses values among them."""
    values = [
        cell
        for cell, column in zip(row, table.columns, strict=True)
        if isinstance(cell, int | float) and cell == cell and table[column].dtype.kind in "if"
    ]
    if values and header is None and not counts_up([str(cell) for cell in row if cell == cell]):
        raise ValueError(
            f"row {number} may hold names or values ({values[0]!r}); give --header or --no-header"
        )
    named = [None if cell != cell else " ".join(str(cell).split()) for cell in row]
    return [name or f"Unnamed: {place}" for place, name in enumerate(named)]
