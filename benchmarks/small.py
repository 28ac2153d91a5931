"""Small tables: the time of the imports, of a fit and of the prediction of one row.

    python benchmarks/small.py [--repeats 25] [--out results/small.json]

import   seconds above ``import sklearn.neighbors``, each time in a new process, modules compiled
first    a fit and a prediction of one row in a new process, where libraries are loaded on first use
later    the same again, for tables of 100 to 2,000 rows, next to ``KNeighborsClassifier``

Medians of the time on the clock, and of the processor's time: the second one is what the first one
would be on a machine that does nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier

from plml import PLML
from plml.io.files import write_atomically
from plml_study.records import provenance

#: Statements in the order in which a process executes them; the first one is the yardstick.
IMPORTS = (
    "import sklearn.neighbors",
    "import plml",
    "from plml import PLML",
    "from plml import *",
)
FIRST_USE = """
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier
from plml import PLML
X, y = load_wine(return_X_y=True)
KNeighborsClassifier(1).fit(X, y).predict(X[:1])
model = PLML(random_state=0)
"""
TIMED = """
def timed(name, function):
    wall, processor = perf_counter(), process_time()
    function()
    print(repr((name, perf_counter() - wall, process_time() - processor)))
"""

Times = dict[str, list[tuple[float, float]]]


def in_new_processes(source: str, repeats: int) -> Times:
    """What a program prints: names with their seconds on the clock and of the processor."""
    found: Times = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for repeat in range(repeats + 1):  # the first one compiles
            command = [sys.executable, "-c", f"{TIMED}\n{source}"]
            lines = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout.splitlines()
            for name, *seconds in map(literal_eval, lines) if repeat else ():
                found.setdefault(name, []).append(tuple(seconds))
    return found


def import_times(repeats: int) -> Times:
    """Of every statement, after those before it."""
    source = "from time import perf_counter, process_time\n" + "".join(
        f"timed({statement!r}, lambda: exec({statement!r}))\n" for statement in IMPORTS
    )
    return in_new_processes(source, repeats)


def first_times(repeats: int) -> Times:
    """Of the first fit of wine in a process, and of what follows it."""
    calls = ("fit", "predict", "second fit", "second predict")
    source = "from time import perf_counter, process_time\n" + FIRST_USE
    for name in calls:
        call = "model.fit(X, y)" if "fit" in name else "model.predict(X[:1])"
        source += f"timed({name!r}, lambda: {call})\n"
    return in_new_processes(source, repeats)


def small_tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Tables that scikit-learn has, and parts of digits; one more of 2,000 rows."""
    digits, labels = load_digits(return_X_y=True)
    tables = {"wine": load_wine(return_X_y=True), "iris": load_iris(return_X_y=True)}
    for n in (100, 200, 500, 1000):
        tables[f"digits, {n} rows"] = digits[:n], labels[:n]
    shape = {"n_samples": 2000, "n_features": 20, "n_informative": 10, "random_state": 0}
    tables["made, 2000 rows"] = make_classification(**shape)
    return tables


def later_times(X: np.ndarray, y: np.ndarray, repeats: int) -> Times:
    """Fits and predictions of one row, interleaved with those of ``KNeighborsClassifier``."""
    model, peer = PLML(random_state=0), KNeighborsClassifier(1)
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: model.fit(X, y),
        "predict": lambda: model.predict(X[:1]),
        "fit of kNN": lambda: peer.fit(X, y),
        "predict of kNN": lambda: peer.predict(X[:1]),
    }
    found: Times = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            wall, processor = perf_counter(), process_time()
            call()
            if repeat:
                found[name].append((perf_counter() - wall, process_time() - processor))
    return found


def medians(times: Times) -> dict[str, dict[str, float]]:
    """Of both clocks."""
    return {
        name: dict(
            zip(("seconds", "processor"), map(median, zip(*pairs, strict=True)), strict=True)
        )
        for name, pairs in times.items()
    }


def show(what: str, found: dict[str, dict[str, float]]) -> None:
    for name, times in found.items():
        wall, processor = (1000.0 * times[clock] for clock in ("seconds", "processor"))
        print(
            f"{what:<20}{name:<28}{wall:9.2f} ms {processor:9.2f} ms of the processor", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # one of digits stays open
    found: dict[str, Any] = {"import": medians(import_times(options.repeats))}
    show("import", found["import"])
    found["first"] = medians(first_times(options.repeats))
    show("first, wine", found["first"])
    found["later"] = {}
    for name, (X, y) in small_tables().items():
        found["later"][name] = medians(later_times(X, y, options.repeats))
        show(name, found["later"][name])
    if options.out is not None:
        write_atomically(options.out, json.dumps({**found, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
