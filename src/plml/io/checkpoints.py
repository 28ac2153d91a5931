"""A long fit that can be cut short at any moment and goes on where it was.

One file holds what was computed so far: the neighbours, the anchors, finished runs of a solver, and
the state of the one that is running. It is replaced in one step, and the file before it is kept
next to it, so that a power cut in the middle of a write loses one interval and no more.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from plml.backend.arrays import on_host
from plml.io.archives import read_arrays
from plml.io.files import check_file, remove_leftovers, write_atomically
from plml.solvers.problem import Checkpointer, Solution, SolverCheckpoint, State, history_of

_FORMAT = 2
#: The first member of a checkpoint's archive, and how far into the file its name may lie.
_OWN = "plml-checkpoint"
_BEGIN = 128
#: Parameters that change how a fit runs and not what it computes.
_HOW_IT_RUNS = ("n_jobs", "verbose", "working_memory", "device")
#: Parameters that came later, at the values that stand for what was there before.
_AS_BEFORE = {"warm_start": False}


class Checkpoint:
    """Where a fit saves its state, and how often: ``PLML().fit(X, y, checkpoint=Checkpoint(...))``.

    A fit with the same data, parameters and path continues where the last one ended; after a
    finished fit there is nothing left to compute. Delete the file to start again.

    Parameters
    ----------
    path : file to write; ``path`` with ``.previous`` appended holds the state before
    every : seconds between two saves

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML, Checkpoint
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=5, random_state=0)
    >>> model = model.fit(X, y, checkpoint=Checkpoint("fit.npz", every=5.0))
    >>> Checkpoint("fit.npz").path.exists()
    True
    """

    def __init__(self, path: str | os.PathLike[str], every: float = 30.0) -> None:
        if not isinstance(every, int | float | np.number) or not every >= 0.0:
            raise ValueError(f"every must be a number of seconds, at least 0, got {every!r}")
        self.path = Path(path)
        self.every = every
        if not self.path.name or "\0" in str(path):
            raise ValueError(f"checkpoint must be the path of a file, got {os.fspath(path)!r}")

    @classmethod
    def of(cls, given: "Checkpoint | str | os.PathLike[str]") -> "Checkpoint":
        """A checkpoint from what a user gives."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, str | os.PathLike):
            raise TypeError(f"checkpoint must be a path or a plml.Checkpoint, got {given!r}")
        return cls(given)

    def open(self, parameters: Mapping[str, Any], *data: np.ndarray) -> "FileCheckpointer":
        """What is known of the fit with these parameters and data.

        A file of another fit, or that is no checkpoint at all, is refused and left alone; a damaged
        one gives way to the one before it.
        """
        if not self.path.parent.is_dir():
            raise ValueError(f"checkpoint {self.path}: there is no folder {self.path.parent}")
        for path in (self.path, self.previous):
            _check_ours(path)
        remove_leftovers(self.path)
        identity = _identity(parameters, *data)
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                state = _read(path)
            except Exception:  # whatever a damaged archive leads to
                what_now = "starting afresh" if path == self.previous else "trying the one before"
                warnings.warn(f"checkpoint {path} is damaged; {what_now}", stacklevel=3)
                continue
            _check_identity(path, state.pop("identity"), identity)
            return FileCheckpointer(self, identity, state)
        fresh = FileCheckpointer(self, identity, {})
        try:
            fresh.save()
        except OSError as error:
            raise ValueError(f"cannot write the checkpoint {self.path}: {error}") from error
        return fresh

    @property
    def previous(self) -> Path:
        """The file before the newest."""
        return self.path.with_name(self.path.name + ".previous")


