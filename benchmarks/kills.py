"""A fit on Letter, killed at random moments: does it resume to the same answer?

    python benchmarks/kills.py [--data-dir DIR] [--kills 50] [--out results/kills.json]

A process fits PLML on the first training fold of Letter with a checkpoint every tenth of a second.
It is killed (SIGKILL) at a uniformly random moment between the start of the fit and the end of an
undisturbed one; every other time the newest checkpoint is then cut at a random place, as a power
cut might. A second process fits again from the checkpoint. Its objective and its predictions on the
test fold are compared with those of the undisturbed fit.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from plml import PLML, Checkpoint
from plml.io.files import write_atomically
from plml_study.datasets import load
from plml_study.protocols import prepared_split, splits
from plml_study.records import provenance


def fit(data: str, checkpoint: str, out: str) -> None:
    """One fit in this process, announced and reported on standard output."""
    arrays = np.load(data)
    print("begun", flush=True)
    began = time.perf_counter()
    model = PLML(rescale=False, random_state=0)
    model.fit(arrays["X"], arrays["y"], checkpoint=Checkpoint(checkpoint, every=0.1))
    seconds = time.perf_counter() - began
    predicted = model.predict(arrays["X_test"])
    np.savez(out, objective=model.objective_, predicted=predicted, seconds=seconds)


def start(*arguments: Path) -> "subprocess.Popen[str]":
    """A process whose fit has begun."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--fit", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def whole(data: Path, checkpoint: Path) -> dict[str, Any]:
    """What an undisturbed fit finds, from the checkpoint if there is one."""
    out = checkpoint.with_suffix(".out.npz")
    if start(data, checkpoint, out).wait() != 0:
        raise SystemExit("a fit failed")
    return dict(np.load(out))


def killed(
    data: Path, checkpoint: Path, moment: float, cut: float | None
) -> tuple[bool, int, dict[str, Any]]:
    """Whether a fit had finished when it was killed, the bytes of its checkpoint, and what a fit
    from there finds.

    Parameters
    ----------
    moment : seconds after which it is killed
    cut : share of the newest checkpoint that is left of it; None leaves it whole
    """
    process = start(data, checkpoint, checkpoint.with_suffix(".out.npz"))
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    finished = process.wait() == 0
    size = checkpoint.stat().st_size if checkpoint.exists() else 0
    if size and cut is not None:
        with checkpoint.open("r+b") as stream:
            stream.truncate(int(cut * size))
    return finished, size, whole(data, checkpoint)


def trials_of(data: Path, undisturbed: dict[str, Any], n_kills: int) -> Iterator[dict[str, Any]]:
    """Fits that were killed, every other one with its newest checkpoint cut, and resumed."""
    rng = np.random.default_rng(0)
    for trial in range(n_kills):
        checkpoint = data.with_name(f"{trial}.npz")
        moment = rng.uniform(0.0, float(undisturbed["seconds"]))
        cut = rng.uniform() if trial % 2 else None
        finished, size, resumed = killed(data, checkpoint, moment, cut)
        ratio = float(resumed["objective"] / undisturbed["objective"])
        yield {
            "killed_after": round(moment, 3),
            "finished_before": finished,
            "checkpoint_bytes": size,
            "newest_cut": bool(size and cut is not None),
            "seconds_to_resume": round(float(resumed["seconds"]), 3),
            "objective_difference": abs(ratio - 1.0),
            "agreement": float(np.mean(resumed["predicted"] == undisturbed["predicted"])),
        }
        for file in data.parent.glob(f"{trial}.*"):
            file.unlink()


def summary_of(trials: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """How many fits came to the same answer, and how far the others were."""
    same = [t["objective_difference"] <= 1e-3 and t["agreement"] >= 0.999 for t in trials]
    return {
        "undisturbed_seconds": seconds,
        "kills": len(trials),
        "resumed_to_the_same": sum(same),
        "largest_objective_difference": max(t["objective_difference"] for t in trials),
        "smallest_agreement": min(t["agreement"] for t in trials),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", nargs=3, metavar=("DATA", "CHECKPOINT", "OUT"))
    parser.add_argument("--data-dir")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.fit:
        fit(*arguments.fit)
        return
    dataset = load("letter", arguments.data_dir)
    X, y, X_test, _ = prepared_split(dataset, *next(iter(splits(dataset))))
    trials = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, X=X, y=y, X_test=X_test)
        undisturbed = whole(data, data.with_name("whole.npz"))
        for trial in trials_of(data, undisturbed, arguments.kills):
            print(json.dumps(trial), flush=True)
            trials.append(trial)
    summary = summary_of(trials, float(undisturbed["seconds"]))
    print(summary)
    if arguments.out:
        content = {**summary, "trials": trials, **provenance()}
        write_atomically(arguments.out, json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
