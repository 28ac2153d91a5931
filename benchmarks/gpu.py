"""Everything that is claimed of a GPU, checked and timed in one call.

    python benchmarks/gpu.py [--data-dir DIR] [--device cuda] [--out results/gpu.json] [--parts ...]

same      MNIST on the processor and on the device: objectives, gaps, predictions, at the default
          tol of 1e-3 and at 1e-4
mnist     60,000 x 154, m = 20, regularization 1, gap 1e-3: medians of five after a warm-up, stage
          by stage, with the floor of each stage (flops over the measured rate of its products,
          bytes over the measured bandwidth, whichever is longer)
protocol  the paper's MNIST protocol with PLMLCV (d = 331)
auto      AutoPLML on 10,000 rows of MNIST, on the processor and on the device: seconds, accuracy
growth    a mixture of 60k to 1M rows, gap 1e-2: seconds and peak memory
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import synthetic
from plml import PLML, PLMLCV, AutoPLML
from plml.backend.arrays import to_device
from plml.io.files import write_atomically
from plml.stages.anchors import kmeans_anchors
from plml.stages.pipeline import ANCHORS, METRICS, NEIGHBORS, TRIPLETS, WEIGHTS
from plml_study import datasets, protocols
from plml_study.records import provenance
from raw_mnist import raw_mnist
from stopwatch import product_rate, seconds_of, stage_seconds

#: Rows that AutoPLML is given, as many as it selects on.
AUTO_ROWS = 10_000


def measured_rates(X: np.ndarray, device: str) -> dict[str, float]:
    """The best of many: float32 flops per second of the products of stage 2 and of the searches,
    and bytes per second of a copy.
    """
    placed = to_device(X, device)
    copies = [seconds_of(lambda: placed + 0.0, device)[0] for _ in range(20)]
    return {
        "scatter_flops": product_rate(placed.T, placed, device),
        "search_flops": product_rate(placed[:8192], placed.T, device),
        "bytes": 2.0 * 4.0 * X.size / min(copies),
    }


def floors(model: PLML, n_lloyd: int, n: int, rates: dict[str, float]) -> dict[str, float]:
    """Seconds that no implementation of a stage's products and passes could fall below."""
    m, d = model.anchors_.shape
    nnz = float(np.count_nonzero(model.weights_))
    work = {  # flops, which rate, bytes in float32
        NEIGHBORS: (2.0 * n * n * d, "search_flops", 0.0),
        ANCHORS: (4.0 * n * m * d * n_lloyd, "scatter_flops", 2.0 * 4 * n * d * n_lloyd),
        # x, y, their products, the last move and the linear part are read; all but one written.
        WEIGHTS: (
            2.0 * n * m * m * model.weights_n_iter_,
            "scatter_flops",
            11.0 * 4 * n * m * model.weights_n_iter_,
        ),
        TRIPLETS: (2.0 * n * n * d, "search_flops", 0.0),
        METRICS: (4.0 * d * d * nnz * model.n_iter_, "scatter_flops", 0.0),
    }
    return {
        stage: max(flops / rates[rate], bytes / rates["bytes"])
        for stage, (flops, rate, bytes) in work.items()
    }


