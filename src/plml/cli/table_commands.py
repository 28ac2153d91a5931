"""``plml fit``, ``predict``, ``evaluate`` and ``explain``: a table in, a model or a table out."""

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plml import tables
from plml.backend.progress import in_blocks, plan, stage, work
from plml.cli.column_options import add_column_options, column_choices, tell
from plml.cli.figure_options import (
    NOT_MEASURED,
    add_evaluate_figures,
    add_fit_figures,
    check_curves,
    check_positive,
    measured,
    n_folds,
    show,
)
from plml.cli.read_options import add_read_options, table_of, tell_marks
from plml.inspection.explanation_text import named_text
from plml.io.files import check_destination, is_stream
from plml.preprocessing.columns import listed, pandas
from plml.preprocessing.keys import key_texts
from plml.tables.nearest_cases import NEAREST, NEAREST_COLUMNS, nearest_cases
from plml.tables.table_models import LEARNING, check_missing, learned
from plml.tables.training_rows import ENCODING, TrainingRows, training_rows
from plml.wording import counted

if TYPE_CHECKING:
    import pandas as pd

#: Stages of the commands.
_LOADING, _READING, _SAVING = "reading the model", "reading the table", "saving the model"
_EVALUATING = "evaluating"
#: The column of the predicted classes.
_PREDICTION = "prediction"
#: The stage in which they get probabilities.
_PROBABILITIES = "probabilities"
#: Options of ``plml fit`` by the parameters that they set.
FIT_OPTIONS = {
    "max_iter": "--max-iter",
    "tol": "--tol",
    "regularization": "--regularization",
    "n_bases": "--bases",
    "n_neighbors": "--neighbors",
    "device": "--device",
    "class_weight": "--class-weight",
    "scoring": "--scoring",
    "max_rows": "--max-rows",
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
    "html": "the report",
    "json": "the file of figures",
}
_WRITTEN = ("out", "checkpoint", "picture", "html", "json")


def add_table_commands(commands: Any) -> None:
    """Add ``fit``, ``predict``, ``evaluate`` and ``explain`` to the command line."""
    fit = commands.add_parser(
        "fit",
        help="learn from a table and save the model",
        description="Encode the table, learn a metric from it, save the model, and measure it on "
        "rows that were held out.",
    )
    _add_fit_options(fit)
    predict = commands.add_parser(
        "predict",
        help="predict the classes of new rows",
        description="Predict the classes of new rows with a saved model.",
    )
    evaluate = commands.add_parser(
        "evaluate",
        help="measure a model on labelled rows, next to simpler methods",
        description="Print the accuracy with its interval, next to those of tuned neighbours, "
        "Euclidean neighbours and the largest class; say whether the learned metric helps "
        "by more than chance; print the figures of every class and the confusion matrix.",
    )
    explain = commands.add_parser(
        "explain",
        help="explain one prediction: the vote, why this class, the nearest cases",
        description="Explain the prediction of one row: the vote, the nearest cases for and "
        "against it, and the columns that set them apart.",
    )
    for parser in (predict, evaluate, explain):
        parser.add_argument("model", type=Path, help="a file written by plml fit")
    predict.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="write the predictions to this CSV or Parquet file (default: print them)",
    )
    predict.add_argument(
        "--probabilities",
        "--proba",
        dest="proba",
        action="store_true",
        help="add the probability of each class",
    )
    predict.add_argument(
        "--id",
        metavar="COLUMN",
        help="copy this column, the key of the rows (default: that of the fit, if it is there)",
    )
    predict.add_argument(
        "--nearest",
        action="store_true",
        help="add the nearest training case, its class and its distance",
    )
    add_evaluate_figures(evaluate)
    which = explain.add_mutually_exclusive_group()
    which.add_argument(
        "--row",
        type=int,
        default=0,
        help="the row to explain, counted from 0 (default: %(default)s)",
    )
    which.add_argument(
        "--id",
        dest="row_key",
        metavar="KEY",
        help="the key of the row to explain, if the fit had a column of keys",
    )
    explain.add_argument(
        "--cases", type=int, default=5, help="list so many cases (default: %(default)s)"
    )
    explain.add_argument(
        "--features", type=int, default=8, help="list so many columns (default: %(default)s)"
    )
    explain.add_argument(
        "--change",
        nargs="*",
        metavar="COLUMN",
        help="look for the smallest change of these columns that changes the prediction (without "
        "names: of any columns)",
    )
    explain.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="write the whole explanation to this CSV or Parquet file",
    )
    explain.add_argument("--picture", type=Path, metavar="FILE", help="draw it: PNG, SVG or PDF")
    runs = {fit: _fit, predict: _predict, evaluate: _evaluate, explain: _explain}
    for parser, run in runs.items():
        parser.add_argument("table", type=Path, help="CSV, TSV, Parquet or Excel")
        add_read_options(parser)
        parser.set_defaults(run=run)


