"""The neighbours of a fit in one pass, against faiss: MNIST, 60,000 x 154, on a processor.

    python benchmarks/neighbors.py [--data-dir DIR] [--rows N] [--out results/neighbors.json]

Turn by turn: faiss's flat index finds the seven nearest of all rows; the library finds three lists,
the seven nearest, the three nearest of the own class and the three nearest of the others, with
their proofs. The floor is 2 n^2 d flops at the rate of a large float32 product in the same run;
half of it would do if every distance were computed once for both of its rows. Processor seconds are
those of all threads; their ratio is what a busy machine can still say.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

import faiss
import numpy as np

from plml.io.files import write_atomically
from plml.stages.neighbors import ExactNeighbors
from plml_study.records import provenance
from raw_mnist import raw_mnist
from stopwatch import seconds_of, single_precision_rate


def seven_nearest(X: np.ndarray) -> np.ndarray:
    """By faiss's flat index; every row finds itself, too."""
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X)
    return index.search(X, 8)[1]


def three_lists(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbours for the graph, targets and impostors."""
    neighbors = ExactNeighbors(X, y)
    return neighbors.graph(7)[1], neighbors.targets(3), neighbors.impostors(3)


def two_lists(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a fit without a graph needs."""
    neighbors = ExactNeighbors(X, y)
    return neighbors.targets(3), neighbors.impostors(3)


class Turn(NamedTuple):
    """Seconds of faiss, of three lists and of two, by the clock and of the processor."""

    clock: tuple[float, ...]
    processor: tuple[float, ...]


def turn(X: np.ndarray, y: np.ndarray) -> Turn:
    """All three ways, one after the other."""
    found = []
    for way in (lambda: seven_nearest(X), lambda: three_lists(X, y), lambda: two_lists(X, y)):
        start = process_time()
        seconds, _ = seconds_of(way)
        found.append((seconds, process_time() - start))
    return Turn(*zip(*found, strict=True))


def summary(X: np.ndarray, rates: list[float], turns: list[Turn]) -> dict[str, float]:
    """Medians over the turns so far."""
    flat, three, two = (median(column) for column in zip(*(t.clock for t in turns), strict=True))
    floor = 2.0 * len(X) ** 2 * X.shape[1] / median(rates)
    return {
        "rows": len(X),
        "features": X.shape[1],
        "turns": len(turns),
        "faiss_flat_seconds": flat,
        "three_lists_seconds": three,
        "two_lists_seconds": two,
        "ratio_to_faiss": median(t.clock[1] / t.clock[0] for t in turns),
        "ratio_of_processor_seconds": median(t.processor[1] / t.processor[0] for t in turns),
        "float32_gigaflops": median(rates) / 1e9,
        "floor_seconds": floor,
        "floor_seconds_with_symmetry": floor / 2.0,
        "ratio_to_floor": three / floor,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--rows", type=int, help="the first so many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    X, labels = (part[: options.rows] for part in raw_mnist(options.data_dir)[:2])
    X, y = np.ascontiguousarray(X), np.unique(labels, return_inverse=True)[1]
    turns, rates = [], []
    for _ in range(options.repeats):
        rates.append(single_precision_rate())
        turns.append(turn(X, y))
        print(
            "faiss {:.2f} s, three lists {:.2f} s, two lists {:.2f} s; ".format(*turns[-1].clock)
            + "of the processor {:.2f}, {:.2f}, {:.2f} s".format(*turns[-1].processor),
            flush=True,
        )
        found = summary(X, rates, turns)
        if options.out is not None:
            content = json.dumps({**found, **provenance()}, indent=1) + "\n"
            write_atomically(options.out, content)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
