"""What each candidate of AutoPLML's search is worth: the search without it, or with more.

Each variant is compared with the search as it is by default.

    python benchmarks/ablation.py [--data-dir DIR] [--variants ...] [--n-jobs N] [--out FILE]

Every variant is fitted to own splits (5 folds, twice, stratified) of the training rows of fold 1 of
every table, at most 2,000 of them; the test rows of that fold are never read.
"""

import argparse
import json
import os
import warnings
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import RepeatedStratifiedKFold, train_test_split
from threadpoolctl import threadpool_limits

from plml import AutoPLML
from plml.estimators.auto_plml import METRICS, PRIORS
from plml.io.files import write_atomically
from plml_study import datasets, tables
from plml_study.records import provenance

MOST_ROWS = 2000
#: What the variants are compared with.
BASE = "default"
#: Parameters that differ from the defaults.
VARIANTS: dict[str, dict[str, Any]] = {
    BASE: {},
    "Euclidean neighbours": {
        "metrics": ["prior"],
        "priors": ["identity"],
        "vote": ["uniform", "distance"],
    },
    "nothing learned": {"metrics": ["prior"]},
    "without local and two-sided": {"metrics": ["prior", "one"]},
    "without local": {"metrics": ["prior", "one", "two-sided"]},
    "without two-sided": {"metrics": ["prior", "one", "local"]},
    "without one": {"metrics": ["prior", "local", "two-sided"]},
    "without prior": {"metrics": [kind for kind in METRICS if kind != "prior"]},
    "prior identity": {"priors": PRIORS[:1]},
    "prior within": {"priors": PRIORS[1:]},
    "without linear vote": {"vote": ["uniform", "distance"]},
    "linear vote of at most 61": {"linear_neighbors": [9, 19, 41, 61]},
    "without distance vote": {"vote": ["uniform", "linear"]},
    "without uniform vote": {"vote": ["distance", "linear"]},
    "regularization 0.1": {"regularizations": [0.1]},
    "regularization 0.001": {"regularizations": [0.001]},
    "four regularizations": {"regularizations": [0.1, 0.01, 0.001, 0.0001]},
    "pull 0.1": {"pulls": [0.1]},
    "pulls 0.1, 1": {"pulls": [0.1, 1.0]},
    "5 bases": {"n_bases": 5},
    "20 bases": {"n_bases": 20},
    "five folds": {"cv": 5},
    "one member": {"n_members": 1},
    "three members": {"n_members": 3},
    "five members": {"n_members": 5},
}


def rows_of(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The training rows of fold 1, a stratified part of them where there are many."""
    table = tables.read(folder, name)
    train = table.folds != 1
    X, y = table.X[train], table.y[train]
    if len(y) > MOST_ROWS:
        X, _, y, _ = train_test_split(X, y, train_size=MOST_ROWS, stratify=y, random_state=0)
    return X, y


def split_result(X: np.ndarray, y: np.ndarray, variant: str, split: int) -> dict[str, Any]:
    """One variant on one split."""
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        train, test = list(folds.split(X, y))[split]
        start = perf_counter()
        model = AutoPLML(**VARIANTS[variant], random_state=split).fit(X[train], y[train])
        seconds = perf_counter() - start
        accuracy = model.score(X[test], y[test])
    return {"accuracy": accuracy, "seconds": seconds, "selected": model.best_params_["metrics"]}


def report(records: dict[str, Any], names: list[str], variants: list[str]) -> None:
    """Mean accuracy and time of every variant, and the difference to the base."""

    def mean(variant: str, what: str) -> np.ndarray:
        return np.array([np.mean([r[what] for r in records[n][variant].values()]) for n in names])

    base = mean(BASE, "accuracy")
    for variant in variants:
        accuracy = mean(variant, "accuracy")
        difference = 100 * (accuracy - base)
        error = difference.std(ddof=1) / len(names) ** 0.5
        seconds = np.exp(np.log(mean(variant, "seconds")).mean())
        print(
            f"{variant:30s} {100 * accuracy.mean():6.2f}  {difference.mean():+5.2f} +- {error:.2f}"
            f"  {seconds:5.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get(datasets.DATA_VARIABLE, "."))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/ablation.json"))
    options = parser.parse_args()
    folder = Path(options.data_dir) / "tables"
    names = options.tables or tables.names(folder)
    records = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows = {name: rows_of(folder, name) for name in names}
    todo = [
        (name, variant, split)
        for name, variant, split in product(names, options.variants, range(10))
        if str(split) not in records.get(name, {}).get(variant, {})
    ]
    todo.sort(key=lambda job: -rows[job[0]][0].size)  # the longest first
    run = Parallel(n_jobs=options.n_jobs, return_as="generator")
    results = run(delayed(split_result)(*rows[name], *job) for name, *job in todo)
    for done, ((name, variant, split), result) in enumerate(zip(todo, results, strict=True), 1):
        records.setdefault(name, {}).setdefault(variant, {})[str(split)] = result
        if done % 500 == 0 or done == len(todo):
            records.setdefault("provenance", {})[variant] = provenance()
            write_atomically(options.out, json.dumps(records, indent=1))
            print(f"{done} of {len(todo)}", flush=True)
    report(records, names, options.variants)


if __name__ == "__main__":
    main()
