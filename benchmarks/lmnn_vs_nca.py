"""LMNN against scikit-learn's NeighborhoodComponentsAnalysis: time, memory, accuracy, same run.

    python benchmarks/lmnn_vs_nca.py [--data-dir DIR]

Each runs in a process of its own, one after the other, so that the peak memory is its own; the
peak of a process that only reads the data is taken off.
"""

import argparse
import json
import resource
import subprocess
import sys
from time import perf_counter

from scipy.stats import binomtest
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline

from plml import LMNN
from plml.experiments import datasets, protocols


def run_one(method: str, data_dir: str | None) -> None:
    """Fit, predict, and print a record."""
    dataset = datasets.load("pendigits", data_dir)
    split = next(protocols.splits(dataset))
    X_train, y_train, X_test, y_test = protocols.prepared_split(dataset, *split)
    record: dict[str, object] = {"seconds": 0.0, "right": []}
    if method != "nothing":
        nca = NeighborhoodComponentsAnalysis(random_state=0)
        model = LMNN() if method == "LMNN" else make_pipeline(nca, KNeighborsClassifier(1))
        start = perf_counter()
        model.fit(X_train, y_train)
        record = {"seconds": perf_counter() - start}
        record["right"] = (model.predict(X_test) == y_test).tolist()
    record["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(json.dumps(record))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--one", choices=["nothing", "LMNN", "NCA"])
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.data_dir)
        return
    records = {}
    for method in ("nothing", "LMNN", "NCA"):
        command = [sys.executable, __file__, "--one", method]
        command += ["--data-dir", options.data_dir] if options.data_dir else []
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        records[method] = json.loads(done.stdout.splitlines()[-1])
    floor = records.pop("nothing")["peak"]
    for method, record in records.items():
        accuracy = sum(record["right"]) / len(record["right"])
        record["memory"] = record["peak"] - floor
        print(
            f"{method:<6}{record['seconds']:8.1f} s{record['memory']:9.0f} MiB above the data"
            f"{accuracy:10.2%}"
        )
    ours, theirs = records["LMNN"], records["NCA"]
    only = [
        sum(a and not b for a, b in zip(x["right"], y["right"], strict=True))
        for x, y in ((ours, theirs), (theirs, ours))
    ]
    p = binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
    print(
        f"NCA / LMNN: time {theirs['seconds'] / ours['seconds']:.1f}, "
        f"memory {theirs['memory'] / ours['memory']:.1f}; right where the other is wrong: "
        f"LMNN {only[0]}, NCA {only[1]}, exact McNemar p = {p:.3f}"
    )


if __name__ == "__main__":
    main()