def _add_fit_options(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("--target", required=True, metavar="COLUMN", help="the column of the labels")
    fit.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("model.skops"),
        metavar="FILE",
        help="the model (default: %(default)s)",
    )
    add_column_options(fit)
    fit.add_argument(
        "--id",
        metavar="COLUMN",
        help="the column that identifies the rows: not learned from, but kept to name the nearest "
        "cases",
    )
    fit.add_argument(
        "--missing",
        choices=tables.MISSING_VALUES,
        default="auto",
        help="how gaps among numbers are filled: by the median, by the median and a column that "
        "marks the gaps (indicator), by the average of near rows (neighbors), or by whichever of "
        "these does best on held-out rows (auto); or refuse gaps (default: %(default)s)",
    )
    how = fit.add_mutually_exclusive_group()
    how.add_argument(
        "--paper",
        action="store_true",
        help="use the paper's method: PLML with its regularization selected by cross-validation "
        "(default: AutoPLML, which selects the kind of metric, the prior and the vote as well)",
    )
    how.add_argument(
        "--regularization", type=float, help="use PLML with this value and select nothing"
    )
    _add_weight_options(fit)
    fit.add_argument(
        "--bases", type=int, help="basis metrics (default: 10; 20 with --paper or --regularization)"
    )
    fit.add_argument(
        "--neighbors",
        type=int,
        help="neighbours that vote (default: selected; 1 with --paper or --regularization)",
    )
    fit.add_argument(
        "--tol",
        type=float,
        default=1e-3,
        help="each stage stops when its certificate says that the objective could be lower by at "
        "most this share (default: %(default)s)",
    )
    fit.add_argument(
        "--max-iter",
        type=int,
        default=1000,
        help="maximum number of iterations of each stage (default: %(default)s)",
    )
    fit.add_argument(
        "--max-rows",
        type=int,
        default=tables.MOST_ROWS,
        metavar="N",
        help="learn from a stratified part of N rows if there are more (default: %(default)s)",
    )
    add_fit_figures(fit)
    fit.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    fit.add_argument(
        "--seed", type=int, default=0, help="seed of the random choices (default: %(default)s)"
    )
    fit.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save the state of the fit here now and then; after an interruption the same command "
        "continues from it",
    )


def _add_weight_options(fit: argparse.ArgumentParser) -> None:
    fit.add_argument(
        "--weight",
        metavar="COLUMN",
        help="the column that says how often each row counts; it is not learned from, and rows of "
        "weight zero are left out",
    )
    fit.add_argument(
        "--class-weight",
        choices=["balanced"],
        help="weight the rows so that all classes count the same",
    )
    fit.add_argument(
        "--weigh-votes", action="store_true", help="let neighbours vote with their weights, too"
    )
    fit.add_argument(
        "--scoring",
        metavar="NAME",
        help="the scikit-learn scorer that selects on held-out rows, such as balanced_accuracy "
        "(default: accuracy)",
    )


def check_paths(options: argparse.Namespace) -> None:
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
            message = re.sub(rf"\b{name}(=| (?=must\b))", f"{option} ", message)
            message = re.sub(rf"\bset {name}\b", f"set {option}", message)
        for advice, here in _ADVICE.items():
            message = message.replace(advice, here)
        if message == str(error):
            raise
        raise ValueError(message) from error


