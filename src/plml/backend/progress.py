"""Progress of a whole piece of work: one bar on a terminal, a line every few seconds elsewhere.

Whoever does the work divides it (``plan``) and says where it is (``stage``); whoever starts it
shows it (``work``) or watches it (``observed``). A fit within a cross-validation reports into the
bar that is there.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from math import inf, isfinite, log
from threading import Event, Lock, Thread
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from plml.backend.context import holding

#: Between two lines.
SECONDS_BETWEEN_LINES = 5.0
_BAR_WIDTH = 24
#: Rows that are predicted before the progress is told.
_BLOCK = 8192


class _Report(NamedTuple):
    """What is known since a stage last said something."""

    fraction: float = 0.0  # of the whole that is done
    end: float = 1.0  # of the whole that is done after the running stage
    label: str = ""
    detail: str = ""
    moved: float = 0.0  # seconds at which the fraction last grew
    total: float | None = None  # seconds of the whole, if the work itself knows them


class Progress:
    """How far one piece of work is: what its stages reported, and what follows for this moment.

    The clock tells the seconds since some fixed moment.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = Lock()
        self._last = _Report()  # replaced as a whole, because another thread reads it
        self.process = os.getpid()
        #: What there is to say at the end, by whom; empty for solvers of a part of the work.
        self.results: dict[str, str] = {}
        #: Called when a stage begins.
        self.show_now: Callable[[], Any] = lambda: None

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return self._clock() - self._began

    @property
    def fraction(self) -> float:
        """How much of the work is done; it never decreases."""
        return self._last.fraction

    @property
    def words(self) -> tuple[str, str]:
        """The stage that runs, and what it says about itself."""
        return self._last.label, self._last.detail

    def report(
        self, fraction: float, end: float, label: str, detail: str = "", left: float | None = None
    ) -> None:
        """Take a report of a stage.

        Parameters
        ----------
        fraction, end : of the whole that is done now, and when the stage is
        label, detail : the stage, and what it says about itself
        left : seconds to go, if the work itself knows them
        """
        with self._lock:
            last, now = self._last, self.seconds
            fraction = min(fraction, 1.0)  # shares add up to one, but for rounding
            moved = now if fraction > last.fraction else last.moved
            total = None if left is None else now + left
            self._last = _Report(max(fraction, last.fraction), end, label, detail, moved, total)

    def seconds_left(self) -> float | None:
        """An estimate for this moment; None if there is none.

        A stage is assumed to advance at the mean speed so far, but not beyond its end: between two
        reports the estimate counts down, and it grows if a stage is late.
        """
        last, now = self._last, self.seconds
        if last.total is not None:
            return max(last.total - now, 0.0)
        if not 0.0 < last.fraction < 1.0 or last.moved <= 0.0:
            return None
        by_now = max(last.fraction, min(last.end, last.fraction * now / last.moved))
        return now * (1.0 - by_now) / by_now

    def percentage(self) -> str:
        """Rounded down, so that 100 is the end."""
        return f"{int(100.0 * self.fraction):3d}%"

    def times(self) -> str:
        """The time so far and an estimate of the time to go, as text."""
        left = self.seconds_left()
        to_go = "" if left is None or left < 0.5 else f", about {duration(left)} to go"
        return f"{duration(self.seconds)}{to_go}"

    def line(self) -> str:
        """Percentage, stage and times, as text."""
        words = ": ".join(part for part in self.words if part)
        return f"[{self.percentage()}] {words or 'working'} - {self.times()}"

    def finish(self) -> None:
        """Report that all of the work is done."""
        self.report(1.0, 1.0, "; ".join(["done", *filter(None, self.results.values())]))


class Stage:
    """A part of a piece of work, from one fraction of the whole to another.

    Parameters
    ----------
    whole : Progress
    label : the names of the stage and of those around it
    begin, end : fractions of the whole
    """

    def __init__(
        self, whole: Progress, label: str = "", begin: float = 0.0, end: float = 1.0
    ) -> None:
        self.whole = whole
        self.label = label
        self.begin = begin
        self.end = end
        self._parts: dict[str, tuple[float, float]] = {}

    def report(self, detail: str, done: float) -> None:
        """Report what is going on, and which fraction of this stage is done."""
        fraction = self.begin + min(max(done, 0.0), 1.0) * (self.end - self.begin)
        self.whole.report(fraction, self.end, self.label, detail)

    def plan(self, shares: Mapping[str, float]) -> None:
        """Divide this stage into parts that follow each other, with their shares of its time."""
        unit = (self.end - self.begin) / (sum(shares.values()) or 1.0)
        begin = self.begin
        for name, share in shares.items():
            self._parts[name] = (begin, begin + unit * share)
            begin += unit * share

    def part(self, name: str, named: bool) -> "Stage":
        """One of the parts; a part that was not planned leaves the bar where it is."""
        here = min(max(self.whole.fraction, self.begin), self.end)
        names = [part for part in (self.label, name if named else "") if part]
        return Stage(self.whole, ", ".join(names), *self._parts.get(name, (here, here)))


#: The stage that runs here, where its work is shown.
_CURRENT: ContextVar[Stage | None] = ContextVar("stage", default=None)
#: From the name of a stage to what is entered around it.
Observer = Callable[[str], AbstractContextManager[Any]]
_OBSERVER: ContextVar[Observer] = ContextVar("observer", default=nullcontext)


