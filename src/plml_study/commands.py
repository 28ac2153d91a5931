"""The commands that the study adds to ``plml``: ``reproduce`` and ``bench``."""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plml.io.files import check_destination

if TYPE_CHECKING:
    from plml_study.reproduce import Study


def add_commands(commands: Any) -> None:
    """Add both to the parsers of the command line."""
    _add_reproduce(commands)
    _add_bench(commands)


def _add_reproduce(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's study: its table, its figures, and a report",
        description="Run the paper's study. What is done is kept: the same command continues.",
    )
    reproduce.add_argument(
        "what", choices=("table1", "figure1", "figure2", "all"), help="the part of the study to run"
    )
    names = {"nargs": "+", "metavar": "NAME", "default": ["all"]}
    reproduce.add_argument("--datasets", **names, help="data sets (default: the paper's six)")
    reproduce.add_argument("--methods", **names, help="methods of table1 (default: all eight)")
    reproduce.add_argument(
        "--data-dir", help="folder of the original files (default: PLML_DATA, or else OpenML)"
    )
    reproduce.add_argument("--jobs", type=int, default=1, help="run so many tasks at the same time")
    reproduce.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    reproduce.add_argument("--seed", type=int, default=0, help="seed of folds, anchors and samples")
    reproduce.add_argument(
        "--out",
        type=Path,
        default=Path("plml-study"),
        help="folder of the results (default: %(default)s)",
    )
    reproduce.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from plml_study.reproduce import reproduce

    study = _study(options)
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


def _study(options: argparse.Namespace) -> "Study":
    """The study that the options describe; a ``ValueError`` names what is wrong."""
    from plml.backend.arrays import check_device
    from plml_study import datasets, methods, paper
    from plml_study.reproduce import PARTS, Study
    from plml_study.result_tables import APART

    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {options.seed}")
    check_device(options.device)
    known = {"all": (*paper.METHODS, *APART), **_themselves(methods.BUILDERS)}
    known |= {"SVM": ("KernelSVM",), "LMNN-MM": ("LMNNMM",)}
    chosen = _chosen(options.methods, known, "method")
    known = {"all": paper.DATASETS, **_themselves(datasets.NAMES)}
    names = _chosen(options.datasets, known, "data set")
    parts = PARTS if options.what == "all" else (options.what,)
    needed = set(names if set(parts) - {"figure1"} else ())
    for name in sorted(needed | {"mnist"} if "figure1" in parts else needed):
        datasets.find_files(name, options.data_dir)
    _check_writable(options.out)
    return Study(
        parts,
        names,
        chosen,
        options.data_dir,
        options.jobs,
        options.device,
        options.seed,
        options.out,
    )


def _check_writable(out: Path) -> None:
    """Before anything is computed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(
            f"--out {out} cannot be written to ({error.strerror}); name another folder"
        ) from None


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="time each solver on both stages, to a certified gap",
        description=(
            "Time stage 1 and stage 2 to a relative gap of 1e-3. An independent judge recomputes "
            "objective and gap of every result in float64."
        ),
    )
    bench.add_argument(
        "--datasets", nargs="+", metavar="NAME", help="data sets (default: five of the paper's)"
    )
    bench.add_argument(
        "--regularizations", nargs="+", type=float, metavar="VALUE", help="values of regularization"
    )
    bench.add_argument(
        "--solvers", nargs="+", metavar="NAME", help="solvers: fista, lbfgsb, auto (default: all)"
    )
    bench.add_argument(
        "--data-dir", help="folder of the original files (default: PLML_DATA, or else OpenML)"
    )
    bench.add_argument("--out", type=Path, help="write the results to this JSON file")
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    from plml.backend.progress import task_progress
    from plml_study import datasets, race

    names = _chosen(options.datasets, _themselves(datasets.NAMES), "data set")
    solvers = _chosen(options.solvers, _themselves(race.SOLVERS), "solver")
    names, solvers = names or race.DATASETS, solvers or race.SOLVERS
    values = options.regularizations or race.REGULARIZATIONS
    if not all(value > 0 for value in values):
        raise ValueError(f"--regularizations must be positive, got {values}")
    if options.out is not None:
        check_destination(options.out, "--out", kept=True)
    for name in names:
        datasets.find_files(name, options.data_dir)
    with task_progress() as advance:
        rows = race.bench(names, values, solvers, options.data_dir, options.out, advance)
    print(race.format_rows(rows))
    if options.out is not None:
        race.write_picture(rows, options.out.with_suffix(".png"))
    return 0


def _themselves(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names}


def _chosen(
    words: list[str] | None, known: Mapping[str, tuple[str, ...]], what: str
) -> tuple[str, ...]:
    """The names that words of the command line stand for, each once; an error names the rest."""
    by_word = {word.lower(): names for word, names in known.items()}
    unknown = [word for word in words or () if word.lower() not in by_word]
    if unknown:
        raise ValueError(f"unknown {what} {', '.join(unknown)}; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(name for word in words or () for name in by_word[word.lower()]))
