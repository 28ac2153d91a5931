"""The paper's study behind ``plml reproduce``: tasks, then table, figures and report."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from plml.backend.progress import task_progress
from plml.install import install
from plml.io.files import write_atomically
from plml_study import paper
from plml_study.figures import figure1_panels, figure2_curves
from plml_study.records import Store, Task
from plml_study.report import Findings, render
from plml_study.result_tables import (
    APART,
    LATEX,
    MARKDOWN,
    ResultTable,
    as_records,
    as_text,
    table1,
)
from plml_study.study import (
    Conditions,
    Failure,
    StudyProgress,
    figure1_tasks,
    figure2_tasks,
    run,
    table1_tasks,
)

PARTS = ("table1", "figure1", "figure2")
#: A study takes hours.
_SECONDS_BETWEEN_LINES = 30.0


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


def reproduce(study: Study, command: str = "plml reproduce") -> list[Failure]:
    """Run what is left of a study and write its table, figures and report.

    The report shows the command as it was typed.
    """
    store = Store(study.out / "records", study.seed)
    if adopted := store.adopt():
        print(f"{store.folder}: {adopted} files of one record each became one file per data set")
    seed = store.seed_in_the_way(study.tasks)
    if seed is not None:
        raise ValueError(
            f"{study.out} holds records of --seed {seed}; use that seed, or another --out"
        )
    with task_progress(_SECONDS_BETWEEN_LINES) as advance:
        report = partial(_show, advance)
        failures = run(study.tasks, store, study.conditions, jobs=study.jobs, report=report)
    findings = gather(store, study)
    if findings.table is not None:
        write_table(findings.table, study.out)
    write_pictures(findings, study.out, command)
    return failures


def _show(advance: Callable[..., None], state: StudyProgress) -> None:
    """Done, running, left, and time to go."""
    running = ", ".join(str(task) for task in state.running)
    total = state.done + len(state.running) + state.left + state.failed
    text = f"{state.done} done, {len(state.running)} running, {state.left} left"
    if state.failed:
        text += f", {state.failed} failed"
    settled = (state.done + state.failed) / max(total, 1)
    advance(f"{text}  {running}".strip(), settled, state.seconds_left)


def gather(store: Store, study: Study) -> Findings:
    """What the store holds, of this run and of earlier ones.

    What the paper has is shown wherever it was run, so that a part of a study never hides the rest;
    other data sets and methods where they are asked for.
    """
    names = tuple(dict.fromkeys((*paper.DATASETS, *study.datasets)))
    methods = tuple(dict.fromkeys((*paper.METHODS, *study.methods, *APART)))
    tasks = [*table1_tasks(names, methods), *figure1_tasks(), *figure2_tasks(names)]
    records = [record for task in dict.fromkeys(tasks) if (record := store.read(task)) is not None]
    curves = figure2_curves(store, figure2_tasks(names))
    return Findings(
        _what_was_run(table1(store, names, methods), study),
        figure1_panels(store, figure1_tasks()),
        {key: curve for key, curve in curves.items() if len(curve.n_bases) > 1},
        records,
    )


def _what_was_run(table: ResultTable, study: Study) -> ResultTable | None:
    """Without the rows and columns of which nothing is there and nothing was asked for."""
    if not table.cells:
        return None
    asked = "table1" in study.parts
    rows = {dataset for dataset, _ in table.cells} | set(study.datasets if asked else ())
    columns = {method for _, method in table.cells} | set(study.methods if asked else ())
    return replace(
        table,
        datasets=tuple(name for name in table.datasets if name in rows),
        methods=tuple(method for method in table.methods if method in columns),
    )


def write_table(table: ResultTable, out: Path) -> None:
    """table1.json, table1.md and table1.tex; the table on standard output."""
    write_atomically(out / "table1.json", json.dumps(as_records(table), indent=1) + "\n")
    write_atomically(out / "table1.md", as_text(table, MARKDOWN))
    write_atomically(out / "table1.tex", as_text(table, LATEX))
    print(as_text(table, MARKDOWN))


def write_pictures(findings: Findings, out: Path, command: str) -> None:
    """figure1.png, figure2.png and report.html, where the libraries for them are installed."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError:
        print(f"no figures and no report: {install('plots')}, then the same command again")
        return
    from plml.inspection.style import write_figure
    from plml_study.paper_pictures import draw_figure1, draw_figure2

    if not findings.records:
        print("nothing was found, so there is no report")
        return
    if findings.panels:
        write_figure(draw_figure1(findings.panels), out / "figure1.png")
    if findings.curves:
        write_figure(draw_figure2(findings.curves), out / "figure2.png")
    write_atomically(out / "report.html", render(findings, command))
    print(f"report: {out / 'report.html'}")