def _fit(options: argparse.Namespace) -> int:
    check_paths(options)
    if options.scoring is not None and options.regularization is not None:
        raise ValueError("--scoring is for a selection, and --regularization leaves none; drop one")
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed must be between 0 and 2**32 - 1, got {options.seed}")
    with work(not options.quiet):
        plan({_READING: 2, ENCODING: 1, LEARNING: 95, _SAVING: 2})
        with stage(_READING):
            table, understood = table_of(options)
        folds = n_folds(options.folds, len(table))
        if options.target in table.columns:
            check_positive(options.positive, table[options.target].dropna())
        with _in_options():
            rows = _rows_to_learn_from(table, understood, options)
            if not folds:
                del table  # a large one makes room for the fit
            model = _learned(rows, options)
        with stage(_SAVING):
            model.save(options.out)
    _print_fitted(model, options)
    sys.stdout.flush()
    if not folds:
        print(f"\n{NOT_MEASURED}")
        return 0
    with work(not options.quiet):  # who has seen enough may interrupt: the model is saved
        worth = measured(model, table, folds, options)
    print(f"\n{worth}")
    return 0


def _rows_to_learn_from(
    table: "pd.DataFrame", understood: tables.Understood, options: argparse.Namespace
) -> TrainingRows:
    check_missing(options.missing)
    return training_rows(
        table,
        options.target,
        str(options.table),
        imputes=options.missing != "refuse",
        doubts=understood.marks.doubts,
        units=understood.marks.units,
        key=options.id,
        weight=options.weight,
        max_rows=options.max_rows,
        random_state=options.seed,
        tell=partial(_tell_columns, understood=understood, options=options),
        **column_choices(options),
    )


def _tell_columns(
    report: tables.ColumnReport, understood: tables.Understood, options: argparse.Namespace
) -> None:
    """Before the fit: how the columns that are used were read, and the report of all."""
    tell_marks(understood, report.used, options)
    tell(report, options.quiet)


def _learned(rows: TrainingRows, options: argparse.Namespace) -> tables.Model:
    return learned(
        rows,
        regularization=options.regularization,
        paper=options.paper,
        missing=options.missing,
        checkpoint=options.checkpoint,
        tol=options.tol,
        max_iter=options.max_iter,
        device=options.device,
        random_state=options.seed,
        class_weight=options.class_weight,
        weigh_votes=options.weigh_votes,
        **_given(n_bases=options.bases, n_neighbors=options.neighbors, scoring=options.scoring),
    )


def _given(**parameters: Any) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in parameters.items() if value is not None}


def _print_fitted(model: tables.Model, options: argparse.Namespace) -> None:
    n_rows = model.n_cases if model.report is None else model.report.n_rows
    if model.n_cases < n_rows:
        print(f"learned from a stratified part, {model.n_cases} of {n_rows} rows (--max-rows)")
    print(model.summary())
    print(f"model: {options.out}")


def _predict(options: argparse.Namespace) -> int:
    check_paths(options)
    with work(not options.quiet, passing=True):
        plan_to(
            {"predicting": 10, _PROBABILITIES: 10 * options.proba, NEAREST: 10 * options.nearest}
        )
        columns = _predictions(options)
    _write(pandas().DataFrame(columns), options.out)
    return 0


