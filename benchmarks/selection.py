"""What a selection costs, in fits: PLMLCV and AutoPLML on the six data sets and the public tables.

    python benchmarks/selection.py [--data-dir DIR] [--only NAME ...] [--out results/selection.json]

Processor seconds of one thread, everything on the same rows: the first training part of the paper's
protocol (of MNIST its first 10,000 rows), or a whole table, standardised. One fit is PLML at
regularization 1. PLMLCV with its defaults compares five values in two folds, AutoPLML with its
defaults ten metrics and their votes in three; both include the fits that end them. In brackets are
the shares of the time that neighbours take (graph and triplets), and weights (anchors and stage 1),
in all folds and in the last fits. What --out holds is not measured again; the report is written
beside it as text.
"""

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from plml import PLML, PLMLCV, AutoPLML
from plml.backend.progress import observed
from plml.io.files import write_atomically
from plml.stages.pipeline import ANCHORS, NEIGHBORS, TRIPLETS, WEIGHTS
from plml_study import datasets, protocols, tables
from plml_study.records import provenance

#: Rows of the largest data set that are selected on.
_MOST_ROWS = 10_000
_SIX = ("pendigits", "optdigits", "letter", "usps", "isolet", "mnist")
_PARTS = {NEIGHBORS: "neighbours", TRIPLETS: "neighbours", ANCHORS: "weights", WEIGHTS: "weights"}
MODELS: dict[str, Callable[[bool], Any]] = {
    "one fit": lambda rescale: PLML(rescale=rescale, random_state=0),
    "PLMLCV": lambda rescale: PLMLCV(rescale=rescale, random_state=0),
    "AutoPLML": lambda rescale: AutoPLML(standardize=rescale, random_state=0),
}
#: The models that select.
SELECTIONS = ("PLMLCV", "AutoPLML")


class Cost(NamedTuple):
    """Processor seconds of a fit, and those of them that neighbours and weights take."""

    seconds: float
    neighbours: float
    weights: float


def cost_of(model: Any, X: np.ndarray, y: np.ndarray) -> Cost:
    """Of one fit, folds and all."""
    spent = dict.fromkeys(_PARTS.values(), 0.0)

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = process_time()
        yield
        if name in _PARTS:
            spent[_PARTS[name]] += process_time() - start

    with warnings.catch_warnings(), threadpool_limits(1), observed(timed):
        warnings.simplefilter("ignore")
        start = process_time()
        model.fit(X, y)
        return Cost(process_time() - start, **spent)


def rows_of(name: str, data_dir: Path) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of a data set of the paper or of a table, ready for PLML."""
    if name in _SIX:
        dataset = datasets.load(name, data_dir)
        X, y = protocols.prepared_split(dataset, *next(protocols.splits(dataset)))[:2]
        return (X[:_MOST_ROWS], y[:_MOST_ROWS]) if name == "mnist" else (X, y)
    table = tables.read(data_dir / "tables", name)
    return StandardScaler().fit_transform(table.X), table.y


def described(name: str, found: dict[str, Any]) -> str:
    """One line of the report."""
    one = found["one fit"][0]
    parts = []
    for what in SELECTIONS:
        seconds, neighbours, weights = found[what]
        times = f"{what} {seconds:7.2f} s = {seconds / one:5.1f} fits"
        parts.append(f"{times} ({neighbours / seconds:.0%}, {weights / seconds:.0%})")
    shape = f"{found['rows']:6} x {found['features']:<4}"
    return f"{name:<17}{shape} one fit {one:6.2f} s; {'; '.join(parts)}"


def report(results: dict[str, dict[str, Any]]) -> str:
    """A line for everything that was measured, and what they come to."""
    lines = [described(name, found) for name, found in results.items()]
    for what in SELECTIONS:
        for kind, names in (("tables", set(results) - set(_SIX)), ("data sets", _SIX)):
            ratios = [
                results[name][what][0] / results[name]["one fit"][0]
                for name in names
                if name in results
            ]
            if ratios:
                lines.append(
                    f"{what}: {min(ratios):.1f} to {max(ratios):.1f} fits, geometric mean "
                    f"{np.exp(np.mean(np.log(ratios))):.1f}, over {len(ratios)} {kind}"
                )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data-dir", type=Path, default=os.environ.get(datasets.DATA_VARIABLE, ".")
    )
    parser.add_argument("--only", nargs="+", help="names of data sets and tables")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = options.only or [*tables.names(options.data_dir / "tables"), *_SIX]
    known = options.out is not None and options.out.exists()
    results = json.loads(options.out.read_text())["results"] if known else {}
    digits, classes = load_digits(return_X_y=True)
    for make in MODELS.values():  # imports and libraries that start late
        cost_of(make(True), digits[:200], classes[:200])
    for name in (name for name in names if name not in results):
        X, y = rows_of(name, options.data_dir)
        costs = {what: cost_of(make(name not in _SIX), X, y) for what, make in MODELS.items()}
        results[name] = {"rows": len(X), "features": X.shape[1], **costs}
        print(described(name, results[name]), flush=True)
        if options.out is not None:
            content = json.dumps({"results": results, **provenance()}, indent=1) + "\n"
            write_atomically(options.out, content)
            write_atomically(options.out.with_suffix(".txt"), report(results))
    print(report(results))


if __name__ == "__main__":
    main()
