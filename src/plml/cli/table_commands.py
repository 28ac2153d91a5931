"""``plml fit``, ``predict``, ``evaluate`` and ``explain``: a table in, a model or a table out."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plml import tables
from plml.backend.progress import plan, stage, work
from plml.estimators.auto_plml import AutoPLML
from plml.io.files import bounded_memory, check_destination, is_stream
from plml.preprocessing.columns import pandas
from plml.tables.table_models import ENCODING, LEARNING

if TYPE_CHECKING:
    import pandas as pd

#: Stages of the commands.
_LOADING, _READING, _SAVING = "reading the model", "reading the table", "saving the model"
#: Options of ``plml fit`` by the parameters that they set.
FIT_OPTIONS = {
    "max_iter": "--max-iter",
    "tol": "--tol",
    "regularization": "--regularization",
    "n_bases": "--bases",
    "n_neighbors": "--neighbors",
    "device": "--device",
}
#: What else the library advises, in the words of the command.
_ADVICE = {
    "use PLML, which selects nothing": "set --regularization yourself",
    "leave it out": "--drop it",
    "or leave it empty": "or leave it empty and use --missing impute",
}
#: Paths of the commands, the ones that are read first.
_PATHS = {
    "model": "the model",
    "table": "the table",
    "out": "the output",
    "checkpoint": "the checkpoint",
    "picture": "the picture",
}
_WRITTEN = ("out", "checkpoint", "picture")
#: Rows that are predicted before the progress is told.
_BLOCK = 8192


def add_table_commands(commands: Any) -> None:
    """Add ``fit``, ``predict``, ``evaluate`` and ``explain`` to the command line."""
    fit = commands.add_parser(
        "fit",
        help="learn from a CSV or Parquet table and save the model",
        description="Encode, standardise and learn; the whole pipeline is saved with skops.",
    )
    _add_fit_options(fit)
    predict = commands.add_parser(
        "predict", help="classes of new rows", description="Predict with a saved model."
    )
    evaluate = commands.add_parser(
        "evaluate",
        help="accuracy on labelled rows, against Euclidean neighbours",
        description="Accuracy overall and by class, the confusion matrix, and Euclidean kNN.",
    )
    explain = commands.add_parser(
        "explain",
        help="the vote behind a prediction, why this class and not another, and the nearest cases",
        description="The vote, the nearest cases for and against, and what sets them apart.",
    )
    for parser in (predict, evaluate, explain):
        parser.add_argument("model", type=Path, help="a file of plml fit")
    predict.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="CSV or Parquet; default: printed"
    )
    predict.add_argument("--proba", action="store_true", help="also the share of each class")
    explain.add_argument(
        "--row", type=int, default=0, help="of the table, the first is 0 (default: %(default)s)"
    )
    explain.add_argument("--cases", type=int, default=5, help="cases listed (default: %(default)s)")
    explain.add_argument(
        "--features", type=int, default=8, help="columns listed (default: %(default)s)"
    )
    explain.add_argument(
        "--change",
        nargs="*",
        metavar="COLUMN",
        help="look for the smallest change of these columns that turns the prediction (of any, "
        "without names)",
    )
    explain.add_argument("-o", "--out", type=Path, metavar="FILE", help="all of it, CSV or Parquet")
    explain.add_argument("--picture", type=Path, metavar="FILE", help="PNG, SVG or PDF")
    runs = {fit: _fit, predict: _predict, evaluate: _evaluate, explain: _explain}
    for parser, run in runs.items():
        parser.add_argument("table", type=Path, help="CSV or Parquet")
        parser.add_argument("--quiet", action="store_true", help="do not show the progress")
        parser.set_defaults(run=run)


def _add_fit_options(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("--target", required=True, metavar="COLUMN", help="the column of the labels")
    fit.add_argument("-o", "--out", type=Path, default=Path("model.skops"), metavar="FILE")
    fit.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="leave these out")
    fit.add_argument(
        "--missing",
        choices=["refuse", "impute"],
        default="refuse",
        help="what to do with missing values (default: %(default)s)",
    )
    how = fit.add_mutually_exclusive_group()
    how.add_argument(
        "--paper",
        action="store_true",
        help="the paper's method: PLML, its regularization selected by cross-validation (default: "
        "AutoPLML, which selects the kind of metric, the prior and the vote as well)",
    )
    how.add_argument("--regularization", type=float, help="PLML with this value, nothing selected")
    fit.add_argument(
        "--bases", type=int, help="basis metrics (default: 10, of the paper's method 20)"
    )
    fit.add_argument(
        "--neighbors",
        type=int,
        help="neighbours that vote (default: selected, of the paper's method 1)",
    )
    fit.add_argument(
        "--tol",
        type=float,
        default=1e-3,
        help="relative gap at which each stage stops (default: %(default)s)",
    )
    fit.add_argument(
        "--max-iter",
        type=int,
        default=1000,
        help="maximum number of iterations of each stage (default: %(default)s)",
    )
    fit.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save the state of the fit there now and then; the same command goes on from it",
    )


def _check_paths(options: argparse.Namespace) -> None:
    """Refuse an output that could not be written, or would replace an input or another output."""
    taken: dict[Path, str] = {}
    for name, what in _PATHS.items():
        path = getattr(options, name, None)
        if path is None:
            continue
        if name in _WRITTEN:
            check_destination(path, f"--{name}", kept=name == "checkpoint")
        if not path.parent.is_dir() or (path.exists() and is_stream(path)):
            continue
        path = path.resolve()
        if path in taken:
            raise ValueError(f"--{name} {path.name} is {taken[path]} itself; give another path")
        taken[path] = what


@contextmanager
def _in_options() -> Iterator[None]:
    """Errors about parameters, in the words of the command."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        for name, option in FIT_OPTIONS.items():
            message = re.sub(rf"The '{name}' parameter of \w+", option, message)
            message = re.sub(rf"\b{name}=", f"{option} ", message)
            message = re.sub(rf"\bset {name}\b", f"set {option}", message)
        for advice, here in _ADVICE.items():
            message = message.replace(advice, here)
        if message == str(error):
            raise
        raise ValueError(message) from error


