"""A million rows of CSV, read, fitted and predicted: how much memory, and how long in silence?

    python benchmarks/million_rows.py [--rows 1000000] [--columns 20 50] [--out FILE]

Writes a CSV file in parts, runs ``plml describe``, ``plml fit`` and ``plml predict`` on it, each in
a process of its own, and prints for each the peak of its resident memory over that of the numbers
(eight bytes each), and the longest time in which it printed no progress.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from plml.io.files import write_atomically
from plml_study.records import provenance

_PART = 50_000
_CLASSES, _CLOUDS = 4, 3


def parts(n_rows: int, n_columns: int, seed: int = 0) -> Iterator[pd.DataFrame]:
    """Rows of overlapping clouds, several per class, in parts."""
    rng = np.random.default_rng(seed)
    means = 1.5 * rng.standard_normal((_CLASSES * _CLOUDS, n_columns))
    names = [f"x{number}" for number in range(n_columns)]
    for start in range(0, n_rows, _PART):
        cloud = rng.integers(len(means), size=min(_PART, n_rows - start))
        rows = means[cloud] + rng.standard_normal((len(cloud), n_columns))
        yield pd.DataFrame(rows.round(4), columns=names).assign(y=cloud % _CLASSES)


def written(path: Path, n_rows: int, n_columns: int) -> None:
    """Write them as CSV."""
    for number, part in enumerate(parts(n_rows, n_columns)):
        part.to_csv(path, index=False, mode="a" if number else "w", header=not number)


def measured(*arguments: Any) -> dict[str, float]:
    """Run ``plml``: seconds, peak of the resident memory, longest silence."""
    start = last = perf_counter()
    longest, n_lines, tail = 0.0, 0, ""
    command = [sys.executable, "-m", "plml", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for tail in process.stderr:
        now = perf_counter()
        longest, last, n_lines = max(longest, now - last), now, n_lines + 1
        print(f"  {tail.rstrip()}", file=sys.stderr, flush=True)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"plml {arguments[0]} failed: {tail}")
    return {
        "seconds": perf_counter() - start,
        "peak_bytes": used.ru_maxrss * 1024,
        "longest_silence": max(longest, perf_counter() - last),
        "lines": n_lines,
    }


def accuracy(table: Path, predicted: Path) -> float:
    """Of the predictions of a table."""
    truth = pd.read_csv(table, usecols=["y"])["y"].to_numpy()
    return float((pd.read_csv(predicted)["prediction"].to_numpy() == truth).mean())


def measured_table(n_rows: int, n_columns: int, names: list[str]) -> dict[str, Any]:
    """Write a table and run the commands of these names on it."""
    numbers = n_rows * (n_columns + 1) * 8
    found: dict[str, Any] = {"rows": n_rows, "columns": n_columns, "bytes": numbers}
    with tempfile.TemporaryDirectory() as folder:
        table, model, out = (Path(folder) / n for n in ("t.csv", "m.skops", "predicted.csv"))
        written(table, n_rows, n_columns)
        found["file_bytes"] = table.stat().st_size
        commands = {
            "describe": ["describe", table, "--target", "y"],
            "fit": ["fit", table, "--target", "y", "-o", model],
            "predict": ["predict", model, table, "-o", out],
        }
        for name in names:
            one = found[name] = measured(*commands[name])
            print(
                f"{n_columns} columns, {name}: {one['seconds']:.0f} s, peak "
                f"{one['peak_bytes'] / 2**20:.0f} MiB, {one['peak_bytes'] / numbers:.2f} times the "
                f"numbers ({numbers / 2**20:.0f} MiB), at most {one['longest_silence']:.1f} s "
                "without a line",
                flush=True,
            )
        if out.exists():
            found["accuracy"] = accuracy(table, out)
            print(f"accuracy on the training rows {found['accuracy']:.2%}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[20])
    parser.add_argument("--commands", nargs="+", default=["describe", "fit", "predict"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tables = [measured_table(options.rows, d, options.commands) for d in options.columns]
    if options.out is not None:
        record = {"tables": tables, **provenance()}
        write_atomically(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
