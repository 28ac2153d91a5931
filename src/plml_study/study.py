"""Running a study: every task once, in parallel, kept as it is done, resumed where it was."""

import os
import signal
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import active_children, get_context
from statistics import fmean
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from plml.backend.processes import end_with
from plml.backend.threads import limit_threads
from plml_study import datasets, figures, methods, protocols
from plml_study.paper import FIGURE_1, FIGURE_2
from plml_study.records import Store, Task, pack_bits


@dataclass(frozen=True)
class Conditions:
    """Under which all tasks of a run are done. A GPU rounds differently; else the result is the
    same.
    """

    data_dir: str | None = None
    device: str = "cpu"
    n_threads: int | None = None


class StudyProgress(NamedTuple):
    """How far a run is."""

    done: int
    running: tuple[Task, ...]
    left: int
    seconds_left: float | None
    failed: int = 0


class Failure(NamedTuple):
    """A task that raised an exception."""

    task: Task
    message: str


def table1_tasks(names: Iterable[str], chosen: Iterable[str]) -> list[Task]:
    """Every method on every fold of every data set."""
    chosen = tuple(chosen)
    return [
        Task(name, fold, method, 20 if method in methods.WITH_BASES else None)
        for name in names
        for fold in range(protocols.n_splits(name))
        for method in chosen
    ]


def figure1_tasks() -> list[Task]:
    """The four local methods on four digits of MNIST."""
    return table1_tasks([protocols.FOUR_DIGITS], FIGURE_1)


def figure2_tasks(names: Iterable[str]) -> list[Task]:
    """PLML and CBLML for every number of basis metrics."""
    return [
        Task(name, fold, method, m)
        for name in names
        for fold in range(protocols.n_splits(name))
        for m in FIGURE_2
        for method in ("PLML", "CBLML")
    ]


def run(
    tasks: Iterable[Task],
    store: Store,
    conditions: Conditions,
    *,
    jobs: int = 1,
    report: Callable[[StudyProgress], Any] = lambda _: None,
) -> list[Failure]:
    """Do what the store does not hold yet, and return what failed.

    Parameters
    ----------
    tasks : in any order; those of one fold are best kept together
    store : keeps every result as soon as it is there
    conditions : the same for all
    jobs : tasks at the same time, each in a process of its own where there are several
    report : called whenever a task starts or ends
    """
    records = {task: store.read(task) for task in tasks}
    left = [task for task, record in records.items() if record is None]
    failures: list[Failure] = []
    clock = _Clock()
    for task, record in records.items():
        if record is not None:
            clock.add(task, record["seconds"])

    def show(running: Collection[Task]) -> None:
        seconds = clock.estimate([*running, *left])
        done = len(records) - len(running) - len(left) - len(failures)
        seconds = None if seconds is None else seconds / jobs
        report(StudyProgress(done, tuple(running), len(left), seconds, len(failures)))

    attempt = partial(_attempt, seed=store.seed, conditions=conditions)
    with closing(_outcomes(left, attempt, jobs, show)) as outcomes:
        for outcome in outcomes:
            clock.add(outcome.task, outcome.seconds)
            if outcome.error is None:
                store.write(outcome.task, outcome.result)
                continue
            # Without their data set the others of it fail untried.
            lost = [t for t in left if outcome.no_data and t.dataset == outcome.task.dataset]
            failures += [Failure(task, outcome.error) for task in (outcome.task, *lost)]
            left[:] = [task for task in left if task not in lost]
    show(())
    return failures


class _Outcome(NamedTuple):
    """What came of one task."""

    task: Task
    seconds: float
    result: dict[str, Any]  # empty where it failed
    error: str | None = None
    no_data: bool = False


