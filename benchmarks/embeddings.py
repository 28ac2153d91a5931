"""Vectors as image and language models give them: what they cost, and what is gained.

    python benchmarks/embeddings.py [--dimensions 768 1536 4096] [--out results/embeddings.json]

The vectors are made here, from scikit-learn's digits: each image, and the four that are moved by
one pixel, goes through a fixed random network (convolutions, a random mixture, rows of unit
length). An image and its moved copies are all in the training part, or all in the test part. For
every number of dimensions, in a process of its own: seconds of the fit, its peak memory above what
was there before, the share of the variance that was learned from, both gaps, and the accuracy of
the learned metric beside that of five neighbours by cosine.
"""

import argparse
import json
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize

from plml import PLML
from plml.io.files import write_atomically
from plml_study.records import provenance

#: Side of the windows, and how many random filters look through each.
WINDOW, FILTERS = 4, 48


def moved_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (n, 8, 8), their labels, and the number of the image that each was made from."""
    digits = load_digits()
    images = digits.images / 16.0
    moves = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    moved = [np.roll(images, move, axis=(1, 2)) for move in moves]
    return (
        np.concatenate(moved),
        np.tile(digits.target, len(moves)),
        np.tile(np.arange(len(images)), len(moves)),
    )


def embedded(images: np.ndarray, n_dimensions: int) -> np.ndarray:
    """(n, n_dimensions) float32 rows of unit length, by a random network with a fixed seed."""
    random = np.random.default_rng(0)
    windows = np.lib.stride_tricks.sliding_window_view(images, (WINDOW, WINDOW), axis=(1, 2))
    windows = windows.reshape(len(images), -1, WINDOW * WINDOW)
    filters = random.normal(size=(WINDOW * WINDOW, FILTERS))
    hidden = np.maximum(windows @ filters, 0.0).reshape(len(images), -1)
    mixture = random.normal(size=(hidden.shape[1], n_dimensions)) / hidden.shape[1] ** 0.5
    return normalize(np.maximum(hidden @ mixture, 0.0)).astype(np.float32)


def measured(n_dimensions: int) -> dict[str, Any]:
    """One line of the table."""
    images, y, origin = moved_digits()
    X = embedded(images, n_dimensions)
    train, test = next(GroupShuffleSplit(1, test_size=0.2, random_state=0).split(X, y, origin))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the directions that are cut
        model = PLML(prior="identity", n_neighbors=5, random_state=0).fit(X[train], y[train])
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cosine = KNeighborsClassifier(5, metric="cosine").fit(X[train], y[train])
    return {
        "rows": len(train),
        "dimensions": n_dimensions,
        "seconds": seconds,
        "peak_megabytes": (peak - before) / 1024,
        "variance_kept": model.variance_kept_,
        "gaps": [model.weights_gap_, model.dual_gap_],
        "accuracy": model.score(X[test], y[test]),
        "cosine_accuracy": cosine.score(X[test], y[test]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[768, 1536, 2048, 4096])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measured(options.one)))
        return
    print(f"{'rows':>6}{'d':>6}{'fit s':>8}{'MB':>7}{'variance':>10}{'PLML':>9}{'cosine':>9}")
    rows = []
    for d in options.dimensions:
        command = [sys.executable, __file__, "--one", str(d)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = json.loads(found.splitlines()[-1])
        rows.append(row)
        print(
            f"{row['rows']:>6}{d:>6}{row['seconds']:>8.1f}{row['peak_megabytes']:>7.0f}"
            f"{row['variance_kept']:>10.1%}{row['accuracy']:>9.2%}{row['cosine_accuracy']:>9.2%}",
            flush=True,
        )
    if options.out is not None:
        write_atomically(options.out, json.dumps({"rows": rows, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
