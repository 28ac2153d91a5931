"""Are explanations faithful, and is importance to be trusted?

    python benchmarks/explanations.py [--data-dir DIR] [--tables ...] [--out FILE]

AutoPLML on the training rows of every table. The test rows of fold 1 are explained; importance and
noise are of the first five folds.

faithful    the margin lost when the first column of the contrast is set to its value in the case
            against, and when a random other column is: the mean of both over the rows, in units of
            the mean margin, and how often the first one loses more
importance  Spearman's correlation of the average importance with permutation importance on the test
            rows (log-loss, 10 repeats), both averaged over the folds
noise       a column of random numbers is added, another one in every fold: its ranks in the
            importance, of how many (the last where nothing has less), and its largest share
leak        a column that is the label is added: how often it comes first in the contrast
copies      the most important column is added once more: the ratio of the two importances
"""

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance

from plml import AutoPLML
from plml.io.files import write_atomically
from plml_study import datasets, tables
from plml_study.records import provenance

TABLES = ("wine", "vehicle", "pima", "glass", "wdbc")
MOST_EXPLAINED = 200
FOLDS = range(1, 6)


def fitted(X: np.ndarray, y: np.ndarray) -> AutoPLML:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoPLML(random_state=0).fit(X, y)


def margins(model: AutoPLML, X: np.ndarray, found: Any) -> np.ndarray:
    """d^2 to the cases against less d^2 to the cases for, under the metric at changed rows."""
    learner, rows = model.model_, model.encoder_.transform(X)
    cases, _ = learner.training_cases()
    sides = [
        learner.pair_distance(np.stack([rows, cases[side]], axis=1), squared=True)
        for side in (found.cases_against, found.cases_for)
    ]
    return sides[0] - sides[1]


def faithful(model: AutoPLML, X: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    found = model.explain(X)
    before, rows = margins(model, X, found), np.arange(len(X))
    against = np.asarray(found.against_values, dtype=float)
    first = found.contrasts.argmax(axis=1)
    other = (first + rng.integers(1, X.shape[1], size=len(X))) % X.shape[1]
    lost = []
    for column in (first, other):
        changed = X.copy()
        changed[rows, column] = against[rows, column]
        lost.append(before - margins(model, changed, found))
    return {
        "first": float(lost[0].mean() / before.mean()),
        "random": float(lost[1].mean() / before.mean()),
        "first_loses_more": float(np.mean(lost[0] > lost[1])),
    }


def weighed(table: tables.FoldedTable) -> dict[str, Any]:
    """Importance against permutation importance, and where noise ranks, over folds."""
    learned, permuted, ranks, shares = [], [], [], []
    for fold in FOLDS:
        train = table.folds != fold
        X, y, Q, labels = table.X[train], table.y[train], table.X[~train], table.y[~train]
        model = fitted(X, y)
        learned.append(model.average_importance())
        permuted.append(
            permutation_importance(
                model, Q, labels, scoring="neg_log_loss", n_repeats=10, random_state=0
            ).importances_mean
        )
        noise = np.random.default_rng(fold).normal(size=len(X))
        found = fitted(np.column_stack([X, noise]), y).average_importance()
        ranks.append(len(found) - int((found < found[-1]).sum()))
        shares.append(float(found[-1]))
    return {
        "importance": float(spearmanr(np.mean(learned, axis=0), np.mean(permuted, axis=0))[0]),
        "noise_ranks": ranks,
        "columns": len(found),
        "noise_share": max(shares),
    }


def measure(table: tables.FoldedTable) -> dict[str, Any]:
    train = table.folds != 1
    X, y = table.X[train], table.y[train]
    Q, labels = table.X[~train][:MOST_EXPLAINED], table.y[~train][:MOST_EXPLAINED]
    model = fitted(X, y)
    codes = np.unique(np.concatenate([y, labels]), return_inverse=True)[1].astype(float)
    leaking = fitted(np.column_stack([X, codes[: len(y)]]), y)
    told = leaking.explain(np.column_stack([Q, codes[len(y) :]]))
    best = int(model.average_importance().argmax())
    copies = fitted(np.column_stack([X, X[:, best]]), y).average_importance()
    return {
        "faithful": faithful(model, Q, np.random.default_rng(0)),
        **weighed(table),
        "leak_first": float(np.mean(told.contrasts.argmax(axis=1) == X.shape[1])),
        "leak_share": float(leaking.average_importance()[-1]),
        "copies": float(copies[-1] / copies[best]) if copies[best] > 0 else float("nan"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get(datasets.DATA_VARIABLE, "."))
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.tables:
        table = tables.read(Path(options.data_dir) / "tables", name)
        found = measure(table)
        results[name] = found
        lost = found["faithful"]
        print(
            f"{name:10s} first {lost['first']:.2f}, random {lost['random']:.2f}, first loses more "
            f"{lost['first_loses_more']:.0%} | correlation {found['importance']:.2f} | noise rank "
            f"{found['noise_ranks']} of {found['columns']} ({found['noise_share']:.1%}) | leak "
            f"first {found['leak_first']:.0%} ({found['leak_share']:.0%}) | copies "
            f"{found['copies']:.2f}",
            flush=True,
        )
        if options.out is not None:
            write_atomically(options.out, json.dumps({**results, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
