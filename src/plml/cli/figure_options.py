"""What ``plml fit`` and ``plml evaluate`` say of a model, and where they write it."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import classification_report

from plml import tables
from plml.evaluation import Scorecard, cross_evaluate
from plml.evaluation.evaluation_pictures import accuracy_figure, curves_figure
from plml.evaluation.evaluation_report import report
from plml.evaluation.scorecard import positive_class
from plml.inspection.style import write_figure
from plml.io.files import write
from plml.preprocessing.columns import pandas

if TYPE_CHECKING:
    import pandas as pd

#: Up to so many rows a fit is repeated in three folds, then once, then not at all.
_FEW, _MANY = 3000, 20_000
#: What is said then.
NOT_MEASURED = "not measured: evaluate it on other rows (plml evaluate), or fit with --folds 3"


def add_fit_figures(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a fit is measured."""
    parser.add_argument(
        "--folds",
        type=int,
        metavar="N",
        help="measure the fit by N-fold cross-validation; 1 holds out a third once, 0 measures "
        f"nothing (default: 3; 1 for more than {_FEW} rows, 0 for more than {_MANY})",
    )
    _add_positive(parser)


def add_evaluate_figures(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is shown of an evaluation."""
    _add_positive(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report, one page")
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="draw the accuracies with their intervals; with --positive, ROC and precision-recall "
        "curves",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")


def _add_positive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--positive",
        metavar="CLASS",
        help="with two classes, the one whose precision, recall and ROC are reported",
    )


def n_folds(asked: int | None, n_rows: int) -> int:
    """How often a fit is repeated to measure it.

    Parameters
    ----------
    asked : by the user; None where nothing was said
    n_rows : of the table
    """
    if asked is not None:
        if asked < 0:
            raise ValueError(f"--folds must be at least 0, got {asked}")
        return asked
    return 3 if n_rows <= _FEW else int(n_rows <= _MANY)


def check_positive(positive: str | None, labels: Any) -> None:
    """Refuse, before the work, a positive class that is not one of two.

    Parameters
    ----------
    positive : of the option; None where nothing was said
    labels : in which it has to be
    """
    if positive is None:
        return
    try:
        positive_class(np.array(sorted(set(labels), key=str), dtype=object), positive)
    except ValueError as error:
        raise ValueError(f"--positive {positive}: {error}") from error


def check_curves(options: argparse.Namespace, target: str, labels: np.ndarray) -> None:
    """Refuse, before the work, curves of rows that are all of one class.

    Parameters
    ----------
    options : of ``plml evaluate``
    target : the column of the labels
    labels : of all rows
    """
    if options.positive is None or options.picture is None or len(set(labels.tolist())) > 1:
        return
    raise ValueError(
        f"{options.table}: column {target!r} has the class {str(labels[0])!r} alone, so --picture "
        f"has no ROC curve of --positive {options.positive}; leave one of the options out"
    )


def measured(
    model: tables.Model, table: "pd.DataFrame", folds: int, options: argparse.Namespace
) -> Scorecard | str:
    """What the fit is worth on rows that were held out of it, or why that is not known."""
    name = str(options.table)
    weights = tables.row_weights(table, options.weight, name)
    if weights is not None:
        table, weights = table[weights > 0.0], weights[weights > 0.0]
    how = f"of {name}, each predicted by a fit without it" if folds > 1 else f"held out of {name}"
    try:
        return cross_evaluate(
            model.pipeline,
            model.columns.tidy(table, name),
            model.labels(table, name),
            n_folds=folds,
            source=how,
            positive=options.positive,
            random_state=options.seed,
            sample_weight=weights,
            max_rows=options.max_rows,
        )
    except ValueError as error:
        return f"not measured: {error}"


def show(card: Scorecard, options: argparse.Namespace) -> None:
    """Print an evaluation, and write what was asked for."""
    predicted = card.predictions[card.judged]
    names, matrix = card.confusion
    print(f"{card}\n")
    print(classification_report(card.labels, predicted, digits=3, zero_division=0))
    frame = pandas().DataFrame(matrix, names, names)
    print("confusion (rows: true, columns: predicted)\n" + frame.to_string())
    if options.json is not None:
        write(options.json, json.dumps(card.to_dict(), indent=2) + "\n")
    if options.picture is not None:
        figure = accuracy_figure if card.positive is None else curves_figure
        write_figure(figure(card), options.picture)
        print(f"picture: {options.picture}")
    if options.html is not None:
        title = f"{options.model.name} on {options.table.name}"
        write(options.html, report(card, title))
        print(f"report: {options.html}")
