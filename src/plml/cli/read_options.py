"""What all commands that read a table have in common: options, and what was understood."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plml import tables
from plml.io.files import bounded_memory
from plml.tables import Understood

if TYPE_CHECKING:
    import pandas as pd


def add_read_options(parser: argparse.ArgumentParser) -> None:
    """Add what a user may know better of a file."""
    group = parser.add_argument_group("the table", "detected unless you say otherwise")
    group.add_argument(
        "--sep", metavar="MARK", help="separator of the columns: a character, tab or space"
    )
    group.add_argument("--decimal", metavar="MARK", help="decimal mark: a point or a comma")
    group.add_argument("--thousands", metavar="MARK", help="thousands separator")
    group.add_argument("--encoding", help="encoding, such as utf-8, cp1252 or utf-16")
    group.add_argument("--quote", metavar="MARK", help="quotation mark around texts")
    group.add_argument(
        "--na",
        nargs="+",
        metavar="MARK",
        help="everything that stands for a missing value; write ' --' for --",
    )
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="say whether the first line has the names of the columns",
    )
    group.add_argument("--sheet", metavar="NAME", help="sheet of a workbook (default: the first)")
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="show neither the progress nor how the table was understood",
    )


def table_of(options: argparse.Namespace) -> tuple["pd.DataFrame", Understood]:
    """The table, in no more memory than a file of its size can need, and what was understood.

    What was understood of the file is printed; ``tell_marks`` prints what was of the columns.
    """
    with bounded_memory(options.table):
        table, understood = tables.read_table(options.table, **_given(options))
    if not options.quiet:
        print(understood.of_file(), file=sys.stderr)
    return table, understood


def tell_marks(understood: Understood, used: Sequence[str], options: argparse.Namespace) -> None:
    """Print how columns were read, but for what nobody needs to know of those that are not used."""
    if not options.quiet:
        for note in understood.marks.notes(used):
            print(f"  {note}", file=sys.stderr)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Those of the options that were given, for ``read_table``."""
    names = ("sep", "decimal", "thousands", "encoding", "quote", "header", "sheet")
    given = {name: getattr(options, name) for name in names}
    given["na"] = None if options.na is None else tuple(options.na)
    return {name: value for name, value in given.items() if value is not None}
