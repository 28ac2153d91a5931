"""Texts that are numbers: with decimal commas, thousands marks, units, and marks for missing.

Not by skrub's ``ToFloat``: its marks have to be known, it refuses units, reads 0123 as 123, and its
numbers are float32, so that 1.234 does not come back (``python benchmarks/readers.py --columns``).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import product
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plml.install import pandas
from plml.preprocessing.dates import orders_of_dates
from plml.wording import counted

if TYPE_CHECKING:
    import pandas as pd

#: Texts that stand for a missing value wherever they are, and those that do among numbers.
_MISSING = frozenset(
    ("", "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "<NA>", "?", "#N/A")
).union(("#NA", "#NV", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!", "#WERT!"))
_MISSING_AMONG_NUMBERS = frozenset(
    ("missing", "Missing", "unknown", "Unknown", "none", "nil", "not available", "n.a.", "N.A.")
).union((r"\N", "(null)", "nd", "n/d", "ND", "NIL", "NaT", "Null"))
#: Among numbers, texts without a letter or a digit stand for one as well, and the errors of
#: spreadsheets in any language, as #WERT! and #N/D.
_NO_WORD = re.compile(r"[\W_]+|#[¡¿]?[^\W\d_]+(/[^\W_]+)?[!?]?")
#: Numbers that stand for a missing value where all others are far away, and those that may where
#: there are few others.
_SENTINELS = (-99, -999, -9999, -99999)
_SUSPECTS = (9, 99, 999, 9999, 99999)
_NUMBER = r"[-+]?[\d.,' ]*\d[.,]?([eE][-+]?\d{1,3})?"
_CURRENCIES = (
    "EUR|USD|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|RMB"
    "|NZD|HKD|SGD|TWD|THB|IDR|MYR|PHP|VND|TRY|ILS|RUB|UAH|RON|BGN|ISK|AED|SAR|EGP|NGN|KES"
    "|ARS|CLP|COP|PEN"
    r"|S?Fr\.?|Rs\.?|(?:US|CA|AU|NZ|HK|NT|[ACRS])\$|kr\.?|zł|Kč|Ft|TL|Rp\.?|RM|[€$£¥₹₽₩₺₴₪₫฿₱₦]"
)
_SIGNS = "%‰°€$£¥₹₽₩₺₴₪₫฿₱₦円元원圓圆"
_UNIT = re.compile(rf"({_CURRENCIES})?\s*({_NUMBER})(\s*)([^\W\d_]+[\w/²³%°]*|°[CF]?|[{_SIGNS}])?")
#: Units that may follow a number without a space; 12a is the number of a house.
_UNIT_NAMES = (
    "mm cm dm m km in ft mi g mg kg lb lbs oz s ms min h hr hrs ml cl l Hz kHz MHz GHz mV mA kW MW "
    "kWh kJ Pa kPa hPa bar mbar ppm ppb px dB EUR USD GBP CHF k bn MB GB TB kB m² m³ m2 m3 cm² cm³ "
    "km² km/h m/s m/s² mph mg/l mg/dl mmol/l g/l g/dl µg µl µm µg/l K M d yr yrs"
)
_UNITS = frozenset(_UNIT_NAMES.split())
#: Signs, spaces and apostrophes of print, and marks that nobody sees.
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\uff0d", "-"),
        **dict.fromkeys("\u00a0\u202f\u2009\u2007", " "),
        **dict.fromkeys("\u2018\u2019\u02bc", "'"),
        **dict.fromkeys("\ufeff\u200b\u200e", ""),
        "\uffe5": "¥",
    }
)
#: What argparse takes for no option, although it begins like one.
_NO_OPTION = re.compile(r"-|-\d+|-\d*\.\d+")
_PLAIN = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")
#: 02.09.2024 is not 2,092,024.
_DATE = re.compile(r"(\d{1,2}[./-]\d{1,2}[./-](\d{2}|\d{4})|\d{4}[./-]\d{1,2}[./-]\d{1,2})(?!\d)")
_INFINITE = re.compile(r"[-+]?inf(inity)?", re.IGNORECASE)
#: What is lost as a number: 01234 is not 1234, and floats end at 15 digits.
_LEADING_ZERO, _MANY_DIGITS = re.compile(r"[-+]?0\d"), re.compile(r"[-+]?\d{16}")
_POINTED = re.compile(r"\d+(\.\d+){2,}")
#: As bookkeepers write what is negative: ($1.50), $(1.50), -$1.50 and 1.50-; 2- is a mark of a
#: school.
_NEGATIVE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?P<sign>{_CURRENCIES})?\s*\(\s*(?P<other>{_CURRENCIES})?(?P<number>[^-()]+)\)",
        rf"-\s*(?P<sign>{_CURRENCIES})(?P<other>)\s*(?P<number>[^-()]+)",
        rf"(?P<sign>{_CURRENCIES})?(?P<other>)\s*(?P<number>[\d.,' ]*(\d|[.,])\d)-",
    )
)
#: How Excel keeps a text as it is, and a number with what stands around it.
_AS_TEXT = re.compile(r'="(.*)"')
_YEAR_IN = re.compile(r"\b\d{4}\b")
_AROUND = re.compile(r"(\D*?)([-+]?\d[\d.,']*(?:[eE][-+]?\d{1,3})?)(\s.*|\D*)")
#: Decimal and thousands marks; ``_fitting`` takes the first of those that read the same.
_Style = tuple[str, str | None]
_POINT: _Style = (".", None)
_STYLES = (_POINT, (",", None), *product(".,", " '"), (".", ","), (",", "."))
#: A column of texts is one of numbers gone wrong where this share of more than so many is numbers.
_NEARLY_ALL, _SOME = 0.8, 10
_FIRST = 1000


@dataclass
class Marks:
    """How numbers and missing values are written.

    Attributes
    ----------
    decimal, thousands : None where none was seen
    na : that were given; None for those that are known
    missing : texts and numbers that were taken for missing values, with their counts by column
    units : of columns whose numbers have one
    codes : columns of digits that are kept as texts, with the reason
    doubts : columns that may be numbers and are kept as texts, with the reason and the cure
    suspects : columns with a number that may stand for missing values
    styles : columns whose marks in numbers are not those of the others
    """

    decimal: str | None = None
    thousands: str | None = None
    na: tuple[str, ...] | None = None
    missing: dict[str, dict[str, int]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    suspects: dict[str, str] = field(default_factory=dict)
    styles: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: "pd.DataFrame") -> "Marks":
        """The marks in the numbers of a table, as most of the columns have them that are sure."""
        decimals = any(kind.kind == "f" for kind in table.dtypes if isinstance(kind, np.dtype))
        told: Counter[str] = Counter()
        thousands: dict[str, str] = {}  # by the decimal mark that is theirs
        suspects: dict[str, str] = {}
        for name in texts_of(table):
            bodies = _reading(table[name], None).bodies
            styles = _fitting(bodies, None)
            if styles == [_POINT] and (pointed := _pointed(bodies)):
                suspects[name] = (
                    f"{pointed!r} is read with a decimal point; give --thousands . if it is one "
                    "between thousands"
                )
            elif len(styles) == 1:
                decimal, between = styles[0]
                told[decimal] += any(decimal in body for body in bodies.values())
                if between is not None:
                    thousands.setdefault(decimal, between)
        decimal = max(told, key=lambda mark: told[mark], default="")
        if told[decimal]:
            return cls(decimal, thousands.get(decimal))
        suspects = {} if decimals else suspects
        return cls(
            "." if decimals else None, next(iter(thousands.values()), None), None, suspects=suspects
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        told = ("missing", "units", "styles", "codes", "doubts", "suspects")
        return {
            "decimal": self.decimal or ".",
            "thousands": self.thousands,
            **{name: getattr(self, name) for name in told},
        }

    def in_words(self) -> list[str]:
        """The marks in numbers, where they are not the usual ones."""
        words = [f"decimal mark {self.decimal}"] if self.decimal not in (None, ".") else []
        return words + ([f"thousands mark '{self.thousands}'"] if self.thousands else [])

    def missing_in(self, column: str) -> str:
        """What was taken for missing values in a column, in words; empty for none."""
        counts = self.missing.get(column, {})
        return ", ".join(f"{mark!r} ({count} times)" for mark, count in counts.items())

    def notes(self, used: Collection[str] | None = None) -> list[str]:
        """A line for each column with units, marks for missing values, or a doubt.

        Parameters
        ----------
        used : columns of which all is told; of the others, only what was taken for missing and
            what is in doubt. None for all columns
        """

        def of_used(told: dict[str, str]) -> dict[str, str]:
            return {c: words for c, words in told.items() if used is None or c in used}

        lines = [f"column {c!r} is numbers in {unit!r}" for c, unit in of_used(self.units).items()]
        lines += [
            f"column {column!r}: {self.missing_in(column)} taken for missing (else give --na)"
            for column in self.missing
        ]
        lines += [f"column {c!r} has {marks}" for c, marks in of_used(self.styles).items()]
        codes, doubts = of_used(self.codes), self.doubts | of_used(self.suspects)
        lines += [f"column {c!r} has {why}, so it is kept as text" for c, why in codes.items()]
        return lines + [f"column {c!r}: {w}" for c, w in doubts.items()]


def texts_of(table: "pd.DataFrame") -> list[str]:
    """The columns that hold texts."""
    types = pandas().api.types
    return [
        name
        for name, kind in table.dtypes.items()
        if types.is_string_dtype(kind) and (str(kind) != "object" or _all_texts(table[name]))
    ]


def _all_texts(values: "pd.Series") -> bool:
    return all(isinstance(value, str) for value in values.dropna())


def _as_texts(table: "pd.DataFrame") -> "pd.DataFrame":
    """With texts for numbers in columns that hold both, as spreadsheets have them."""
    mixed = {}
    for name in [n for n, kind in table.dtypes.items() if str(kind) == "object"]:
        kinds = {type(value) for value in table[name].dropna()}
        if str in kinds and kinds <= {str, int, float}:
            mixed[name] = table[name].map(str, na_action="ignore")
    return table.assign(**mixed)


def with_numbers(
    table: "pd.DataFrame", given: Marks, where: Callable[[int], str]
) -> tuple["pd.DataFrame", Marks]:
    """The table with numbers for texts that are numbers, and what was seen in them.

    Parameters
    ----------
    table : with any columns
    given : marks that are known
    where : what a row is called
    """
    table = _as_texts(table)
    seen = Marks.of(table)
    suspects = {} if given.decimal or given.thousands else seen.suspects
    decimal, thousands = given.decimal or seen.decimal, given.thousands or seen.thousands
    seen = Marks(decimal, None if thousands == decimal else thousands, given.na)
    seen.suspects.update(given.suspects | suspects)
    changed = {}
    for name in texts_of(table):
        values = _without_missing(table[name], seen, set(seen.na or _MISSING))
        found = _reading(values, seen.na)
        style = _decided(found.bodies, seen, values, where)
        if found.bodies and style is None:
            found = _without_style(found.bodies, name)
        if style is not None:
            if other := _other_style(style, found.bodies, seen):
                seen.styles[name] = other
            marks = {str(t).strip() for t in values.dropna().unique() if t not in found.bodies}
            values = _without_missing(values, seen, marks)
            values = _as_numbers(values, found.bodies, style)
            if found.unit:
                seen.units[name] = found.unit
            behind = next(
                (t for t, n in found.bodies.items() if t[-1:] == "-" != n[-1:] and n[0] == "-"), ""
            )
            if behind:
                seen.suspects.setdefault(name, f"{behind!r} is read as {found.bodies[behind]}")
        if found.code:
            seen.codes[name] = found.code
        if found.odd:
            row = int(np.flatnonzero((values == found.odd).to_numpy())[0])
            seen.doubts[name] = f"{where(row)} has {found.doubt}"
        elif seen.na is not None and style is None:
            marks = values[values.isin(_MISSING.difference(("", *seen.na)))].value_counts()
            for mark, count in marks.head(1).items():
                seen.suspects[name] = _not_given(repr(mark), int(count))
        changed[name] = values
    table = table.assign(**changed)
    _without_sentinels(table, seen)
    return table, seen


def _without_missing(values: "pd.Series", seen: Marks, marks: set[str]) -> "pd.Series":
    bare = values.str.strip()
    counts = bare[bare.isin(marks)].value_counts()
    named = {str(mark): int(count) for mark, count in counts.items() if mark}
    if named:
        seen.missing.setdefault(str(values.name), {}).update(named)
    return values.where(~bare.isin(marks)) if len(counts) else values


class _Reading(NamedTuple):
    """The different texts of a column by their numbers, or what keeps it from being numbers."""

    bodies: dict[str, str] = {}  # noqa: RUF012 - never changed
    unit: str = ""
    code: str = ""  # why digits are no number
    odd: str = ""  # a text that is unlike the others
    doubt: str = ""


def _reading(values: "pd.Series", na: tuple[str, ...] | None) -> _Reading:
    """What a column is; `na` are the marks for missing values, None for those that are known."""
    texts = [text for text in values.dropna().unique() if not _is_mark(text.strip(), na)]
    some = texts[:_FIRST]
    if sum(_number_in(text) is not None for text in some) < _NEARLY_ALL * len(some):
        return _framed(texts)
    found = {text: number for text in texts if (number := _number_in(text)) is not None}
    odd = next((text for text in texts if text not in found), None)
    category = f"--as {quote(f'{values.name}=category')}"
    if odd is not None:
        if len(found) <= _SOME or len(found) < _NEARLY_ALL * len(texts):
            return _Reading()
        marks = na_option(*(na or ()), odd)
        cure = f"correct it, take its line away, or give {marks} or {category}"
        return _Reading(odd=odd, doubt=f"{odd!r} among numbers; {cure}")
    units = {unit for _, unit in found.values()}
    if len(units) > 1:
        first = next(iter(found.values()))[1]
        odd = next(text for text, (_, unit) in found.items() if unit != first)
        other = f"in {first!r}" if first else "without a unit"
        return _Reading(
            odd=odd, doubt=f"{odd!r} among numbers {other}; give all in one unit, or {category}"
        )
    bodies = {text: body for text, (body, _) in found.items()}
    for pattern, what in ((_LEADING_ZERO, "leading zeros"), (_MANY_DIGITS, "more than 15 digits")):
        example = next((text for text, body in bodies.items() if pattern.match(body)), None)
        if example is not None:
            cure = f"--as {quote(f'{values.name}=number')}"
            return _Reading(code=f"{what} ({example!r}; else {cure})")
    return _Reading(bodies, units.pop() if units else "")


def numbers_as_texts(values: "pd.Series") -> tuple[str, str]:
    """A text that is a number by its marks or unit, and one that is none; empty for none of them.

    Both are empty where fewer than nearly all texts are numbers.

    Parameters
    ----------
    values : texts
    """
    texts = values.unique()[:_FIRST]
    bodies = {text: found[0] for text in texts if (found := _number_in(text)) is not None}
    others = [text for text in texts if text not in bodies]
    marked = [text for text in bodies if not _PLAIN.fullmatch(text.strip())]
    if len(bodies) < max(_NEARLY_ALL * len(texts), _SOME + 1) or not _fitting(bodies, None):
        return "", ""
    return next(iter(marked), ""), next(iter(others), "")


def na_option(*marks: str) -> str:
    """The option ``--na`` for marks as a shell takes it, and a parser that looks for options.

    The spaces around marks do not count.

    Parameters
    ----------
    marks : texts
    """
    safe = (" " * (m.startswith("-") and not _NO_OPTION.fullmatch(m)) + m for m in marks)
    return " ".join(["--na", *map(quote, safe)])


def _is_mark(text: str, na: tuple[str, ...] | None) -> bool:
    """Whether a text stands for a missing value among numbers; `na` are those that were given."""
    return stands_for_missing(text) if na is None else text in na


def stands_for_missing(text: str) -> bool:
    """Whether a text would stand for a missing value if it were among numbers.

    Parameters
    ----------
    text : one field
    """
    known = text in _MISSING or text in _MISSING_AMONG_NUMBERS
    return known or _NO_WORD.fullmatch(text) is not None


def _framed(texts: list[str]) -> _Reading:
    """Numbers with the same text around all: a unit after a space or of signs, else a code."""
    parts = [match.groups() for text in texts if (match := _AROUND.fullmatch(text))]
    frames = {(before, after) for before, _, after in parts}
    if len(texts) <= _SOME or len(parts) < len(texts) or len(frames) > 1:
        return _Reading()
    before, after = frames.pop()
    if not before and not after:  # dates with points, versions
        return _Reading()
    is_unit = not before and not after[0].isalpha() and not _YEAR_IN.search(after)
    if is_unit and not orders_of_dates(pandas().Series(texts)):
        bodies = {text: body for text, (_, body, _) in zip(texts, parts, strict=True)}
        return _Reading(bodies, after.strip())
    where = f"{before!r} before" if before else f"{after!r} behind"
    return _Reading(code=f"{where} its numbers ({texts[0]!r})")


def _number_in(text: str) -> tuple[str, str] | None:
    """The number and the unit of a text; None where it is no number."""
    bare = _AS_TEXT.sub(r"\1", text.strip()).translate(_ALIKE).strip()
    for pattern in _NEGATIVE:
        if match := pattern.fullmatch(bare):
            bare = f"{match['sign'] or match['other'] or ''}-{match['number'].strip()}"
            break
    if _DATE.fullmatch(bare):
        return None
    match = _UNIT.fullmatch(bare)
    if match is None:
        return None
    before, body, _, gap, after = match.groups()
    if after and not gap and after not in _UNITS and after[0] not in _SIGNS:
        return None
    return body.strip(), before or after or ""


def kind_of(text: str) -> str:
    """What a text is by itself: "missing", "number", "measure" (with a unit), "date" or "text".

    Parameters
    ----------
    text : one field
    """
    bare = text.strip()
    if bare in _MISSING or bare in ("-", "."):
        return "missing"
    if _PLAIN.fullmatch(bare):
        return "number"
    if _DATE.match(bare):
        return "date"
    if found := _number_in(bare):
        return "measure" if found[1] else "number"
    return "number" if _INFINITE.fullmatch(bare) else "text"


def _fitting(bodies: dict[str, str], decimal: str | None) -> list[_Style]:
    """The marks with which all texts are numbers, a decimal point first; one of those alike."""
    if not bodies:
        return []
    if decimal in (None, ".") and all(_PLAIN.fullmatch(body) for body in bodies.values()):
        return [_POINT]
    read: dict[tuple[str, ...], _Style] = {}
    for style in _STYLES:
        if decimal in (None, style[0]) and all(_fits(body, *style) for body in bodies.values()):
            read.setdefault(tuple(_plain(body, style) for body in bodies.values()), style)
    return list(read.values())


def _fits(body: str, decimal: str, thousands: str | None) -> bool:
    end = rf"({re.escape(decimal)}\d*)?([eE][-+]?\d+)?"
    if thousands is None:
        return re.fullmatch(rf"[-+]?\d*{end}", body) is not None
    groups = rf"([1-9]\d{{0,2}}({re.escape(thousands)}\d{{3}})+|\d+)"
    if thousands == ",":  # 12,34,567 is how India writes 1,234,567
        groups = rf"({groups}|[1-9]\d?(,\d\d)+,\d{{3}})"
    end = rf"({re.escape(decimal)}\d*)?"  # nobody writes both groups and an exponent
    return re.fullmatch(rf"[-+]?{groups}{end}", body) is not None


def _pointed(bodies: dict[str, str]) -> str | None:
    """A number with a point, where all points may be marks between thousands."""
    if not all(_fits(body, ",", ".") for body in bodies.values()):
        return None
    return next((body for body in bodies.values() if "." in body), None)


def _decided(
    bodies: dict[str, str], seen: Marks, values: "pd.Series", where: Callable[[int], str]
) -> _Style | None:
    """The marks of a column of numbers, None where it is none; asks where two would do."""
    styles = _fitting(bodies, seen.decimal)
    if not styles and len(alone := _fitting(bodies, None)) == 1:  # not as the other columns
        return alone[0]
    if seen.thousands is not None:
        styles = [s for s in styles if s[1] == seen.thousands] or [s for s in styles if not s[1]]
    if len(styles) > 1:
        comma = next(text for text, body in bodies.items() if "," in body or "." in body)
        row = int(np.flatnonzero((values == comma).to_numpy())[0])
        raise ValueError(
            f"{where(row)}, column {values.name!r}: {comma!r} may be a decimal mark or thousands; "
            "give --decimal or --thousands"
        )
    return styles[0] if styles else None


def _other_style(style: _Style, bodies: dict[str, str], seen: Marks) -> str:
    """The marks of a column in words, where they are not those of the table."""
    names, usual = ("decimal", "thousands"), (seen.decimal or ".", seen.thousands)
    return " and ".join(
        f"{name} mark '{mark}'"
        for name, mark, other in zip(names, style, usual, strict=True)
        if mark not in (None, other) and any(mark in body for body in bodies.values())
    )


def _without_style(bodies: dict[str, str], column: str) -> _Reading:
    """What is said of digits that are no numbers together; nothing of dates and versions."""
    if any(_POINTED.fullmatch(body) for body in bodies.values()):
        return _Reading()
    by_marks: dict[str, str] = {}
    for text, body in bodies.items():
        by_marks.setdefault(re.sub(r"[^.,' ]", "", body)[-1:], text)
    odd, *others = [text for mark, text in by_marks.items() if mark] or list(bodies)
    beside = f" beside {others[0]!r}" if others else ""
    cure = f"write all numbers in one way, or --as {quote(f'{column}=category')}"
    return _Reading(odd=odd, doubt=f"{odd!r}{beside}; {cure}")


def _plain(body: str, style: _Style) -> str:
    decimal, thousands = style
    return body.replace(thousands or "", "").replace(decimal, ".")


def _as_numbers(values: "pd.Series", bodies: dict[str, str], style: _Style) -> "pd.Series":
    numbers = {text: float(_plain(body, style)) for text, body in bodies.items()}
    return values.map(numbers).astype(float)


def _without_sentinels(table: "pd.DataFrame", seen: Marks) -> None:
    """Numbers such as -999 that no other value of the column is near, as missing values."""
    given = [float(mark) for mark in seen.na or () if _PLAIN.fullmatch(mark)]
    for name in table.select_dtypes("number").columns:
        values = table[name]
        for sentinel in dict.fromkeys((*given, *map(float, _SENTINELS))):
            hits = values == sentinel
            others = values[~hits & values.notna()]
            if not hits.any() or not len(others):
                continue
            apart = (others >= 0).all() or others.min() - sentinel > np.ptp(others)
            if sentinel not in given and not apart:
                continue
            if sentinel not in given and seen.na is not None:
                seen.suspects[str(name)] = _not_given(f"{sentinel:g}", int(hits.sum()))
                continue
            table[name] = values = values.astype(float).where(~hits)
            seen.missing.setdefault(str(name), {})[f"{sentinel:g}"] = int(hits.sum())
        if seen.na is None:
            _suspect(values, seen)


def _not_given(mark: str, n_rows: int) -> str:
    """What is said of a mark for missing values beside others that were given."""
    return f"{mark} ({counted(n_rows, 'time')}) is not among --na, so it is a value"


def _suspect(values: "pd.Series", seen: Marks) -> None:
    """Say that the largest or smallest number is unlike all others, more than once."""
    for suspect, where in ((values.max(), "far above"), (values.min(), "far below")):
        others = values[values.notna() & (values != suspect)]
        hits = int((values == suspect).sum())
        if hits < 2 or not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        gap = max(suspect - high, low - suspect)
        named = suspect in _SUSPECTS and gap > 2 * max(high - low, high)
        apart, negative = gap > 2 * (high - low), suspect < 0 <= low
        few = named or (apart and negative and high > low)
        if few or ((apart or negative) and others.nunique() > _SOME):
            mark = f"{suspect:.15g}"
            seen.suspects[str(values.name)] = (
                f"{mark} ({hits} times) is {where} all others; give {na_option(mark)} if it stands "
                "for missing values"
            )
