"""What does a certificate cost LMNNMM, and what does the optimum win? Cross-validation.

python benchmarks/lmnnmm_certificate.py [--tables DIR]

scikit-learn's data sets, and with --tables every *.csv.gz of a folder: rows
"feature,...,feature,label;fold" without a header, of which those of fold 1 are left alone.
"Posed" is whether targets differ wherever the data do, which is what the default goes by.
"""

import argparse
import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from plml import LMNNMM


class Result(NamedTuple):
    """Of one fit."""

    seconds: float
    accuracy: float
    gap: float


def problems(tables: str | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield name, *getattr(datasets, f"load_{name}")(return_X_y=True)
    for path in sorted(Path(tables).glob("*.csv.gz")) if tables else ():
        with gzip.open(path, "rt") as file:
            rows = [line.strip().rpartition(";") for line in file if line.strip()]
        values = np.array([row.split(",") for row, _, fold in rows if int(fold) != 1])
        yield path.name.removesuffix(".csv.gz"), values[:, :-1].astype(float), values[:, -1]


def cross_validated(
    model: LMNNMM | KNeighborsClassifier, X: np.ndarray, y: np.ndarray
) -> list[Result]:
    results = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        scaler = StandardScaler().fit(X[train])
        start = perf_counter()
        model.fit(scaler.transform(X[train]), y[train])
        seconds = perf_counter() - start
        accuracy = model.score(scaler.transform(X[test]), y[test])
        results.append(Result(seconds, accuracy, getattr(model, "dual_gap_", np.nan)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", help="folder of tables")
    parser.add_argument("--only", nargs="*", help="names of data sets")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the gaps say it
    warnings.simplefilter("ignore", UserWarning)
    print(
        f"{'data set':<16}{'rows':>6}{'feat.':>6}{'cl.':>4}{'posed':>7}{'1-NN':>7} | "
        f"{'factored':>9}{'acc.':>7} | {'convex':>9}{'acc.':>7}{'gap':>9} | {'auto':>9}{'acc.':>7}"
    )
    for name, X, y in problems(options.tables):
        if options.only and name not in options.only:
            continue
        euclidean = cross_validated(KNeighborsClassifier(1), X, y)
        found = {
            solver: cross_validated(LMNNMM(solver=solver), X, y)
            for solver in ("factored", "convex", "auto")
        }
        accuracy, seconds = (
            {
                solver: np.mean([getattr(part, what) for part in parts])
                for solver, parts in found.items()
            }
            for what in ("accuracy", "seconds")
        )
        posed = sum(not np.isnan(part.gap) for part in found["auto"])
        gap = max(part.gap for part in found["convex"])
        print(
            f"{name:<16}{len(X):>6}{X.shape[1]:>6}{len(np.unique(y)):>4}{posed:>5}/3"
            f"{np.mean([part.accuracy for part in euclidean]):>7.1%} | "
            f"{seconds['factored']:>7.1f} s{accuracy['factored']:>7.1%} | "
            f"{seconds['convex']:>7.1f} s{accuracy['convex']:>7.1%}{gap:>9.1e} | "
            f"{seconds['auto']:>7.1f} s{accuracy['auto']:>7.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
