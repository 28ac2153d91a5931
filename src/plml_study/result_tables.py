"""Table 1 of the paper from the records of a study, next to the paper's own figures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from plml_study import paper, statistics
from plml_study.records import Store, pooled, source
from plml_study.study import table1_tasks

#: Methods that the paper does not have, in columns of their own: the scores of its eight are those
#: among the eight.
APART = ("AutoPLML",)


@dataclass(frozen=True)
class Cell:
    """A method on all folds of a data set."""

    dataset: str
    method: str
    correct: np.ndarray  # (n_test,) over all folds, in their order
    records: list[dict[str, Any]]
    score: float
    superscript: str  # PLML's outcome against the others; empty for the others
    bold: bool

    @property
    def accuracy(self) -> float:
        """In percent, over the test rows of all folds."""
        return 100.0 * float(self.correct.mean())

    @property
    def paper_accuracy(self) -> float | None:
        """The paper's figure for the same cell."""
        return paper.accuracy(self.dataset, self.method)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, both as printed."""
        theirs = self.paper_accuracy
        return None if theirs is None else round(self.accuracy, 2) - theirs

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of the accuracy, in percent."""
        low, high = statistics.accuracy_interval(int(self.correct.sum()), len(self.correct))
        return 100.0 * low, 100.0 * high

    @property
    def largest_gaps(self) -> dict[str, float]:
        """Over the folds, by certificate, where the method has them."""
        certificates = [record["certificate"] for record in self.records]
        return {
            name: max(c[name] for c in certificates if name in c)
            for name in ("weights_gap", "dual_gap")
            if any(name in c for c in certificates)
        }

    @property
    def seconds(self) -> float:
        """Of fitting, selection included, and predicting, over all folds."""
        return float(sum(record["seconds"] for record in self.records))


@dataclass(frozen=True)
class ResultTable:
    """Data sets x methods; a cell is missing where its folds have not all been run."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def get(self, dataset: str, method: str) -> Cell | None:
        """The cell, or None where it is missing."""
        return self.cells.get((dataset, method))

    @property
    def has_the_papers_shape(self) -> bool:
        """Whether rows and columns are those of the paper, so that totals can be compared."""
        rows, columns = set(self.datasets), set(self.methods) - set(APART)
        return rows == set(paper.DATASETS) and columns == set(paper.METHODS)

    @property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return len(self.cells) == len(self.datasets) * len(self.methods)

    def total(self, method: str) -> float | None:
        """The sum of a method's scores, or None where one is missing."""
        cells = [self.get(dataset, method) for dataset in self.datasets]
        return None if None in cells else sum(cell.score for cell in cells if cell)


def table1(store: Store, names: Iterable[str], chosen: Iterable[str]) -> ResultTable:
    """The table from what a store holds: data sets in rows, chosen methods in columns."""
    names, chosen = tuple(names), tuple(chosen)
    cells: dict[tuple[str, str], Cell] = {}
    for name in names:
        found = {method: store.read_all(table1_tasks([name], [method])) for method in chosen}
        records = {method: all_folds for method, all_folds in found.items() if all_folds}
        correct = {method: pooled(all_folds) for method, all_folds in records.items()}
        if not correct:
            continue
        ranked = {method: rows for method, rows in correct.items() if method not in APART}
        points = statistics.ranking(ranked)
        best = statistics.not_worse_than_best(ranked) if ranked else set()
        for method in correct.keys() - ranked.keys():
            among = {**ranked, method: correct[method]}
            points[method] = statistics.ranking(among)[method]
            best |= statistics.not_worse_than_best(among) & {method}
        for method in correct:
            cells[name, method] = Cell(
                name,
                method,
                correct[method],
                records[method],
                points[method],
                _superscript(correct) if method == "PLML" else "",
                method in best,
            )
    return ResultTable(names, chosen, cells)


