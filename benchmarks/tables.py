"""Classifiers on ordinary tables with fixed folds: accuracy, log-loss, calibration, seconds.

    python benchmarks/tables.py [--data-dir DIR] [--methods ...] [--tables ...] [--n-jobs N]
    python benchmarks/tables.py --add my_module:MyClassifier
    python benchmarks/tables.py --methods kNN SVM --add 'sklearn.svm:SVC {"C": 10}'

A method is one of those below, or the import path of a class (or of a function that makes a
classifier) with scikit-learn's interface, with its parameters as JSON behind it; it is put behind a
StandardScaler. --add puts it next to the others, and compares it with each. Modules in the current
folder are found. What a method selects it selects on the training rows alone.
Folds are kept as they are done (in --out, results/tables.json by default), and a second call goes
on where the first one ended; --again computes those of the added methods anew, after a change.
Every fold has one thread; --n-jobs of them run at the same time.
"""

import argparse
import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import wilcoxon
from sklearn.base import is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from plml import DANN, LMNN, PLMLCV, AutoPLML
from plml.io.files import write_atomically
from plml.wording import counted
from plml_study import datasets, tables
from plml_study.records import provenance

NEIGHBORS = (1, 3, 5, 7, 9, 11, 15, 21, 25)
#: What is averaged over the tables.
_MEASURES = {
    "accuracy": "mean accuracy, %",
    "balanced_accuracy": "balanced accuracy, %",
    "log_loss": "log-loss",
    "calibration_error": "calibration error, %",
}
#: Bins of the expected calibration error.
_BINS = 10
#: Probabilities are kept away from zero by this much before their logarithm is taken.
_LEAST = 1e-6


def _tuned(model: Any, grid: dict[str, Any]) -> GridSearchCV:
    return GridSearchCV(make_pipeline(StandardScaler(), model), grid, cv=3)


def _svm() -> GridSearchCV:
    """30 settings; its probabilities are the softmax of the decisions, which costs no more fits."""
    grid = {"svc__C": np.logspace(-1, 3, 5), "svc__gamma": [*np.logspace(-3, 1, 5), "scale"]}
    return _tuned(SVC(decision_function_shape="ovr"), grid)


def _neighbors() -> GridSearchCV:
    grid = {
        "kneighborsclassifier__n_neighbors": NEIGHBORS,
        "kneighborsclassifier__weights": ["uniform", "distance"],
    }
    return _tuned(KNeighborsClassifier(), grid)


def _components() -> Any:
    nca = NeighborhoodComponentsAnalysis(random_state=0)
    return make_pipeline(StandardScaler(), nca, KNeighborsClassifier(5))


