"""Classifiers on ordinary tables with fixed folds: accuracy, log-loss, calibration, seconds.

    python benchmarks/tables.py [--data-dir DIR] [--methods ...] [--tables ...] [--n-jobs N]
    python benchmarks/tables.py --methods SVM sklearn.naive_bayes.GaussianNB

A method is one of those below, or the import path of a class with scikit-learn's interface, which
is put behind a StandardScaler. What a method selects it selects on the training rows alone.
Folds are kept as they are done (in --out, results/tables.json by default), and a second call goes
on where the first one ended. Every fold has one thread; --n-jobs of them run at the same time.
"""

import argparse
import importlib
import json
import os
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import wilcoxon
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


def build(method: str) -> Any:
    """An unfitted classifier, by its name here or by its import path."""
    if method in METHODS:
        return METHODS[method]()
    module, _, name = method.rpartition(".")
    try:
        return make_pipeline(StandardScaler(), getattr(importlib.import_module(module), name)())
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(METHODS)
        raise SystemExit(
            f"{method!r} is neither one of {known} nor a class to import: {error}"
        ) from None


def probabilities(model: Any, X: np.ndarray) -> np.ndarray:
    """Of the classes, by ``predict_proba`` or the softmax of the decisions."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X))
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


def fold_result(table: tables.FoldedTable, method: str, fold: int) -> dict[str, float]:
    """One method on one fold, with one thread."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        return _fold_result(table, method, fold)


def _fold_result(table: tables.FoldedTable, method: str, fold: int) -> dict[str, float]:
    train, test = table.folds != fold, table.folds == fold
    model, y = build(method), table.y[test]
    start = perf_counter()
    model.fit(table.X[train], table.y[train])
    seconds = perf_counter() - start
    predicted, P = model.predict(table.X[test]), probabilities(model, table.X[test])
    known = np.isin(y, model.classes_)  # a class may have no training row
    floored = np.maximum(P[known], _LEAST)
    floored /= floored.sum(axis=1, keepdims=True)
    return {
        "accuracy": float(np.mean(predicted == y)),
        "balanced_accuracy": float(balanced_accuracy_score(y, predicted)),
        "log_loss": float(log_loss(y[known], floored, labels=model.classes_)),
        "calibration_error": calibration_error(P, predicted == y),
        "seconds": seconds,
    }


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


def report(records: dict[str, Any], names: list[str], methods: list[str]) -> None:
    """The table of accuracies and the means, and everyone against the last method."""
    print("accuracy %        " + "".join(f"{method[-12:]:>13s}" for method in methods))
    accuracies = np.array(
        [[mean_of(records, name, method, "accuracy") for method in methods] for name in names]
    )
    for name, row in zip(names, accuracies, strict=True):
        print(f"{name:18s}" + "".join(f"{100 * value:13.2f}" for value in row))
    for what in ("accuracy", "balanced_accuracy", "log_loss", "calibration_error", "seconds"):
        means = [np.mean([mean_of(records, n, method, what) for n in names]) for method in methods]
        print(f"{'mean ' + what:18s}" + "".join(f"{value:13.4f}" for value in means))
    if {"AutoPLML", "SVM"} <= set(methods):
        seconds = {m: np.array([mean_of(records, n, m, "seconds") for n in names]) for m in methods}
        ratios = seconds["AutoPLML"] / seconds["SVM"]
        print("seconds of AutoPLML / SVM: " + ", ".join(map("{} {:.2f}".format, names, ratios)))
        print(f"geometric mean {np.exp(np.log(ratios).mean()):.2f}")
    for method, column in zip(methods[:-1], accuracies.T[:-1], strict=True):
        print(f"{methods[-1]} against {method}: {compared(accuracies[:, -1], column)}")


def as_markdown(records: dict[str, Any], names: list[str], methods: list[str]) -> str:
    """The accuracies in percent, the best of a row in bold, and the means of all measures."""
    header = ["table", *methods]
    lines = [header, ["---"] * len(header)]
    for name in names:
        row = [100 * mean_of(records, name, method, "accuracy") for method in methods]
        lines.append([name, *(f"**{v:.2f}**" if v == max(row) else f"{v:.2f}" for v in row)])
    for what, title in _MEASURES.items():
        factor = 1.0 if what == "log_loss" else 100.0
        means = [
            factor * np.mean([mean_of(records, name, method, what) for name in names])
            for method in methods
        ]
        lines.append([f"*{title}*", *(f"{value:.2f}" for value in means)])
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
    shown = [method for method in ("kNN", "SVM", "forest", "boosting") if method in accuracy]
    figure, ax = plt.subplots(figsize=(7.5, 6.0), layout="constrained")
    for place in range(len(names)):
        values = [accuracy[method][order[place]] for method in (*shown, own)]
        ax.plot([min(values), max(values)], [place, place], color="#dddddd", zorder=1)
    for method, marker, color in zip(shown, "vs^D", PALETTE[2:], strict=False):
        look = {"s": 26, "color": color, "marker": marker, "alpha": 0.8}
        ax.scatter(accuracy[method][order], range(len(names)), label=method, **look)
    look = {"s": 60, "color": PALETTE[1], "zorder": 3}
    ax.scatter(accuracy[own][order], range(len(names)), label=own, **look)
    ax.set_yticks(range(len(names)), [names[i] for i in order])
    ax.set_xlabel("accuracy on the test rows of ten folds, %")
    ax.legend(frameon=False, loc="lower right")
    clean(ax)
    write_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get(datasets.DATA_VARIABLE, "."))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/tables.json"))
    options = parser.parse_args()
    folder = Path(options.data_dir) / "tables"
    names = options.tables or tables.names(folder)
    for method in options.methods:
        build(method)  # refused before the work starts
    records = json.loads(options.out.read_text()) if options.out.exists() else {}
    read = {name: tables.read(folder, name) for name in names}
    todo = [
        (name, method, fold)
        for name, method in product(names, options.methods)
        for fold in np.unique(read[name].folds).tolist()
        if str(fold) not in records.get(name, {}).get(method, {})
    ]
    todo.sort(key=lambda job: -len(read[job[0]].y))  # the longest first
    run = Parallel(n_jobs=options.n_jobs, return_as="generator")
    results = run(delayed(fold_result)(read[name], *job) for name, *job in todo)
    for done, ((name, method, fold), result) in enumerate(zip(todo, results, strict=True), 1):
        records.setdefault(name, {}).setdefault(method, {})[str(fold)] = result
        if done % 10 == 0 or done == len(todo):
            records.setdefault("provenance", {})[method] = provenance()
            write_atomically(options.out, json.dumps(records, indent=1))
            print(f"{done} of {len(todo)}: {name}, {method}", flush=True)
    report(records, names, options.methods)
    options.out.with_suffix(".md").write_text(as_markdown(records, names, options.methods))
    picture(records, names, options.methods, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
