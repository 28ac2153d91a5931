"""Time of PLML.predict against scikit-learn's brute-force KNeighborsClassifier, same run.

    python benchmarks/predict_vs_sklearn.py [--data-dir DIR] [--out results/predict.json]

PLML makes two exact searches (the nearest training row, then the neighbours under its metric), the
Euclidean classifier makes one. The floor is the ratio of the operations in their products: d + 1
columns and d + m (two-sided: 2 d + m + m' + 1) against d. Medians over repeats, interleaved so that
all see the same noise, of the time on the clock and of the processor's time.
"""

import argparse
import json
import warnings
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from plml import PLML
from plml.io.files import write_atomically
from plml.stages.neighbors import euclidean_neighbors
from plml_study import datasets, protocols
from plml_study.records import provenance

#: Queries for which the rows that could be left out are counted.
N_EXCLUDED = 500
PEER, ONE_SIDED, TWO_SIDED = "KNeighborsClassifier(brute)", "PLML", "PLML(case_metrics='class')"


def fitted(X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The models to compare; how well they are solved does not matter here."""
    settings: dict[str, Any] = {"rescale": False, "random_state": 0, "tol": 1e-2}
    models = {
        PEER: KNeighborsClassifier(1, algorithm="brute"),
        ONE_SIDED: PLML(**settings),
        TWO_SIDED: PLML(case_metrics="class", **settings),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: model.fit(X, y) for name, model in models.items()}


def times_of(models: dict[str, Any], X: np.ndarray, repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of a prediction on both clocks."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for repeat in range(repeats + 1):
        for name, model in models.items():
            wall, processor = perf_counter(), process_time()
            model.predict(X)
            if repeat:  # the first one loads libraries
                found[name].append((perf_counter() - wall, process_time() - processor))
    clocks = ("seconds", "processor")
    return {
        name: dict(zip(clocks, map(median, zip(*both, strict=True)), strict=True))
        for name, both in found.items()
    }


def share_excluded(model: PLML, X: np.ndarray, Q: np.ndarray) -> float:
    """Of the rows X, those that the least eigenvalue keeps from being nearest to a query."""
    _, nearest = euclidean_neighbors(X, 1, Q)
    metrics = model.get_mahalanobis_matrix(Q)
    least = np.linalg.eigvalsh(metrics)[:, 0]
    difference = Q - X[nearest[:, 0]]
    within = np.einsum("qd,qde,qe->q", difference, metrics, difference)
    euclidean = np.array([np.sum((X - x) ** 2, axis=1) for x in Q])
    return float(np.mean(least[:, None] * euclidean > within[:, None]))


def compared(name: str, data_dir: str | None, repeats: int) -> dict[str, Any]:
    """One data set: times, their ratios to the peer's, and the ratios of the operations."""
    dataset = datasets.load(name, data_dir)
    split = next(iter(protocols.splits(dataset)))
    X, y, X_test, y_test = protocols.prepared_split(dataset, *split)
    models = fitted(X, y)
    found: dict[str, Any] = times_of(models, X_test, repeats)
    n, d = X.shape
    print(f"{dataset.name}: {len(X_test)} queries against {n} x {d}")
    for method, model in models.items():
        row = found[method]
        if method != PEER:
            row["columns"] = d + 1 + model.index_vectors().shape[1]
            row["floor"] = row["columns"] / d
        for clock in ("seconds", "processor"):
            row[f"ratio_{clock}"] = row[clock] / found[PEER][clock]
        row["accuracy"] = model.score(X_test, y_test)
        floor = f", of operations {row['floor']:.2f}" if "floor" in row else ""
        print(
            f"  {method:<30}{1e3 * row['seconds']:8.1f} ms {1e3 * row['processor']:8.1f} ms of the "
            f"processor; ratio {row['ratio_seconds']:.2f} and {row['ratio_processor']:.2f}{floor}; "
            f"accuracy {row['accuracy']:.2%}"
        )
    share = share_excluded(models[ONE_SIDED], X, X_test[:N_EXCLUDED])
    print(f"  rows that the first search could exclude from the second: {share:.2%}")
    sides = {c: found[TWO_SIDED][c] / found[ONE_SIDED][c] for c in ("seconds", "processor")}
    print(f"  two-sided to one-sided: {sides['seconds']:.2f} and {sides['processor']:.2f}")
    sizes = {"queries": len(X_test), "rows": n, "features": d}
    return {**sizes, "methods": found, "sides": sides, "share_excluded": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument(
        "--datasets", nargs="+", default=["pendigits", "optdigits"], choices=datasets.NAMES
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {name: compared(name, options.data_dir, options.repeats) for name in options.datasets}
    if options.out is not None:
        write_atomically(options.out, json.dumps({**found, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