def _fit(options: argparse.Namespace) -> int:
    _check_paths(options)
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {options.seed}")
    with work(not options.quiet):
        plan({_READING: 2, ENCODING: 1, LEARNING: 95, _SAVING: 2})
        with stage(_READING):
            table = _table(options.table)
        with _in_options():
            model = tables.fit(
                table,
                options.target,
                str(options.table),
                regularization=options.regularization,
                paper=options.paper,
                missing=options.missing,
                drop=tuple(options.drop),
                checkpoint=options.checkpoint,
                tol=options.tol,
                max_iter=options.max_iter,
                device=options.device,
                random_state=options.seed,
                **_given(n_bases=options.bases, n_neighbors=options.neighbors),
            )
        with stage(_SAVING):
            model.save(options.out)
    _print_fitted(model, len(table), options)
    return 0


def _given(**parameters: Any) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in parameters.items() if value is not None}


def _print_fitted(model: tables.Model, n_rows: int, options: argparse.Namespace) -> None:
    classifier = model.classifier
    print(
        f"{n_rows} rows, {len(model.columns.names)} columns as "
        f"{classifier.n_features_in_} features, {len(classifier.classes_)} classes"
    )
    if isinstance(classifier, AutoPLML):
        print(classifier.summary())
        learner: Any = classifier.model_
    else:
        learner = classifier
        chosen = getattr(classifier, "best_regularization_", options.regularization)
        print(f"regularization {chosen:g}")
    gaps = [learner.weights_gap_] if hasattr(learner, "weights_gap_") else []
    stages = " and ".join(f"{gap:.1e}" for gap in [*gaps, learner.dual_gap_])
    print(
        f"at most {stages} (relative) from the optimum of its {'two stages' if gaps else 'metric'}"
        f"{'' if learner.converged_ else ': not converged'}"
    )
    if hasattr(classifier, "best_regularization_"):
        print(f"accuracy in cross-validation {classifier.best_score_:.2%}")
    print(f"model: {options.out}")


