"""PLML and LMNN against what one would use instead, on Pendigits: time, memory, accuracy, same run.

    python benchmarks/peers.py [--data-dir DIR] [--methods ...] [--out results/peers.json]
                               [--mlpack-python PATH] [--metric-learn-python PATH]

The peers are scikit-learn's NeighborhoodComponentsAnalysis at its defaults, mlpack's LMNN (C++) and
metric-learn's LMNN, both with three targets. The last two run with an interpreter that has them:
metric-learn needs an older scikit-learn (pip install metric-learn "scikit-learn<1.4" "numpy<2").
Each runs in a process of its own, one after the other; the peak memory of a process that only
reads the data, with the same interpreter, is taken off.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

OURS = ("PLML", "LMNN")
PEERS = ("NCA", "mlpack", "metric-learn")


def nearest(train: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    """1-NN after a transformation."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(1).fit(train, y).predict(test)


def run_one(method: str, path: str) -> None:
    """Fit, predict, and print a record; imports what the method needs and nothing else."""
    data = np.load(path)
    X, y, X_test = data["X"], data["y"], data["X_test"]
    start = perf_counter()
    if method == "nothing":
        seconds, predicted = 0.0, y[:0]
    elif method in OURS:
        import plml

        start = perf_counter()
        model = plml.PLML(rescale=False, random_state=0) if method == "PLML" else plml.LMNN()
        model.fit(X, y)
        seconds, predicted = perf_counter() - start, model.predict(X_test)
    elif method == "mlpack":
        from mlpack import lmnn

        start = perf_counter()
        L = lmnn(input_=X, labels=y.astype(np.uintp), k=3, seed=1)["output"]
        seconds, predicted = perf_counter() - start, nearest(X @ L.T, y, X_test @ L.T)
    else:
        if method == "NCA":
            from sklearn.neighbors import NeighborhoodComponentsAnalysis

            transformer = NeighborhoodComponentsAnalysis(random_state=0)
        else:
            from metric_learn import LMNN

            transformer = LMNN(n_neighbors=3, random_state=0)
        start = perf_counter()
        transformer.fit(X, y)
        seconds = perf_counter() - start
        predicted = nearest(transformer.transform(X), y, transformer.transform(X_test))
    right = [] if method == "nothing" else (predicted == data["y_test"]).tolist()
    print(json.dumps({"seconds": seconds, "peak": peak_mebibytes(), "right": right}))


def peak_mebibytes() -> float:
    """Of this process; getrusage would count the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def call(python: str, method: str, path: Path) -> dict[str, Any]:
    """The record of one method in a process of its own."""
    command = [python, __file__, "--one", method, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{method} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run_one(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--methods", nargs="+", choices=[*OURS, *PEERS])
    parser.add_argument("--mlpack-python", help="interpreter with mlpack")
    parser.add_argument("--metric-learn-python", help="interpreter with metric-learn")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pythons = {
        **dict.fromkeys([*OURS, "NCA"], sys.executable),
        "mlpack": options.mlpack_python,
        "metric-learn": options.metric_learn_python,
    }
    methods = [m for m in options.methods or pythons if pythons[m]]

    from plml.io.files import write_atomically
    from plml_study import datasets, protocols
    from plml_study.records import provenance
    from plml_study.statistics import mcnemar

    dataset = datasets.load("pendigits", options.data_dir)
    split = protocols.prepared_split(dataset, *next(protocols.splits(dataset)))
    records: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pendigits.npz"
        np.savez(path, **dict(zip(("X", "y", "X_test", "y_test"), split, strict=True)))
        for method in methods:
            floor = call(pythons[method], "nothing", path)["peak"]
            records[method] = record = call(pythons[method], method, path)
            record["memory"] = record.pop("peak") - floor
            record["accuracy"] = 100.0 * float(np.mean(record["right"]))
            print(
                f"{method:<14}{record['seconds']:8.1f} s{record['memory']:9.0f} MiB"
                f"{record['accuracy']:10.2f}%",
                flush=True,
            )
    right = {method: np.array(record.pop("right")) for method, record in records.items()}
    for ours in (method for method in methods if method in OURS):
        for peer in (method for method in methods if method in PEERS):
            a, b = records[ours], records[peer]
            test = mcnemar(right[ours], right[peer])
            print(
                f"{ours} against {peer}: {b['seconds'] / a['seconds']:.1f} times faster, "
                f"{b['memory'] / a['memory']:.1f} times less memory, "
                f"{a['accuracy'] - b['accuracy']:+.2f} points (McNemar p = {test.p_value:.3f})"
            )
    if options.out is not None:
        content = {"dataset": "pendigits", "methods": records, **provenance()}
        write_atomically(options.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
