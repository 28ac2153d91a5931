"""What is known of a table before a fit, in words, as JSON, and as a page."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.install import as_pandas
from plml.preprocessing.columns import Columns, listed, pandas
from plml.preprocessing.dates import orders_of_dates
from plml.preprocessing.text_numbers import na_option
from plml.tables.column_kinds import ColumnFacts, alike, column_facts, mark_among
from plml.wording import counted

if TYPE_CHECKING:
    import pandas as pd

#: Names longer than this are cut in the report.
_WIDTH = 28
#: Numbers and dates, and texts, are no classes where there are more of them, with fewer rows each
#: on average; and a class of fewer rows than this is hardly learned.
_MOST_LABELS, _ROWS_PER_LABEL, _ROWS_PER_TEXT, _FEW_OF_CLASS = 20, 10, 2, 10
#: What to do then.
_CURE = "name another --target"
#: Classes that are listed.
_MOST_CLASSES = 12


@dataclass(frozen=True)
class ColumnReport:
    """The columns of a table, and what a fit will do with each.

    ``print`` shows it as text; in a notebook it is a table.

    Attributes
    ----------
    source : name of the table
    n_rows, n_copies : rows, and rows that are copies of others
    target : the column of the labels, or None
    classes : how many rows each class has
    doubt : a remark about the target, or empty
    columns : see ``ColumnFacts``

    Examples
    --------
    >>> import pandas as pd
    >>> from plml import describe
    >>> table = pd.DataFrame({"size": [1.5, 2.5, 3.5, 4.5] * 10, "kind": ["a", "b"] * 20})
    >>> report = describe(table, source="parts.csv")
    >>> report.used
    ['size', 'kind']
    >>> print(report)
    parts.csv: 40 rows, 2 columns; 36 rows are copies of others
    <BLANKLINE>
      column  kind        missing  values
      size    number            0       4  number
      kind    category          0       2  category of 2 values
    <BLANKLINE>
    2 columns are used
    """

    source: str
    n_rows: int
    n_copies: int
    target: str | None
    classes: dict[str, int]
    columns: tuple[ColumnFacts, ...]
    doubt: str = ""

    @property
    def used(self) -> list[str]:
        """The columns that are learned from."""
        return [fact.name for fact in self.columns if fact.use != "ignore"]

    @property
    def left_out(self) -> list[ColumnFacts]:
        """The columns that are not."""
        return [fact for fact in self.columns if fact.use == "ignore"]

    def plan(self, imputes: bool = True) -> Columns:
        """What a model has to know of the columns that are used.

        Parameters
        ----------
        imputes : whether missing values are filled in
        """
        by_use = {
            use: tuple(fact.name for fact in self.columns if fact.use == use)
            for use in ("category", "date")
        }
        day_first = tuple(fact.name for fact in self.columns if fact.day_first)
        return Columns(tuple(self.used), by_use["category"], imputes, by_use["date"], day_first)

    def check_usable(self) -> None:
        """Refuse a table of which nothing is left to learn from."""
        if self.used:
            return
        if not self.columns:
            raise ValueError(f"{self.source} has no column besides {self.target!r} to learn from")
        reasons = "; ".join(f"{fact.name!r}: {fact.what}" for fact in self.columns[:4])
        raise ValueError(f"{self.source} has no column to learn from ({reasons})")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        return {
            "source": self.source,
            "n_rows": self.n_rows,
            "n_copies": self.n_copies,
            "target": self.target,
            "classes": self.classes,
            "columns": [fact.as_dict() for fact in self.columns],
            "doubt": self.doubt,
        }

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any]) -> "ColumnReport":
        """The report that ``to_dict`` was made of."""
        try:
            columns = tuple(ColumnFacts(**fact) for fact in parts["columns"])
            return cls(**{**parts, "columns": columns})
        except (KeyError, TypeError) as error:
            raise ValueError("the report of the columns is damaged") from error

    def without_quotes(self) -> "ColumnReport":
        """The report without a value of a single row: remarks end before what they quote."""
        return replace(
            self,
            columns=tuple(
                fact
                if fact.kind in ("constant", "duplicate")
                else replace(fact, what=re.split("['\"]", fact.what)[0].rstrip(" ;:"))
                for fact in self.columns
            ),
        )

    def to_json(self) -> str:
        """``to_dict`` as a text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def _head(self) -> list[str]:
        columns = counted(len(self.columns), "column")
        target = " and the target" * (self.target is not None)
        lines = [f"{self.source}: {self.n_rows} rows, {columns}{target}"]
        if self.n_copies:
            copies = counted(self.n_copies, "row is a copy of another", "rows are copies of others")
            lines[0] += f"; {copies}"
        if self.target is not None:
            sizes = sorted(self.classes.items(), key=lambda pair: -pair[1])
            few = ", ".join(f"{name} {n}" for name, n in sizes[:_MOST_CLASSES])
            more = f", and {len(sizes) - _MOST_CLASSES} more" if len(sizes) > _MOST_CLASSES else ""
            n_classes = counted(len(sizes), "class", "classes")
            lines.append(f"target {self.target!r}: {n_classes} ({few}{more})")
        if self.doubt:
            lines.append(f"? target {self.target!r} {self.doubt}")
        return lines

    def __str__(self) -> str:
        width = min(max([6, *(len(fact.name) for fact in self.columns)]), _WIDTH)
        lines = [*self._head(), ""]
        lines.append(f"  {'column':<{width}}  {'kind':<10}  {'missing':>7}  {'values':>6}")
        for fact in self.columns:
            name = " ".join(fact.name.split())
            name = name if len(name) <= width else name[: width - 1] + "…"
            mark = "?" if fact.doubt else " "
            lines.append(
                f"{mark} {name:<{width}}  {fact.kind:<10}  {fact.n_missing:>7}  "
                f"{fact.n_values:>6}  {fact.what}"
            )
        lines += ["", self._counts()]
        return "\n".join(lines)

    def _counts(self) -> str:
        used = counted(len(self.used), "column is", "columns are")
        n_others = len(self.left_out)
        return f"{used} used" + f", {counted(n_others, 'is', 'are')} left out" * bool(n_others)

    def _repr_html_(self) -> str:
        return _as_html(self)

    def html(self, table: "pd.DataFrame | None" = None, above: str = "") -> str:
        """A page, with the distributions of the columns where skrub is installed.

        Parameters
        ----------
        table : the table that was described; None for a page without distributions
        above : what is said of the file
        """
        said = "<br>".join(escape(line) for line in above.splitlines())
        title = escape(f"Columns of {self.source}")
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            f"<title>{title}</title></head><body style='font-family:sans-serif;margin:24px'>"
            f"<h1 style='font-size:20px'>{title}</h1><p>{said}</p>{_as_html(self)}"
            f"{'' if table is None else _distributions(table)}</body></html>"
        )


