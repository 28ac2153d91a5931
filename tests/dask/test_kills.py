"""A worker dies in a stage: Dask computes again what it held, and the fit ends the same."""

import os
import signal
from contextlib import contextmanager
from threading import Timer

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from plml import PLML
from plml.stages.run import Run

pytestmark = pytest.mark.slow  # every test starts a cluster of its own

PARAMETERS = {"n_bases": 4, "regularization": 10.0, "tol": 1e-3, "random_state": 0}


class Killer:
    """A callback that kills one worker at an iteration of a stage."""

    def __init__(self, client, stage, iteration):
        self.client, self.stage, self.iteration = client, stage, iteration
        self.killed = []

    def __call__(self, name, record):
        if name == self.stage and record.iteration >= self.iteration and not self.killed:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
            pids = self.client.run(os.getpid)
            address = max(workers, key=lambda a: workers[a]["metrics"]["managed_bytes"])
            # A moment later: the next iteration has begun, and tasks are running.
            Timer(0.05, os.kill, (pids[address], signal.SIGKILL)).start()
            self.killed.append(address)


@pytest.mark.parametrize(
    ("stage", "iteration"), [("stage 1, weights", 20), ("stage 2, metrics", 8)]
)
def test_a_killed_worker_does_not_change_the_objective(digits, stage, iteration, monkeypatch):
    X, y, Q, _ = digits
    truth = PLML(**PARAMETERS).fit(X, y)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        killer = Killer(client, stage, iteration)
        watched = Run.solver

        @contextmanager
        def killing(self, name, tol, max_iter):
            with watched(self, name, tol, max_iter) as callback:
                yield lambda record: (killer(name, record), callback(record))[1]

        monkeypatch.setattr(Run, "solver", killing)
        model = PLML(**PARAMETERS).fit(
            da.from_array(X, chunks=(250, -1)), da.from_array(y, chunks=250)
        )
        assert len(killer.killed) == 1
        assert killer.killed[0] not in client.scheduler_info(n_workers=-1)["workers"]
        assert model.objective_ == pytest.approx(truth.objective_, rel=1e-4)
        assert model.dual_gap_ <= 1e-3
        assert model.weights_gap_ <= 1e-3
        assert np.mean(model.predict(Q) == truth.predict(Q)) >= 0.995
