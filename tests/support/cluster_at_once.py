"""Stands for ``plml.dask.cluster.Cluster`` where there is none: every task is done at once."""

from contextlib import nullcontext


class ClusterAtOnce:
    """Futures are the values themselves.

    Parameters
    ----------
    n_workers : int
    memory : bytes that a task may take
    """

    def __init__(self, n_workers=2, memory=2.0**30):
        self.n_workers = n_workers
        self.memory = memory

    def doing(self, name):
        return nullcontext()

    def submit(self, function, *arguments, on=None):
        return function(*arguments)

    def map(self, function, *parts, known=()):
        return [function(*arguments, *known) for arguments in zip(*parts, strict=True)]

    def put(self, value):
        return value

    put_rows = put

    def gather(self, futures):
        return futures

    watched = gather

    def in_waves(self, submitted, parts):
        return submitted(parts)

    def workers(self):
        return [f"worker {number}" for number in range(self.n_workers)]

    def memory_per_thread(self):
        return self.memory
