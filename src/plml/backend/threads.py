"""Threads of BLAS and OpenMP."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from threading import Lock, current_thread, get_ident, main_thread
from typing import Any, TypeVar

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController, threadpool_limits

#: Where this module was imported; a process with another number was forked from it.
_process = os.getpid()
#: Threads of a team, where the number that BLAS has does not say it.
_team_size: ContextVar[int | None] = ContextVar("team_size", default=None)

Item = TypeVar("Item")
Result = TypeVar("Result")


def _is_of_a_thread(library: Any) -> bool:
    """Whether every thread has a number of its own: OpenBLAS on OpenMP."""
    return library.internal_api == "openblas" and library.threading_layer == "openmp"


def _has_a_pool(library: Any) -> bool:
    """Whether BLAS keeps threads of its own, as OpenBLAS does without OpenMP."""
    return getattr(library, "threading_layer", None) == "pthreads"


def _number_of(libraries: list[Any]) -> int:
    """How many threads BLAS has; what the whole process shares comes before what a thread has."""
    shared = [library for library in libraries if not _is_of_a_thread(library)]
    return max((library.num_threads for library in shared or libraries), default=1)


def _set_threads(libraries: Iterable[tuple[Any, int]]) -> None:
    """Give every BLAS its number of threads.

    threadpoolctl lets the first thread that sets a BLAS keep it, and ignores the others
    in silence until that one lets go. Whoever sets it here lets go at once: who may set it back is
    for ``_Blas`` to say. A limit that a program has set through threadpoolctl itself stays.
    """
    for library, count in libraries:
        library.set_num_threads(count)
        getattr(library, "clear_controlling_thread", lambda: None)()


class _Blas:
    """The threads of BLAS, which are those of the whole process with most libraries.

    Several threads of a program may hold them at the same time. Whoever is alone gives back what it
    found; whoever is the last to go gives back what the first one found. What belongs to a thread
    alone is always given back.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders: Counter[int] = Counter()
        self._first: dict[str, tuple[Any, int]] = {}

    def start_anew(self) -> None:
        """In a forked process, where the other holders are gone, and perhaps one with the lock."""
        me = get_ident()
        self._lock, self._holders = Lock(), +Counter({me: self._holders[me]})
        if not self._holders[me]:
            self._first = {}

    @contextmanager
    def held_to(
        self, n_threads: int, of: str = "", which: Callable[[Any], bool] = lambda library: True
    ) -> Iterator[int]:
        """Hold the BLAS that belongs to a package, or all of it; how many threads it had before."""
        libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        libraries = [library for library in libraries if of in library.filepath]
        held = [library for library in libraries if which(library)]
        own = [(library, library.num_threads) for library in held if _is_of_a_thread(library)]
        shared = [library for library in held if not _is_of_a_thread(library)]
        me = get_ident()
        with self._lock:
            before = _number_of(libraries)
            found = [(library, library.num_threads) for library in shared]
            for library, count in found:
                self._first.setdefault(library.filepath, (library, count))
            self._holders[me] += 1
            _set_threads((library, n_threads) for library in held)
        try:
            yield before
        finally:
            with self._lock:
                self._holders[me] -= 1
                self._holders += Counter()  # without those that hold nothing
                if not self._holders:
                    found = list(self._first.values())
                    self._first = {}
                _set_threads(own)
                if set(self._holders) <= {me}:
                    _set_threads(found)


_blas = _Blas()