def describe(
    table: Any,
    target: str | None = None,
    *,
    source: str = "the table",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    uses: Mapping[str, str] | None = None,
    doubts: Mapping[str, str] | None = None,
) -> ColumnReport:
    """What the columns of a table are, and what ``plml fit`` would do with each.

    Parameters
    ----------
    table : data frame
    target : the column of the labels
    source : what messages call the table
    keep, drop : columns that are used, or left out, whatever they seem to be
    uses : what columns are: "number", "category", "date" or "ignore" by name
    doubts : columns that ``read_table`` could not make out, ``understood.marks.doubts``

    Returns
    -------
    ColumnReport
        A line per column when it is printed; ``used`` names the columns that a fit would use.

    See Also
    --------
    read_table : A table from a file.
    plml.tables.fit : Learn from a table.

    Examples
    --------
    >>> import pandas as pd
    >>> from plml import describe
    >>> table = pd.DataFrame({"id": range(40), "size": [1.5, 2.5] * 20, "kind": ["a", "b"] * 20})
    >>> describe(table).used
    ['size']
    """
    frame = as_pandas(table)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ValueError(f"{source} has columns of the same name: {listed(repeated)}; rename one")
    labels = None
    if target is not None:
        if target not in frame.columns:
            raise ValueError(f"{source} has no column {target!r}; it has {listed(frame.columns)}")
        labels = frame[target]
    features = frame.drop(columns=[target] if target is not None else [])
    facts = column_facts(
        features, labels, where=source, keep=keep, drop=drop, uses=uses, doubts=doubts
    )
    sizes = {} if labels is None else _sizes(labels)
    return ColumnReport(
        source,
        len(frame),
        _n_copies(frame),
        target,
        {str(name): int(n) for name, n in sizes.items()},
        tuple(facts),
        "" if labels is None else _doubt_of_target(labels),
    )


