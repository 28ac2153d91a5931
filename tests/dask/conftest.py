"""A cluster of two workers for the tests of this folder."""

import logging

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("distributed")


@pytest.fixture(scope="session")
def client():
    """Two processes, one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def digits():
    """Training and test part of scikit-learn's digits, as floats."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return X[:1000], y[:1000], X[1000:], y[1000:]
