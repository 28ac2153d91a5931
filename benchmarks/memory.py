"""Memory of a fit against the formula of docs/memory.md, at five sizes.

    python benchmarks/memory.py [--device cuda] [--out results/memory.json]

Every fit runs in a process of its own. On the processor its memory is the peak of the process above
what it held before: the interpreter, the imports, a small fit and the data. On a GPU it is what
PyTorch allocated at most. The data are float64 and of ``synthetic.mixture``.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plml import PLML
from plml.io.files import write_atomically
from plml_study.records import provenance
from synthetic import mixture

#: Rows, features and basis metrics.
SIZES = (
    (20_000, 20, 20),
    (30_000, 30, 40),
    (20_000, 60, 10),
    (10_000, 200, 20),
    (5_000, 400, 10),
)
MEBIBYTE = 2**20
#: ``working_memory`` on a GPU, where temporary arrays otherwise take a share of what is free.
ON_A_GPU = 256


class Stages(NamedTuple):
    """Bytes that every stage of a fit needs at its peak."""

    neighbors: float
    weights: float
    metrics: float


def formula(n: int, d: int, m: int) -> Stages:
    """What docs/memory.md says of n rows of d float64 features and m basis metrics."""
    blocks = 32 * MEBIBYTE
    return Stages(
        neighbors=8.0 * n * (12 * d + 80) + blocks,
        weights=8.0 * n * (2 * d + 12 * m + 140),
        metrics=8.0 * n * (7 * d + 9 * m + 110) + 48.0 * m * d * d,
    )


def resident(what: str) -> int:
    """Bytes of this process: "VmRSS" now, "VmHWM" at most so far."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(what):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {what} in /proc/self/status")


def release() -> None:
    """Give back what the small fit has freed; otherwise the fit uses it again, uncounted."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim is not None:
        trim(0)


def measure(n: int, d: int, m: int, device: str) -> int:
    """Bytes of one fit in this process."""
    warnings.simplefilter("ignore")  # of open gaps
    options: dict[str, Any] = {"device": device, "random_state": 0}
    if device != "cpu":
        options["working_memory"] = ON_A_GPU
    if find_spec("faiss"):
        import_module("faiss")  # the small fit does without
    small, labels = mixture(400, d)
    PLML(max_iter=5, **options).fit(small.astype(np.float64), labels)
    X, y = mixture(n, d)
    X = X.astype(np.float64)
    model = PLML(n_bases=m, tol=1e-2, **options)
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model.fit(X, y)
        return torch.cuda.max_memory_allocated() - before
    release()
    # Written to this file, "5" makes the peak what is held now.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident("VmRSS")
    model.fit(X, y)
    return resident("VmHWM") - before


def in_a_process(size: tuple[int, int, int], options: argparse.Namespace) -> int:
    """``measure`` in a process of its own."""
    command = [sys.executable, __file__, "--measure", *map(str, size)]
    command += ["--device", options.device]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(run.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--measure", type=int, nargs=3, metavar=("n", "d", "m"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.measure:
        print(measure(*options.measure, options.device))
        return
    rows = []
    for size in SIZES:
        measured, stages = in_a_process(size, options), formula(*size)
        ratio = max(stages) / measured
        largest = Stages._fields[int(np.argmax(stages))]
        keys = ("n", "d", "m", "bytes", "formula", "ratio", "largest_stage")
        values = (*size, measured, max(stages), ratio, largest)
        rows.append(dict(zip(keys, values, strict=True)))
        print(
            f"{size[0]:>9,} x {size[1]:<5} m = {size[2]:<4}{measured / MEBIBYTE:8.0f} MiB, formula "
            f"{max(stages) / MEBIBYTE:8.0f} MiB ({largest}), ratio {ratio:.2f}",
            flush=True,
        )
    if options.out is not None:
        content = {"device": options.device, "fits": rows, **provenance()}
        write_atomically(options.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
