"""The study as one page that needs no network: tables, figures, certificates, differences."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plml_study import paper
from plml_study.claims import claims
from plml_study.figures import Curve
from plml_study.methods import SVM_SELECTION_ROWS
from plml_study.records import source
from plml_study.result_tables import Cell, ResultTable

_ON_MNIST = (
    f"data in float32; the SVM selects its kernel on {SVM_SELECTION_ROWS:,} stratified rows; LMNN "
    "runs its factored solver, which has no certificate"
)
#: Points of accuracy from which on a difference from the paper is listed.
THRESHOLD = 0.5


@dataclass(frozen=True)
class Findings:
    """What a study has found so far; parts that were not run are empty."""

    table: ResultTable | None
    panels: Mapping[str, Mapping[str, Any]]  # Figure 1
    curves: Mapping[tuple[str, str], Curve]  # Figure 2
    records: Sequence[Mapping[str, Any]] = ()  # all that it is made from


def render(findings: Findings, command: str) -> str:
    """The page, with the command line that made it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined
    )
    table = findings.table
    return environment.get_template("report.html.j2").render(
        title="Parametric local metric learning: the study",
        claims=claims(table, findings.curves),
        table=table,
        method_title=paper.title,
        dataset_title=paper.dataset_title,
        paper_totals=paper.TOTALS,
        figures=list(_figures(findings)),
        threshold=THRESHOLD,
        differences=[] if table is None else differences(table),
        certificates=[] if table is None else _certificates(table),
        devices=lambda cell: ", ".join(sorted({r["device"] for r in cell.records})),
        how=_how(findings, command),
    )


def differences(table: ResultTable) -> list[tuple[Cell, str]]:
    """Cells over the threshold away from the paper, largest first, with the likely reason."""
    far = [c for c in table.cells.values() if c.difference and abs(c.difference) > THRESHOLD]
    far.sort(key=lambda cell: -abs(cell.difference or 0.0))
    return [(cell, paper.reason(cell.dataset, cell.method)) for cell in far]


def _figures(findings: Findings) -> Any:
    from markupsafe import Markup

    from plml_study.paper_pictures import draw_figure1, draw_figure2

    def both(draw: Any, data: Any) -> tuple[Markup, Markup]:
        return Markup(_svg(draw(data))), Markup(_svg(draw(data, dark=True)))

    if findings.panels:
        yield (
            "figure1",
            "Figure 1: local metrics",
            "Four digits of MNIST on the two principal components of their raw pixels, in one "
            "scale. The lines are the axes of the metric at training points; the longer one, drawn "
            "to the same length everywhere, is the direction that tells classes apart. A point "
            "without lines has a metric of zero, and the Euclidean order decides there. "
            + _figure1_accuracies(findings.panels),
            both(draw_figure1, findings.panels),
        )
    if findings.curves:
        yield (
            "figure2",
            "Figure 2: number of basis metrics",
            "Accuracy of PLML and CBLML, regularization selected anew for every number.",
            both(draw_figure2, findings.curves),
        )


def _figure1_accuracies(panels: Mapping[str, Mapping[str, Any]]) -> str:
    """Next to the paper's."""
    listed = ", ".join(
        f"{paper.title(method)} {panel['accuracy']:.2f} ({paper.FIGURE_1[method]:.2f})"
        for method, panel in panels.items()
    )
    return f"Accuracies, and the paper's, which does not say how it prepared the pixels: {listed}."


def _svg(figure: Any) -> str:
    """A figure as an <svg> element."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _certificates(table: ResultTable) -> list[dict[str, str]]:
    rows = []
    for (dataset, method), cell in table.cells.items():
        gaps = cell.largest_gaps
        if "dual_gap" not in gaps:
            continue
        chosen = Counter(
            ", ".join(f"{key} {value}" for key, value in record["selected"].items())
            for record in cell.records
        )
        iterations = [int(record["certificate"]["n_iter"]) for record in cell.records]
        rows.append(
            {
                "dataset": dataset,
                "method": method,
                "weights": f"{gaps['weights_gap']:.1e}" if "weights_gap" in gaps else "-",
                "metrics": f"{gaps['dual_gap']:.1e}",
                "iterations": f"{min(iterations)} to {max(iterations)}",
                "selected": "; ".join(
                    f"{words} ({count} of {len(cell.records)})"
                    for words, count in chosen.items()
                    if words
                ),
            }
        )
    return rows


def _how(findings: Findings, command: str) -> list[tuple[str, str]]:
    records = findings.records
    if not records:
        return [("command", command)]
    versions = {f"{name} {value}" for r in records for name, value in r["versions"].items()}
    return [
        ("command", command),
        ("seed", ", ".join(sorted({str(r["seed"]) for r in records}))),
        ("versions", ", ".join(sorted(versions))),
        ("commit", ", ".join(sorted({source(r) for r in records}))),
        ("processor", ", ".join(sorted({r["machine"]["processor"] for r in records}))),
        ("device", ", ".join(sorted({r["device"] for r in records}))),
        ("finished", max(r["finished"] for r in records)),
        *([("on MNIST", _ON_MNIST)] if any(r["dataset"] == "mnist" for r in records) else []),
    ]