class _Work:
    """Which threads compute, so that a process that is forked meanwhile knows of it."""

    def __init__(self) -> None:
        self._threads: Counter[int] = Counter()
        self._torn = False

    @contextmanager
    def doing(self) -> Iterator[None]:
        """Count this thread in; refuse to begin where the numerical libraries cannot be trusted."""
        if self._torn:
            raise RuntimeError(
                "this process was forked while another thread was fitting or predicting, so its "
                'numerical libraries may wait for ever; fork before that, or use the "spawn" or '
                '"forkserver" start method of multiprocessing'
            )
        me = get_ident()
        self._threads[me] += 1
        try:
            yield
        finally:
            self._threads[me] -= 1
            if not self._threads[me]:
                del self._threads[me]

    def forked(self) -> None:
        """In the new process only the thread that forked goes on."""
        me = get_ident()
        others = sum(count for thread, count in self._threads.items() if thread != me)
        self._torn = self._torn or others > 0
        self._threads = Counter({me: self._threads[me]})
        _blas.start_anew()


_work = _Work()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_work.forked)


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Hold the numerical libraries to ``n_jobs`` threads; None leaves them as they are.

    A forked process inherits OpenMP's idea of its threads and not the threads, and would wait for
    them for ever: there OpenMP works alone. One that was forked while another thread computed
    inherits locks that nobody opens: there nothing is begun.

    The process that forks is in danger, too: OpenBLAS then ends its threads and loses what they
    were at, and whoever waits for it waits for ever. Threads beside the main one, which may fork
    while they compute, leave those of OpenBLAS alone; their teams are as large as ever.
    """
    with _work.doing(), ExitStack() as limits:
        size = _team_size.get()
        if n_jobs is not None:
            size = effective_n_jobs(n_jobs)
            limits.enter_context(_blas.held_to(size))
            limits.enter_context(threadpool_limits(size, user_api="openmp"))
        if _process != os.getpid():
            limits.enter_context(threadpool_limits(1, user_api="openmp"))
        if current_thread() is not main_thread():
            found = limits.enter_context(_blas.held_to(1, which=_has_a_pool))
            limits.enter_context(_teams_of(size or found))
        yield


@contextmanager
def _teams_of(size: int) -> Iterator[None]:
    token = _team_size.set(size)
    try:
        yield
    finally:
        _team_size.reset(token)


@contextmanager
def one_blas_thread(of: str = "") -> Iterator[None]:
    """One BLAS thread, for long runs of products too small to share.

    Threads that wait for such work spin, and take the cores from whatever else runs. With ``of``
    only the BLAS that belongs to that package is held.
    """
    with _blas.held_to(1, of):
        yield


class ThreadTeam:
    """Threads that share independent pieces of work.

    Parameters
    ----------
    pool : the threads, or None to work alone
    size : how many
    """

    def __init__(self, pool: ThreadPoolExecutor | None = None, size: int = 1) -> None:
        self._pool = pool
        self.size = size

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results in the order of the items."""
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        # Settings of this thread (context variables) hold in the others.
        contexts = [copy_context() for _ in items]
        return list(
            self._pool.map(lambda context, item: context.run(function, item), contexts, items)
        )

    def cut(self, n: int, largest: int, smallest: int = 256) -> list[slice]:
        """Rows 0 to n in blocks within the two sizes, as many for everyone."""
        smallest = min(smallest, max(largest, 1))
        n_blocks = -(-n // max(largest, smallest))
        n_blocks = -(-n_blocks // self.size) * self.size
        size = max(smallest, -(-n // max(n_blocks, 1)))
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


SERIAL = ThreadTeam()


def _work_alone() -> None:
    """Hold the BLAS that has a number for every thread to one in this one, a new one."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    _set_threads((library, 1) for library in libraries if _is_of_a_thread(library))


@contextmanager
def thread_team() -> Iterator[ThreadTeam]:
    """As many threads as BLAS may use, while BLAS itself is held to one.

    Pieces that fit the cache, one a thread, beat a BLAS that cuts every small product in two, and
    what is not a product is shared as well.
    """
    with _blas.held_to(1) as found, ExitStack() as limits:
        n_threads = _team_size.get() or found
        limits.enter_context(_teams_of(1))  # none within a team
        if n_threads == 1:
            yield SERIAL
            return
        with ThreadPoolExecutor(n_threads, initializer=_work_alone) as pool:
            yield ThreadTeam(pool, n_threads)
