"""The Dask cluster beneath: named tasks, where they run, and what they cost to move."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import CDLL
from functools import cache
from math import inf, isfinite
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Future, LocalCluster, as_completed, default_client, get_worker, span
from joblib import effective_n_jobs
from psutil import Process  # type: ignore[import-untyped]

from plml.backend.arrays import working_memory
from plml.backend.progress import Progress, Stage, stage

#: Of glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 2**24
#: Bytes per thread from which on memory is not short.
_ROOMY = 2**31
#: Share of its memory limit from which on a worker is asked to give back what it has freed.
_TIGHT = 0.5
#: What a worker takes before it holds any data.
_LIBRARIES = 2**28
#: Of the rest of its memory, for what tasks take on top of what they read and leave.
_FREE_SHARE = 0.25
#: The part of it for arrays that are cut into blocks.
_BLOCK_SHARE = 0.05
#: Bytes that are sent to the scheduler at a time.
_LARGEST_MESSAGE = 2**22
#: Seconds that a cluster may take to get its first worker.
_PATIENCE = 60
#: The cluster that is started where a user has none; one per process.
_own: list[Client] = []


def connected(n_jobs: int | None = None) -> Client:
    """The user's client, or one of a ``LocalCluster`` with a worker per core."""
    with suppress(ValueError):
        return _with_workers(default_client())
    if not _own or _own[0].status != "running":
        workers = effective_n_jobs(-1 if n_jobs is None else n_jobs)
        _own[:] = [Client(LocalCluster(n_workers=workers, threads_per_worker=1))]
    return _own[0]


def _with_workers(client: Client) -> Client:
    work = client.submit(_itself, None, pure=False)  # a cluster that adapts has none without any
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        work.cancel()
        raise RuntimeError(
            f"the Dask cluster at {client.scheduler.address} has had no workers for {_PATIENCE} "
            "seconds; start some"
        ) from None
    return client


class Cluster:
    """Tasks of one fit on a client's workers.

    Nothing is scattered: all that a task reads came from another task, so that Dask can compute
    again what a lost worker held.

    Parameters
    ----------
    client : Client
    working_memory : MiB of the largest temporary array, if that is less than what a worker has
    """

    def __init__(self, client: Client, working_memory: float | None = None) -> None:
        self.client = client
        self.working_memory = working_memory
        self.stage = "plml"
        self._pieces = Stage(Progress())  # not shown

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """Tasks carry the name of the stage on the dashboard."""
        before = self.stage, self._pieces
        try:
            with span(name), stage(name, named=False) as pieces:
                self.stage, self._pieces = name, pieces
                pieces.report(name, 0.0)
                yield
        finally:
            self.stage, self._pieces = before

    def submit(
        self, function: Callable[..., Any], *arguments: Any, on: str | None = None
    ) -> Future:
        """A task; ``on`` is the worker that should run it, if it is there."""
        where = {} if on is None else {"workers": [on], "allow_other_workers": True}
        key = f"{self.stage}-{function.__name__.strip('_').replace('_', '-')}-{uuid4().hex}"
        # In the order of submission, so that a sum is made before what is summed has piled up.
        options: dict[str, Any] = {"key": key, "pure": False, "fifo_timeout": 0, **where}
        return self.client.submit(_run, self.working_memory, function, *arguments, **options)

    def map(
        self, function: Callable[..., Any], *parts: Iterable[Any], known: tuple[Any, ...] = ()
    ) -> list[Future]:
        """A task for each of several parts, given what is known to all of them."""
        return [self.submit(function, *arguments, *known) for arguments in zip(*parts, strict=True)]

    def put(self, value: Any) -> Future:
        """A value that many tasks want."""
        return self.submit(_itself, value)

    def put_rows(self, array: np.ndarray) -> Future:
        """The same for an array of many rows, which is sent in pieces."""
        n_pieces = -(-max(array.nbytes, 1) // _LARGEST_MESSAGE)
        return self.submit(np.concatenate, self.map(_itself, np.array_split(array, n_pieces)))

    def gather(self, futures: Any) -> Any:
        """What futures hold, on the driver."""
        return self.client.gather(futures)

    def watched(self, futures: list[Future]) -> list[Any]:
        """``gather`` of work that takes long."""
        for n_done, _ in enumerate(as_completed(futures), 1):
            self._report(n_done, len(futures))
        return self.gather(futures)

    def in_waves(
        self, submitted: Callable[[Sequence[Any]], list[Future]], parts: Sequence[Any]
    ) -> list[Future]:
        """Tasks for a few parts at a time, where what they read does not fit into memory together.

        ``submitted`` takes some of the parts; the next ones have to wait until its tasks are done.
        """
        size, futures = 4 * len(self.workers()), []
        for first in range(0, len(parts), size):
            wave = submitted(parts[first : first + size])
            self.gather(self.map(_is_there, wave))  # or the error of one that failed
            futures += wave
            self._report(len(futures), len(parts))
        return futures

    def _report(self, n_done: int, n_pieces: int) -> None:
        self._pieces.report(f"{self.stage}: {n_done} of {n_pieces}", n_done / n_pieces)

    def workers(self) -> list[str]:
        """Addresses, one per thread."""
        threads = {address: worker["nthreads"] for address, worker in self._info().items()}
        return [address for address in sorted(threads) for _ in range(threads[address])]

    def memory_per_thread(self) -> float:
        """Bytes that a task may take on the smallest worker.

        Dask fills a worker to 70% of its limit before it spills, and restarts it at 95%.
        """
        return min(
            _FREE_SHARE * max(limit - _LIBRARIES, 0.1 * limit) / worker["nthreads"]
            for worker in self._info().values()
            for limit in [worker["memory_limit"] or inf]
        )

    def _info(self) -> dict[str, Any]:
        # ``scheduler_info`` may be overwritten by the client's own look at it.
        def look(client: Client) -> dict[str, Any]:
            return client.sync(client.scheduler.identity, n_workers=-1)["workers"]

        return look(self.client) or look(_with_workers(self.client))


def _run(mebibytes: float | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """A task: its temporary arrays that are cut into blocks get a thread's share at the most."""
    _keep_small_arrays()
    limit = min(mebibytes or inf, _BLOCK_SHARE * _bytes_per_thread() / 2**20)
    try:
        with working_memory(limit if isfinite(limit) else None):
            return function(*arguments)
    finally:
        _give_back()


@cache
def _bytes_per_thread() -> float:
    """The memory limit of this worker, shared by its threads."""
    worker = get_worker()
    return (worker.memory_manager.memory_limit or inf) / worker.state.nthreads


def _give_back() -> None:
    """What was freed, to the system: a worker that runs low would be paused for it."""
    limit = get_worker().memory_manager.memory_limit
    if limit and Process().memory_info().rss > _TIGHT * limit:
        with suppress(OSError, AttributeError):
            CDLL("libc.so.6").malloc_trim(0)


@cache
def _keep_small_arrays() -> None:
    """Let a worker's allocator reuse the memory of arrays below 16 MiB.

    Dask's workers give every freed array back to the system, and kernels that work in blocks of a
    few megabytes then spend most of their time on new pages. glibc only; larger arrays are given
    back as before, and everything is where memory is short.
    """
    if _bytes_per_thread() < _ROOMY:
        return
    with suppress(OSError, AttributeError):
        mallopt = CDLL("libc.so.6").mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _is_there(value: Any) -> bool:
    return True


def _itself(value: Any) -> Any:
    return value


def offsets_of(sizes: Sequence[int]) -> np.ndarray:
    """Where every block starts, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