def _current() -> Stage | None:
    """The stage that runs; None in a process forked from the one that shows the work."""
    current = _CURRENT.get()
    return current if current is not None and current.whole.process == os.getpid() else None


@contextmanager
def work(shown: bool | int, *, passing: bool = False) -> Iterator[None]:
    """Show the work that is done inside, unless it is part of work that is shown already.

    ``passing`` work leaves no trace on a terminal when it is done.
    """
    if not shown or sys.stderr is None or _current() is not None:
        yield
        return
    progress = Progress()
    with holding(_CURRENT, Stage(progress)), _display(progress, passing, SECONDS_BETWEEN_LINES):
        yield


def plan(shares: Mapping[str, float]) -> None:
    """Divide the stage that runs into parts that follow each other; the times are rough."""
    current = _current()
    if current is not None:
        current.plan(shares)


def observed(observer: Observer) -> AbstractContextManager[None]:
    """Enter ``observer(name)`` around every stage of the work inside, be it shown or not.

    Stages of other processes and threads are not among them.
    """
    return holding(_OBSERVER, observer)


@contextmanager
def stage(name: str, *, named: bool = True) -> Iterator[Stage]:
    """One part of the plan of the stage that runs, to report to; ``named`` shows its name."""
    with _OBSERVER.get()(name):
        around = _current()
        if around is None:
            yield Stage(Progress())
            return
        part = around.part(name, named)
        part.report("", 0.0)
        part.whole.show_now()
        with holding(_CURRENT, part):
            yield part
        around.whole.report(part.end, around.end, around.label or part.label)


def in_blocks(name: str, predict: Callable[[Any], np.ndarray], rows: Any) -> np.ndarray:
    """What a function says of rows, a block of them at a time, as a stage that reports them."""
    parts = []
    with stage(name) as progress:
        for start in range(0, len(rows), _BLOCK):
            parts.append(predict(rows[start : start + _BLOCK]))
            done = min(start + _BLOCK, len(rows))
            progress.report(f"{done} of {len(rows)} rows", done / len(rows))
    return np.concatenate(parts)


@contextmanager
def solver_stage(name: str, tol: float, max_iter: int) -> Iterator[Callable[[Any], bool]]:
    """A stage that is a solver; yields the callback for it, which shows iteration and gap."""
    with stage(name) as part:
        first_gap, words = inf, ""

        def show(record: Any) -> bool:
            nonlocal first_gap, words
            first_gap = first_gap if isfinite(first_gap) else record.gap
            words = f"iteration {record.iteration}, gap {record.gap:.1e}"
            done = max(_closed(first_gap, record.gap, tol), record.iteration / max_iter)
            part.report(words, done)
            return False

        yield show
        if words:
            is_all = part.label == name  # the gap of a fold is none of the whole
            part.whole.results[name] = f"{name}: {words}" if is_all else ""


@contextmanager
def task_progress(every: float = SECONDS_BETWEEN_LINES) -> Iterator[Callable[..., None]]:
    """A function ``advance(text, fraction_done, seconds_left=None)`` for work without stages."""
    progress = Progress()

    def advance(text: str, fraction: float, left: float | None = None) -> None:
        progress.report(fraction, 1.0, text, left=left)
        if fraction >= 1.0:
            progress.results["the work"] = text

    with _display(progress, False, every):
        yield advance


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _closed(first: float, gap: float, tol: float) -> float:
    """How much of the gap is closed, on a logarithmic scale: convergence is linear at best."""
    if gap <= tol:
        return 1.0
    if not tol < gap < first:
        return 0.0
    return log(first / gap) / log(first / max(tol, 1e-300))


@contextmanager
def _display(progress: Progress, passing: bool, every: float) -> Iterator[None]:
    bar = _bar(progress)
    if bar is None:
        with _lines(progress, every):
            yield
        return
    bar.transient = True  # if the work fails, only its message remains
    with bar:
        yield
        bar.transient = passing
        progress.finish()


def _bar(progress: Progress) -> Any:
    """A display that redraws itself four times per second; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    console = Console(stderr=True)
    if not console.is_interactive:  # a terminal that cannot move its cursor
        return None

    def picture() -> Group:
        label, detail = progress.words
        right = Text(detail if label else "", no_wrap=True, overflow="ellipsis")
        below = Table.grid(padding=(0, 1))
        bar = ProgressBar(1.0, progress.fraction, width=_BAR_WIDTH)
        below.add_row(bar, progress.percentage(), progress.times(), right)
        return Group(Text(label or detail or "working"), below)

    # What is printed elsewhere must not end up on the terminal.
    here = sys.stdout is not None and sys.stdout.isatty()
    live = Live(get_renderable=picture, console=console, redirect_stdout=here)
    progress.show_now = live.refresh
    return live


@contextmanager
def _lines(progress: Progress, every: float) -> Iterator[None]:
    """Lines on standard error while the work runs, from a thread that ends with it."""
    stream, over = sys.stderr, Event()
    has_written = False

    def write(line: str) -> bool:
        try:
            print(line, file=stream, flush=True)
        except (OSError, ValueError):  # the reader is gone
            return False
        return True

    def tick() -> None:
        nonlocal has_written
        while not over.wait(every) and write(progress.line()):
            has_written = True

    ticker = Thread(target=tick, name="plml-progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()
    progress.finish()
    if has_written or progress.results:  # short work without a certificate reports nothing
        write(progress.line())
