"""What a fit costs where there are many features: more than rows, or raw images.

    python benchmarks/wide.py                # 100 rows, 500 to 5,000 features
    python benchmarks/wide.py --rows 10000 --features 2000   # a synthetic mixture of that size
    python benchmarks/wide.py --mnist DIR    # 60,000 raw images of 784 pixels, in one scale

With --out FILE the fits are kept there, together with those of other sizes that it holds.
"""

import argparse
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from plml import PLML
from plml.io.files import write_atomically
from plml.ops.span import span_of
from plml.preprocessing import MeanNormScaler
from plml_study import datasets
from plml_study.records import provenance
from synthetic import mixture

#: Features of tables with a hundred rows.
_WIDTHS = (500, 1_000, 2_000, 5_000)


def tables(options: argparse.Namespace) -> Iterator[tuple[np.ndarray, np.ndarray, PLML]]:
    """Rows, labels and what to fit to them."""
    if options.mnist is not None:
        dataset = datasets.load("mnist", options.mnist)
        X, y = dataset.X[:60_000].astype(np.float32), dataset.y[:60_000]
        yield MeanNormScaler().fit_transform(X), y, PLML(random_state=0, verbose=1)
    elif options.rows is not None:
        yield *mixture(options.rows, options.features), PLML(random_state=0, verbose=1)
    else:
        rng, y = np.random.default_rng(0), np.arange(100) % 3
        for d in _WIDTHS:
            X = rng.normal(size=(100, d)) + 3.0 * np.eye(3, d)[y]
            yield MeanNormScaler().fit_transform(X), y, PLML(n_bases=3, random_state=0)


def cost_of(X: np.ndarray, y: np.ndarray, model: PLML) -> dict[str, Any]:
    """Of one fit; the memory is the peak of the process so far."""
    start = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - start
    span = span_of(X, model.n_directions)
    return {
        "rows": len(X),
        "features": X.shape[1],
        "directions": X.shape[1] if span is None else span.basis.shape[1],
        "seconds": seconds,
        "gaps": [model.weights_gap_, model.dual_gap_],
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        **provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", metavar="DIR", help="folder of the original files")
    parser.add_argument("--rows", type=int, help="of a synthetic mixture")
    parser.add_argument("--features", type=int, default=2000, help="of the mixture")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    kept = options.out is not None and options.out.exists()
    fits = json.loads(options.out.read_text()) if kept else []
    print(f"{'rows':>7}{'features':>10}{'directions':>12}{'fit s':>9}{'gap':>10}{'peak MB':>9}")
    for table in tables(options):
        cost = cost_of(*table)
        print(
            f"{cost['rows']:>7}{cost['features']:>10}{cost['directions']:>12}"
            f"{cost['seconds']:>9.2f}{cost['gaps'][1]:>10.1e}{cost['peak_megabytes']:>9}",
            flush=True,
        )
        size = cost["rows"], cost["features"]
        fits = [fit for fit in fits if (fit["rows"], fit["features"]) != size] + [cost]
        if options.out is not None:
            write_atomically(options.out, json.dumps(fits, indent=1) + "\n")


if __name__ == "__main__":
    main()
