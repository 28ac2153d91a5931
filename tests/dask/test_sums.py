"""What many tasks leave, put together; and how large Dask takes our objects for."""

from typing import NamedTuple

import numpy as np
import pytest
from dask.sizeof import sizeof

import plml.dask  # noqa: F401  (tells Dask the sizes)
from plml.dask.sums import RunningSum, rows_of, stacked, summed
from plml.ops.pairs import PairOperator
from plml.stages.metrics import MetricsDual
from plml.stages.triplets import cross_triplets


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


@pytest.mark.parametrize("n_parts", [1, 8, 9, 100])
def test_a_running_sum_has_few_parts(n_parts):
    running = RunningSum(summed, (np.full(3, float(i)) for i in range(n_parts)))
    assert len(running.parts) <= 8
    np.testing.assert_array_equal(summed(running.parts), np.full(3, sum(range(n_parts))))


def test_named_tuples():
    one, two = Pair(np.arange(3), np.ones((3, 2))), Pair(np.arange(3, 5), np.zeros((2, 2)))
    whole = stacked([one, two])
    assert whole.first.tolist() == [0, 1, 2, 3, 4]
    assert whole.second.shape == (5, 2)
    some = rows_of(whole, np.array([4, 1]))
    assert isinstance(some, Pair)
    assert some.first.tolist() == [4, 1]
    total = summed([one, one])
    assert total.first.tolist() == [0, 2, 4]


def test_the_size_of_a_dual_is_that_of_its_arrays():
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(500, 60)), np.ones((500, 1))
    numbers = np.arange(500)[:, None]
    triplets = cross_triplets((numbers + 1) % 500, (numbers + 2) % 500)
    dual = MetricsDual(PairOperator(X, W, triplets.pairs), triplets, 1.0, 1.0)
    assert X.nbytes < sizeof(dual) < 2 * X.nbytes
    assert sizeof([dual.pairs, dual.pairs]) < 5 * X.nbytes