def _predictions(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """The columns of the output."""
    model, table = read_both(options)
    probabilities = [f"probability of {label}" for label in model.classifier.classes_]
    columns = _key(table, model.key, options, {_PREDICTION, *probabilities, *NEAREST_COLUMNS})
    rows = model.prepared(table, str(options.table))
    columns[_PREDICTION] = in_blocks("predicting", model.classifier.predict, rows)
    if options.proba:
        found = in_blocks(_PROBABILITIES, model.classifier.predict_proba, rows)
        columns |= dict(zip(probabilities, found.T, strict=True))
    if options.nearest:
        columns |= nearest_cases(model, rows)
    return columns


def _key(
    table: "pd.DataFrame", known: str | None, options: argparse.Namespace, taken: set[str]
) -> dict[str, np.ndarray]:
    """The key of the rows by its name, as it was in the table, where there is one.

    Parameters
    ----------
    table : new rows
    known : the column of the keys at the fit
    options : with ``id``, the column that was asked for
    taken : the other columns of the output
    """
    name = known if options.id is None else options.id
    if name is None or (options.id is None and name not in table.columns):
        return {}
    if name not in table.columns:
        raise ValueError(
            f"{options.table} has no column {name!r} for --id; it has {listed(table.columns)}"
        )
    if name in taken:
        raise ValueError(f"--id {name}: the output has a column of this name; rename it")
    return {name: table[name].to_numpy()}


def _evaluate(options: argparse.Namespace) -> int:
    check_paths(options)
    with work(not options.quiet, passing=True):
        plan_to({_EVALUATING: 20})
        model, table = read_both(options)
        check_positive(options.positive, model.classifier.classes_)
        check_curves(options, model.target, model.labels(table, str(options.table)))
        with stage(_EVALUATING, named=False):
            card = model.evaluate(table, str(options.table), options.positive)
    show(card, options)
    return 0


def _explain(options: argparse.Namespace) -> int:
    for option in ("cases", "features"):
        if getattr(options, option) < 1:
            raise ValueError(f"--{option} must be at least 1, got {getattr(options, option)}")
    check_paths(options)
    with work(not options.quiet, passing=True):
        plan_to({"explaining": 5, "looking for a change": 5 * (options.change is not None)})
        model, table = read_both(options)
        number = _row_to_explain(model, table, options)
        if options.cases > model.n_cases:
            raise ValueError(f"--cases must be between 1 and {model.n_cases}, got {options.cases}")
        row = table.iloc[[number]].reset_index(drop=True)
        name = str(options.table)
        with stage("explaining"):
            found = model.explain(row, name, options.cases)
        if options.change is not None:
            with stage("looking for a change"):
                change = model.counterfactual(row, name, options.change or None)
    key = key_texts(table[model.key])[number] if model.key in table.columns else None
    asked = named_text(f"row {number}", key)
    print(f"{asked}: {found.text(0, found.neighbors.shape[1], options.features)}")
    shares = found.importance_frame().nlargest(options.features, "importance")
    width = max([30, *(len(name) for name in shares["feature"])])
    print(f"\n{'What sets the classes apart':<{width + 2}}{'near here':>10}{'overall':>10}")
    for line in shares.itertuples():
        print(f"  {line.feature:<{width}}{line.importance:>10.0%}{line.global_importance:>10.0%}")
    if options.change is not None:
        print(f"\nWhat would change it\n  {change or 'nothing that was tried'}")
    if options.out is not None:
        frame = found.to_frame().rename(columns={"query": "row", "feature": "column"})
        _write(frame.assign(row=number), options.out)
    if options.picture is not None:
        from plml.inspection.style import write_figure

        write_figure(found.plot().figure_, options.picture)
        print(f"\npicture: {options.picture}")
    return 0


def _row_to_explain(model: tables.Model, table: "pd.DataFrame", options: argparse.Namespace) -> int:
    """The number of the row that is named by its number or by its key."""
    if options.row_key is None:
        if not 0 <= options.row < len(table):
            raise ValueError(f"--row must be between 0 and {len(table) - 1}, got {options.row}")
        return int(options.row)
    if model.key is None:
        raise ValueError("this model knows no column of keys; name the row by its number: --row")
    if model.key not in table.columns:
        raise ValueError(
            f"{options.table} has no column {model.key!r}, the keys of this model; name the row by "
            "its number: --row"
        )
    rows = np.flatnonzero(key_texts(table[model.key]) == options.row_key)
    if len(rows) != 1:
        raise ValueError(
            f"{options.table} has {counted(len(rows), 'row')} with the key {options.row_key!r}; "
            "name one by its number: --row"
        )
    return int(rows[0])


def plan_to(shares: dict[str, float]) -> None:
    """The stages of a command that uses a model, after those that all of them begin with."""
    plan({_LOADING: 2, _READING: 1, ENCODING: 1, **shares})


def read_both(options: argparse.Namespace) -> tuple[tables.Model, "pd.DataFrame"]:
    pandas()
    with stage(_LOADING):
        model = tables.load(options.model)
    with stage(_READING):
        table, understood = table_of(options)
        tell_marks(understood, (*model.columns.names, model.target), options)
    key = getattr(options, "id", None)
    model.misfits(table, key, understood.marks.units).tell(str(options.table))
    return model, table


def _write(table: "pd.DataFrame", path: Path | None) -> None:
    if path is None:
        print(table.to_csv(index=False), end="")
        return
    tables.write_table(table, path)
    print(f"table: {path}", file=sys.stderr)
