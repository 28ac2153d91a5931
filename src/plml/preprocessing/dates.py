"""Dates and times of day as people write them.

pandas parses, and which format is meant is decided here: every date of a column must fit one. Left
to guess, pandas reads texts that it has no format for one by one, the day first in some and the
month first in others, takes 2024-03-04 for the third of April where the day comes first elsewhere,
and gives times of day the date of today. skrub's ``ToDatetime`` has no years of two digits, no
times of day and no AM and PM, and where day and month both may be first it takes the month without
a word (``python benchmarks/readers.py --columns``).
"""

import re
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.install import pandas

if TYPE_CHECKING:
    import pandas as pd

#: The year first, which is sure; the month in words; and the order of day and month, by whether the
#: day is first.
_SURE = ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%Y-%m", "%Y/%m")
_IN_WORDS = (
    "%d %B %Y",
    "%d %b %Y",
    "%d. %B %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d/%b/%Y",
    "%d%b%Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%a, %d %b %Y",
    "%a %d %b %Y",
    "%b %Y",
    "%B %Y",
    "%b-%Y",
)
_ORDERS = {
    first: tuple(mark.join((*order, year)) for year, mark in product(("%Y", "%y"), "./-"))
    for first, order in ((True, ("%d", "%m")), (False, ("%m", "%d")))
}
_DIGITS = {"%Y": r"\d{4}", "%y": r"\d\d", "%m": r"\d\d?", "%d": r"\d\d?"}
_LETTERS = dict.fromkeys(("%B", "%b", "%a"), r"[^\W\d]+")
#: A date, a time of day, and a zone.
_PARTS = re.compile(
    r"(?P<date>.*?)(?P<gap>T|, | |:(?=\d\d:\d\d:\d\d)|(?=\d\d?:\d\d))"
    r"(?P<time>(?P<hour>\d\d?):\d\d(?P<second>:\d\d(?P<fraction>\.\d{1,6})?)?)"
    r"(?P<half> ?[AaPp][Mm])?(?P<zone> ?(Z|[-+]\d\d:?\d\d))?"
)
#: What dates and times have, and the share of texts that tells that dates were meant.
DATE_LIKE, _NEARLY_ALL = r"\d.*[-/. :T].*\d|\d[A-Za-z]{3}\d\d", 0.8
#: Different texts that tell the format.
_FIRST = 1000
#: Texts that are read one by one.
_SOME = 50
#: Microseconds.
_DAY = 86_400_000_000
#: What pandas reads as ISO dates; it takes 05 and 1234 for years as well.
_ISO = r"\d{4}-\d\d(-\d\d.*)?"


def read_dates(values: "pd.Series", day_first: bool = False) -> "pd.Series":
    """Dates, without time zones; missing where there is none.

    Parameters
    ----------
    values : dates, texts in one format, or whole numbers such as 20240131
    day_first : whether the day comes before the month
    """
    if pandas().api.types.is_datetime64_any_dtype(values):
        return pandas().to_datetime(values, utc=True).dt.tz_localize(None)  # those of Arrow, too
    texts = _texts(values)
    form = _format(texts.dropna(), day_first)
    read = pandas().to_datetime(texts, format=form, errors="coerce", utc=True)
    return read.dt.tz_localize(None)


def days_of(dates: "pd.Series") -> np.ndarray:
    """Days since 1970 as floats; those with a time zone in UTC."""
    moments = read_dates(dates).to_numpy(dtype="datetime64[us]")  # nanoseconds end in 2262
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / _DAY)


def are_days(numbers: np.ndarray) -> bool:
    """Whether whole numbers are days such as 20240131.

    Parameters
    ----------
    numbers : floats, none of them missing
    """
    if not len(numbers) or numbers.min() < 19_000_101 or numbers.max() > 21_001_231:
        return False
    return bool(read_dates(pandas().Series(numbers)).notna().all())


def orders_of_dates(texts: "pd.Series") -> list[bool]:
    """Whether the day comes first, where all texts are dates: one answer, or two that differ.

    Parameters
    ----------
    texts : none of them missing
    """
    if texts.str.contains(DATE_LIKE).mean() < _NEARLY_ALL:
        return []
    read = {}
    for day_first in (False, True):
        dates = read_dates(texts, day_first)
        if dates.notna().all():
            read[day_first] = dates
    if len(read) == 2 and (read[False] == read[True]).all():
        return [False]
    return list(read)


def two_forms_of_dates(texts: "pd.Series") -> str:
    """How texts differ that all are dates, but not in one form; empty where they are none.

    Parameters
    ----------
    texts : none of them missing, not all dates of one form
    """
    some = texts.drop_duplicates().head(_SOME)
    if texts.str.contains(DATE_LIKE).mean() < _NEARLY_ALL:
        return ""
    if not all(orders_of_dates(some.iloc[[row]]) for row in range(len(some))):
        return ""
    for other in range(1, len(some)):
        if not orders_of_dates(some.iloc[[0, other]]):
            return f"its dates are in two forms, as {some.iloc[0]!r} and {some.iloc[other]!r}"
    return "in some of its dates the day comes first, and in others the month"


def _texts(values: "pd.Series") -> "pd.Series":
    """Texts, those of whole numbers without a point; missing where there is none."""
    return values.map(_text, na_action="ignore").astype(object)


def _text(value: Any) -> str:
    is_number = isinstance(value, float | np.floating) and float(value).is_integer()
    return f"{value:.0f}" if is_number else str(value).strip()


def _format(texts: "pd.Series", day_first: bool) -> str:
    """The format that most texts have; pandas' own for ISO dates, times and zones mixed."""
    some = pandas().Series(texts.unique()[:_FIRST], dtype=object)
    possible = dict.fromkeys(form for text in some[:5] for form in _fitting(text, day_first))
    if some.str.fullmatch(_ISO).all():
        return "ISO8601"
    parsed = {form: _n_parsed(some, form) for form in possible}
    return max(parsed, key=lambda form: parsed[form], default="ISO8601")


def _n_parsed(texts: "pd.Series", form: str) -> int:
    found = pandas().to_datetime(texts, format=form, errors="coerce", utc=True)
    return int(found.notna().sum())


def _fitting(text: str, day_first: bool) -> list[str]:
    """The formats that a text looks like."""
    found = _PARTS.fullmatch(text)
    day, clock = (found["date"], _clock(found)) if found else (text, "")
    if not day:
        return [clock.strip()]
    forms = (*_SURE, *_ORDERS[day_first], *_IN_WORDS)
    return [form + clock for form in forms if _pattern(form).fullmatch(day)]


def _clock(found: re.Match[str]) -> str:
    """The format of a time of day and a zone, with what is before them."""
    hour, half, zone = "%I" if found["half"] else "%H", found["half"] or "", found["zone"] or ""
    seconds = (":%S" if found["second"] else "") + (".%f" if found["fraction"] else "")
    half, zone = re.sub(r"\S+", "%p", half), re.sub(r"\S+", "%z", zone)
    return f"{found['gap']}{hour}:%M{seconds}{half}{zone}"


@cache
def _pattern(form: str) -> re.Pattern[str]:
    """What texts of a format look like."""
    parts = re.split(r"(%\w)", form)
    return re.compile("".join((_DIGITS | _LETTERS).get(one, re.escape(one)) for one in parts))
