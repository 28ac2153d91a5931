"""Are explanations faithful, and is importance to be trusted?

    python benchmarks/explanations.py [--data-dir DIR] [--tables ...] [--out FILE]

AutoPLML on the training rows of fold 1 of every table; its test rows are explained.

faithful    the margin lost when the first column of the contrast is set to its value in the case
            against, and when a random other column is: the mean of both over the rows, in units of
            the mean margin, and how often the first one loses more
importance  Spearman's correlation of the average importance with permutation importance on the test
            rows
noise       a column of random numbers is added: its rank in the importance, of how many
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


def measure(X: np.ndarray, y: np.ndarray, Q: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    model, Q, labels = fitted(X, y), Q[:MOST_EXPLAINED], labels[:MOST_EXPLAINED]
    importance = model.average_importance()
    permuted = permutation_importance(model, Q, labels, n_repeats=20, random_state=0)
    with_noise = fitted(np.column_stack([X, rng.normal(size=len(X))]), y).average_importance()
    codes = np.unique(np.concatenate([y, labels]), return_inverse=True)[1].astype(float)
    leaking = fitted(np.column_stack([X, codes[: len(y)]]), y)
    told = leaking.explain(np.column_stack([Q, codes[len(y) :]]))
    best = int(importance.argmax())
    copies = fitted(np.column_stack([X, X[:, best]]), y).average_importance()
    return {
        "faithful": faithful(model, Q, rng),
        "importance": float(spearmanr(importance, permuted.importances_mean)[0]),
        "noise_rank": int((with_noise > with_noise[-1]).sum()) + 1,
        "columns": len(with_noise),
        "noise_share": float(with_noise[-1]),
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
        train = table.folds != 1
        found = measure(table.X[train], table.y[train], table.X[~train], table.y[~train])
        results[name] = found
        lost = found["faithful"]
        print(
            f"{name:10s} first {lost['first']:.2f}, random {lost['random']:.2f}, first loses more "
            f"{lost['first_loses_more']:.0%} | correlation {found['importance']:.2f} | noise rank "
            f"{found['noise_rank']} of {found['columns']} ({found['noise_share']:.1%}) | leak "
            f"first {found['leak_first']:.0%} ({found['leak_share']:.0%}) | copies "
            f"{found['copies']:.2f}",
            flush=True,
        )
        if options.out is not None:
            write_atomically(options.out, json.dumps({**results, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
