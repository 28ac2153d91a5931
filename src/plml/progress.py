"""Progress of long work: a bar where rich is installed, a line now and then where it is not."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import log
from time import perf_counter
from typing import Any

from plml.solvers.problem import Callback, Iteration

_SECONDS_BETWEEN_LINES = 1.0


def _silent(_: Iteration) -> bool:
    return False


@contextmanager
def gap_progress(title: str, tol: float, verbose: int) -> Iterator[Callback]:
    """A solver callback that shows value, gap and time left while the gap falls to tol."""
    if not verbose:
        yield _silent
        return
    with task_progress() as advance:
        first_gap: list[float] = []

        def show(record: Iteration) -> bool:
            first_gap.append(record.gap)
            fraction = _fraction(first_gap[0], record.gap, tol)
            text = f"{title}: iteration {record.iteration}, value {record.value:.6g}, "
            text += f"gap {record.gap:.1e}"
            advance(text + time_to_go(record.seconds, fraction), fraction)
            return False

        yield show


@contextmanager
def piece_progress(title: str, n_pieces: int, verbose: int) -> Iterator[Callable[[int], None]]:
    """A function that shows how many of some pieces of work are done."""
    if not verbose:
        yield lambda n_done: None
        return
    start = perf_counter()
    with task_progress() as advance:

        def show(n_done: int) -> None:
            fraction = n_done / n_pieces
            text = f"{title}: {n_done} of {n_pieces}"
            advance(text + time_to_go(perf_counter() - start, fraction), fraction)

        yield show


@contextmanager
def task_progress() -> Iterator[Any]:
    """A function ``advance(description, fraction_done)`` that moves one bar on standard error.

    Where standard error is not a terminal, or rich is not installed, lines take its place.
    """
    if not sys.stderr.isatty():
        yield _line_writer()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _line_writer()
        return
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: list[Any] = []

        def advance(description: str, fraction: float) -> None:
            if not tasks:  # no bar for work that never reports
                tasks.append(progress.add_task("", total=1.0))
            progress.update(tasks[0], description=description, completed=fraction)

        yield advance


@contextmanager
def study_progress() -> Iterator[Any]:
    """A function that shows the ``Progress`` of a study: done, running, left, time to go."""
    with task_progress() as advance:

        def show(state: Any) -> None:
            running = ", ".join(str(task) for task in state.running)
            total = state.done + len(state.running) + state.left + state.failed
            text = f"{state.done} done, {len(state.running)} running, {state.left} left"
            if state.failed:
                text += f", {state.failed} failed"
            if state.seconds_left:
                text += f", about {duration(state.seconds_left)} to go"
            advance(f"{text}  {running}", state.done / max(total, 1))

        yield show


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def time_to_go(seconds: float, fraction: float) -> str:
    """What is left of work that took so long for a fraction of it; empty where nobody knows."""
    if not 0.0 < fraction < 1.0:
        return ""
    return f", about {duration(seconds * (1.0 - fraction) / fraction)} to go"


def _line_writer() -> Any:
    last = [perf_counter() - _SECONDS_BETWEEN_LINES]

    def write(description: str, fraction: float) -> None:
        if perf_counter() - last[0] >= _SECONDS_BETWEEN_LINES or fraction >= 1.0:
            last[0] = perf_counter()
            print(f"[{100 * fraction:3.0f}%] {description}", file=sys.stderr)

    return write


def _fraction(first: float, gap: float, tol: float) -> float:
    """How far the gap has come, on a logarithmic scale: convergence is linear at best."""
    if gap <= tol:
        return 1.0
    if not tol < gap < first:
        return 0.0
    return log(first / gap) / log(first / max(tol, 1e-300))
