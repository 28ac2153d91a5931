"""Memory of a fit against the formula of docs/memory.md, at five sizes.

    python benchmarks/memory.py [--device cuda] [--out results/memory.json]
    python benchmarks/memory.py --from results/memory_gpu.json

The second line compares what was measured before with the formula as it is now.

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
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plml import PLML
from plml.io.files import write_atomically
from plml_study.records import provenance
from synthetic import mixture

Size = tuple[int, int, int]
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
    """Bytes that the stages of a fit need at their peak."""

    neighbors: float
    weights: float
    metrics: float


def formula(n: int, d: int, m: int, device: str) -> Stages:
    """What docs/memory.md says of n rows of d float64 features and m basis metrics."""
    if device.startswith("cuda"):  # the other stages need less
        return Stages(0.0, 0.0, metrics_on_a_gpu(n, d, m))
    blocks = 32 * MEBIBYTE
    return Stages(
        neighbors=8.0 * n * (12 * d + 80) + blocks,
        weights=8.0 * n * (2 * d + 12 * m + 140),
        metrics=8.0 * n * (7 * d + 9 * m + 110) + 48.0 * m * d * d,
    )


def metrics_on_a_gpu(n: int, d: int, m: int) -> float:
    """Bytes of stage 2 on a GPU; temporary arrays are cut into blocks of that many numbers."""
    block = ON_A_GPU * MEBIBYTE / 32
    return 8.0 * n * (11 * d + 8 * m) + 64.0 * m * d * d + 11.0 * min(n * m * d, block)


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


def now(options: argparse.Namespace) -> Iterator[tuple[Size, int]]:
    """Sizes with the bytes of a fit."""
    for size in SIZES:
        yield size, in_a_process(size, options)


def before(results: dict[str, Any]) -> Iterator[tuple[Size, int]]:
    """Sizes with the bytes of a fit, from a file that --out has written."""
    for fit in results["fits"]:
        yield (fit["n"], fit["d"], fit["m"]), fit["bytes"]


def compared(size: Size, measured: int, device: str) -> dict[str, Any]:
    """One line of the report."""
    stages = formula(*size, device)
    ratio = max(stages) / measured
    largest = Stages._fields[int(np.argmax(stages))]
    print(
        f"{size[0]:>9,} x {size[1]:<5} m = {size[2]:<4}{measured / MEBIBYTE:8.0f} MiB, formula "
        f"{max(stages) / MEBIBYTE:8.0f} MiB ({largest}), ratio {ratio:.2f}",
        flush=True,
    )
    keys = ("n", "d", "m", "bytes", "formula", "ratio", "largest_stage")
    return dict(zip(keys, (*size, measured, max(stages), ratio, largest), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--measure", type=int, nargs=3, metavar=("n", "d", "m"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="earlier", type=Path, help="a file that --out has written")
    options = parser.parse_args()
    if options.measure:
        print(measure(*options.measure, options.device))
        return
    measured, known = now(options), {"device": options.device, **provenance()}
    if options.earlier:
        known = json.loads(options.earlier.read_text())
        measured = before(known)
    rows = [compared(size, found, known["device"]) for size, found in measured]
    if options.out is not None:
        content = {**known, "fits": rows}
        write_atomically(options.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
