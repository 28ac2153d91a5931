"""The command line. What it does with a user's tables is in ``cli_tables``."""

import argparse
import shlex
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from plml import __version__
from plml.cli_tables import FIT_OPTIONS, add_table_commands
from plml.estimators._gaps import GapWarning
from plml.files import check_destination
from plml.install import install


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
    demo.add_argument("--seed", type=int, default=0, help="of the split and the anchors")
    demo.set_defaults(run=_demo)
    add_table_commands(commands)
    _add_reproduce(commands)
    _add_bench(commands)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from plml.experiments.demo import demo_data, demo_rows, format_table
    from plml.progress import task_progress

    check_destination(options.out, "--out")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {options.seed}")
    data = demo_data(options.seed)
    print(f"digits: {len(data.X_train)} rows to train, {len(data.X_test)} to test, 64 features\n")
    with task_progress() as advance:
        rows = list(demo_rows(data, options.seed, advance))
    print(format_table(rows))
    try:
        from plml.plots.demo import save_demo_figure

        save_demo_figure(options.out, data, rows)
    except ImportError:
        print(f"\nno picture: {install('plots')} to draw one")
    else:
        print(f"\npicture: {options.out}")
    return 0


def _add_reproduce(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's study: its table, its figures, and a report",
        description="Run the paper's study. What is done is kept: the same command continues.",
    )
    reproduce.add_argument("what", choices=("table1", "figure1", "figure2", "all"))
    reproduce.add_argument("--datasets", nargs="+", metavar="NAME", help="default: the paper's six")
    reproduce.add_argument(
        "--methods", nargs="+", metavar="NAME", help="of table1; default: all eight"
    )
    reproduce.add_argument(
        "--data-dir", help="folder of the original files; else PLML_DATA, OpenML"
    )
    reproduce.add_argument("--jobs", type=int, default=1, help="tasks at the same time")
    reproduce.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    reproduce.add_argument("--seed", type=int, default=0, help="of folds, anchors and samples")
    reproduce.add_argument(
        "--out", type=Path, default=Path("plml-study"), help="folder (default: %(default)s)"
    )
    reproduce.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from plml.experiments.reproduce import Study, reproduce

    study = Study.parse(
        what=options.what,
        datasets=options.datasets,
        methods=options.methods,
        data_dir=options.data_dir,
        jobs=options.jobs,
        device=options.device,
        seed=options.seed,
        out=options.out,
    )
    failures = reproduce(study, command="plml " + shlex.join(options.arguments))
    messages: dict[str, list[Any]] = {}
    for failure in failures:
        messages.setdefault(failure.message, []).append(failure.task)
    for message, tasks in messages.items():
        others = f" ({len(tasks) - 1} more like it)" if len(tasks) > 1 else ""
        print(f"plml reproduce: {tasks[0]}: {message}{others}", file=sys.stderr)
    if len(failures) == len(set(study.tasks)):
        raise ValueError(f"all {len(failures)} tasks failed, for the reasons above; nothing is new")
    return 1 if failures else 0


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="time both stages to a certified gap, solver by solver",
        description=(
            "Time stage 1 and stage 2 to a relative gap of 1e-3. An independent judge recomputes "
            "objective and gap of every result in float64."
        ),
    )
    bench.add_argument("--datasets", nargs="+", metavar="NAME", help="default: five of the paper's")
    bench.add_argument("--regularizations", nargs="+", type=float, metavar="VALUE")
    bench.add_argument("--solvers", nargs="+", metavar="NAME", help="of fista, lbfgsb, auto")
    bench.add_argument("--data-dir", help="folder of the original files; else PLML_DATA, OpenML")
    bench.add_argument("--out", type=Path, help="a JSON file for the results")
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    from plml.experiments import bench, datasets
    from plml.progress import task_progress

    names = _known(options.datasets, datasets.NAMES, "data set") or bench.DATASETS
    solvers = _known(options.solvers, bench.SOLVERS, "solver") or bench.SOLVERS
    values = options.regularizations or bench.REGULARIZATIONS
    if not all(value > 0 for value in values):
        raise ValueError(f"--regularizations must be positive, got {values}")
    if options.out is not None:
        check_destination(options.out, "--out", kept=True)
    for name in names:
        datasets.find_files(name, options.data_dir)
    with task_progress() as advance:
        rows = bench.bench(names, values, solvers, options.data_dir, options.out, advance)
    print(bench.format_rows(rows))
    if options.out is not None:
        bench.write_picture(rows, options.out.with_suffix(".png"))
    return 0


def _known(given: list[str] | None, known: Any, what: str) -> tuple[str, ...]:
    unknown = [name for name in given or () if name not in known]
    if unknown:
        raise ValueError(f"unknown {what} {', '.join(unknown)}; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(given or ()))
