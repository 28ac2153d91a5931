"""Cases that come and go on MNIST: what it costs beside the fit, and whether the answers are right.

    python benchmarks/living.py [--data-dir DIR] [--out results/living.json]

The fit is that of ``mnist.py``: 60,000 x 154, m = 20, regularization 1, gap 1e-3. The 10,000 test
rows are added as cases, then 100 more one by one (the same with noise), and 10,000 are forgotten.
Weights of added cases are computed where something asks for them; that is timed apart. Answers are
compared with a plain loop over all cases in float64.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from plml import PLML
from plml.io.files import write_atomically
from plml_study.records import provenance
from raw_mnist import raw_mnist
from stopwatch import seconds_of

#: Cases that are added one by one.
_SINGLE = 100


def nearest_by_definition(
    model: PLML, learned: np.ndarray, cases: np.ndarray, Q: np.ndarray
) -> np.ndarray:
    """The nearest case under the metric of the nearest row that was learned from, one by one."""
    learned, cases = learned.astype(np.float64), cases.astype(np.float64)
    M, found = model.basis_metrics_.astype(np.float64), []
    for q in Q.astype(np.float64):
        weights = model.weights_[np.argmin(np.sum((learned - q) ** 2, axis=1))]
        differences = cases - q
        metric = np.tensordot(weights.astype(np.float64), M, 1)
        found.append(np.argmin(np.sum((differences @ metric) * differences, axis=1)))
    return np.array(found)


def agreement(model: PLML, learned: np.ndarray, cases: np.ndarray, Q: np.ndarray) -> str:
    """How many queries have the neighbour of the definition."""
    found = model.kneighbors(Q, 1, return_distance=False)[:, 0]
    return f"{np.sum(found == nearest_by_definition(model, learned, cases, Q))} of {len(Q)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--checked", type=int, default=100, help="queries against the definition")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    X, y, X_new, y_new = raw_mnist(options.data_dir)
    fit_seconds, model = seconds_of(lambda: PLML(rescale=False, random_state=0).fit(X, y))
    half = options.checked
    Q = (X_new[:half] + X_new[half : 2 * half]) / 2
    before_seconds, _ = seconds_of(lambda: model.predict(X_new))
    add_seconds, _ = seconds_of(lambda: model.add_cases(X_new, y_new))
    everything = np.vstack([X, X_new])
    after_seconds, _ = seconds_of(lambda: model.predict(X_new))
    found = {"added": agreement(model, X, everything, Q)}
    noise = 0.01 * np.random.default_rng(0).normal(size=(_SINGLE, X.shape[1])).astype(X.dtype)
    singles = X_new[:_SINGLE] + noise

    def one_by_one() -> None:
        for i in range(_SINGLE):
            model.add_cases(singles[i : i + 1], y_new[i : i + 1])

    single_seconds, _ = seconds_of(one_by_one)
    weights_seconds, _ = seconds_of(model.local_weights)
    everything = np.vstack([everything, singles])
    gone = np.arange(0, len(everything), 7)[: len(X_new)]
    forget_seconds, _ = seconds_of(lambda: model.forget_cases(gone))
    learned = np.delete(X, gone[gone < len(X)], axis=0)
    found["forgotten"] = agreement(model, learned, np.delete(everything, gone, axis=0), Q)
    result = {
        "fit_seconds": fit_seconds,
        "add_10000_seconds": add_seconds,
        "add_to_fit": add_seconds / fit_seconds,
        "predict_10000_seconds": {"before": before_seconds, "after": after_seconds},
        "add_one_seconds": single_seconds / _SINGLE,
        "weights_of_added_seconds": weights_seconds,
        "weights_to_fit": weights_seconds / fit_seconds,
        "forget_10000_seconds": forget_seconds,
        "forget_to_fit": forget_seconds / fit_seconds,
        "neighbors_of_the_definition": found,
    }
    print(json.dumps(result, indent=1))
    if options.out:
        record = {**result, **provenance()}
        write_atomically(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