METHODS: dict[str, Callable[[], Any]] = {
    "kNN": _neighbors,
    "SVM": _svm,
    "forest": lambda: RandomForestClassifier(300, random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "NCA": _components,
    "DANN": lambda: make_pipeline(StandardScaler(), DANN()),
    "LMNN": lambda: make_pipeline(StandardScaler(), LMNN()),
    "PLMLCV": lambda: make_pipeline(
        StandardScaler(),
        PLMLCV(cv=3, n_neighbors=NEIGHBORS, vote=("uniform", "distance"), random_state=0),
    ),
    "AutoPLML": lambda: AutoPLML(random_state=0),
}


def canonical(text: str) -> str:
    """A method as it is called in the records, however its path and its JSON are written."""
    path, _, parameters = text.strip().partition(" ")
    path = path.replace(":", ".")
    if not parameters:
        return path
    try:
        values = json.loads(parameters)
    except json.JSONDecodeError as error:
        raise SystemExit(
            f'{text!r}: the parameters are not JSON such as {{"C": 10}}: {error}'
        ) from None
    if not isinstance(values, dict):
        raise SystemExit(f'{text!r}: the parameters must be a JSON object such as {{"C": 10}}')
    return f"{path} {json.dumps(values, sort_keys=True)}"


def title(method: str) -> str:
    """A method as it is called in tables: without its module."""
    path, space, parameters = method.partition(" ")
    return path.rpartition(".")[2] + space + parameters


def build(method: str) -> Any:
    """An unfitted classifier, by its name here or by its import path."""
    if method in METHODS:
        return METHODS[method]()
    path, _, parameters = method.partition(" ")
    module, _, name = path.rpartition(".")
    try:
        make = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may fail in any way
        known = ", ".join(METHODS)
        raise SystemExit(
            f"{path!r} is neither one of {known} nor a class to import: {one_line(error)}"
        ) from None
    try:
        model = make(**json.loads(parameters or "{}"))
        usable = all(hasattr(model, name) for name in ("fit", "predict")) and not is_regressor(
            model
        )
    except Exception as error:
        raise SystemExit(f"{method!r} cannot be made: {one_line(error)}") from None
    if not usable:
        raise SystemExit(f"{method!r} is not a classifier with fit and predict")
    return make_pipeline(StandardScaler(), model)


def one_line(error: Exception) -> str:
    """What an error says first."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def probabilities(model: Any, X: np.ndarray) -> np.ndarray | None:
    """Of the classes: ``predict_proba``, the softmax of the decisions, None without either."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
    if not hasattr(model, "decision_function"):
        return None
    decisions = np.asarray(model.decision_function(X))
    if decisions.ndim == 1:
        decisions = np.column_stack([-decisions, decisions])
    shifted = np.exp(decisions - decisions.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def calibration_error(P: np.ndarray, right: np.ndarray) -> float:
    """The expected difference between the largest probability and how often it is right."""
    confidence = P.max(axis=1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    parts = [
        np.mean(bins == b) * abs(confidence[bins == b].mean() - right[bins == b].mean())
        for b in np.unique(bins)
    ]
    return float(sum(parts))


def fold_result(table: tables.FoldedTable, method: str, fold: int) -> dict[str, float] | str:
    """One method on one fold, with one thread; the error of someone else's method in one line."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        try:
            return _fold_result(table, method, fold)
        except Exception as error:
            return one_line(error)


def _fold_result(table: tables.FoldedTable, method: str, fold: int) -> dict[str, float]:
    train, test = table.folds != fold, table.folds == fold
    model, y = build(method), table.y[test]
    start = perf_counter()
    model.fit(table.X[train], table.y[train])
    seconds = perf_counter() - start
    predicted, P = model.predict(table.X[test]), probabilities(model, table.X[test])
    found = {
        "accuracy": float(np.mean(predicted == y)),
        "balanced_accuracy": float(balanced_accuracy_score(y, predicted)),
        "log_loss": np.nan,
        "calibration_error": np.nan,
        "seconds": seconds,
    }
    if P is not None:
        classes = getattr(model, "classes_", np.unique(table.y[train]))
        known = np.isin(y, classes)  # a class may have no training row
        floored = np.maximum(P[known], _LEAST)
        floored /= floored.sum(axis=1, keepdims=True)
        found["log_loss"] = float(log_loss(y[known], floored, labels=classes))
        found["calibration_error"] = calibration_error(P, predicted == y)
    return found


def mean_of(records: dict[str, Any], name: str, method: str, what: str) -> float:
    """Over the folds of a table."""
    folds = records[name][method].values()
    return float(np.mean([fold[what] for fold in folds]))


def compared(a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Wins, ties and losses of a against b over the tables, with a signed-rank test."""
    difference = np.round(a - b, 10)
    p = float(wilcoxon(a, b).pvalue) if np.any(difference) else 1.0
    counts = [int(np.sum(sign)) for sign in (difference > 0, difference == 0, difference < 0)]
    return dict(zip(("wins", "ties", "losses"), counts, strict=True)) | {"p": p}


def in_words(found: dict[str, Any]) -> str:
    """As in 2 wins, 1 tie, 0 losses (signed-rank test: p = 0.5)."""
    won, tied = counted(found["wins"], "win"), counted(found["ties"], "tie")
    lost = counted(found["losses"], "loss", "losses")
    return f"{won}, {tied}, {lost} (signed-rank test: p = {found['p']:.2g})"


def report(records: dict[str, Any], names: list[str], methods: list[str], added: list[str]) -> None:
    """The table of accuracies and the means, and the added methods against all others.

    Parameters
    ----------
    records : of all folds
    names, methods : the tables and the methods to show
    added : some of the methods; without any, the last one stands for them
    """
    widths = [max(len(title(method)), 10) + 2 for method in methods]

    def line(head: str, values: Iterable[Any], form: str) -> None:
        cells = (f"{value:>{width}{form}}" for value, width in zip(values, widths, strict=True))
        print(f"{head:24s}" + "".join(cells))

    line("accuracy %", map(title, methods), "s")
    accuracies = np.array(
        [[mean_of(records, name, method, "accuracy") for method in methods] for name in names]
    )
    for name, row in zip(names, accuracies, strict=True):
        line(name, 100 * row, ".2f")
    for what in ("accuracy", "balanced_accuracy", "log_loss", "calibration_error", "seconds"):
        means = [np.mean([mean_of(records, n, method, what) for n in names]) for method in methods]
        line(f"mean {what.replace('_', ' ')}", means, ".4f")
    if {"AutoPLML", "SVM"} <= set(methods):
        seconds = {m: np.array([mean_of(records, n, m, "seconds") for n in names]) for m in methods}
        ratios = seconds["AutoPLML"] / seconds["SVM"]
        print("seconds of AutoPLML / SVM: " + ", ".join(map("{} {:.2f}".format, names, ratios)))
        print(f"geometric mean {np.exp(np.log(ratios).mean()):.2f}")
    columns = dict(zip(methods, accuracies.T, strict=True))
    for own, method in product(added or methods[-1:], methods):
        if own != method:
            found = compared(columns[own], columns[method])
            print(f"{title(own)} against {title(method)}: {in_words(found)}")


def as_markdown(records: dict[str, Any], names: list[str], methods: list[str]) -> str:
    """The accuracies in percent, the best of a row in bold, and the means of all measures."""
    header = ["table", *map(title, methods)]
    lines = [header, ["---"] * len(header)]
    for name in names:
        row = [100 * mean_of(records, name, method, "accuracy") for method in methods]
        lines.append([name, *(f"**{v:.2f}**" if v == max(row) else f"{v:.2f}" for v in row)])
    for what, words in _MEASURES.items():
        factor = 1.0 if what == "log_loss" else 100.0
        means = [
            factor * np.mean([mean_of(records, name, method, what) for name in names])
            for method in methods
        ]
        lines.append([f"*{words}*", *("-" if np.isnan(v) else f"{v:.2f}" for v in means)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def picture(records: dict[str, Any], names: list[str], methods: list[str], path: Path) -> None:
    """Accuracies by table: the last method in colour, the others around it."""
    import matplotlib.pyplot as plt

    from plml.inspection.style import PALETTE, clean, write_figure

    accuracy = {
        method: np.array([100 * mean_of(records, name, method, "accuracy") for name in names])
        for method in methods
    }
    order, own = np.argsort(accuracy[methods[-1]]), methods[-1]
    known = ("kNN", "SVM", "forest", "boosting", "AutoPLML")
    shown = [method for method in known if method in accuracy and method != own]
    figure, ax = plt.subplots(figsize=(7.5, 6.0), layout="constrained")
    for place in range(len(names)):
        values = [accuracy[method][order[place]] for method in (*shown, own)]
        ax.plot([min(values), max(values)], [place, place], color="#dddddd", zorder=1)
    for method, marker, color in zip(shown, "vs^Do", PALETTE[2:], strict=False):
        look = {"s": 26, "color": color, "marker": marker, "alpha": 0.8}
        ax.scatter(accuracy[method][order], range(len(names)), label=method, **look)
    look = {"s": 60, "color": PALETTE[1], "zorder": 3}
    ax.scatter(accuracy[own][order], range(len(names)), label=title(own), **look)
    ax.set_yticks(range(len(names)), [names[i] for i in order])
    ax.set_xlabel("accuracy on the test rows of ten folds, %")
    ax.legend(frameon=False, loc="lower right")
    clean(ax)
    write_figure(figure, path)


def compute(
    records: dict[str, Any], read: dict[str, tables.FoldedTable], options: argparse.Namespace
) -> None:
    """The folds that are missing in the records, the longest first; written as they are done."""
    todo = [
        (name, method, fold)
        for name, method in product(read, options.methods)
        for fold in np.unique(read[name].folds).tolist()
        if str(fold) not in records.get(name, {}).get(method, {})
    ]
    todo.sort(key=lambda job: -len(read[job[0]].y))
    run = Parallel(n_jobs=options.n_jobs, return_as="generator")
    results = run(delayed(fold_result)(read[name], *job) for name, *job in todo)
    failures: dict[str, str] = {}
    try:
        for done, ((name, method, fold), result) in enumerate(zip(todo, results, strict=True), 1):
            if isinstance(result, str):
                failures.setdefault(method, f"{method} fails on {name}, fold {fold}: {result}")
                continue
            records.setdefault(name, {}).setdefault(method, {})[str(fold)] = result
            records.setdefault("provenance", {})[method] = provenance()
            if done % 10 == 0:
                write_atomically(options.out, json.dumps(records, indent=1))
                print(f"{done} of {len(todo)}: {name}, {method}", flush=True)
    finally:
        if todo:
            write_atomically(options.out, json.dumps(records, indent=1))
    if failures:
        raise SystemExit("\n".join([*failures.values(), f"the others are kept in {options.out}"]))


def parsed() -> argparse.Namespace:
    """The options; methods that cannot be had are refused here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data-dir",
        default=os.environ.get(datasets.DATA_VARIABLE, "."),
        help=f"the tables are in its folder tables (default: {datasets.DATA_VARIABLE}, or else .)",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(METHODS),
        metavar="METHOD",
        help=f"methods to compare (default: {', '.join(METHODS)})",
    )
    parser.add_argument(
        "--add",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="classifiers to add: package.module:Class, or 'package.module:Class {JSON}'",
    )
    parser.add_argument(
        "--again", action="store_true", help="compute all folds of the added classifiers anew"
    )
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="tables (default: all)")
    parser.add_argument("--n-jobs", type=int, default=1, help="folds at the same time")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/tables.json"),
        help="finished folds; the table and the picture go next to it (default: %(default)s)",
    )
    options = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    options.add = list(dict.fromkeys(map(canonical, options.add)))
    options.methods = list(dict.fromkeys([*map(canonical, options.methods), *options.add]))
    for method in options.methods:
        build(method)
    return options


def main() -> None:
    options = parsed()
    folder = Path(options.data_dir) / "tables"
    try:
        read = {name: tables.read(folder, name) for name in options.tables or tables.names(folder)}
    except (OSError, ValueError) as error:
        raise SystemExit(f"{error}; --data-dir names the data folder (docs/data.md)") from None
    records = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name, method in product(read, options.add):
        kept = records.get(name, {}).get(method, {})
        if options.again:
            kept.clear()
        elif kept:
            folds = counted(len(kept), "fold")
            print(f"{title(method)}, {name}: {folds} of an earlier run; --again computes anew")
    compute(records, read, options)
    report(records, list(read), options.methods, options.add)
    options.out.with_suffix(".md").write_text(as_markdown(records, list(read), options.methods))
    picture(records, list(read), options.methods, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
