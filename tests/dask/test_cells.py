"""The inverted files of a shard."""

import pickle

import numpy as np
import pytest

from plml.dask.cells import CellIndex
from plml.dask.shards import Scaling, Shard


@pytest.mark.parametrize("n_probes", [2, 5, 9])
def test_a_search_in_cells_misses_nothing_inside(n_probes):
    """Against all distances; the shard has cells 3 to 6 of nine."""
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(200, 3)), rng.integers(0, 2, size=200)
    cells = np.sort(rng.integers(3, 7, size=200))
    index = CellIndex(Shard(X, codes, np.arange(200), cells), Scaling(np.zeros(3), 1.0))
    Q = rng.normal(size=(50, 3))
    probes = np.argsort(rng.random((50, 9)), axis=1)[:, :n_probes]
    for code, squared, numbers in index.search(Q.astype(np.float32), probes, 3):
        allowed = (cells[:, None] == probes[:, None]).any(axis=2) & (codes == code)
        truth = np.where(allowed, np.square(Q[:, None] - X).sum(axis=2), np.inf)
        nearest = np.sort(truth, axis=1)[:, :3]
        there = np.isfinite(nearest)
        np.testing.assert_array_equal(numbers >= 0, there)
        np.testing.assert_allclose(squared[there], nearest[there], rtol=1e-4)


def test_an_index_that_was_sent_finds_the_same():
    rng = np.random.default_rng(1)
    shard = Shard(rng.normal(size=(60, 3)), np.arange(60) % 2, np.arange(60), np.repeat([2, 5], 30))
    index = CellIndex(shard, Scaling(np.zeros(3), 2.0))
    sent = pickle.loads(pickle.dumps(index))
    Q, probes = rng.normal(size=(9, 3)).astype(np.float32), np.tile([5, 2], (9, 1))
    for here, there in zip(index.search(Q, probes, 4), sent.search(Q, probes, 4), strict=True):
        for mine, theirs in zip(here, there, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert index.nbytes == sent.nbytes == 60 * 8 + 60 * (4 * 3 + 8)
