"""What the columns of a table are, and what a fit does with each of them.

Every column gets one kind. Numbers, ordinals, categories and dates are used; what says nothing
(constants, copies, identifiers, free text) or too much (the label in other words) is left out,
with the reason. skrub's ``TableVectorizer`` has no word for most of these: it makes a number of a
key, of a code with leading zeros and of 20240131, thirty features of e-mail addresses, and keeps
copies (``python benchmarks/readers.py --columns``).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, time
from decimal import Decimal
from shlex import quote
from typing import TYPE_CHECKING, Any
from unicodedata import category, normalize

import numpy as np
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from plml.preprocessing.columns import (
    CODE,
    NAMED_KEY,
    are_keys,
    are_spans,
    as_numbers,
    listed,
    pandas,
)
from plml.preprocessing.dates import (
    DATE_LIKE,
    are_days,
    days_of,
    orders_of_dates,
    read_dates,
    two_forms_of_dates,
)
from plml.preprocessing.table_encoder import MOST_CATEGORIES
from plml.preprocessing.text_numbers import na_option, stands_for_missing
from plml.tables.column_copies import without_copies

if TYPE_CHECKING:
    import pandas as pd

#: What a user may say a column is.
USES = ("number", "category", "date", "ignore")
#: Whole numbers of so few values are ordinals.
_MOST_LEVELS = 10
#: Texts with more different values than this, in most of the rows that have one, are no categories.
_MOST_VALUES, _MOST_DISTINCT = 50, 0.5
#: Words in the average entry of a free text.
_WORDS = 3.0
#: A number is far from all others where these spread over less than this share of the way to it;
#: numbers that differ by less than this share of the largest are the same.
_FAR, _ROUNDING = 0.05, 1e-12
#: Texts of which this share can be read as numbers or dates were meant as such.
_NEARLY_ALL = 0.8
#: Out-of-fold balanced accuracy of one column at which it gives the label away, and at which it is
#: worth a word; rows that this needs, and entries of the table that it is looked for in.
_LEAKS, _SUSPECT = 0.995, 0.97
_FEWEST_ROWS, _MOST_ENTRIES = 40, 500_000
#: A category of which more than this share is numbers may be one of numbers with a mark among them.
_MOSTLY_NUMBERS = 0.5
_PLAIN_NUMBER = re.compile(r"[-+]?\d{1,15}(\.\d*)?")
#: Names of whole numbers that are codes.
_NAMED_CODE = re.compile(r".*(zip|postal|postcode|plz|code).*", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnFacts:
    """One column.

    Attributes
    ----------
    name : as in the table
    kind : number, ordinal, category, date, text, identifier, constant, empty, duplicate or leak
    use : number, category, date or ignore
    n_missing, n_values : entries that are missing, and different ones
    what : what is done with it, and why
    doubt : whether a reader had better look at it
    day_first : whether its dates have the day before the month
    """

    name: str
    kind: str
    use: str
    n_missing: int
    n_values: int
    what: str
    doubt: bool = False
    day_first: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)


def column_facts(
    features: "pd.DataFrame",
    labels: "pd.Series | None" = None,
    *,
    where: str = "the table",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    uses: Mapping[str, str] | None = None,
    doubts: Mapping[str, str] | None = None,
) -> list[ColumnFacts]:
    """The columns of a table, in their order.

    Parameters
    ----------
    features : without the labels
    labels : of the rows; None where they are not known, so that no column can give them away
    where : name of the table, for messages
    keep : columns that are used whatever they seem to be
    drop : columns that are left out
    uses : what columns are, by their names; see ``USES``
    doubts : columns that whoever read the table could not make out, with the reason and the cure
    """
    uses = {**dict.fromkeys(drop, "ignore"), **(uses or {})}
    _check_names(features, where, {"--keep": keep, "--drop": drop, "--as": uses})
    for name, use in uses.items():
        if use not in USES:
            raise ValueError(f"--as {name}={use}: it must be one of {', '.join(USES)}")
        if name in keep and use == "ignore":
            raise ValueError(f"{where}: column {name!r} is both kept and left out")
    asked = {*keep, *uses}
    doubts = {name: doubt for name, doubt in (doubts or {}).items() if name not in asked}
    found = [
        _doubted(features[c], doubts[c])
        if c in doubts
        else _facts(features[c], f"{where}: column {c!r}", uses.get(c))
        for c in features
    ]
    found = [_used(one, features[one.name]) if one.name in keep else one for one in found]
    found = without_copies(features, found, asked)
    if labels is not None:
        found = _without_leaks(features, labels, found, asked)
    return found


def _check_names(features: "pd.DataFrame", where: str, given: Mapping[str, Any]) -> None:
    for option, names in given.items():
        lacking = [name for name in names if name not in features.columns]
        if lacking:
            raise ValueError(
                f"{option}: {where} has no column {lacking[0]!r} besides the target; it has "
                f"{listed(features.columns)}"
            )


def _facts(values: "pd.Series", where: str, use: str | None) -> ColumnFacts:
    types, present, fact = pandas().api.types, values[values.notna()], _counted(values)
    n_values = fact.n_values
    if use == "ignore":
        return replace(fact, kind=_guess(values, fact, where).kind, what="left out, as asked")
    if use is not None:
        _check_use(present, where, use)
        orders = orders_of_dates(_texts(present)) if use == "date" else []
        what = f"{use}, as asked{', the month before the day' if len(orders) > 1 else ''}"
        return replace(fact, kind=use, use=use, what=what, day_first=orders == [True])
    if not len(present):
        return replace(fact, what="left out: it is empty")
    if n_values == 1 and not fact.n_missing:
        value = f"{str(present.iloc[0])[:40]!r}"
        return replace(fact, kind="constant", what=f"left out: it is {value} in every row")
    if n_values == 1 and not types.is_bool_dtype(values):
        return replace(fact, kind="category", use="category", what="category: there or missing")
    return _guess(values, fact, where)


def _counted(values: "pd.Series") -> ColumnFacts:
    """What can be counted of a column."""
    present = values[values.notna()]
    n_values = int(_texts(present).nunique()) if present.dtype == object else present.nunique()
    return ColumnFacts(str(values.name), "empty", "ignore", int(values.isna().sum()), n_values, "")


def _doubted(values: "pd.Series", doubt: str) -> ColumnFacts:
    """A column that whoever read the table could not make out."""
    return replace(_counted(values), kind="text", what=f"left out: {doubt}", doubt=True)


def _guess(values: "pd.Series", fact: ColumnFacts, where: str) -> ColumnFacts:
    """The kind of a column with more than one value."""
    types, present = pandas().api.types, values[values.notna()]
    if not len(present):
        return fact
    if types.is_datetime64_any_dtype(values):
        return _date(fact)
    if are_spans(values):
        return replace(fact, kind="number", use="number", what="number of days")
    if types.is_complex_dtype(values):
        return replace(fact, kind="text", what="left out: its numbers are complex", doubt=True)
    if types.is_numeric_dtype(values) and not types.is_bool_dtype(values):
        return _of_numbers(present, fact, where)
    if types.is_bool_dtype(values):
        return _category(fact)
    if isinstance(values.dtype, pandas().CategoricalDtype):
        return _category(fact)
    strange = [kind for kind in present.map(type).unique() if not issubclass(kind, _SCALARS)]
    if strange:
        what = f"left out: every entry is a {strange[0].__name__}"
        return replace(fact, kind="text", what=what, doubt=True)
    return _of_texts(_texts(present), values, fact, where)


def _of_numbers(present: "pd.Series", fact: ColumnFacts, where: str) -> ColumnFacts:
    numbers = present.to_numpy(dtype=np.float64)
    if np.isinf(numbers).any():
        row = present.index[np.isinf(numbers)][0]
        raise ValueError(
            f"{where} holds infinite values, the first in row {row}; correct them, or --drop it"
        )
    if np.ptp(numbers) <= _ROUNDING * np.abs(numbers).max():
        what = f"left out: it is {numbers[0]:g} in every row, but for rounding"
        return replace(fact, kind="constant", what=what)
    whole = bool((numbers == np.rint(numbers)).all())
    if whole and are_keys(present, fact.name):
        return replace(
            fact,
            kind="identifier",
            what="left out: every row has another number, as of a key (use it: --keep)",
            doubt=True,
        )
    if whole and fact.n_values > _MOST_LEVELS and are_days(numbers):
        return _date(fact)
    kind, what = "number", "number"
    if whole and fact.n_values <= _MOST_LEVELS:
        kind, what = "ordinal", "number, of few whole values"
    doubt = _doubt_of_whole(fact, len(numbers)) if whole else ""
    far = far_from_others(numbers)
    if far is not None:
        doubt += _doubt_of_far(f"{numbers[far]:.15g}", int((numbers == numbers[far]).sum()))
    return replace(fact, kind=kind, use="number", what=what + doubt, doubt=bool(doubt))


def _doubt_of_whole(fact: ColumnFacts, n_rows: int) -> str:
    """Why whole numbers may be none to measure distances by; empty for no reason."""
    if n_rows >= _FEWEST_ROWS and fact.n_values == n_rows:
        return f"; all are different: if they are a key, --drop {quote(fact.name)}"
    if fact.n_values > 2 and _NAMED_CODE.fullmatch(fact.name):
        return f"; if they are codes, --as {quote(f'{fact.name}=category')}"
    if fact.n_values > _MOST_LEVELS and NAMED_KEY.fullmatch(fact.name.strip()):
        return f"; if they are a key, --drop {quote(fact.name)}"
    return ""


def far_from_others(numbers: np.ndarray) -> int | None:
    """Where a number is beside which all others, of many values, are nearly the same, or None.

    Parameters
    ----------
    numbers : floats, none of them missing
    """
    far = int(np.argmax(np.abs(numbers - np.median(numbers))))
    others = numbers[numbers != numbers[far]]
    if not len(others) or np.ptp(others) >= _FAR * np.abs(numbers[far] - others).min():
        return None
    return far if len(np.unique(others)) > _MOST_LEVELS else None


def _doubt_of_far(text: str, n_rows: int) -> str:
    times = "" if n_rows == 1 else f" ({n_rows} times)"
    cure = f"correct it, or give {na_option(text)} if it stands for a missing value"
    return f"; one is far from all others: '{text}'{times}; {cure}"


def _of_texts(
    texts: "pd.Series", values: "pd.Series", fact: ColumnFacts, where: str
) -> ColumnFacts:
    numbers = pandas().to_numeric(texts, errors="coerce")
    good = numbers.notna().to_numpy()
    is_code = good.any() and texts.str.fullmatch(CODE).any()
    if good.all() and not is_code:
        return _of_numbers(numbers, fact, where)
    if good.mean() >= _NEARLY_ALL and numbers.nunique() > _MOST_LEVELS and not is_code:
        row = int(np.flatnonzero(values.notna())[np.flatnonzero(~good)[0]])
        raise ValueError(
            f"{where} holds numbers, but {str(values.iloc[row])[:40]!r} in row {row}; correct it, "
            f"or say what it is: --na if it stands for a missing value, "
            f"--as {quote(f'{fact.name}=category')}, or --drop"
        )
    as_category = f"--as {quote(f'{fact.name}=category')}"
    orders = orders_of_dates(texts)
    if len(orders) > 1:
        what = (
            "left out: day first or month first? give its dates as year-month-day, or use it: "
            f"{as_category}"
        )
        return replace(fact, kind="date", what=what, doubt=True)
    if orders:
        found = replace(_date(fact), day_first=orders[0])
        far = far_from_others(days_of(read_dates(texts, orders[0])))
        if far is None:
            return found
        doubt = _doubt_of_far(texts.iloc[far], int((texts == texts.iloc[far]).sum()))
        return replace(found, what=found.what + doubt, doubt=True)
    if (odd := _odd_date(texts)) and not orders_of_dates(pandas().Series([odd])):
        cure = f"correct it, or give {na_option(odd)} or {as_category}"
        what = f"left out: {odd!r} among dates; {cure}"
        return replace(fact, kind="text", what=what, doubt=True)
    if told := two_forms_of_dates(texts):
        what = f"left out: {told}; give all as year-month-day, or use it: {as_category}"
        return replace(fact, kind="text", what=what, doubt=True)
    share = fact.n_values / max(len(texts), 1)
    words = texts.str.count(r"\s+").mean() + 1.0
    if fact.n_values > _MOST_VALUES and share > _MOST_DISTINCT:
        kind = "text" if words >= _WORDS else "identifier"
        rows = f"{len(texts)} rows" + (" that have one" if fact.n_missing else "")
        what = f"left out: {fact.n_values} different texts in {rows} (use it: --keep)"
        return replace(fact, kind=kind, what=what, doubt=True)
    if len(texts) >= 20 and fact.n_values == len(texts) and not fact.n_missing:
        what = "left out: every row has another text (use it: --keep)"
        return replace(fact, kind="identifier", what=what, doubt=True)
    found = _category(fact)
    doubt = _doubt_of_categories(texts.unique(), texts[~good].unique(), good.mean())
    return replace(found, what=found.what + doubt, doubt=True) if doubt else found


def _doubt_of_categories(texts: Any, words: Any, share: float) -> str:
    """What is strange about the values of a category; `words` are no numbers, a share of them is.

    Empty for nothing.
    """
    if two := alike(texts):
        return f", two of them alike: {two}; correct one if they are the same"
    if share > _MOSTLY_NUMBERS and 0 < len(words) < len(texts) - 2:
        few = ", ".join(repr(str(word)) for word in words[:3])
        cure = f"correct it, or give {na_option(*words[:3])} if it stands for a missing value"
        return f", all of them numbers but {few}; {cure}"
    if mark := mark_among(texts):
        cure = f"give {na_option(mark)} if it stands for a missing value"
        return f", one of them {mark!r}; {cure}"
    return ""


def mark_among(texts: Sequence[str]) -> str:
    """The one text that may stand for a missing value; empty for none, and for + and -.

    Parameters
    ----------
    texts : all different
    """
    marks = [text for text in texts if stands_for_missing(text)]
    return marks[0] if len(marks) == 1 and len(texts) > 2 else ""


def alike(texts: Any) -> str:
    """Two texts that differ in capitals, in spaces or in what nobody sees, or two equal numbers.

    Empty for none; in a form that shows the difference.

    Parameters
    ----------
    texts : all different
    """
    seen: dict[str, str] = {}
    for text in texts:
        shown = "".join(c for c in normalize("NFKC", text) if category(c) != "Cf")
        plain = " ".join(shown.casefold().split())
        plain = repr(float(plain)) if _PLAIN_NUMBER.fullmatch(plain) else plain
        other = seen.setdefault(plain, text)
        if other != text:
            same = normalize("NFC", other) == normalize("NFC", text)
            return " and ".join(map(ascii if same else repr, (other, text)))
    return ""


def _category(fact: ColumnFacts) -> ColumnFacts:
    what, crowded = f"category of {fact.n_values} values", fact.n_values > MOST_CATEGORIES
    if crowded:
        what += f"; the {MOST_CATEGORIES} most frequent are kept apart, the others are one"
    return replace(fact, kind="category", use="category", what=what, doubt=crowded)


def _date(fact: ColumnFacts) -> ColumnFacts:
    what = "date: its day, and the time of year, week and day where these vary"
    return replace(fact, kind="date", use="date", what=what)


def _odd_date(texts: "pd.Series") -> str:
    """A text that is no date where nearly all others are; empty for none."""
    if texts.str.contains(DATE_LIKE).mean() < _NEARLY_ALL:
        return ""
    for day_first in (True, False):
        lost = read_dates(texts, day_first).isna().to_numpy()
        if 0 < lost.mean() <= 1 - _NEARLY_ALL:
            return str(texts[lost].iloc[0])[:40]
    return ""


def _texts(values: "pd.Series") -> "pd.Series":
    plain = values.map(str) if values.dtype == object else values  # astype alone decodes bytes
    return plain.astype(str).str.strip()


def _check_use(present: "pd.Series", where: str, use: str) -> None:
    if not len(present):
        raise ValueError(f"{where} is empty; it cannot be used as a {use}")
    if use == "number":
        read = as_numbers(present)
    elif use == "date":
        read = read_dates(present)
    else:
        return
    if read.isna().any():
        text = str(present[read.isna()].iloc[0])[:40]
        raise ValueError(f"{where} holds {text!r}, which is not a {use}: --as {use} cannot be")


def _used(fact: ColumnFacts, values: "pd.Series") -> ColumnFacts:
    """What was asked to be kept, as a number or a category."""
    if fact.use != "ignore":
        return fact
    if fact.kind == "empty":
        raise ValueError(f"--keep {fact.name}: the column is empty")
    present = values[values.notna()]
    numbers = as_numbers(present).notna().all()
    if pandas().api.types.is_string_dtype(values):
        numbers = numbers and not _texts(present).str.fullmatch(CODE).any()
    use = "number" if numbers else "category"
    return replace(fact, use=use, what=f"{use}, kept as asked", doubt=False)


def _without_leaks(
    features: "pd.DataFrame", labels: "pd.Series", found: list[ColumnFacts], asked: set[str]
) -> list[ColumnFacts]:
    """Columns that alone give the label away are left out, unless most of them do."""
    used = [fact for fact in found if fact.use != "ignore"]
    rows = _sample(labels, len(used))
    if rows is None:
        return found
    classes = pandas().factorize(labels.iloc[rows])[0]
    scores = {fact.name: _alone(features[fact.name].iloc[rows], classes, fact) for fact in used}
    leaks = {name for name, score in scores.items() if score >= _LEAKS}
    easy = len(leaks) > 0.5 * len(used)
    result = []
    for fact in found:
        score = scores.get(fact.name, 0.0)
        if fact.name in leaks and not easy and fact.name not in asked:
            what = f"left out: alone it gives {score:.1%} of the labels away (use it: --keep)"
            fact = replace(fact, kind="leak", use="ignore", what=what, doubt=True)
        elif score >= _SUSPECT:
            what = f"{fact.what}; alone it predicts {score:.1%}: is it known before the label is?"
            fact = replace(fact, what=what, doubt=True)
        result.append(fact)
    return result


def _sample(labels: "pd.Series", n_columns: int) -> np.ndarray | None:
    """Rows to look for leaks in, fewer of wide tables; None where there are too few."""
    rows, most = np.flatnonzero(labels.notna()), max(_MOST_ENTRIES // max(n_columns, 100), 500)
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    sizes = labels.iloc[rows].value_counts()
    frequent = sizes[sizes >= 5].index
    rows = rows[labels.iloc[rows].isin(frequent)]
    return rows if len(rows) >= _FEWEST_ROWS and len(frequent) > 1 else None


def _alone(values: "pd.Series", classes: np.ndarray, fact: ColumnFacts) -> float:
    """How well a column alone predicts the classes of held-out rows, balanced accuracy.

    A tree decides on numbers and dates; of categories, the most frequent class of each.
    """
    if fact.use == "category":
        codes = pandas().factorize(values)[0]  # in the order of the rows, which may be by class
        codes = np.random.default_rng(0).permutation(codes.max() + 2)[codes + 1].astype(np.float64)
        leaves = min(4 * len(np.unique(codes)), 500)
    else:
        is_date = fact.use == "date"
        parsed = days_of(read_dates(values, fact.day_first)) if is_date else values
        codes = as_numbers(pandas().Series(parsed)).to_numpy(np.float64, na_value=np.nan)
        codes = codes / (np.nanmax(np.abs(codes)) or 1.0)  # small enough for the floats of a tree
        leaves = 4 * len(np.unique(classes))
    tree = DecisionTreeClassifier(max_leaf_nodes=max(leaves, 2), random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    codes = np.nan_to_num(codes, nan=np.nanmin(codes, initial=0.0) - 1.0)
    predicted = cross_val_predict(tree, codes[:, None], classes, cv=folds)
    return float(balanced_accuracy_score(classes, predicted))


_SCALARS: tuple[type, ...] = (str, bool, int, float, np.generic, Decimal, date, time)