def _outcomes(
    left: list[Task],
    attempt: Callable[[Task], _Outcome],
    jobs: int,
    show: Callable[[Collection[Task]], None],
) -> Generator[_Outcome, None, None]:
    """Take tasks from the list until it is empty: here, or as many as the jobs in processes."""
    while left and jobs == 1:
        task = left.pop(0)
        show([task])
        yield attempt(task)
    if not left:
        return
    with _workers(jobs) as pool:
        running: dict[Future[_Outcome], Task] = {}
        while left or running:
            while left and len(running) < jobs:
                task = left.pop(0)
                running[pool.submit(attempt, task)] = task
            show(running.values())
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            # What is done is kept before anything is said of a worker that died.
            for future in sorted(finished, key=lambda future: future.exception() is not None):
                task = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool as error:
                    raise OSError(
                        f"a worker died during {task}, perhaps for want of memory; what was done "
                        "is kept: run the same command again, with fewer --jobs"
                    ) from error
                yield outcome


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool that ends at once where the run is interrupted."""
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=_follow_parent,
        initargs=(os.getpid(),),
    )
    others = set(active_children())
    try:
        yield pool
    except BaseException:
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _follow_parent(parent: int) -> None:
    """The parent process ends the workers; where it was killed they end by themselves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


def _attempt(task: Task, seed: int, conditions: Conditions) -> _Outcome:
    start = perf_counter()
    try:
        with limit_threads(conditions.n_threads):
            result = do(task, seed, conditions)
    except datasets.Unavailable as error:
        return _Outcome(task, perf_counter() - start, {}, str(error), no_data=True)
    except Exception as error:  # whatever it is, the other tasks go on
        return _Outcome(task, perf_counter() - start, {}, f"{type(error).__name__}: {error}")
    return _Outcome(task, result["seconds"], result)


def do(task: Task, seed: int, conditions: Conditions) -> dict[str, Any]:
    """Fit one method on one training part and test it on the other."""
    raw = task.method in methods.FROM_RAW_ROWS
    parts = _split(task.dataset, task.fold, seed, conditions.data_dir, raw)
    X_train, y_train, X_test, y_test = parts
    setting = methods.Setting(
        n_rows=len(X_train),
        name=task.dataset,
        n_bases=task.n_bases or 20,
        seed=seed,
        device=conditions.device,
        n_jobs=conditions.n_threads,
    )
    model = methods.build(task.method, setting)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = perf_counter()
        model.fit(X_train, y_train)
        fitted = perf_counter()
        correct = model.predict(X_test) == y_test
        predicted = perf_counter()
    result = {
        "accuracy": 100.0 * float(np.mean(correct)),
        "n_train": len(X_train),
        "n_test": len(X_test),
        "n_features": X_train.shape[1],
        "seconds": predicted - start,
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "source": _dataset(task.dataset, conditions.data_dir).source,
        "device": conditions.device,
        "threads": conditions.n_threads or os.cpu_count(),
        "selected": methods.selected(model),
        "certificate": methods.certificate(model),
        "warnings": sorted({str(warning.message) for warning in caught}),
        "correct": pack_bits(correct),
    }
    if task.dataset == protocols.FOUR_DIGITS:
        result["local_metrics"] = figures.sampled_metrics(model, X_train, y_train, seed)
    return result


@lru_cache(maxsize=1)
def _split(
    name: str, fold: int, seed: int, data_dir: str | None, raw: bool = False
) -> tuple[np.ndarray, ...]:
    dataset = _dataset(name, data_dir)
    train, test = list(protocols.splits(dataset, seed))[fold]
    if raw:
        return dataset.X[train], dataset.y[train], dataset.X[test], dataset.y[test]
    return protocols.prepared_split(dataset, train, test)


@lru_cache(maxsize=1)
def _dataset(name: str, data_dir: str | None) -> datasets.Dataset:
    if name == protocols.FOUR_DIGITS:
        return protocols.four_digits(datasets.load("mnist", data_dir))
    return datasets.load(name, data_dir)


class _Clock:
    """Estimates the time of tasks from those that were done."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)

    def add(self, task: Task, seconds: float) -> None:
        for key in self._keys(task):
            self._seconds[key].append(seconds)

    def estimate(self, tasks: Iterable[Task]) -> float | None:
        """Seconds of all of them, one after the other; None before anything was done."""
        if not self._seconds:
            return None
        known = (next(k for k in self._keys(task) if k in self._seconds) for task in tasks)
        return sum(fmean(self._seconds[key]) for key in known)

    @staticmethod
    def _keys(task: Task) -> tuple[tuple[Any, ...], ...]:
        """From the most alike to all."""
        return (task.dataset, task.method, task.n_bases), (task.dataset, task.method), ()