def _superscript(correct: Mapping[str, np.ndarray]) -> str:
    """+, - or = against every other method, in the paper's groups."""
    groups = [
        "".join(
            statistics.mcnemar(correct["PLML"], correct[method]).sign()
            for method in group
            if method in correct
        )
        for group in paper.SUPERSCRIPTS
    ]
    return "|".join(group for group in groups if group)


def as_records(table: ResultTable) -> list[dict[str, Any]]:
    """One dictionary per data set and method, ready for JSON."""
    rows = []
    for (dataset, method), cell in table.cells.items():
        low, high = cell.interval
        rows.append(
            {
                "dataset": dataset,
                "method": method,
                "accuracy": round(cell.accuracy, 4),
                "paper_accuracy": cell.paper_accuracy,
                "difference": None if cell.difference is None else round(cell.difference, 2),
                "interval": [round(low, 2), round(high, 2)],
                "score": cell.score,
                "paper_score": paper.score(dataset, method),
                "superscript": cell.superscript,
                "not_worse_than_best": cell.bold,
                "n_test": len(cell.correct),
                "n_folds": len(cell.records),
                "n_features": [record["n_features"] for record in cell.records],
                "seconds": round(cell.seconds, 2),
                "devices": sorted({record["device"] for record in cell.records}),
                "processors": sorted({r["machine"]["processor"] for r in cell.records}),
                "commits": sorted({source(record) for record in cell.records}),
                "selected": [record["selected"] for record in cell.records],
                "largest_gaps": cell.largest_gaps,
                "warnings": sorted({w for record in cell.records for w in record["warnings"]}),
            }
        )
    return rows


class Style(NamedTuple):
    """How a table is written; the first three have one place for the text."""

    bold: str
    raised: str
    small: str
    missing: str
    table: Callable[[list[str], list[list[str]]], str]  # from header and rows

    def ours(self, cell: Cell | None) -> str:
        """Accuracy, superscript and score."""
        if cell is None:
            return self.missing
        accuracy = f"{cell.accuracy:.2f}"
        accuracy = self.bold.format(accuracy) if cell.bold else accuracy
        raised = self.raised.format(cell.superscript) if cell.superscript else ""
        return f"{accuracy}{raised} ({cell.score:g})"

    def theirs(self, cell: Cell | None) -> str:
        """The paper's accuracy and ours less it."""
        if cell is None or cell.paper_accuracy is None:
            return ""
        return self.small.format(f"{cell.paper_accuracy:.2f} ({cell.difference:+.2f})")


def as_text(table: ResultTable, style: Style) -> str:
    """The table in one of the styles: ours, and the paper's figure and the difference below."""
    header = ["data set", *(paper.title(method) for method in table.methods)]
    their_title = style.small.format("paper")
    rows = []
    for dataset in table.datasets:
        cells = [table.get(dataset, method) for method in table.methods]
        rows.append([paper.dataset_title(dataset), *(style.ours(cell) for cell in cells)])
        if any(cell and cell.paper_accuracy is not None for cell in cells):
            rows.append([their_title, *(style.theirs(cell) for cell in cells)])
    totals = [table.total(method) for method in table.methods]
    rows.append(["total score", *("" if t is None else f"{t:g}" for t in totals)])
    if table.has_the_papers_shape:
        totals_there = [paper.TOTALS.get(method) for method in table.methods]
        theirs = ["" if t is None else style.small.format(f"{t:g}") for t in totals_there]
        rows.append([their_title, *theirs])
    return style.table(header, rows)


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    rows = [[text.replace("|", "&#124;") for text in row] for row in rows]
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _latex(header: list[str], rows: list[list[str]]) -> str:
    """For the package booktabs."""
    body = "\n".join(" & ".join(row) + r" \\" for row in rows)
    columns = "l" + "r" * (len(header) - 1)
    return (
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{' & '.join(header)} \\\\\n\\midrule\n"
        f"{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


MARKDOWN = Style("**{}**", "<sup>{}</sup>", "*{}*", "-", _markdown)
LATEX = Style(r"\textbf{{{}}}", "$^{{{}}}$", r"{{\footnotesize\itshape {}}}", "--", _latex)