def _predict(options: argparse.Namespace) -> int:
    _check_paths(options)
    with work(not options.quiet, passing=True):
        _plan_to({"predicting": 10, "shares": 10 * options.proba})
        model, table = _read(options)
        rows = model.prepared(table, str(options.table))
        columns = {"prediction": _in_blocks("predicting", model.classifier.predict, rows)}
        if options.proba:
            shares = _in_blocks("shares", model.classifier.predict_proba, rows)
            for number, label in enumerate(model.classifier.classes_):
                columns[f"share of {label}"] = shares[:, number]
    _write(pandas().DataFrame(columns), options.out)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from sklearn.metrics import classification_report, confusion_matrix
    from sklearn.neighbors import KNeighborsClassifier

    with work(not options.quiet, passing=True):
        _plan_to({"predicting": 10, "Euclidean neighbours": 10})
        model, table = _read(options)
        labels = model.labels(table, str(options.table))
        rows = model.prepared(table, str(options.table))
        classifier = model.classifier
        k = getattr(classifier, "best_params_", {}).get("n_neighbors", classifier.n_neighbors)
        euclidean = KNeighborsClassifier(k, algorithm="brute")
        cases, codes = classifier.training_cases()
        euclidean.fit(cases, classifier.classes_[codes])
        predicted = _in_blocks("predicting", classifier.predict, rows)
        unlearned = _in_blocks("Euclidean neighbours", euclidean.predict, rows.to_numpy())
    print(f"accuracy {np.mean(predicted == labels):.2%} of {len(labels)} rows")
    print(f"Euclidean nearest neighbours {np.mean(unlearned == labels):.2%}\n")
    print(classification_report(labels, predicted, digits=3, zero_division=0))
    names = np.unique(np.concatenate([labels, predicted]))
    matrix = confusion_matrix(labels, predicted, labels=names)
    frame = pandas().DataFrame(matrix, names, names)
    print("confusion (rows: true, columns: predicted)\n" + frame.to_string())
    return 0


def _explain(options: argparse.Namespace) -> int:
    for option in ("cases", "features"):
        if getattr(options, option) < 1:
            raise ValueError(f"--{option} must be at least 1, got {getattr(options, option)}")
    _check_paths(options)
    with work(not options.quiet, passing=True):
        _plan_to({"explaining": 5, "looking for a change": 5 * (options.change is not None)})
        model, table = _read(options)
        if not 0 <= options.row < len(table):
            raise ValueError(f"--row must be between 0 and {len(table) - 1}, got {options.row}")
        row, name = table.iloc[[options.row]], str(options.table)
        with stage("explaining"):
            found = model.explain(row, name, options.cases)
        if options.change is not None:
            with stage("looking for a change"):
                change = model.counterfactual(row, name, options.change or None)
    print(f"row {options.row}: {found.text(0, found.neighbors.shape[1], options.features)}")
    print(f"\n{'What sets the classes apart':<32}{'near here':>10}{'overall':>10}")
    for line in found.importance_frame().nlargest(options.features, "importance").itertuples():
        print(f"  {line.feature:<30}{line.importance:>10.0%}{line.global_importance:>10.0%}")
    if options.change is not None:
        print(f"\nWhat would change it\n  {change or 'nothing that was tried'}")
    if options.out is not None:
        frame = found.to_frame().rename(columns={"query": "row", "feature": "column"})
        _write(frame.assign(row=options.row), options.out)
    if options.picture is not None:
        from plml.inspection.style import write_figure

        write_figure(found.plot().figure_, options.picture)
        print(f"\npicture: {options.picture}")
    return 0


def _plan_to(shares: dict[str, float]) -> None:
    """The stages of a command that uses a model, after those that all of them begin with."""
    plan({_LOADING: 2, _READING: 1, ENCODING: 1, **shares})


def _read(options: argparse.Namespace) -> tuple[tables.Model, "pd.DataFrame"]:
    pandas()
    with stage(_LOADING):
        model = tables.load(options.model)
    with stage(_READING):
        return model, _table(options.table)


def _in_blocks(name: str, predict: Callable[[Any], np.ndarray], rows: Any) -> np.ndarray:
    """Predictions, a block of rows at a time, so that it can be said how far they are."""
    parts = []
    with stage(name) as progress:
        for start in range(0, len(rows), _BLOCK):
            parts.append(predict(rows[start : start + _BLOCK]))
            done = min(start + _BLOCK, len(rows))
            progress.report(f"{done} of {len(rows)} rows", done / len(rows))
    return np.concatenate(parts)


def _table(path: Path) -> "pd.DataFrame":
    """A table, in no more memory than a file of its size can need."""
    with bounded_memory(path):
        return tables.read_table(path)


def _write(table: "pd.DataFrame", path: Path | None) -> None:
    if path is None:
        print(table.to_csv(index=False), end="")
        return
    tables.write_table(table, path)
    print(f"table: {path}", file=sys.stderr)
