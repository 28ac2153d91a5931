"""A table as people have it, read with a report of what was understood.

DuckDB parses, charset-normalizer guesses encodings, Python's csv finds the dialect; what is decided
here is which of their answers to believe, and when to ask.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.install import as_pandas
from plml.preprocessing.columns import listed, pandas
from plml.preprocessing.text_numbers import Marks, with_numbers
from plml.tables.dialects import Dialect, dialect_of, lines_of_rows, shown
from plml.tables.parsing import parsed
from plml.tables.text_encoding import as_utf8, encoding_of
from plml.tables.unpacking import is_workbook, unpacked
from plml.tables.workbooks import sheet_of

if TYPE_CHECKING:
    import pandas as pd

_NAMED_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "space": " "}
#: How other kinds of files begin, and what to do with them.
_OTHER_KINDS = {
    rb"<[!?a-zA-Z]": "it is a web page or XML; save it as CSV",
    rb"\{|\[\s*[\[{]": "it is JSON; save it as CSV",
    rb"%PDF": "it is a PDF file; save its table as CSV",
    rb"\xd0\xcf\x11\xe0": "it is a workbook of the old Excel; save it as .xlsx",
    rb"7z\xbc\xaf|Rar!|\x1f\x9d|\x04\x22\x4d\x18|\x5d\0\0": "it is an archive; unpack it",
    rb"\x89PNG|\xff\xd8\xff|GIF8": "it is a picture; save its table as CSV",
    rb"version https://git-lfs": "it stands for a file of Git LFS; fetch that by git lfs pull",
    rb"ARROW1|FEA1": "it is an Arrow file; save it as Parquet",
    rb"\x1f\x8b|\x28\xb5\x2f\xfd|BZh|\xfd7zXZ|PK\x03": "it is an archive in an archive; unpack it",
    rb"SQLite format": "it is a database; save the table as CSV",
    rb"(%[^\n]*\n\s*)*(?i:@relation)\s": (
        "it is ARFF of Weka: put the names of its attributes in one line, with commas, in the "
        "place of all above the data"
    ),
    rb"(?=[^\n]*:(\d?[^\d\s]|\d\s|\d{3}))"  # not times of day
    rb"[-+]?\d[\d.]*(,\d+)*([ \t]+\d+:[-+\d.eE]+)+[ \t]*\r?\n": (
        "it is a sparse matrix (svmlight); write its rows with names of columns, as CSV"
    ),
    rb"(?s).{257}ustar": "it is an archive of several files (tar); unpack the one to read",
    rb"\x89HDF|\x93NUMPY|\x80[\x02-\x05]|RDX|\$FL[23]": "it is no table of text; save it as CSV",
}
#: Bytes that tell a kind, below the remarks at its top.
_START = 8192


@dataclass(frozen=True)
class ReadOptions:
    """What is known about a file; None is inferred.

    Attributes
    ----------
    sep, quote, encoding : separator, quotation mark and encoding of a text file
    decimal, thousands : marks in numbers
    na : texts and numbers that stand for a missing value, instead of those that are known
    header : whether the first line has the names of the columns
    sheet : sheet of a workbook; by default the first

    Examples
    --------
    >>> from pathlib import Path
    >>> from plml import read_table
    >>> text = "size;kind" + chr(10) + "1,5;a" + chr(10) + "k. A.;b" + chr(10)
    >>> _ = Path("parts.csv").write_text(text)
    >>> table, _ = read_table("parts.csv", decimal=",", na=("k. A.",))
    >>> table["size"].tolist()
    [1.5, nan]
    """

    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    quote: str | None = None
    na: tuple[str, ...] | None = None
    header: bool | None = None
    sheet: str | None = None


@dataclass
class Understood:
    """How a file was understood.

    Attributes
    ----------
    source : name of the file
    format, compression, encoding, separator, quote, header : properties of the file
    skipped : lines before the header that were left out
    marks : the marks in numbers, and those for missing values
    notes : whatever else a reader has to know

    Examples
    --------
    >>> from pathlib import Path
    >>> from plml import read_table
    >>> text = "size;kind" + chr(10) + "1,5;a" + chr(10) + "2,5;b" + chr(10)
    >>> _ = Path("parts.csv").write_text(text)
    >>> _, understood = read_table("parts.csv")
    >>> understood.separator, understood.marks.decimal
    (';', ',')
    """

    source: str
    format: str = "data frame"
    compression: str | None = None
    encoding: str | None = None
    separator: str | None = None
    quote: str | None = None
    header: bool = True
    skipped: int = 0
    marks: Marks = field(default_factory=Marks)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        plain = {part.name: getattr(self, part.name) for part in fields(self)}
        return {**plain, "marks": self.marks.as_dict()}

    def of_file(self) -> str:
        """What was understood of the file as a whole."""
        parts = [self.format]
        if self.compression:
            parts.append(self.compression)
        if self.encoding:
            parts.append(self.encoding)
        if self.separator:
            parts.append(f"separator {shown(self.separator)}")
        if self.quote:
            parts.append(f"quotes {self.quote}")
        if not self.header:
            parts.append("no header")
        if self.skipped:
            parts.append(f"{self.skipped} lines before the header left out")
        lines = [f"{self.source}: {', '.join(parts + self.marks.in_words())}"]
        return "\n".join(lines + [f"  {note}" for note in self.notes])

    def __str__(self) -> str:
        return "\n".join([self.of_file(), *(f"  {note}" for note in self.marks.notes())])


#: Files that hold numbers, but no table, by the ends of their names.
_MATRICES = {
    ".npz": "an archive of NumPy, perhaps of a sparse matrix",
    ".npy": "an array of NumPy",
    ".mtx": "a sparse matrix (Matrix Market)",
    ".svm": "a sparse matrix (svmlight)",
    ".svmlight": "a sparse matrix (svmlight)",
    ".libsvm": "a sparse matrix (svmlight)",
}


def read_table(source: Any, **options: Any) -> tuple["pd.DataFrame", Understood]:
    """Read a table, and report how it was understood: CSV, TSV, Parquet, Excel, or a data frame.

    Text files may be compressed (gz, zip, zst, bz2, xz) and in any encoding. If something
    cannot be decided, a ``ValueError`` names the option to set.

    Parameters
    ----------
    source : path, or pandas or Polars data frame
    options : ``sep``, ``decimal``, ``thousands``, ``encoding``, ``quote``, ``na``, ``header``,
        ``sheet``; see ``ReadOptions``

    Returns
    -------
    table : data frame
        With numbers in place of texts such as ``33.6 kg``.
    understood : Understood
        How the file was read; printing it shows it.

    See Also
    --------
    describe : What the columns of a table are.
    plml.tables.fit : Learn from a table.

    Examples
    --------
    >>> import pandas as pd
    >>> from plml import read_table
    >>> table, understood = read_table(pd.DataFrame({"weight": ["33.6 kg", "70.1 kg"]}))
    >>> table["weight"].tolist()
    [33.6, 70.1]
    >>> print(understood)
    data frame: data frame
      column 'weight' is numbers in 'kg'
    """
    known = _checked(options)
    if hasattr(source, "columns"):
        understood = Understood("data frame")
        return _finished(_flat(as_pandas(source), understood), understood, known, _row), understood
    path = Path(source)
    _check_is_file(path)
    if path.suffix.lower() == ".skops":
        raise ValueError(f"{path} is a model, not a table; plml predict and others use it")
    _check_is_no_matrix(path)
    understood = Understood(path.name)
    try:
        with TemporaryDirectory() as folder:
            return _read(path, Path(folder), understood, known), understood
    except Exception as error:  # whatever a damaged file leads its parser to
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path} cannot be read as a table: {first[0]}") from error


def _check_is_no_matrix(path: Path) -> None:
    """Refuse files of matrices, dense or sparse, by their names."""
    kind = _MATRICES.get(path.suffix.lower())
    if kind is None:
        return
    raise ValueError(
        f"{path} is {kind}, and a table with names is needed: write its rows (toarray() of sparse "
        "ones) with names of columns, as CSV or Parquet"
    )


def _checked(options: dict[str, Any]) -> ReadOptions:
    allowed = [part.name for part in fields(ReadOptions)]
    strange = [name for name in options if name not in allowed]
    if strange:
        raise ValueError(f"read_table has no option {strange[0]!r}; it has {listed(allowed)}")
    for name in ("sep", "decimal", "thousands", "quote"):
        value = options.get(name)
        value = _NAMED_SEPARATORS.get(str(value), value) if name == "sep" else value
        if value is not None and len(value) != 1:
            raise ValueError(f"--{name} must be one character, got {value!r}")
        options = {**options, name: value}
    if options.get("thousands") in (".", ",") and not options.get("decimal"):
        options["decimal"] = "," if options["thousands"] == "." else "."
    if options.get("decimal") and options["decimal"] == options.get("thousands"):
        raise ValueError(f"--decimal and --thousands are both {options['decimal']!r}")
    if options.get("na") is not None:
        options = {**options, "na": tuple(mark.strip() for mark in options["na"])}
    if options.get("encoding"):
        try:
            "".encode(options["encoding"])
        except LookupError:
            raise ValueError(f"--encoding {options['encoding']} is not known to Python") from None
    return ReadOptions(**options)


def _check_is_file(path: Path) -> None:
    if path.is_file():
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a table")
    if path.exists():
        raise ValueError(f"{path} is a pipe or a device; a table has to be in a file")
    raise ValueError(f"there is no file {path}")


def _read(path: Path, folder: Path, understood: Understood, known: ReadOptions) -> "pd.DataFrame":
    plain, understood.compression = unpacked(path, folder)
    start = _start(plain)
    if start.startswith(b"PAR1"):
        understood.format = "Parquet"
        return _finished(_parquet(plain, understood), understood, known, _row)
    if start.startswith(b"PK") and is_workbook(plain):
        understood.format = "Excel"
        return _sheet(plain, understood, known)
    _check_kind(start)
    understood.format = "text"
    understood.encoding, note = encoding_of(plain, known.encoding)
    if path.suffix.lower() in (".parquet", ".pq", ".xlsx", ".xlsm"):
        note = note or f"it is text, although its name ends in {path.suffix}"
    understood.notes.extend([note] if note else [])
    text = folder / "text"  # a name without meaning for DuckDB
    if understood.encoding == "utf-8":
        text.symlink_to(plain.resolve())
    else:
        as_utf8(plain, text, understood.encoding)
        _check_kind(_start(text))
    return _text_table(text, understood, known)


def _sheet(path: Path, understood: Understood, known: ReadOptions) -> "pd.DataFrame":
    """The table of a workbook; where it is none, the sheets that may have one are named."""
    try:
        table, above = sheet_of(path, understood.notes, known.sheet, known.header)
        understood.header, understood.skipped = known.header is not False, above
        return _finished(table, understood, known, lambda row: f"row {row + above + 2}")
    except ValueError as error:
        sheets = "".join(f"; {note}" for note in understood.notes if "--sheet" in note)
        raise ValueError(f"{error}{sheets}") from error


def _start(path: Path) -> bytes:
    """The first bytes of a file, but for a mark and spaces."""
    with path.open("rb") as stream:
        return stream.read(_START).removeprefix(codecs.BOM_UTF8).lstrip()


def _check_kind(start: bytes) -> None:
    """Refuse what is no text or no table, by how it begins."""
    for pattern, reason in _OTHER_KINDS.items():
        if re.match(pattern, start):
            raise ValueError(reason)


def _parquet(path: Path, understood: Understood) -> "pd.DataFrame":
    try:
        table = pandas().read_parquet(path)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"it is a Parquet file that is damaged ({reason}); get it anew, or save it as CSV"
        ) from error
    return _flat(table, understood)


def _flat(table: "pd.DataFrame", understood: Understood) -> "pd.DataFrame":
    """A copy with one name per column and rows that are numbered."""
    named = [str(name) for name in table.index.names if name is not None]
    if named:
        understood.notes.append(f"the index {listed(named)} is no column, so it is left out")
    flat = table.reset_index(drop=True)
    if flat.columns.nlevels > 1:
        flat.columns = ["_".join(str(part) for part in name if part != "") for name in flat]
        understood.notes.append("names of several levels are joined by '_'")
    return flat


def _text_table(path: Path, understood: Understood, known: ReadOptions) -> "pd.DataFrame":
    dialect = dialect_of(path, known.sep, known.quote, known.header)
    understood.separator, understood.skipped = dialect.sep, dialect.skipped
    understood.header, understood.quote = bool(dialect.names), dialect.quote
    names = _names(dialect, understood)
    table, marks = parsed(path, dialect, Marks(known.decimal))
    table.columns = names
    pointed = dict(zip((f"column{number}" for number in range(len(names))), names, strict=True))
    understood.notes.extend(
        f"column {pointed[number]!r}: {words}" for number, words in marks.suspects.items()
    )

    def where(row: int) -> str:
        return f"line {next(islice(lines_of_rows(path, dialect), row, None))}"

    return _finished(table, understood, replace(known, decimal=marks.decimal), where)


def _names(dialect: Dialect, understood: Understood) -> list[str]:
    if not dialect.names:
        understood.notes.append(
            f"line {dialect.start} is read as data, not as names, so the columns are called "
            "column0 and so on; else give --header"
        )
        return [f"column{number}" for number in range(dialect.n_columns)]
    names = [" ".join(name.split()) for name in dialect.names]
    strange = [name for name in names if not name.isprintable()]
    if strange:
        raise ValueError(f"the header has a name that cannot be printed: {strange[0]!r}")
    given = set(names)

    def nameless(number: int) -> str:  # as pandas does where its own names were saved
        return f"Unnamed: {number}" + ".1" * (f"Unnamed: {number}" in given)

    return [name or nameless(number) for number, name in enumerate(names)]


def _row(number: int) -> str:
    return f"row {number}"


def _finished(
    table: "pd.DataFrame",
    understood: Understood,
    known: ReadOptions,
    where: Callable[[int], str],
) -> "pd.DataFrame":
    """With numbers and missing values for the texts that stand for them."""
    table.columns = [str(column) for column in table.columns]
    repeated = table.columns[table.columns.duplicated()].tolist()
    if repeated:
        raise ValueError(f"it has columns of the same name: {listed(repeated)}; rename one")
    empty = [n for n in table if n.startswith("Unnamed: ") and table[n].isna().all()]
    table = _of_plain_values(table.drop(columns=empty))  # a separator at the end of each line
    unnamed = [n for n in table if n.startswith("Unnamed: ")]
    understood.notes.extend(f"column {n!r} has no name in the header" for n in unnamed)
    given = Marks(known.decimal, known.thousands, known.na)
    if len(table):
        table, understood.marks = with_numbers(table, given, where)
    lost = table.isna().all(axis=1) if table.shape[1] > 1 else None
    if lost is not None and lost.any():
        understood.notes.append(f"{int(lost.sum())} rows without any value are left out")
        table = table[~lost].reset_index(drop=True)
    if not len(table) or not table.shape[1]:
        raise ValueError("it has no rows")
    return table


def _of_plain_values(table: "pd.DataFrame") -> "pd.DataFrame":
    """With floats for decimals and halves, moments for dates and periods, texts for times of day.

    What stands among texts becomes text; numbers among them are seen to later.
    """
    changed: dict[str, Any] = {}
    for name in table:
        values = table[name]
        if isinstance(values.dtype, pandas().PeriodDtype):
            changed[name] = values.dt.to_timestamp()
        elif values.dtype == np.float16:
            changed[name] = values.astype(float)
        elif values.dtype == object:
            kinds = set(values.dropna().map(type))
            if kinds == {Decimal}:
                changed[name] = values.map(float, na_action="ignore").astype(float)
            elif kinds == {date}:
                changed[name] = pandas().to_datetime(values)
            elif kinds == {time} or (len(kinds) > 1 and kinds <= {str, time, datetime, bool}):
                changed[name] = values.map(str, na_action="ignore")
    return table.assign(**changed)
