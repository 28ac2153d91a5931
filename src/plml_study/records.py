"""Results on disk: one JSON file a (data set, fold, method), written whole or not at all."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from plml.io.files import write_atomically

#: Raised when the meaning of a record changes; records of another format are made again.
FORMAT = 1
_PACKAGES = ("plml", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch")


@dataclass(frozen=True, order=True)
class Task:
    """One fit and its test: a method on a fold of a data set."""

    dataset: str
    fold: int
    method: str
    n_bases: int | None = None  # only where the method has bases

    @property
    def path(self) -> Path:
        """Where its record lies below the folder of records."""
        bases = "" if self.n_bases is None else f"-m{self.n_bases}"
        return Path(self.dataset) / f"fold{self.fold}" / f"{self.method}{bases}.json"

    def __str__(self) -> str:
        bases = "" if self.n_bases is None else f" m={self.n_bases}"
        return f"{self.dataset} fold {self.fold} {self.method}{bases}"


#: What whoever reads a record relies on.
_NEEDED = {
    **dict.fromkeys(("format", "seed", "n_test"), int),
    **dict.fromkeys(("accuracy", "seconds"), float),
    **dict.fromkeys(("correct", "device", "finished"), str),
    **dict.fromkeys(("selected", "certificate", "versions", "machine"), dict),
    "commit": str | None,  # none where an installed package runs outside its repository
}


class Store:
    """Records below a folder.

    Parameters
    ----------
    folder : made when the first record is written
    seed : a record made with another seed does not count
    """

    def __init__(self, folder: str | os.PathLike[str], seed: int = 0) -> None:
        self.folder = Path(folder)
        self.seed = seed

    def read(self, task: Task) -> dict[str, Any] | None:
        """The record of a task, or None where there is none that counts."""
        record = self._load(task)
        return None if record is None or record["seed"] != self.seed else record

    def _load(self, task: Task) -> dict[str, Any] | None:
        """The record of a task, of whatever seed; None where it is missing or damaged."""
        try:
            record = json.loads((self.folder / task.path).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (json.JSONDecodeError, UnicodeDecodeError):
            return None  # damaged: made again
        if not isinstance(record, dict):
            return None
        if not record.keys() >= _NEEDED.keys():
            return None
        if not all(isinstance(record[name], kind) for name, kind in _NEEDED.items()):
            return None
        return record if record["format"] == FORMAT else None

    def seed_in_the_way(self, tasks: Iterable[Task]) -> int | None:
        """The seed of a record that a run of these tasks would replace."""
        for task in tasks:
            if self.read(task) is None:
                record = self._load(task)
                if record is not None and record["seed"] != self.seed:
                    return int(record["seed"])
        return None

    def write(self, task: Task, result: dict[str, Any]) -> None:
        """Keep a result with where it comes from."""
        record = {
            "format": FORMAT,
            "dataset": task.dataset,
            "fold": task.fold,
            "method": task.method,
            "n_bases": task.n_bases,
            "seed": self.seed,
            **result,
            **provenance(),
        }
        write_atomically(self.folder / task.path, json.dumps(record, indent=1) + "\n")


def pack_bits(values: np.ndarray) -> str:
    """Booleans as hexadecimal digits, four a digit."""
    return np.packbits(np.asarray(values, dtype=bool)).tobytes().hex()


def unpack_bits(digits: str, n: int) -> np.ndarray:
    """The n booleans that ``pack_bits`` was given."""
    packed = np.frombuffer(bytes.fromhex(digits), dtype=np.uint8)
    return np.unpackbits(packed, count=n).astype(bool)


def provenance() -> dict[str, Any]:
    """Versions, commit, time and machine."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "system": platform.system(),
            "processor": processor(),
            "cores": os.cpu_count(),
        },
    }


@cache
def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def source(record: Mapping[str, Any]) -> str:
    """What made a record: a commit, or the version of an installed package."""
    return record["commit"] or f"plml {record['versions'].get('plml', 'of unknown version')}"


@cache
def commit() -> str | None:
    """The commit of the source tree this runs from, with a ``+`` where it has been changed.

    None for an installed package, be it in an environment that lies inside some repository.
    """
    try:
        _git("ls-files", "--error-unmatch", __file__)
        found = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", str(Path(__file__).parents[1]))
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + ("+" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@cache
def processor() -> str:
    """The name of the processor, as well as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
