"""Threads of ours and of the linear algebra never multiply."""

import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from every_estimator import ESTIMATORS
from plml.backend import threads

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def blas_threads():
    return max(
        library.num_threads
        for library in ThreadpoolController().select(user_api="blas").lib_controllers
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_blas_works_alone_wherever_threads_share_the_work(rng, name, monkeypatch):
    seen, real = [], threads.ThreadTeam.map

    def watched(self, function, items):
        def watch(item):
            if self.size > 1 and len(seen) < 40:  # a look takes milliseconds
                seen.append((blas_threads(), threading.current_thread().name))
            return function(item)

        return real(self, watch, items)

    monkeypatch.setattr(threads.ThreadTeam, "map", watched)
    n = 1200 if name == "SML" else 300  # fewer pairs are not worth sharing
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 40)) + 2.0 * np.eye(3, 40)[y]
    model = ESTIMATORS[name](n_jobs=2)
    model.fit(X, y).predict(X[:50])
    assert all(n_threads == 1 for n_threads, _ in seen)
    if name in ("DANN", "GLML", "SML", "LMNN"):
        assert len({thread for _, thread in seen}) >= 2  # there was something to multiply


@pytest.mark.parametrize("name", ["DANN", "GLML"])
def test_metrics_of_queries_are_made_by_one_thread_each(rng, name, monkeypatch):
    """Decompositions of many small matrices are where waiting threads of BLAS burn the cores."""
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 30)) + y[:, None]
    model = ESTIMATORS[name](n_jobs=2).fit(X, y)
    seen, real = [], model._metric.matrices

    def watched(Q, own):
        seen.append(blas_threads())
        return real(Q, own)

    monkeypatch.setattr(model._metric, "matrices", watched)
    model.predict(X[:60])
    model.get_mahalanobis_matrix(X[:5])
    model.pair_distance(np.stack([X[:5], X[5:10]], axis=1))
    assert len(seen) >= 4
    assert set(seen) == {1}