def no_classes(labels: "pd.Series") -> str:
    """Why labels are numbers, dates or keys and no classes; empty where they are classes.

    Parameters
    ----------
    labels : of all rows
    """
    types, present = pandas().api.types, labels.dropna()
    if types.is_bool_dtype(present) or isinstance(present.dtype, pandas().CategoricalDtype):
        return ""
    texts = present.drop_duplicates().astype(str)
    things, fewest, cut = "labels", _ROWS_PER_TEXT, ""
    if types.is_numeric_dtype(present):
        things, fewest, cut = "numbers", _ROWS_PER_LABEL, ", or cut the numbers into classes"
        if (present != np.floor(present)).any():
            return f"holds numbers that are not whole, and classes are needed; {_CURE}{cut}"
    elif types.is_datetime64_any_dtype(present) or orders_of_dates(texts):
        things, fewest, cut = "dates", _ROWS_PER_LABEL, ", or cut the dates into classes"
    if len(texts) <= max(_MOST_LABELS, len(present) / fewest):
        return ""
    in_rows = f"{len(texts)} different {things} in {len(present)} rows"
    return f"holds {in_rows}, which are no classes; {_CURE}{cut}"


def _doubt_of_target(labels: "pd.Series") -> str:
    """What is to be said of the labels before a fit; empty for nothing."""
    sizes = _sizes(labels)
    if reason := no_classes(labels):
        return reason
    if n_lost := int(labels.isna().sum()):
        return f"has no label in {counted(n_lost, 'row')}; drop the rows without one before a fit"
    if len(sizes) == 1:
        return "has one class alone; a fit needs two"
    classes = [str(label) for label in sizes.index]
    if two := alike(classes):
        return f"has the classes {two}: correct one if they are the same"
    if mark := mark_among(classes):
        return f"has the class {mark!r}; give {na_option(mark)} if it stands for a missing label"
    rare = int((sizes < _FEW_OF_CLASS).sum())
    return (
        f"has {counted(rare, 'class', 'classes')} of fewer than {_FEW_OF_CLASS} rows"
        if rare
        else ""
    )


def _sizes(labels: "pd.Series") -> "pd.Series":
    """The rows of every class that has some."""
    sizes = labels.value_counts()
    return sizes[sizes > 0]  # not levels that are unused


def _n_copies(frame: "pd.DataFrame") -> int:
    try:
        hashes = pandas().util.hash_pandas_object(frame, index=False)  # in little memory
        return int(hashes.duplicated().sum())
    except TypeError:  # entries that have no hash, as lists
        return 0


def _as_html(report: ColumnReport) -> str:
    cell = "style='padding:2px 10px;text-align:{};border-bottom:1px solid #ddd'"
    left, right = cell.format("left"), cell.format("right")
    rows = "".join(
        f"<tr style='{'color:#777' if fact.use == 'ignore' else ''}'>"
        f"<td {left}>{'<b>?</b> ' if fact.doubt else ''}{escape(fact.name)}</td>"
        f"<td {left}>{fact.kind}</td><td {right}>{fact.n_missing}</td>"
        f"<td {right}>{fact.n_values}</td><td {left}>{escape(fact.what)}</td></tr>"
        for fact in report.columns
    )
    heads = (("column", left), ("kind", left), ("missing", right), ("values", right))
    head = "".join(f"<th {style}>{name}</th>" for name, style in (*heads, ("what is done", left)))
    first = "<br>".join(escape(line) for line in report._head())
    return (
        f"<p>{first}</p><table style='border-collapse:collapse;font-size:13px'>"
        f"<tr>{head}</tr>{rows}</table>"
        f"<p>{report._counts()}.</p>"
    )


def _distributions(table: "pd.DataFrame") -> str:
    """Skrub's report of a table, which needs no network."""
    try:
        from skrub import TableReport
    except ImportError:
        return ""
    found = TableReport(table, verbose=0).html_snippet()
    return f"<h2 style='font-size:16px'>Distributions</h2>{found}"


__all__ = ["ColumnReport", "describe"]
