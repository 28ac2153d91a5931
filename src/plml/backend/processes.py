"""Worker processes that do not outlive the process they work for."""

import os
from functools import cache
from multiprocessing import parent_process
from threading import Thread
from time import sleep

_SECONDS_BETWEEN_LOOKS = 0.5


def end_with(employer: int) -> None:
    """End this process, a worker, when the process that started it is gone, even if killed.

    A process that was not started by that one, or is that one itself, is left alone.

    Parameters
    ----------
    employer : number of the process that hands out the work
    """
    parent = parent_process()
    if parent is not None and parent.pid == employer:
        _watch(employer, os.getpid())


@cache  # once per process: a forked one inherits the cache, but not the thread
def _watch(employer: int, _: int) -> None:
    Thread(target=_end_without, args=(employer,), daemon=True).start()


def _end_without(employer: int) -> None:
    while os.getppid() == employer:  # the children of a dead process are given another parent
        sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)