@dataclass(eq=False)
class FileCheckpointer(Checkpointer):
    """The state of one fit, in memory and in a file."""

    checkpoint: Checkpoint
    identity: dict[str, Any]  # of the data and the parameters
    state: State  # arrays by name, ``part/name``

    def __post_init__(self) -> None:
        self._saved_at = monotonic()
        self._unsaved = self._warned = False

    def arrays(self, name: str, compute: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """As in ``Checkpointer``; saved with a solver's next state, or when the interval ends."""
        known = self.part(name)
        if not known:
            result = compute()
            self.put(name, {str(i): on_host(value) for i, value in enumerate(result)})
            self.save_now_and_then()
            return result
        return tuple(known[str(i)] for i in range(len(known)))

    def knows(self, name: str) -> bool:
        """As in ``Checkpointer``."""
        return bool(self.part(name))

    def finish(self) -> None:
        """Save what is not in the file yet."""
        if self._unsaved:
            self._try_to_save()

    def solver(self, name: str) -> "FileSolverCheckpoint":
        """As in ``Checkpointer``."""
        return FileSolverCheckpoint(self, name)

    def part(self, name: str) -> State:
        """Arrays of one part by their names."""
        prefix = f"{name}/"
        return {
            key.removeprefix(prefix): value
            for key, value in self.state.items()
            if key.startswith(prefix)
        }

    def put(self, name: str, arrays: State) -> None:
        """Replace the arrays of one part of the state."""
        for key in [key for key in self.state if key.startswith(f"{name}/")]:
            del self.state[key]
        # Copies: a solver goes on writing to what it hands over.
        self.state.update({f"{name}/{key}": np.array(on_host(v)) for key, v in arrays.items()})
        self._unsaved = True

    def is_due(self) -> bool:
        """Whether the interval is over."""
        return monotonic() - self._saved_at >= self.checkpoint.every

    def save_now_and_then(self) -> None:
        """Save where the interval is over."""
        if self.is_due():
            self._try_to_save()

    def _try_to_save(self) -> None:
        """A full disk is reported once and does not end the fit."""
        try:
            self.save()
        except (OSError, ValueError) as error:
            if not self._warned:
                path = self.checkpoint.path
                warnings.warn(
                    f"cannot write the checkpoint {path}: {error}; the fit goes on", stacklevel=2
                )
            self._warned = True
        self._saved_at = monotonic()

    def save(self) -> None:
        """Write the newest file, and keep the one before it."""
        buffer = BytesIO()
        members: dict[str, Any] = {_OWN: np.array(json.dumps(self.identity)), **self.state}
        np.savez(buffer, **members)
        path = self.checkpoint.path
        write_atomically(path, buffer.getvalue(), previous=self.checkpoint.previous)
        self._saved_at, self._unsaved = monotonic(), False


@dataclass(eq=False)
class FileSolverCheckpoint(SolverCheckpoint):
    """The part of a checkpoint that belongs to one run of a solver."""

    _fit: FileCheckpointer
    _name: str

    def finished(self) -> Solution | None:
        """As in ``SolverCheckpoint``."""
        state = self._fit.part(f"{self._name} finished")
        return _solution(state) if state else None

    def saved(self) -> State:
        """As in ``SolverCheckpoint``."""
        return self._fit.part(self._name)

    def offer(self, state: Callable[[], State]) -> None:
        """As in ``SolverCheckpoint``."""
        if self._fit.is_due():
            self._fit.put(self._name, state())
            self._fit.save_now_and_then()

    def finish(self, solution: Solution) -> Solution:
        """As in ``SolverCheckpoint``."""
        if not solution.interrupted:
            self._fit.put(self._name, {})
            state = {**solution._asdict(), "x": on_host(solution.x)}
            self._fit.put(f"{self._name} finished", state)
            self._fit.save_now_and_then()
        return solution


def _read(path: Path) -> State:
    """All arrays of a file, and whose they are."""
    state: State = read_arrays(path)
    state["identity"] = json.loads(str(state.pop(_OWN)))
    return state


def _check_ours(path: Path) -> None:
    """Refuse what is not a checkpoint, whole or cut: it would be overwritten."""
    try:
        check_file(path)
        with path.open("rb") as stream:
            begin = stream.read(_BEGIN)
    except ValueError as error:
        raise ValueError(f"checkpoint {error}") from None
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ValueError(f"cannot read the checkpoint {path}: {error}") from error
    cut = len(begin) < _BEGIN and b"PK".startswith(begin[:2])
    if _OWN.encode() not in begin and not cut:
        raise ValueError(f"{path} is not a checkpoint; give another path")


def _identity(parameters: Mapping[str, Any], *data: np.ndarray) -> dict[str, Any]:
    digest = blake2b(digest_size=16)
    for array in data:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    told = {
        name: _told(value)
        for name, value in parameters.items()
        if name not in _HOW_IT_RUNS and not (name in _AS_BEFORE and value == _AS_BEFORE[name])
    }
    return {"format": _FORMAT, "data": digest.hexdigest(), "parameters": told}


def _told(value: Any) -> Any:
    """A parameter as JSON can hold it, different for different values."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | list | tuple):
        return [_told(part) for part in value]
    if isinstance(value, np.random.RandomState):
        value = value.get_state()
    return f"{type(value).__name__} {blake2b(repr(value).encode(), digest_size=8).hexdigest()}"


def _check_identity(path: Path, found: Any, expected: dict[str, Any]) -> None:
    if found == expected:
        return
    reason = "other data"
    before, now = None, expected["parameters"]
    if isinstance(found, dict) and found.get("format") == _FORMAT:
        before = found.get("parameters")
    if not isinstance(before, dict):
        reason = "another version of plml"
    elif before != now:
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        reason = ", ".join(f"{name}={before.get(name)!r}" for name in sorted(changed))
    raise ValueError(
        f"the checkpoint {path} belongs to a fit with {reason}; delete it or give another path"
    )


def _solution(state: State) -> Solution:
    numbers = {name: state[name].item() for name in ("value", "gap", "converged", "n_iter")}
    return Solution(
        x=state["x"], interrupted=False, history=history_of(state["history"]), **numbers
    )
