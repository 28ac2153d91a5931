"""A Parquet data set several times larger than the memory of the workers: fit and predict.

    python benchmarks/dask_parquet.py [--gigabytes 6.5] [--memory 1024] [--out FILE]

Writes the data set first (rows of four clouds, two classes that interleave in each), then starts
two workers with a memory limit in MiB, fits PLML to it, and predicts a second data set, block by
block. The peak of a worker's resident memory is what the system noted of its process.
"""

import argparse
import json
import os
import resource
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from plml import PLML
from plml.io.files import write_atomically
from plml_study.records import provenance

N_FEATURES = 512
N_CLOUDS = 4
RANK = 4
NOISE = 0.1
ROWS_A_FILE = 4_096
N_TEST = 2_048
#: Libraries take half of such small workers, which Dask's defaults (0.6, 0.7) do not expect.
MEMORY = {"distributed.worker.memory.target": 0.15, "distributed.worker.memory.spill": 0.5}


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of four clouds near planes; the class changes along one direction of each, its own."""
    shape = np.random.default_rng(0)
    means = 2.0 * shape.standard_normal((N_CLOUDS, N_FEATURES), dtype=np.float32)
    axes = shape.standard_normal((N_CLOUDS, RANK, N_FEATURES), dtype=np.float32)
    rng = np.random.default_rng(seed)
    cloud = rng.integers(N_CLOUDS, size=n)
    latent = rng.standard_normal((n, RANK), dtype=np.float32)
    X = NOISE * rng.standard_normal((n, N_FEATURES), dtype=np.float32)
    for c in range(N_CLOUDS):
        members = np.flatnonzero(cloud == c)
        X[members] += means[c] + latent[members] @ axes[c]
    y = (np.sin(3.0 * latent[:, 0]) > 0).astype(np.int64)
    return X / np.float32(np.sqrt(N_FEATURES)), y


def write(folder: Path, n_rows: int, seed: int, rows_a_file: int = ROWS_A_FILE) -> int:
    """Parquet files, and their bytes in memory."""
    folder.mkdir()
    total = 0
    for number, start in enumerate(range(0, n_rows, rows_a_file)):
        X, y = rows(min(rows_a_file, n_rows - start), seed + number)
        X = X.astype(np.float64)  # what most tables hold
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(N_FEATURES)])
        frame["label"] = y
        frame.to_parquet(folder / f"part-{number:05d}.parquet", compression=None)
        total += X.nbytes
    return total


def peak_memory() -> tuple[int, int]:
    """The process, and the most resident memory it has ever had."""
    return os.getpid(), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Write, fit, predict, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=6.5)
    parser.add_argument("--memory", type=float, default=1024, help="MiB per worker")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, help="for the data and what is spilled")
    options = parser.parse_args()
    limit = int(options.memory * 2**20)
    n_rows = int(options.gigabytes * 1e9 / (8 * N_FEATURES))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        place = Path(folder)
        size = write(place / "train", n_rows, 1_000)
        write(place / "test", N_TEST, 900_000, rows_a_file=512)
        dask.config.set({"temporary-directory": str(place / "spill"), **MEMORY})
        cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        )
        with cluster, Client(cluster) as client:
            before = set(client.run(os.getpid).values())
            found = measure(place)
            after = dict(client.run(peak_memory).values())
            found["restarts"] = len(before - set(after))
            peaks = sorted(after.values())
    found |= {
        "rows": n_rows,
        "features": N_FEATURES,
        "data_bytes": size,
        "memory_limit_bytes": limit,
        "times_the_limit_of_a_worker": size / limit,
        "times_the_memory_of_all_workers": size / (2 * limit),
        "peak_bytes_of_workers": peaks,
        "peak_share_of_limit": max(peaks) / limit,
    }
    print(json.dumps(found, indent=1))
    if options.out is not None:
        write_atomically(options.out, json.dumps({**found, **provenance()}, indent=1) + "\n")


def measure(place: Path) -> dict[str, Any]:
    """Fit and predict from the files."""
    train, test = (dd.read_parquet(place / name) for name in ("train", "test"))
    columns = [name for name in train.columns if name != "label"]
    n_rows = len(train)
    model = PLML(n_bases=N_CLOUDS, regularization=n_rows / 100, tol=1e-2, random_state=0, verbose=1)
    start = perf_counter()
    model.fit(train[columns], train["label"])
    fitted = perf_counter()
    predictions = model.predict(test[columns]).compute()
    labels = test["label"].compute().to_numpy()
    return {
        "fit_seconds": fitted - start,
        "predict_seconds": perf_counter() - fitted,
        "accuracy": float(np.mean(predictions == labels)),
        "test_rows": len(labels),
        "iterations": [model.weights_n_iter_, model.n_iter_],
        "gaps": [model.weights_gap_, model.dual_gap_],
        "recall": model.neighbor_recall_,
        "shards": len(model._training.shards),
    }


if __name__ == "__main__":
    main()
