"""``plml add`` and ``plml forget``: cases of a saved model that come and go."""

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from plml import tables
from plml.backend.progress import plan, stage, work
from plml.cli.read_options import add_read_options
from plml.cli.table_commands import check_paths, plan_to, read_both
from plml.io.files import check_destination, exclusively
from plml.wording import counted

#: Stages of the commands.
_LOADING, _ADDING, _FORGETTING, _SAVING = (
    "reading the model",
    "adding cases",
    "forgetting cases",
    "saving the model",
)


def add_case_commands(commands: Any) -> None:
    """Add ``add`` and ``forget`` to the command line."""
    add = commands.add_parser(
        "add",
        help="add labelled rows to the cases of a saved model",
        description="Add labelled rows to the cases of a saved model. They vote at once; the "
        "learned metric stays as it is.",
    )
    forget = commands.add_parser(
        "forget",
        help="remove cases from a saved model",
        description="Remove cases from a saved model: from all its answers and from the file. What "
        "was learned from them stays in the metric until the next fit.",
    )
    for parser in (add, forget):
        parser.add_argument("model", type=Path, help="a file written by plml fit")
        parser.add_argument(
            "-o",
            "--out",
            type=Path,
            metavar="FILE",
            help="write the model here (default: replace it)",
        )
    add.add_argument("table", type=Path, help="labelled rows: CSV, TSV, Parquet or Excel")
    add.add_argument(
        "--id",
        metavar="COLUMN",
        help="the column that identifies the rows, if the cases have keys (default: that of the "
        "fit)",
    )
    add.add_argument(
        "--new-classes",
        choices=("refuse", "allow"),
        default="refuse",
        help="what to do with classes that the model does not know (default: %(default)s)",
    )
    add_read_options(add)
    add.set_defaults(run=_add)
    which = forget.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--rows", type=int, nargs="+", metavar="ROW", help="numbers of the cases, counted from 0"
    )
    which.add_argument("--id", nargs="+", metavar="KEY", help="keys of the cases")
    forget.add_argument("--quiet", action="store_true", help="show no progress")
    forget.set_defaults(run=_forget)


def _add(options: argparse.Namespace) -> int:
    out = _destination(options)
    with _alone_with(options.model, out), work(not options.quiet):
        plan_to({_ADDING: 5, _SAVING: 2})
        model, table = read_both(options)
        with stage(_ADDING, named=False):
            model.add_cases(table, str(options.table), options.id, options.new_classes)
        _save(model, out)
    _tell(model, len(table), "added")
    return 0


def _forget(options: argparse.Namespace) -> int:
    out = _destination(options)
    with _alone_with(options.model, out), work(not options.quiet):
        plan({_LOADING: 2, _FORGETTING: 2, _SAVING: 2})
        with stage(_LOADING):
            model = tables.load(options.model)
        before = model.n_cases
        with stage(_FORGETTING):
            model.forget_cases(options.rows, options.id)
        _save(model, out)
    _tell(model, before - model.n_cases, "forgotten")
    return 0


def _destination(options: argparse.Namespace) -> Path:
    """Where the model goes, once it is clear that it can."""
    if not options.model.is_file():
        raise ValueError(f"there is no model {options.model}")
    if options.out is not None and options.out.resolve() == options.model.resolve():
        options.out = None
    check_paths(options)
    if options.out is None:
        check_destination(options.model, "the model", kept=True)
    return options.model if options.out is None else options.out


def _alone_with(model: Path, out: Path) -> AbstractContextManager[None]:
    """One command at a time where a model is replaced; one that is only read needs no lock."""
    return exclusively(model) if out == model else nullcontext()


def _save(model: tables.Model, out: Path) -> None:
    with stage(_SAVING):
        model.save(out)


def _tell(model: tables.Model, n: int, what: str) -> None:
    n_classes = len(model.classifier.classes_)
    cases = counted(n, "case")
    print(f"{cases} {what}, {n_classes} classes, {counted(model.n_cases, 'case')} in all")
