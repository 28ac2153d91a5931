"""Time of the explorer: the page of a large model, and the answer to a changed value.

    python benchmarks/explorer.py [--rows 50000] [--new 1000] [--what-if-rows 10000]

Gaussian groups in 20 dimensions, three per class, overlapping; PLML with 10 basis metrics and five
neighbours that vote. The page is everything after the fit: the votes for all training cases, the
map, the explanations and the file. A changed value is timed from its arrival at the server to the
answer. The time of the processors is that of all threads: it hardly depends on who else computes.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

from plml import PLML
from plml.backend.progress import observed
from plml.explorer.page import answer_to
from plml.explorer.page_data import page_data
from plml.explorer.server import Page
from plml.explorer.subject import subject_of

N_FEATURES, N_CLASSES, N_GROUPS = 20, 5, 15


def groups(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes; the groups are the same for every seed."""
    centers = 1.7 * np.random.default_rng(0).normal(size=(N_GROUPS, N_FEATURES))
    rng = np.random.default_rng(seed + 1)
    of_group = rng.integers(N_GROUPS, size=n)
    noise = 1.6 * rng.normal(size=(n, N_FEATURES))
    return (centers[of_group] + noise).astype(np.float32), of_group % N_CLASSES


def model_of(n: int) -> PLML:
    """Local metrics, fitted to n rows."""
    model = PLML(
        n_bases=10, n_neighbors=5, regularization=1.0, max_iter=30, tol=0.1, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how far the fit got does not matter here
        return model.fit(*groups(n, 0))


def main() -> None:
    """Print both times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--new", type=int, default=1_000)
    parser.add_argument("--what-if-rows", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=50)
    options = parser.parse_args()
    time_page(options.rows, options.new)
    time_changes(options.what_if_rows, options.changes)


def time_page(n_rows: int, n_new: int) -> None:
    """From a fitted model to a file."""
    model, (X, y) = model_of(n_rows), groups(n_new, 1)
    stages: dict[str, tuple[float, float]] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        begun, used = perf_counter(), process_time()
        yield
        stages[name] = perf_counter() - begun, process_time() - used

    with tempfile.TemporaryDirectory() as folder, observed(timed):
        with timed("all"):
            page = Page(page_data(subject_of(model), X, y))
            with timed("writing the file"):
                page.save(Path(folder) / "page.html")
        size = (Path(folder) / "page.html").stat().st_size / 1e6
    elapsed, used = stages.pop("all")
    print(
        f"{n_rows} training cases, {n_new} new ones: page in {elapsed:.1f} s, {used:.1f} s of all "
        f"processors together, {size:.1f} MB"
    )
    print(f"  the map shows {page.data.facts['chosen']}")
    for name, (seconds, of_processors) in stages.items():
        print(f"  {name}: {seconds:.1f} s, {of_processors:.1f} s of processors")


def time_changes(n_rows: int, n_changes: int) -> None:
    """From a changed value to an answer."""
    data = page_data(subject_of(model_of(n_rows)), *groups(50, 1))
    rng, times = np.random.default_rng(0), []
    for number in range(n_changes):
        point = number % len(data.facts["values"])
        values = list(data.facts["values"][point])
        values[rng.integers(N_FEATURES)] = str(rng.normal())
        row = int(data.points.rows[point])
        question = json.dumps({"number": number, "new": row, "values": values})
        start = perf_counter()
        json.dumps(answer_to(data, question))
        times.append(1e3 * (perf_counter() - start))
    print(
        f"{n_rows} training cases: {n_changes} changed values answered in {median(times):.0f} ms "
        f"(median), {max(times):.0f} ms (longest)"
    )


if __name__ == "__main__":
    main()
