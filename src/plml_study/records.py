"""Results on disk: one file per data set, one record per line, replaced whole or not at all."""

import json
import os
import platform
import subprocess
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from plml.io.files import exclusively, write

#: Raised when the meaning of a record changes; tasks of other formats are run again.
FORMAT = 1
_PACKAGES = ("plml", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch")


@dataclass(frozen=True)
class Task:
    """One fit and its test: a method on a fold of a data set."""

    dataset: str
    fold: int
    method: str
    n_bases: int | None = None  # only where the method has bases

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The task that a record is of."""
        return cls(record["dataset"], record["fold"], record["method"], record["n_bases"])

    def __str__(self) -> str:
        bases = "" if self.n_bases is None else f" m={self.n_bases}"
        return f"{self.dataset} fold {self.fold} {self.method}{bases}"


#: What whoever reads a record relies on.
_NEEDED = {
    **dict.fromkeys(("format", "fold", "seed", "n_test"), int),
    **dict.fromkeys(("accuracy", "seconds"), float),
    **dict.fromkeys(("dataset", "method", "correct", "device", "finished"), str),
    **dict.fromkeys(("selected", "certificate", "versions", "machine"), dict),
    "n_bases": int | None,
    "commit": str | None,  # none where an installed package runs outside its repository
}


class _Lines(NamedTuple):
    """The lines of a file: records by their tasks, and what is none by the number of the line."""

    records: dict[Task, dict[str, Any]]
    written: dict[Task, bytes]
    others: dict[int, bytes]

    def content(self, changed: Mapping[Task, bytes]) -> bytes:
        """The file with some records replaced or added; all other lines stay as they are.

        What does not count comes first, so that the last record of a task still is the one that
        counts.
        """
        written = {**self.written, **changed}
        in_order = sorted(written, key=lambda task: (task.fold, task.method, task.n_bases or 0))
        lines = (*self.others.values(), *(written[task] for task in in_order))
        return b"".join(line + b"\n" for line in lines)


class Store:
    """Records in a folder.

    Several processes may write at the same time. A line that is not a record, or not one that this
    version reads, is warned of, does not count, and stays.

    Parameters
    ----------
    folder : made when the first record is written
    seed : a record made with another seed does not count
    """

    def __init__(self, folder: str | os.PathLike[str], seed: int = 0) -> None:
        self.folder = Path(folder)
        self.seed = seed
        self._told: set[Any] = set()  # lines and files that were warned of

    def path(self, dataset: str) -> Path:
        """The file of a data set."""
        return self.folder / f"{dataset}.jsonl"

    def read(self, task: Task) -> dict[str, Any] | None:
        """The record of a task, or None where there is none that counts."""
        record = self._lines(task.dataset).records.get(task)
        return None if record is None or record["seed"] != self.seed else dict(record)

    def read_all(self, tasks: Iterable[Task]) -> list[dict[str, Any]]:
        """The records of all tasks, or nothing where one is missing."""
        records = [self.read(task) for task in tasks]
        return [] if None in records else [record for record in records if record]

    def seed_in_the_way(self, tasks: Iterable[Task]) -> int | None:
        """The seed of a record that a run of these tasks would replace."""
        for task in tasks:
            record = self._lines(task.dataset).records.get(task)
            if record is not None and record["seed"] != self.seed:
                return int(record["seed"])
        return None

    def write(self, task: Task, result: dict[str, Any]) -> None:
        """Keep a result with where it comes from."""
        record = {
            "format": FORMAT,
            **asdict(task),
            "seed": self.seed,
            **result,
            **provenance(),
        }
        path = self.path(task.dataset)
        with exclusively(path):
            write(path, self._lines(task.dataset).content({task: json.dumps(record).encode()}))

    def adopt(self) -> int:
        """Take over the records of earlier versions, one file each; how many there were.

        A file that is no record, or another one of a task that has one, stays where it is.
        """
        folders = {path.parent for path in self.folder.glob("*/fold*")}
        return sum(self._adopt(folder) for folder in sorted(folders))

    def _adopt(self, folder: Path) -> int:
        dataset, adopted = folder.name, 0
        with exclusively(self.path(dataset)):
            lines, new = self._lines(dataset), {}
            found = {path: _record(path.read_bytes(), dataset) for path in folder.glob("*/*.json")}
            for record in found.values():
                if record is not None and Task.of(record) not in lines.records:
                    new[Task.of(record)] = json.dumps(record).encode()
            if new:
                write(self.path(dataset), lines.content(new))
            known = self._lines(dataset).records
            for path, record in sorted(found.items()):
                if record is not None and known[Task.of(record)] == record:
                    path.unlink()
                    adopted += 1
                else:
                    self._warn(path, f"{path} is not a record that is needed; it is left there")
        for empty in (*folder.glob("fold*"), folder):
            with suppress(OSError):
                empty.rmdir()
        return adopted

    def _lines(self, dataset: str) -> _Lines:
        path = self.path(dataset)
        try:
            lines = _parsed(dataset, path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return _Lines({}, {}, {})
        for number, line in lines.others.items():
            message = f"{path}, line {number} is not a record that counts; it stays there"
            self._warn((path, line), message)
        return lines

    def _warn(self, of: Any, message: str) -> None:
        """Warn once of each line of a file."""
        if of not in self._told:
            self._told.add(of)
            warnings.warn(message, stacklevel=4)


@lru_cache(maxsize=16)
def _parsed(dataset: str, content: bytes) -> _Lines:
    lines = _Lines({}, {}, {})
    numbers: dict[Task, int] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        record = _record(line, dataset)
        if record is None:
            if line.strip():
                lines.others[number] = line
            continue
        task = Task.of(record)
        if task in numbers:  # the last one counts
            lines.others[numbers[task]] = lines.written[task]
        lines.records[task], lines.written[task], numbers[task] = record, line, number
    return lines


def _record(text: bytes, dataset: str) -> dict[str, Any] | None:
    """The record of a data set that some bytes are, or None."""
    try:
        record = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not record.keys() >= _NEEDED.keys():
        return None
    if not all(isinstance(record[name], kind) for name, kind in _NEEDED.items()):
        return None
    return record if (record["format"], record["dataset"]) == (FORMAT, dataset) else None


def pack_bits(values: np.ndarray) -> str:
    """Booleans as hexadecimal digits, four per digit."""
    return np.packbits(np.asarray(values, dtype=bool)).tobytes().hex()


def unpack_bits(digits: str, n: int) -> np.ndarray:
    """The n booleans that ``pack_bits`` was given."""
    packed = np.frombuffer(bytes.fromhex(digits), dtype=np.uint8)
    return np.unpackbits(packed, count=n).astype(bool)


def pooled(records: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """Which test rows of all folds were right, in the order of the records."""
    return np.concatenate([unpack_bits(r["correct"], r["n_test"]) for r in records])


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
        with suppress(PackageNotFoundError):
            found[package] = version(package)
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
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
