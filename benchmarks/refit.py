"""A warm refit after 5% new rows, next to a cold fit: evaluations, seconds, gaps and accuracy.

    python benchmarks/refit.py [--data letter optdigits] [--seeds 1] [--out results/refit.json]

A fifth of the rows is held out. A model learns from the others but for the last twentieth, and then
from all of them in another order, once cold and once with ``warm_start=True``. The last column is
the share of the held-out rows that both predict alike. Evaluations are those of the solvers,
``weights_n_iter_`` and ``n_iter_``. With several seeds, methods that have one are fitted with each,
and the mean ratio follows.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from plml import CBLML, PLML, SML
from plml.io.files import write_atomically
from plml_study.datasets import load
from plml_study.records import provenance
from stopwatch import seconds_of

NEW = 0.05
PREPROCESSING = {
    "standardised, unit rows": lambda: make_pipeline(StandardScaler(), Normalizer()),
    "standardised": StandardScaler,
}
METHODS = {
    "PLML": PLML(),
    "SML": SML(),
    "CBLML": CBLML(),
}


def measure(name: str, preprocessing: str, method: str, seed: int) -> dict[str, Any]:
    """One warm refit and one cold fit to the same rows."""
    data, rng = load(name), np.random.default_rng(0)
    order = rng.permutation(len(data.X))
    X, y = data.X[order], data.y[order]
    n_test = len(X) // 5
    n_old = round((len(X) - n_test) / (1.0 + NEW))
    old = slice(n_test, n_test + n_old)
    X = PREPROCESSING[preprocessing]().fit(X[old]).transform(X)
    train = n_test + rng.permutation(len(X) - n_test)
    cold = clone(METHODS[method])
    if is_seeded(method):
        cold.set_params(random_state=seed)
    warm = clone(cold).set_params(warm_start=True).fit(X[old], y[old])
    cold_seconds, _ = seconds_of(lambda: cold.fit(X[train], y[train]))
    warm_seconds, _ = seconds_of(lambda: warm.fit(X[train], y[train]))
    answers = [model.predict(X[:n_test]) for model in (cold, warm)]
    return {
        "data": name,
        "preprocessing": preprocessing,
        "method": method,
        "seed": seed,
        "rows": [n_old, len(train)],
        "cold": _figures(cold, answers[0], y[:n_test], cold_seconds),
        "warm": _figures(warm, answers[1], y[:n_test], warm_seconds),
        "agreement": float(np.mean(answers[0] == answers[1])),
    }


def is_seeded(method: str) -> bool:
    return "random_state" in METHODS[method].get_params()


def ratio(row: dict[str, Any]) -> float:
    """Evaluations of the warm fit over those of the cold one."""
    return sum(row["warm"]["evaluations"]) / sum(row["cold"]["evaluations"])


def _figures(model: Any, predicted: np.ndarray, y: np.ndarray, seconds: float) -> dict[str, Any]:
    return {
        "evaluations": [getattr(model, "weights_n_iter_", 0), model.n_iter_],
        "gaps": [getattr(model, "weights_gap_", 0.0), model.dual_gap_],
        "seconds": seconds,
        "accuracy": float(np.mean(predicted == y)),
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    cold, warm = row["cold"], row["warm"]
    parts = list(zip(cold["evaluations"], warm["evaluations"], strict=True))
    parts.append((sum(cold["evaluations"]), sum(warm["evaluations"])))
    told = " ".join(f"{a:4d} -> {b:3d} ({b / a:.2f})" if a else f"{'-':>18}" for a, b in parts)
    return (
        f"{row['data']:10} {row['preprocessing']:24} {row['method']:6} {told}  "
        f"time {warm['seconds'] / cold['seconds']:.2f}  gaps {max(cold['gaps']):.1e} "
        f"{max(warm['gaps']):.1e}  accuracy {cold['accuracy']:.2%} {warm['accuracy']:.2%}  "
        f"alike {row['agreement']:.2%}"
    )


def main() -> None:
    """Measure and print all; write the figures where a file is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["letter", "optdigits"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("evaluations cold -> warm (ratio): stage 1, stage 2, together")
    rows = []
    for name in options.data:
        for preprocessing in PREPROCESSING:
            for method in METHODS:
                seeds = range(options.seeds if is_seeded(method) else 1)
                for seed in seeds:
                    rows.append(measure(name, preprocessing, method, seed))
                    print(line(rows[-1]), flush=True)
                if len(seeds) > 1:
                    mean = np.mean([ratio(row) for row in rows[-len(seeds) :]])
                    print(f"{name:10} {preprocessing:24} {method:6} mean ratio {mean:.2f}")
    if options.out:
        content = json.dumps({"provenance": provenance(), "rows": rows}, indent=1) + "\n"
        write_atomically(options.out, content.encode())


if __name__ == "__main__":
    main()
