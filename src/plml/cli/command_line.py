"""The command line: one parser, one way to report an error.

Other packages add commands of their own under the entry point ``plml.commands``.
"""

import argparse
import sys
import warnings
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from plml import __version__
from plml.cli.case_commands import add_case_commands
from plml.cli.column_options import add_describe_command
from plml.cli.explore_command import add_explore_command
from plml.cli.table_commands import FIT_OPTIONS, add_table_commands
from plml.estimators._fit_warnings import GapWarning
from plml.install import install
from plml.io.files import check_destination


def main(arguments: list[str] | None = None) -> int:
    """Run one command; bad input ends in one line on standard error and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    options.arguments = arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, options.command)
            return options.run(options)
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stderr.close()
        return 141
    except (ValueError, OSError) as error:
        print(f"plml {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"plml {options.command}: interrupted", file=sys.stderr)
        return 130


def _show_warning(command: str, message: Warning | str, *_: Any, **__: Any) -> None:
    """One line, without the source that Python would show, in the words of the command."""
    if isinstance(message, GapWarning):
        message = message.on_the_command_line(FIT_OPTIONS if command == "fit" else {})
    print(f"warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plml", description="Smooth local metric learning for nearest neighbours."
    )
    parser.add_argument("--version", action="version", version=f"plml {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="compare Euclidean, one learned metric and local metrics on embedded digits",
        description="Fit and compare three nearest-neighbour classifiers on scikit-learn's digits.",
    )
    demo.add_argument(
        "--out", type=Path, default=Path("plml-demo.png"), help="the picture (default: %(default)s)"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of the split and of the anchors")
    demo.set_defaults(run=_demo)
    add_describe_command(commands)
    add_table_commands(commands)
    add_case_commands(commands)
    add_explore_command(commands)
    for point in entry_points(group="plml.commands"):
        point.load()(commands)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from plml.backend.progress import task_progress
    from plml.cli.demo import demo_data, demo_rows, format_table, save_demo_figure

    check_destination(options.out, "--out")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {options.seed}")
    data = demo_data(options.seed)
    print(f"digits: {len(data.X_train)} rows to train, {len(data.X_test)} to test, 64 features\n")
    with task_progress() as advance:
        rows = list(demo_rows(data, options.seed, advance))
    print(format_table(rows))
    try:
        save_demo_figure(options.out, data, rows)
    except ImportError:
        print(f"\nno picture: {install('plots')} to draw one")
    else:
        print(f"\npicture: {options.out}")
    return 0
