"""Threads of BLAS and OpenMP."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from threading import Lock, get_ident
from typing import Any, TypeVar

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController, threadpool_limits

#: Where this module was imported; a process with another number was forked from it.
_process = os.getpid()

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Blas:
    """The threads of BLAS, which are those of the whole process.

    Several threads of a program may hold them at the same time. Whoever is alone gives back what it
    found; whoever is the last to go gives back what the first one found.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders: Counter[int] = Counter()
        self._first: list[tuple[Any, int]] = []

    @contextmanager
    def held_to(self, n_threads: int, of: str = "") -> Iterator[int]:
        """Hold the BLAS that belongs to a package, or all of it; how many threads it had before."""
        libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        libraries = [library for library in libraries if of in library.filepath]
        me = get_ident()
        with self._lock:
            found = [(library, library.num_threads) for library in libraries]
            if not self._holders:
                self._first = found
            self._holders[me] += 1
            for library in libraries:
                library.set_num_threads(n_threads)
        try:
            yield max((count for _, count in found), default=1)
        finally:
            with self._lock:
                self._holders[me] -= 1
                self._holders += Counter()  # without those that hold nothing
                if not self._holders:
                    found = self._first
                if set(self._holders) <= {me}:
                    for library, count in found:
                        library.set_num_threads(count)


_blas = _Blas()


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Hold the numerical libraries to ``n_jobs`` threads; None leaves them as they are.

    A forked process inherits OpenMP's idea of its threads and not the threads, and would wait for
    them for ever: there OpenMP works alone.
    """
    with ExitStack() as limits:
        if n_jobs is not None:
            limits.enter_context(_blas.held_to(effective_n_jobs(n_jobs)))
            limits.enter_context(threadpool_limits(effective_n_jobs(n_jobs), user_api="openmp"))
        if _process != os.getpid():
            limits.enter_context(threadpool_limits(1, user_api="openmp"))
        yield


@contextmanager
def one_blas_thread(of: str = "") -> Iterator[None]:
    """One BLAS thread, for long runs of products too small to share.

    Threads that wait for such work spin, and take the cores from whatever else runs. With ``of``
    only the BLAS that belongs to that package is held.
    """
    with _blas.held_to(1, of):
        yield


class Crew:
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


ALONE = Crew()


@contextmanager
def crew() -> Iterator[Crew]:
    """As many threads as BLAS may use, while BLAS itself is held to one.

    Pieces that fit the cache, one a thread, beat a BLAS that cuts every small product in two, and
    what is not a product is shared as well.
    """
    with _blas.held_to(1) as n_threads:
        if n_threads == 1:
            yield ALONE
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield Crew(pool, n_threads)
