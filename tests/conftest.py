"""Fixtures shared by all tests."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from plml_study import datasets, protocols

settings.register_profile(
    "same",
    deadline=None,
    max_examples=15,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("new", settings.get_profile("same"), max_examples=100, derandomize=False)
settings.load_profile("same")


def pytest_collection_modifyitems(items):
    """Tests on the cluster of ``tests/dask`` are slow."""
    for item in items:
        if "client" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def paper_split():
    """First split of a data set of the paper under the paper's protocol, or a skip."""

    def load(name):
        if not os.environ.get(datasets.DATA_VARIABLE):
            pytest.skip(f"{datasets.DATA_VARIABLE} does not name a folder with the original files")
        dataset = datasets.load(name)
        return protocols.prepared_split(dataset, *next(protocols.splits(dataset)))

    return load


@pytest.fixture
def blobs(rng):
    """Three overlapping classes in four dimensions."""
    y = np.repeat([0, 1, 2], 25)
    X = rng.normal(size=(75, 4)) + 2.0 * np.eye(3, 4)[y]
    return X, y
