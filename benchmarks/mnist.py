"""MNIST, 60,000 x 154, on a processor: time and memory of a fit, the floor of stage 2, prediction.

    python benchmarks/mnist.py [--data-dir DIR] [--out results/mnist.json]

PCA on raw pixels, one global scale, m = 20, regularization 1, gap 1e-3. The floor of stage 2 is
evaluations x 4 d^2 nnz(W) flops over the rate of a large float32 product in the same run.
Prediction is timed against scikit-learn's brute-force Euclidean classifier, turn by turn.
"""

import argparse
import json
import resource
from pathlib import Path
from statistics import median

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from plml import PLML
from plml.io.files import write_atomically
from plml.stages.pipeline import METRICS
from plml_study.records import provenance
from raw_mnist import raw_mnist
from stopwatch import seconds_of, single_precision_rate, stage_seconds


def peak_gigabytes() -> float:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def nearest_by_definition(model: PLML, X: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """The nearest row of X under the metric of the nearest row of X, one query at a time."""
    X, M = X.astype(np.float64), model.basis_metrics_.astype(np.float64)
    found = []
    for q in Q.astype(np.float64):
        differences = X - q
        weights = model.weights_[np.argmin(np.sum(differences**2, axis=1))]
        metric = np.tensordot(weights.astype(np.float64), M, 1)
        found.append(np.argmin(np.sum((differences @ metric) * differences, axis=1)))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--repeats", type=int, default=3, help="of the predictions")
    parser.add_argument("--checked", type=int, default=200, help="queries against the definition")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    X, y, X_test, y_test = raw_mnist(options.data_dir)
    before = peak_gigabytes()
    model = PLML(rescale=False, random_state=0)
    with stage_seconds() as times:
        fit_seconds, _ = seconds_of(lambda: model.fit(X, y))
    peak = peak_gigabytes()
    rate = single_precision_rate()
    flops = model.n_iter_ * 4.0 * X.shape[1] ** 2 * float(np.count_nonzero(model.weights_))
    euclidean = KNeighborsClassifier(1, algorithm="brute").fit(X, y)
    turns = [
        [seconds_of(lambda m=m: m.predict(X_test))[0] for m in (model, euclidean)]
        for _ in range(options.repeats)
    ]
    ours, theirs = (median(column) for column in zip(*turns, strict=True))
    chosen = X_test[:: len(X_test) // options.checked]
    same = model.kneighbors(chosen, 1, return_distance=False)[:, 0] == nearest_by_definition(
        model, X, chosen
    )
    found = {
        "fit_seconds": fit_seconds,
        "stages": {name: sum(values) for name, values in times.items()},
        "peak_gigabytes": peak,
        "peak_gigabytes_before_the_fit": before,
        "gaps": [model.weights_gap_, model.dual_gap_],
        "evaluations": model.n_iter_,
        "weights_a_row": float(np.count_nonzero(model.weights_)) / len(X),
        "float32_gigaflops": rate / 1e9,
        "metrics_floor_seconds": flops / rate,
        "metrics_ratio_to_floor": sum(times[METRICS]) / (flops / rate),
        "predict_seconds": ours,
        "sklearn_predict_seconds": theirs,
        "predict_ratio": ours / theirs,
        "accuracy": float(np.mean(model.predict(X_test) == y_test)),
        "euclidean_accuracy": float(np.mean(euclidean.predict(X_test) == y_test)),
        "neighbors_of_the_definition": f"{int(same.sum())} of {len(same)}",
    }
    print(json.dumps(found, indent=1))
    if options.out is not None:
        write_atomically(options.out, json.dumps({**found, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
