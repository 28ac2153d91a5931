"""``plml explore``: the cases of a model in the browser, or in a file."""

import argparse
from pathlib import Path
from typing import Any

from plml import tables
from plml.backend.progress import plan, stage, work
from plml.cli.read_options import add_read_options, table_of, tell_marks
from plml.explorer.page_data import page_data
from plml.explorer.server import LOCALHOST, Page, check_bokeh, labels_of, serve
from plml.explorer.subject import subject_of
from plml.io.files import check_destination
from plml.preprocessing.columns import pandas

_LOADING, _READING, _SHOWING, _WRITING = (
    "reading the model",
    "reading the table",
    "the page",
    "writing the page",
)


def add_explore_command(commands: Any) -> None:
    """Add ``explore`` to the command line."""
    parser = commands.add_parser(
        "explore",
        help="show the cases on a map in the browser, each with its explanation",
        description="Serve a page that shows the training cases and the rows of a table, explains "
        "each of them, and lets values be changed; or write it as one file.",
    )
    parser.add_argument("model", type=Path, help="a file written by plml fit")
    parser.add_argument("table", type=Path, help="the new cases: CSV, TSV, Parquet or Excel")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the page there instead of serving it"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="the port to serve at (default: one that is free)"
    )
    parser.add_argument(
        "--address",
        default=LOCALHOST,
        help="the address to serve at (default: %(default)s, which no other machine can reach)",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the choice of cases and of the map"
    )
    add_read_options(parser)
    parser.set_defaults(run=_explore)


def _explore(options: argparse.Namespace) -> int:
    _check(options)
    with work(not options.quiet, passing=True):
        plan({_LOADING: 1, _READING: 1, _SHOWING: 10, _WRITING: 1})
        with stage(_LOADING):
            model = tables.load(options.model)
        with stage(_READING):
            table, understood = table_of(options)
            tell_marks(understood, (*model.columns.names, model.target), options)
            model.misfits(table, units=understood.marks.units).tell(str(options.table))
        with stage(_SHOWING, named=False):
            subject = subject_of(model, str(options.table))
            labels = labels_of(model, table, str(options.table))
            page = Page(page_data(subject, table, labels, random_state=options.seed))
        with stage(_WRITING):
            if options.html is not None:
                page.save(options.html)
    if options.html is not None:
        print(f"page: {options.html}")
    else:
        serve(
            page.data,
            port=options.port,
            address=options.address,
            open_browser=not options.no_browser,
        )
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse what would fail after the work."""
    check_bokeh()
    pandas()
    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port must be between 0 and {2**16 - 1}, got {options.port}")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {options.seed}")
    if options.html is None:
        return
    check_destination(options.html, "--html")
    for what in ("model", "table"):
        if options.html.resolve() == getattr(options, what).resolve():
            raise ValueError(f"--html {options.html.name} is the {what} itself; give another path")
