"""Worker processes that do not outlive the process they work for."""

import os
from functools import cache
from multiprocessing import parent_process
from threading import Thread
from time import sleep

_SECONDS_BETWEEN_CHECKS = 0.5


def end_with(employer: int) -> None:
    """End this worker process when the process that started it is gone, even if that was killed.

    Has no effect in a process that ``employer``, a process id, did not start, such as itself.
    """
    parent = parent_process()
    if parent is not None and parent.pid == employer:
        _watch(employer, os.getpid())


@cache  # once per process: a forked one inherits the cache, but not the thread
def _watch(employer: int, own_id: int) -> None:
    Thread(target=_end_without, args=(employer,), daemon=True).start()


def _end_without(employer: int) -> None:
    while os.getppid() == employer:  # the children of a dead process get another parent
        sleep(_SECONDS_BETWEEN_CHECKS)
    os._exit(1)
