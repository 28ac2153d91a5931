"""Threads of BLAS and OpenMP."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from threading import Lock, current_thread, get_ident, main_thread
from typing import Any, TypeVar

from joblib import effective_n_jobs
from threadpoolctl import get_cached_controller

from plml.backend.context import holding

#: The process that imported this module; one with another id was forked from it.
_process = os.getpid()
#: The size of teams, if it is not the number of BLAS threads.
_team_size: ContextVar[int | None] = ContextVar("team_size", default=None)

Item = TypeVar("Item")
Result = TypeVar("Result")


def _blas_libraries() -> list[Any]:
    return get_cached_controller().select(user_api="blas").lib_controllers


def _limited_openmp(n_threads: int) -> AbstractContextManager[Any]:
    return get_cached_controller().limit(limits=n_threads, user_api="openmp")


def _is_per_thread(library: Any) -> bool:
    """Whether the number of threads is set for each thread: OpenBLAS on OpenMP."""
    return library.internal_api == "openblas" and library.threading_layer == "openmp"


def _has_own_pool(library: Any) -> bool:
    """Whether BLAS keeps threads of its own, as OpenBLAS does without OpenMP."""
    return getattr(library, "threading_layer", None) == "pthreads"


def _n_threads(libraries: list[Any]) -> int:
    """How many threads BLAS has; the number of the process counts before that of a thread."""
    shared = [library for library in libraries if not _is_per_thread(library)]
    return max((library.num_threads for library in shared or libraries), default=1)


def _set_threads(libraries: Iterable[tuple[Any, int]]) -> None:
    """Give every BLAS its number of threads.

    threadpoolctl lets the first thread that sets a BLAS keep control, and silently ignores the
    others until it gives it up. Here control is given up at once: ``_Blas`` decides who may restore
    the number. A limit that a program has set through threadpoolctl itself stays.
    """
    for library, count in libraries:
        library.set_num_threads(count)
        getattr(library, "clear_controlling_thread", lambda: None)()


class _Blas:
    """The number of BLAS threads, which most libraries set for the whole process.

    Several threads of a program may limit it at the same time. A single holder restores what it
    found; of several, the last one to leave restores what the first one found. A number that
    belongs to one thread is always restored.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders: Counter[int] = Counter()
        self._first: dict[str, tuple[Any, int]] = {}

    def start_anew(self) -> None:
        """Reset in a forked process: the other holders are gone, perhaps with the lock."""
        me = get_ident()
        self._lock, self._holders = Lock(), +Counter({me: self._holders[me]})
        if not self._holders[me]:
            self._first = {}

    @contextmanager
    def limited_to(
        self, n_threads: int, of: str = "", only: Callable[[Any], bool] = lambda library: True
    ) -> Iterator[int]:
        """Limit the BLAS of one package, or of all; yields how many threads it had before."""
        libraries = [library for library in _blas_libraries() if of in library.filepath]
        held = [library for library in libraries if only(library)]
        own = [(library, library.num_threads) for library in held if _is_per_thread(library)]
        shared = [library for library in held if not _is_per_thread(library)]
        me = get_ident()
        with self._lock:
            before = _n_threads(libraries)
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
                self._holders += Counter()  # drops those that hold nothing
                if not self._holders:
                    found = list(self._first.values())
                    self._first = {}
                _set_threads(own)
                if set(self._holders) <= {me}:
                    _set_threads(found)


_blas = _Blas()


class _Work:
    """Which threads compute, so that a process forked meanwhile knows about it."""

    def __init__(self) -> None:
        self._threads: Counter[int] = Counter()
        self._is_broken = False

    @contextmanager
    def doing(self) -> Iterator[None]:
        """Count this thread; refuse to begin if the numerical libraries cannot be trusted."""
        if self._is_broken:
            raise RuntimeError(
                "this process was forked while another thread was fitting or predicting, so its "
                'numerical libraries may wait forever; fork before that, or use the "spawn" or '
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
        """Adapt to a forked process, in which only the thread that forked goes on."""
        me = get_ident()
        others = sum(count for thread, count in self._threads.items() if thread != me)
        self._is_broken = self._is_broken or others > 0
        self._threads = Counter({me: self._threads[me]})
        _blas.start_anew()


_work = _Work()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_work.forked)


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit the numerical libraries to ``n_jobs`` threads; None leaves them as they are.

    A forked process inherits OpenMP's record of its threads but not the threads, and would wait for
    them forever: there OpenMP gets one thread. A process that was forked while another thread
    computed inherits locks that nobody opens: there nothing is started.

    The process that forks is at risk, too: OpenBLAS then ends its threads and loses their work, and
    whoever waits for it waits forever. The main thread may fork while other threads compute, so
    these do not use the threads of OpenBLAS; their teams are as large as ever.
    """
    with _work.doing(), ExitStack() as limits:
        size = _team_size.get()
        if n_jobs is not None:
            size = effective_n_jobs(n_jobs)
            limits.enter_context(_blas.limited_to(size))
            limits.enter_context(_limited_openmp(size))
        if _process != os.getpid():
            limits.enter_context(_limited_openmp(1))
        if current_thread() is not main_thread():
            found = limits.enter_context(_blas.limited_to(1, only=_has_own_pool))
            limits.enter_context(holding(_team_size, size or found))
        yield


@contextmanager
def one_blas_thread(of: str = "") -> Iterator[None]:
    """One BLAS thread, for long sequences of products too small to share.

    Threads that wait for such work spin, and take the cores from whatever else runs. With ``of``
    only the BLAS that belongs to that package is limited.
    """
    with _blas.limited_to(1, of):
        yield


def slices(n: int, size: int) -> list[slice]:
    """Rows 0 to n - 1 in blocks of the given size; the last one may be smaller."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


class ThreadTeam:
    """Threads that share independent pieces of work.

    Parameters
    ----------
    pool : the threads, or None for the calling thread alone
    size : how many threads
    """

    def __init__(self, pool: ThreadPoolExecutor | None = None, size: int = 1) -> None:
        self._pool = pool
        self.size = size

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results in the order of the items."""
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        # The context variables of this thread apply in the others, too.
        contexts = [copy_context() for _ in items]
        return list(
            self._pool.map(lambda context, item: context.run(function, item), contexts, items)
        )

    def cut(self, n: int, largest: int, smallest: int = 256) -> list[slice]:
        """Rows 0 to n - 1 in blocks within the two sizes, the same number for every thread."""
        smallest = min(smallest, max(largest, 1))
        n_blocks = -(-n // max(largest, smallest))
        n_blocks = -(-n_blocks // self.size) * self.size
        size = max(smallest, -(-n // max(n_blocks, 1)))
        return slices(n, size)


SERIAL = ThreadTeam()


def _limit_new_thread() -> None:
    """Give a BLAS whose number of threads is set for each thread one in this new thread."""
    _set_threads((library, 1) for library in _blas_libraries() if _is_per_thread(library))


@contextmanager
def thread_team() -> Iterator[ThreadTeam]:
    """As many threads as BLAS may use, while BLAS itself is limited to one.

    Pieces that fit the cache, one per thread, beat a BLAS that splits every small product, and work
    that is not a product is shared as well.
    """
    size = _team_size.get()
    with _blas.limited_to(1) as found, holding(_team_size, 1):  # no team within a team
        n_threads = size or found
        if n_threads == 1:
            yield SERIAL
            return
        with ThreadPoolExecutor(n_threads, initializer=_limit_new_thread) as pool:
            yield ThreadTeam(pool, n_threads)
