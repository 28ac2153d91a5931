"""``plml fit``, ``predict``, ``evaluate`` and ``explain``: a table in, a model or a table out."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from plml.tabular import Model


def add_table_commands(commands: Any) -> None:
    """Their parsers."""
    fit = commands.add_parser(
        "fit",
        help="learn from a CSV or Parquet table and save the model",
        description="Encode, standardise and learn; the whole pipeline is saved with skops.",
    )
    fit.add_argument("table", type=Path, help="CSV or Parquet")
    fit.add_argument("--target", required=True, metavar="COLUMN", help="the column of the labels")
    fit.add_argument("-o", "--out", type=Path, default=Path("model.skops"), metavar="FILE")
    fit.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="leave these out")
    fit.add_argument(
        "--missing",
        choices=["refuse", "impute"],
        default="refuse",
        help="what to do with missing numbers (default: %(default)s)",
    )
    fit.add_argument("--regularization", type=float, help="default: selected by cross-validation")
    fit.add_argument("--bases", type=int, default=20, help="basis metrics (default: %(default)s)")
    fit.add_argument("--neighbors", type=int, default=1, help="that vote (default: %(default)s)")
    fit.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    fit.add_argument("--seed", type=int, default=0)
    fit.set_defaults(run=_fit)

    predict = commands.add_parser(
        "predict", help="classes of new rows", description="Predict with a saved model."
    )
    _add_model_and_table(predict)
    predict.add_argument("-o", "--out", type=Path, metavar="FILE", help="CSV; default: printed")
    predict.add_argument("--proba", action="store_true", help="shares of the classes, too")
    predict.set_defaults(run=_predict)

    evaluate = commands.add_parser(
        "evaluate",
        help="accuracy on labelled rows, against Euclidean neighbours",
        description="Accuracy, every class, the confusion matrix, and Euclidean kNN beside.",
    )
    _add_model_and_table(evaluate)
    evaluate.set_defaults(run=_evaluate)

    explain = commands.add_parser(
        "explain",
        help="the cases behind a prediction, and the features that made them near",
        description="Split the local distance to the nearest training cases over the features.",
    )
    _add_model_and_table(explain)
    explain.add_argument("--row", type=int, default=0, help="of the table (default: %(default)s)")
    explain.add_argument("--cases", type=int, default=3, help="neighbours (default: %(default)s)")
    explain.add_argument("--features", type=int, default=5, help="listed (default: %(default)s)")
    explain.add_argument("-o", "--out", type=Path, metavar="FILE", help="all of it as CSV")
    explain.add_argument("--picture", type=Path, metavar="FILE", help="PNG, SVG or PDF")
    explain.set_defaults(run=_explain)


def _add_model_and_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a file of plml fit")
    parser.add_argument("table", type=Path, help="CSV or Parquet")


def _fit(options: argparse.Namespace) -> int:
    from plml import tabular

    _check_folder(options.out, "--out")
    table = tabular.read_table(options.table)
    model = tabular.fit(
        table,
        options.target,
        str(options.table),
        regularization=options.regularization,
        missing=options.missing,
        drop=tuple(options.drop),
        n_bases=options.bases,
        n_neighbors=options.neighbors,
        device=options.device,
        random_state=options.seed,
        verbose=int(sys.stderr.isatty()),
    )
    model.save(options.out)
    classifier = model.classifier
    chosen = getattr(classifier, "best_regularization_", options.regularization)
    print(
        f"{len(table)} rows, {len(model.columns)} columns as {classifier.n_features_in_} features, "
        f"{len(classifier.classes_)} classes\n"
        f"regularization {chosen:g}; relative gaps {classifier.weights_gap_:.1e} (weights), "
        f"{classifier.dual_gap_:.1e} (metrics)"
    )
    if hasattr(classifier, "best_score_"):
        print(f"accuracy in cross-validation {classifier.best_score_:.2%}")
    print(f"model: {options.out}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    import pandas as pd

    model, table = _read(options)
    rows = model.prepared(table, str(options.table))
    found = pd.DataFrame({"prediction": model.classifier.predict(rows)})
    if options.proba:
        shares = model.classifier.predict_proba(rows)
        for number, label in enumerate(model.classifier.classes_):
            found[f"share of {label}"] = shares[:, number]
    _write(found, options.out)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    import pandas as pd
    from sklearn.metrics import classification_report, confusion_matrix
    from sklearn.neighbors import KNeighborsClassifier

    model, table = _read(options)
    if model.target not in table.columns:
        raise ValueError(f"{options.table} has no column {model.target!r} to compare with")
    rows = model.prepared(table, str(options.table))
    classifier = model.classifier
    labels = _same_kind(table[model.target], classifier.classes_)
    euclidean = KNeighborsClassifier(classifier.n_neighbors, algorithm="brute")
    euclidean.fit(classifier._fit_X, classifier.classes_[classifier._fit_codes])
    predicted = classifier.predict(rows)
    beside = euclidean.predict(rows.to_numpy())
    print(f"accuracy {np.mean(predicted == labels):.2%} of {len(labels)} rows")
    print(f"Euclidean nearest neighbours {np.mean(beside == labels):.2%}\n")
    print(classification_report(labels, predicted, digits=3, zero_division=0))
    names = np.unique(np.concatenate([labels, predicted]))
    matrix = pd.DataFrame(confusion_matrix(labels, predicted, labels=names), names, names)
    print("confusion (rows: true, columns: predicted)\n" + matrix.to_string())
    return 0


def _explain(options: argparse.Namespace) -> int:
    model, table = _read(options)
    if not 0 <= options.row < len(table):
        raise ValueError(f"--row must be between 0 and {len(table) - 1}, got {options.row}")
    for path, name in ((options.out, "--out"), (options.picture, "--picture")):
        if path is not None:
            _check_folder(path, name)
    rows = model.prepared(table.iloc[[options.row]], str(options.table))
    found = model.classifier.explain(rows, options.cases)
    print(f"row {options.row}: predicted {found.predictions[0]}")
    for rank, (case, label) in enumerate(zip(found.neighbors[0], found.labels[0], strict=True)):
        distance = float(np.sqrt(found.squared_distances[0, rank]))
        print(f"\nnear training row {case} ({label}), local distance {distance:.3g}; it differs by")
        parts = found.contributions[0, rank]
        for number in np.argsort(-np.abs(parts), kind="stable")[: options.features]:
            share = parts[number] / (found.squared_distances[0, rank] or 1.0)
            print(f"  {found.feature_names[number]:<30}{share:>8.1%} of the squared distance")
    here = np.argsort(-found.importance[0], kind="stable")[: options.features]
    print("\nwhat the metric looks at here (and on average)")
    for number in here:
        print(
            f"  {found.feature_names[number]:<30}{found.importance[0, number]:>8.1%} "
            f"({found.global_importance[number]:.1%})"
        )
    if options.out is not None:
        _write(found.to_frame(), options.out)
    if options.picture is not None:
        found.plot().figure_.savefig(options.picture, dpi=150, facecolor="white")
        print(f"\npicture: {options.picture}")
    return 0


def _read(options: argparse.Namespace) -> tuple["Model", "pd.DataFrame"]:
    from plml import tabular

    return tabular.load(options.model), tabular.read_table(options.table)


def _write(table: "pd.DataFrame", path: Path | None) -> None:
    from plml.files import write_atomically

    text = table.to_csv(index=False)
    if path is None:
        print(text, end="")
        return
    _check_folder(path, "--out")
    write_atomically(path, text)
    print(f"table: {path}", file=sys.stderr)


def _check_folder(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")


def _same_kind(labels: "pd.Series", classes: np.ndarray) -> np.ndarray:
    """Labels of a table as the model knows them."""
    return (
        labels.astype(str).to_numpy(dtype=str) if classes.dtype.kind in "UO" else labels.to_numpy()
    )
