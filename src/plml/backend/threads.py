"""Threads of BLAS and OpenMP."""

from collections.abc import Iterator
from contextlib import contextmanager

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController, threadpool_limits


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Hold the numerical libraries to ``n_jobs`` threads; None leaves them as they are."""
    if n_jobs is None:
        yield
    else:
        with threadpool_limits(effective_n_jobs(n_jobs)):
            yield


@contextmanager
def one_blas_thread(of: str = "") -> Iterator[None]:
    """One BLAS thread, for long runs of products too small to share.

    Threads that wait for such work spin, and take the cores from whatever else runs. With ``of``
    only the BLAS that belongs to that package is held.
    """
    blas = ThreadpoolController().select(user_api="blas")
    paths = [lib.filepath for lib in blas.lib_controllers if of in lib.filepath]
    with blas.select(filepath=paths).limit(limits=1):
        yield
