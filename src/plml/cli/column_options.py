"""``plml describe``, and the options that say what columns are."""

import argparse
import json
from pathlib import Path
from typing import Any

from plml import tables
from plml.backend.progress import plan, stage, work
from plml.cli.read_options import add_read_options, table_of, tell_marks
from plml.io.files import check_destination, write
from plml.tables import ColumnReport, Understood
from plml.tables.column_kinds import USES


def add_column_options(parser: argparse.ArgumentParser) -> None:
    """Add what a user may know better of the columns."""
    group = parser.add_argument_group("the columns", "detected unless you say otherwise")
    group.add_argument(
        "--keep",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="use these, whatever they seem to be",
    )
    group.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="leave these out")
    group.add_argument(
        "--as",
        nargs="+",
        default=[],
        dest="uses",
        metavar="COLUMN=KIND",
        help=f"say what these are: {', '.join(USES)}",
    )


def column_choices(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the columns, for ``tables.describe`` and ``tables.fit``."""
    uses = {}
    for given in options.uses:
        name, found, use = given.rpartition("=")
        if not found or use not in USES:
            raise ValueError(
                f"--as {given}: give a column and what it is, as in --as age=number; it can be "
                f"{', '.join(USES)}"
            )
        uses[name] = use
    return {"keep": options.keep, "drop": options.drop, "uses": uses}


def tell(report: ColumnReport, quiet: bool = False) -> None:
    """Print the report, or where the rest is not asked for, the columns that are left out.

    Parameters
    ----------
    report : of the columns of a table
    quiet : whether the rest is not asked for
    """
    if not quiet:
        print(f"{report}\n", flush=True)
        return
    for fact in report.left_out:
        print(f"{report.source}: column {fact.name!r} is {fact.what}", flush=True)


def add_describe_command(commands: Any) -> None:
    """Add ``describe`` to the command line."""
    parser = commands.add_parser(
        "describe",
        help="say what the columns of a table are, and what plml fit would do with each",
        description="Say what the columns of a table are, and what plml fit would do with each.",
    )
    parser.add_argument("table", type=Path, help="CSV, TSV, Parquet or Excel")
    parser.add_argument("--target", metavar="COLUMN", help="the column of the labels")
    parser.add_argument(
        "--format",
        choices=["text", "json", "html"],
        help="format of the report (default: by the name of the output, or text)",
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="write the report here (default: print it)"
    )
    add_column_options(parser)
    add_read_options(parser)
    parser.set_defaults(run=_describe)


def _describe(options: argparse.Namespace) -> int:
    if options.out is not None:
        check_destination(options.out, "--out")
    choices = column_choices(options)
    with work(not options.quiet, passing=True):
        plan({"reading the table": 1, "looking at the columns": 1})
        with stage("reading the table"):
            table, understood = table_of(options)
        with stage("looking at the columns"):
            report = tables.describe(
                table,
                options.target,
                source=str(options.table),
                doubts=understood.marks.doubts,
                **choices,
            )
            tell_marks(understood, report.used, options)
            text = _written(report, table, understood, _format(options))
    if options.out is None:
        print(text)
    else:
        write(options.out, text + "\n")
    return 0


def _format(options: argparse.Namespace) -> str:
    by_name = {".json": "json", ".html": "html", ".htm": "html"}
    suffix = "" if options.out is None else options.out.suffix.lower()
    return options.format or by_name.get(suffix, "text")


def _written(report: ColumnReport, table: Any, understood: Understood, form: str) -> str:
    if form == "json":
        found = {**report.to_dict(), "file": understood.as_dict()}
        return json.dumps(found, indent=2, ensure_ascii=False)
    return report.html(table, str(understood)) if form == "html" else str(report)
