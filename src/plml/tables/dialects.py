"""The dialect of a text file: the separator, quotes and header that explain its first lines.

Python's ``csv`` cuts lines into fields, and what is decided here is which separator makes the most
of them alike. DuckDB's ``sniff_csv`` is not asked: one row that is too short, or a line below the
table, and it reads one column with ``|``; it drops a header that does not fit, opens no run of
spaces, and reads on after a quote that is never closed (``python benchmarks/readers.py``).
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from shutil import copyfileobj
from typing import NamedTuple

from plml.preprocessing.text_numbers import kind_of

_SEPARATORS = (",", ";", "\t", "|")
#: Characters of the first lines that are looked at, and lines before the header that may be
#: left out.
_SAMPLE = 2**18
_MOST_SKIPPED = 30
#: Share of the lines that a separator makes alike, and how close to the best another may come.
_ALIKE, _AS_GOOD = 0.5, 0.95
#: Rows that are looked at to tell names from values.
_ROWS = 200
_YEAR = re.compile(r"(1[89]|20)\d\d")
#: A number with a decimal comma, where it is no list of whole ones.
_DECIMAL_COMMA = re.compile(r"[^,]*\d,\d+[^,.\d]*")
#: Below the header of a table in Markdown.
_RULE = re.compile(":?-+:?|=+|")
#: A header of one column that holds more than words was hardly meant to be one.
_ONE_NAME = re.compile(r"[\w.%()\"'-]+( [\w.%()\"'-]+)*")


class Record(NamedTuple):
    """The fields between two line ends, with the first and the last line that they stand on."""

    line: int
    last: int
    fields: list[str]


@dataclass(frozen=True)
class Dialect:
    """How a text is cut into rows and fields.

    Attributes
    ----------
    sep, quote, escape : marks; a space as separator stands for any number of them
    names : of the columns, as they are written; empty where there is no header
    skipped : lines before the header
    start : line of the first row
    n_columns : fields of a row
    """

    sep: str
    quote: str = '"'
    escape: str = '"'
    names: tuple[str, ...] = ()
    skipped: int = 0
    start: int = 1
    n_columns: int = 1

    def records(self, lines: Iterable[str]) -> Iterator[Record]:
        """The fields of lines, those without any left out; a ``csv.Error`` for an open quote."""
        if self.sep == " ":
            lines = (line.replace("\t", " ").strip() + "\n" for line in lines)
        backslash = self.escape == "\\"
        reader = csv.reader(
            lines,
            delimiter=self.sep,
            quotechar=self.quote,
            doublequote=not backslash,
            escapechar="\\" if backslash else None,
            skipinitialspace=True,
            strict=True,
        )
        last = 0
        for found in reader:
            if len(found) > 1 or "".join(found).strip():
                yield Record(last + 1, reader.line_num, found)
            last = reader.line_num


def dialect_of(
    path: Path, sep: str | None = None, quote: str | None = None, header: bool | None = None
) -> Dialect:
    """The dialect that explains the first lines of a text file; asks where two would do.

    Parameters
    ----------
    path : file in UTF-8
    sep, quote, header : where they are known
    """
    lines, whole = _first_lines(path)
    if not any(line.strip() for line in lines):
        raise ValueError("it is empty")
    if sep is None and (told := re.fullmatch(r"sep=(.)\s*", lines[0], re.I)):  # as Excel reads it
        sep = told[1]
    tried = (sep,) if sep else _SEPARATORS
    found = [c for one in tried if (c := _candidate(lines, one, quote, whole)) is not None]
    if sep is None and all(one.first > 0 for one in found):
        spaced = _candidate(lines, " ", quote, whole)
        if spaced is not None and (not found or _names_numbers(spaced)):
            found = [spaced]
    if any(one.dialect.sep != "," and _has_decimal_commas(one) for one in found):
        found = [one for one in found if one.dialect.sep != ","]
    if not found:
        return _one_column(lines, sep, quote, header)
    found.sort(key=lambda one: (one.first > 0, -one.alike, -one.width))
    best, *others = found
    for rival in others:
        if (rival.first > 0) == (best.first > 0) and rival.alike >= _AS_GOOD * best.alike:
            raise ValueError(
                f"line {best.records[best.first].line} has {best.width} columns with "
                f"{shown(best.dialect.sep)} between them and {rival.width} with "
                f"{shown(rival.dialect.sep)}; give --sep"
            )
    return _with_header(best, header)


def misfit(path: Path, dialect: Dialect) -> str:
    """What is wrong with the first row that does not have as many fields as the others; or "".

    Parameters
    ----------
    path : file in UTF-8
    dialect : of it
    """
    last = dialect.start - 1
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for record in dialect.records(islice(stream, last, None)):
                line, n_fields = dialect.start - 1 + record.line, len(record.fields)
                if n_fields != dialect.n_columns:
                    few = "more" if n_fields > dialect.n_columns else f"{n_fields}, fewer"
                    return (
                        f"line {line} has {few} fields than the others, which have "
                        f"{dialect.n_columns} with {shown(dialect.sep)} between them; correct it, "
                        "take it away, or give --sep"
                    )
                last = dialect.start - 1 + record.last
    except csv.Error as error:
        return _unreadable(last + 1, error)
    return ""


def lines_of_rows(path: Path, dialect: Dialect) -> Iterator[int]:
    """The line of the file that each row begins on.

    Parameters
    ----------
    path, dialect : as in ``misfit``
    """
    with path.open(encoding="utf-8-sig") as stream:
        for record in dialect.records(islice(stream, dialect.start - 1, None)):
            yield dialect.start - 1 + record.line


def rewritten(path: Path, copy: Path, dialect: Dialect) -> None:
    """Write the rows once more, without names, with commas, double quotes and one kind of line end.

    Parameters
    ----------
    path, dialect : as in ``misfit``
    copy : file to write
    """
    with (
        path.open(encoding="utf-8-sig") as stream,
        copy.open("w", encoding="utf-8", newline="") as target,
    ):
        rows = csv.writer(target, lineterminator="\n")
        for record in dialect.records(islice(stream, dialect.start - 1, None)):
            rows.writerow(record.fields)


def without_top(path: Path, copy: Path, dialect: Dialect) -> None:
    """Write the file once more, from its first row on.

    Parameters
    ----------
    path, copy, dialect : as in ``rewritten``
    """
    with path.open(encoding="utf-8", newline="") as lines:
        top = sum(len(line.encode()) for line in islice(lines, dialect.start - 1))
    with path.open("rb") as source, copy.open("wb") as target:
        source.seek(top)
        copyfileobj(source, target, 2**20)


def shown(mark: str) -> str:
    """A mark in words."""
    return {"\t": "tab", " ": "space"}.get(mark, f"'{mark}'")


class _Candidate(NamedTuple):
    dialect: Dialect
    records: list[Record]
    width: int  # that most records have
    first: int  # number of the first of these
    alike: float  # share of them


def _first_lines(path: Path) -> tuple[list[str], bool]:
    """Whole lines from the beginning of a file, and whether these are all."""
    with path.open(encoding="utf-8-sig") as stream:
        lines = stream.readlines(_SAMPLE)
        whole = not stream.read(1)
    nulls = next((number for number, line in enumerate(lines, 1) if "\0" in line), 0)
    if nulls:
        raise ValueError(f"line {nulls} has a null character; it is damaged, or give --encoding")
    return lines, whole


class _Cut(NamedTuple):
    """The lines as a dialect cuts them, up to an error; most records have the same width."""

    dialect: Dialect
    records: list[Record]
    width: int
    n_alike: int
    error: csv.Error | None


def _cut(lines: list[str], dialect: Dialect) -> _Cut:
    records: list[Record] = []
    error = None
    try:
        records.extend(dialect.records(lines))
    except csv.Error as reason:
        error = reason
    widths = Counter(len(record.fields) for record in reversed(records))
    ((width, count),) = widths.most_common(1) or [(0, 0)]
    return _Cut(dialect, records, width, count, error)


def _candidate(lines: list[str], sep: str, quote: str | None, whole: bool) -> _Candidate | None:
    """What a separator makes of the lines, with the quotes that make most of them alike.

    None where they have nothing in common.
    """
    cuts = [_cut(lines, dialect) for dialect in _dialects(sep, quote, "".join(lines))]
    best = max(cuts, key=lambda cut: (cut.n_alike, -len(cut.records), cut.error is None))
    records = best.records
    if best.error is not None and whole and len(records) and len(records[-1].fields) > 1:
        raise ValueError(_unreadable(records[-1].last + 1, best.error))  # no end of the sample
    if best.width < 2 or best.n_alike < _ALIKE * len(records):
        return None
    first = next(i for i, record in enumerate(records) if len(record.fields) == best.width)
    return _Candidate(best.dialect, records, best.width, first, best.n_alike / len(records))


def _dialects(sep: str, quote: str | None, text: str) -> Iterator[Dialect]:
    """Quotes that a text may have, likely ones first, and what may escape them."""
    quotes = [quote] if quote else ['"']
    if quote is None and _is_quote("'", sep, text):
        quotes.insert(int(_is_quote('"', sep, text)), "'")
    for mark in quotes:
        yield Dialect(sep, mark, mark)
        if f"\\{mark}" in text:
            yield Dialect(sep, mark, "\\")


def _has_decimal_commas(found: _Candidate) -> bool:
    """Whether commas are decimal marks in all fields that have one, and some do."""
    fields = [field for record in found.records[found.first :] for field in record.fields]
    commas = [field for field in fields if "," in field]
    return bool(commas) and all(_DECIMAL_COMMA.fullmatch(field) for field in commas)


def _is_quote(mark: str, sep: str, text: str) -> bool:
    """Whether fields begin and end with a mark."""
    edge = rf"(?:^|{re.escape(sep)}|$)"
    return len(re.findall(rf"{edge} ?{mark}[^{mark}\n]*{mark}(?={edge})", text, re.M)) > 1


def _unreadable(line: int, error: csv.Error) -> str:
    """What ``csv`` means."""
    what = "a quote that is not closed"
    if "expected after" in str(error):
        what = "something between a quote and the next separator"
    elif "limit" in str(error):
        what = f"a field of more than {csv.field_size_limit()} characters, or an open quote"
    return f"line {line} has {what}; correct it, or give --quote"


def _with_header(found: _Candidate, header: bool | None) -> Dialect:
    """The dialect with the names, which no data must be taken for."""
    before, top = found.records[: found.first], found.records[found.first]
    below = [r for r in found.records[found.first + 1 :][:_ROWS] if len(r.fields) == found.width]
    while len(below) > 2 and _n_filled(top) < 2 < found.width:  # the title of a spreadsheet
        before, top, below = [*before, top], below[0], below[1:]
    if header is not False and (n_above := _n_above(top, below)):
        before, top, below = (
            [*before, top, *below[: n_above - 1]],
            below[n_above - 1],
            below[n_above:],
        )
    rows = [record.fields for record in below]
    if before and (names := _ending_in_a_separator(before[-1], [top.fields, *rows])):
        before, top, below = before[:-1], Record(*before[-1][:2], names), [top, *below]
        rows = [record.fields for record in below]
    if rows and any(rows[0]) and all(_RULE.fullmatch(field.strip()) for field in rows[0]):
        raise ValueError(f"line {below[0].line} is a rule, as in Markdown; take it away")
    given = header
    if header is None:
        header = _is_header(top, rows)
    if header:
        refuse_second_names(below)
    told = before and re.match("sep=", before[0].fields[0], re.I)
    preamble = before[1:] if told else before
    wide = any(_n_filled(record) > 1 for record in preamble)
    sure = given or _columns_of_numbers(top.fields, rows)[0]
    if preamble and (not header or (wide and not sure) or len(preamble) > _MOST_SKIPPED):
        raise ValueError(_header_that_does_not_fit(preamble[-1], top, found.dialect.sep))
    start = top.last + 1 if header else top.line
    sep, quote, escape = found.dialect.sep, found.dialect.quote, found.dialect.escape
    return Dialect(
        sep, quote, escape, tuple(top.fields) if header else (), top.line - 1, start, found.width
    )


def _n_above(top: Record, below: list[Record]) -> int:
    """Records of names and values above a header, as a spreadsheet fills them up with separators.

    0 where what is left of them would be no header above columns of numbers.
    """
    records = [top, *below]
    widest = max(map(_n_filled, records))
    above = next(i for i, record in enumerate(records) if _n_filled(record) >= widest - 1)
    for record in records[:above]:
        if any(field.strip() for field in record.fields[_n_filled(record) :]):
            return 0  # names of groups, above those of the columns
    if above > _MOST_SKIPPED:
        return 0
    rows = [record.fields for record in records[above + 1 :]]
    return above if _columns_of_numbers(records[above].fields, rows)[0] else 0


def _names_numbers(found: _Candidate) -> bool:
    """Whether the first line has names for columns of numbers."""
    rows = [record.fields for record in found.records[1:_ROWS] if len(record.fields) == found.width]
    return found.first == 0 and bool(_columns_of_numbers(found.records[0].fields, rows)[0])


def _ending_in_a_separator(header: Record, rows: list[list[str]]) -> list[str]:
    """The names above rows that end in a separator; none where the rows have another field."""
    one_more = bool(rows) and len(rows[0]) == len(header.fields) + 1
    return [*header.fields, ""] if one_more and not any(row[-1].strip() for row in rows) else []


def _header_that_does_not_fit(header: Record, row: Record, sep: str) -> str:
    n_names, n_fields = len(header.fields), len(row.fields)
    cures = ["give the column of row names a name too"] if n_fields == n_names + 1 else []
    if sep == "," and _has_parts_of_numbers(row.fields, n_names):
        cures.append("write numbers with commas in quotes")
    cure = " or ".join(cures) or "correct one of them"
    return (
        f"line {header.line} has {n_names} names, but line {row.line} has {n_fields} fields; {cure}"
        ", take away what is above the table, or give --sep"
    )


def _has_parts_of_numbers(fields: list[str], n_names: int) -> bool:
    """Whether commas within numbers may be what cuts a row into too many fields."""
    points = any("." in field for field in fields)  # then commas are between thousands
    left, right = re.compile(r"[-+]?\d+"), re.compile(r"\d{3}(\.\d+)?" if points else r"\d+")
    n_parts = sum(
        left.fullmatch(one) is not None and right.fullmatch(two) is not None
        for one, two in pairwise(fields)
    )
    return n_parts >= len(fields) - n_names > 0


def _n_filled(record: Record) -> int:
    return sum(bool(field.strip()) for field in record.fields)


def refuse_second_names(below: list[Record], line: str = "line") -> None:
    """Refuse a second line of names, of units, or of numbers of columns, above the values.

    Parameters
    ----------
    below : what stands below the names
    line : what a record is called
    """
    if len(below) < 5:
        return
    top, *rows = [record.fields for record in below]
    names, values = _columns_of_numbers(top, rows)
    if counts_up(top) and any(kind_of(row[i]) == "text" for row in rows for i in values):
        raise ValueError(f"{line} {below[0].line} numbers the columns; take it away")
    if len(names) > max(len(values), 1):
        few = ", ".join(repr(top[place]) for place in names[:3])
        raise ValueError(
            f"{line} {below[0].line} is a second line of names or units ({few}); join it with the "
            "line above, or take it away"
        )


def counts_up(fields: Sequence[str]) -> bool:
    """Whether names are the numbers of the columns, as pandas writes them.

    Parameters
    ----------
    fields : names; the first one may be empty
    """
    names = [field.strip() for field in fields]
    names = names[1:] if names and not names[0] else names
    return len(names) > 3 and names in ([str(n + k) for n in range(len(names))] for k in (0, 1))


def _is_header(top: Record, rows: list[list[str]]) -> bool:
    """Whether a record holds names: no number stands above numbers, no value comes again."""
    if counts_up(top.fields):
        return True
    names, values = _columns_of_numbers(top.fields, rows)
    if not values:
        texts = [t.strip().lower() for t in top.fields if t.strip()]
        again = any(top.fields[i] == row[i] for row in rows for i in range(len(row)) if row[i])
        return bool(names) or not (again or len(set(texts)) < len(texts) / 2)
    years = all(_YEAR.fullmatch(top.fields[i].strip()) for i in values)
    if names or (years and len(set(top.fields)) == len(top.fields)):
        raise ValueError(
            f"line {top.line} may hold names or values ({top.fields[values[0]]!r}); give --header "
            "or --no-header"
        )
    return False


def _columns_of_numbers(top: list[str], rows: list[list[str]]) -> tuple[list[int], list[int]]:
    """The columns of numbers and dates with another thing at the top, and those with the same."""
    names, values = [], []
    for i, field in enumerate(top):
        kinds = Counter(kind_of(row[i]) for row in rows)
        del kinds["missing"]
        below, count = kinds.most_common(1)[0] if kinds else ("text", 0)
        here = kind_of(field)
        if here == "number" or (here == below != "text"):
            values.append(i)
        elif here != "missing" and below != "text" and count > 0.8 * kinds.total():
            names.append(i)
    return names, values


def _one_column(
    lines: list[str], sep: str | None, quote: str | None, header: bool | None
) -> Dialect:
    """A table of one column, or the reason why it is none."""
    dialect = Dialect(sep or ",", quote or '"', quote or '"')
    number, first = next((i, line.strip()) for i, line in enumerate(lines) if line.strip())
    counts = {one: first.count(one) for one in ((sep,) if sep else _SEPARATORS)}
    most = max(counts, key=lambda one: counts[one])
    if counts[most]:
        raise ValueError(
            f"its lines do not have as many fields as line {number + 1}, which has "
            f"{counts[most] + 1} with {shown(most)} between them; correct them, or give --sep"
        )
    if sep is None and any(re.search(r"\S {2,}\S", line) for line in lines[:_ROWS]):
        raise ValueError(
            "its columns are aligned by spaces, and some fields are empty or hold spaces; save it "
            "with a separator, such as a comma"
        )
    if sep is None and not _ONE_NAME.fullmatch(first):
        raise ValueError(f"line {number + 1}, {first[:40]!r}, is read as one column; give --sep")
    top = Record(number + 1, number + 1, [first.strip(dialect.quote)])
    rows = [[line.strip()] for line in lines[number + 1 :][:_ROWS] if line.strip()]
    if header is None:
        header = _is_header(top, rows)
    names = tuple(top.fields) if header else ()
    return Dialect(
        dialect.sep, dialect.quote, dialect.escape, names, number, number + 1 + header, 1
    )
