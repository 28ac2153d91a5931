"""The paper's study behind ``plml reproduce``: tasks, then table, figures and report."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from plml.backend.arrays import check_device
from plml.experiments import paper, protocols
from plml.experiments.datasets import NAMES, find_files
from plml.experiments.figures import figure1_panels, figure2_curves
from plml.experiments.methods import WITH_BASES
from plml.experiments.methods import parse as parse_methods
from plml.experiments.records import Store, Task, write_atomically
from plml.experiments.report import Findings, render
from plml.experiments.study import Conditions, Failure, figure2_tasks, run, table1_tasks
from plml.experiments.tables import Latex, Style, Table, as_records, as_text, table1
from plml.progress import study_progress

PARTS = ("table1", "figure1", "figure2")


@dataclass(frozen=True)
class Study:
    """What to run, on what, and where to put it."""

    parts: tuple[str, ...]
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    data_dir: str | None
    jobs: int
    device: str
    seed: int
    out: Path

    @classmethod
    def parse(
        cls,
        *,
        what: str,
        datasets: list[str] | None,
        methods: list[str] | None,
        data_dir: str | None,
        jobs: int,
        device: str,
        seed: int,
        out: Path,
    ) -> Self:
        """A study from the words of the command line; a ``ValueError`` names what is wrong."""
        parts = PARTS if what == "all" else (what,)
        if jobs < 1:
            raise ValueError(f"--jobs must be at least 1, got {jobs}")
        if not 0 <= seed < 2**32:
            raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {seed}")
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out {out} is a file; name a folder")
        try:
            check_device(device)
        except ValueError as error:
            raise ValueError(f"--device {device}: {error}") from None
        chosen = parse_methods(methods)
        names = _datasets(datasets)
        needed = set(names) | ({"mnist"} if "figure1" in parts else set())
        for name in sorted(needed):
            find_files(name, data_dir)
        return cls(parts, names, chosen, data_dir, jobs, device, seed, out)

    @property
    def tasks(self) -> list[Task]:
        """Everything that has to be fitted and tested."""
        tasks: list[Task] = []
        if "table1" in self.parts:
            tasks += table1_tasks(self.datasets, self.methods)
        if "figure1" in self.parts:
            tasks += figure1_tasks()
        if "figure2" in self.parts:
            tasks += figure2_tasks(self.datasets)
        return tasks

    @property
    def conditions(self) -> Conditions:
        """The cores are shared among the jobs."""
        threads = max(1, (os.cpu_count() or 1) // self.jobs)
        return Conditions(self.data_dir, self.device, threads)


def _datasets(names: list[str] | None) -> tuple[str, ...]:
    if not names or names == ["all"]:
        return paper.DATASETS
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"unknown data set {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    return tuple(dict.fromkeys(names))


def figure1_tasks() -> list[Task]:
    """The four local methods on four digits of MNIST."""
    return [
        Task(protocols.FOUR_DIGITS, 0, method, 20 if method in WITH_BASES else None)
        for method in paper.FIGURE_1
    ]


def reproduce(study: Study, command: str = "plml reproduce") -> list[Failure]:
    """Run what is left of a study and write its table, figures and report.

    Parameters
    ----------
    study : Study
    command : as it was typed, for the report
    """
    store = Store(study.out / "records", study.seed)
    with study_progress() as report:
        failures = run(study.tasks, store, study.conditions, jobs=study.jobs, report=report)
    findings = gather(store, study)
    if findings.table is not None:
        write_table(findings.table, study.out)
    write_pictures(findings, study.out, command)
    return failures


def gather(store: Store, study: Study) -> Findings:
    """What the store holds, of this run and of earlier ones."""
    table = table1(store, study.datasets, study.methods)
    curves = figure2_curves(store, figure2_tasks(study.datasets))
    return Findings(
        table if table.cells else None,
        figure1_panels(store, figure1_tasks()),
        {key: curve for key, curve in curves.items() if len(curve.n_bases) > 1},
    )


def write_table(table: Table, out: Path) -> None:
    """table1.json, table1.md and table1.tex; the table on standard output."""
    write_atomically(out / "table1.json", json.dumps(as_records(table), indent=1) + "\n")
    write_atomically(out / "table1.md", as_text(table, Style()))
    write_atomically(out / "table1.tex", as_text(table, Latex()))
    print(as_text(table, Style()))


def write_pictures(findings: Findings, out: Path, command: str) -> None:
    """figure1.png, figure2.png and report.html, where the libraries for them are installed."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        print('no figures and no report: pip install "plml[plots]" and run the same command again')
        return
    from plml.plots.paper import draw_figure1, draw_figure2

    if findings.panels:
        draw_figure1(findings.panels).savefig(out / "figure1.png", dpi=150, facecolor="white")
    if findings.curves:
        draw_figure2(findings.curves).savefig(out / "figure2.png", dpi=150, facecolor="white")
    write_atomically(out / "report.html", render(findings, command))
    print(f"report: {out / 'report.html'}")