def same(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [{"tol": tol, **same_at(tol, options)} for tol in (1e-3, 1e-4)]


def same_at(tol: float, options: argparse.Namespace) -> dict[str, Any]:
    X, y, X_test, y_test = raw_mnist(options.data_dir)
    X, y = X[: options.rows], y[: options.rows]
    found = {}
    for device in ("cpu", options.device):
        model = PLML(rescale=False, random_state=0, device=device, tol=tol)
        seconds, _ = seconds_of(lambda model=model: model.fit(X, y), device)
        predictions = model.predict(X_test)
        found[device] = {
            "fit_seconds": seconds,
            "weights_objective": float(model.history_["weights"]["value"][-1]),
            "metrics_objective": float(model.objective_),
            "weights_gap": float(model.weights_gap_),
            "metrics_gap": float(model.dual_gap_),
            "accuracy": float(np.mean(predictions == y_test)),
            "predictions": predictions,
        }
    ours, theirs = found[options.device], found["cpu"]
    agreement = float(np.mean(ours.pop("predictions") == theirs.pop("predictions")))
    return {
        "agreement": agreement,
        **{
            f"{stage}_objective_difference": abs(
                ours[f"{stage}_objective"] / theirs[f"{stage}_objective"] - 1.0
            )
            for stage in ("weights", "metrics")
        },
        **found,
    }


def mnist(options: argparse.Namespace) -> dict[str, Any]:
    device = options.device
    X, y, X_test, y_test = raw_mnist(options.data_dir)
    X, y = X[: options.rows], y[: options.rows]
    fits, predictions = [], []
    PLML(rescale=False, random_state=0, device=device).fit(X, y).predict(X_test)  # warm-up
    with stage_seconds(device) as times:
        for _ in range(options.repeats):
            model = PLML(rescale=False, random_state=0, device=device)
            fits.append(seconds_of(lambda model=model: model.fit(X, y), device)[0])
    model.predict(X_test)
    for _ in range(options.repeats):
        predictions.append(seconds_of(lambda: model.predict(X_test), device)[0])
    rates = measured_rates(X, device)
    n_lloyd = kmeans_anchors(to_device(X, device), model.n_bases, 0).n_iter
    stages = {name: median(values) for name, values in times.items() if values}
    lowest = floors(model, n_lloyd, len(X), rates)
    return {
        "shape": X.shape,
        "fit_seconds": median(fits),
        "predict_seconds": median(predictions),
        "stages": stages,
        "floors": lowest,
        "ratios": {name: stages[name] / floor for name, floor in lowest.items()},
        "iterations": {
            "anchors": n_lloyd,
            "weights": model.weights_n_iter_,
            "metrics": model.n_iter_,
        },
        "gaps": [model.weights_gap_, model.dual_gap_],
        "accuracy": float(np.mean(model.predict(X_test) == y_test)),
        "measured_rates": rates,
    }


def protocol(options: argparse.Namespace) -> dict[str, Any]:
    data = datasets.load("mnist", options.data_dir)
    X, y, X_test, y_test = protocols.prepared_split(data, *next(protocols.splits(data)))
    X, y = X[: options.rows], y[: options.rows]
    model = PLMLCV(rescale=False, random_state=0, device=options.device)
    seconds, _ = seconds_of(lambda: model.fit(X, y), options.device)
    return {
        "shape": X.shape,
        "seconds": seconds,
        "regularization": model.best_regularization_,
        "accuracy": float(np.mean(model.predict(X_test) == y_test)),
        "gaps": [model.weights_gap_, model.dual_gap_],
    }


def auto(options: argparse.Namespace) -> dict[str, Any]:
    X, y, X_test, y_test = raw_mnist(options.data_dir)
    X, y = X[:AUTO_ROWS], y[:AUTO_ROWS]
    found: dict[str, Any] = {"shape": X.shape}
    for device in (options.device, "cpu"):
        with stage_seconds(device) as times:
            model = AutoPLML(random_state=0, device=device)
            seconds, _ = seconds_of(lambda model=model: model.fit(X, y), device)
        predictions = model.predict(X_test)
        found[device] = {
            "seconds": seconds,
            "stages": {name: sum(values) for name, values in times.items()},
            "accuracy": float(np.mean(predictions == y_test)),
            "selected": model.members_,
            "predictions": predictions,
        }
        print(device, seconds, flush=True)
    ours, theirs = (found[device].pop("predictions") for device in (options.device, "cpu"))
    return {**found, "agreement": float(np.mean(ours == theirs))}


def growth(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for n in options.sizes:
        X, y = synthetic.mixture(n)
        model = PLML(rescale=False, random_state=0, tol=1e-2, device=options.device)
        if options.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with stage_seconds(options.device) as times:
            seconds, _ = seconds_of(lambda model=model, X=X, y=y: model.fit(X, y), options.device)
        row = {
            "rows": n,
            "fit_seconds": seconds,
            "stages": {name: sum(values) for name, values in times.items()},
            "gaps": [model.weights_gap_, model.dual_gap_],
        }
        if options.device.startswith("cuda"):
            row["peak_gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


PARTS = {"same": same, "mnist": mnist, "protocol": protocol, "auto": auto, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rows", type=int, default=60000, help="of MNIST")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", type=int, default=[60_000, 250_000, 1_000_000])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"device": options.device}
    if options.device.startswith("cuda"):
        import torch

        results["gpu"] = torch.cuda.get_device_name()
    for part in options.parts:
        results[part] = PARTS[part](options)
        print(part, json.dumps(results[part], indent=1), flush=True)
        if options.out is not None:
            content = {**results, **provenance()}
            write_atomically(options.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
