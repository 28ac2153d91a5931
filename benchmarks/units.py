"""Fits in the units of ordinary tables: do they close, and how long do they take?

    python benchmarks/units.py [--data-dir DIR] [--out results/units.json]

tables     PLML and SML behind a StandardScaler on every table at five regularizations: the gaps
           that stay above tol, and the seconds of the slowest fit
optdigits  the same fit of standardised rows and of rows of unit length, and in units of 1/1000
"""

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize, scale

from plml import PLML, SML
from plml.io.files import write_atomically
from plml_study import datasets, tables
from plml_study.records import provenance
from stopwatch import seconds_of

REGULARIZATIONS = (0.01, 0.1, 1.0, 10.0, 100.0)


def fits(X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Gaps and seconds of both estimators at every regularization."""
    found = []
    for value in REGULARIZATIONS:
        for model in (PLML(regularization=value, random_state=0), SML(regularization=value)):
            seconds, _ = seconds_of(lambda model=model: model.fit(X, y))
            found.append(
                {
                    "estimator": type(model).__name__,
                    "regularization": value,
                    "seconds": seconds,
                    "gap": max(model.dual_gap_, getattr(model, "weights_gap_", 0.0)),
                    "closed": bool(model.converged_),
                }
            )
    return found


def on_tables(folder: Path) -> dict[str, Any]:
    """Every table: the fits that stay open, and the slowest."""
    result = {}
    for name in tables.names(folder):
        table = tables.read(folder, name)
        found = fits(scale(table.X), table.y)
        open_fits = [fit for fit in found if not fit["closed"]]
        slowest = max(fit["seconds"] for fit in found)
        result[name] = {"fits": len(found), "open": open_fits, "slowest_seconds": slowest}
        print(f"{name:16s} {len(found)} fits, {len(open_fits)} open, slowest {slowest:.2f} s")
        for fit in open_fits:
            print(f"    {fit}")
    return result


def on_optdigits(data_dir: str | None) -> dict[str, Any]:
    """Seconds and gaps of the same rows in several units, the faster of two runs each."""
    data = datasets.load("optdigits", data_dir)
    Z = scale(data.X)
    result = {}
    for name, rows in (("unit rows", normalize(Z)), ("standardised", Z), ("thousandth", 1e3 * Z)):
        runs = [seconds_of(lambda X=rows: PLML(random_state=0).fit(X, data.y)) for _ in range(2)]
        seconds, model = min(runs, key=lambda run: run[0])
        result[name] = {"seconds": seconds, "gap": model.dual_gap_, "weights": model.weights_gap_}
        print(f"optdigits, {name:13s} {seconds:.2f} s, gap {model.dual_gap_:.1e}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get(datasets.DATA_VARIABLE))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the gaps are in the table
    warnings.simplefilter("ignore", UserWarning)
    found = {
        "optdigits": on_optdigits(options.data_dir),
        "tables": on_tables(Path(options.data_dir or ".") / "tables"),
        "provenance": provenance(),
    }
    if options.out:
        write_atomically(options.out, json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
