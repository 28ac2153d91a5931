"""What shards say of queries, merged as one index says it."""

import numpy as np

from plml import PLML
from plml.dask.sharded_metric import (
    contenders_in,
    nearest_of_all,
    neighborhood_in,
    training_squares,
    weights_from,
)
from plml.dask.shards import Shard

QUICK = {"n_bases": 2, "regularization": 50.0, "tol": 0.1, "random_state": 0}


def test_weights_from_shards_with_fewer_rows_than_neighbors():
    """Equation 4 on one machine, and from twenty shards of three rows."""
    X = np.random.default_rng(0).standard_normal((60, 4))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    here = PLML(**QUICK, query_weights="optimize").fit(X, y)
    Q, rule = X[:20] + 0.3, here._metric.rule.rule
    near = [
        neighborhood_in(Q, 7, Shard(X[i], y[i], i, 0 * i), here.weights_[i], here._scales[i])
        for i in np.array_split(np.arange(60), 20)
    ]
    found = weights_from(Q, nearest_of_all(near, rule.n_near), rule)
    np.testing.assert_allclose(found, here.local_weights(Q), atol=1e-8)


def test_equal_distances_go_to_the_euclidean_order():
    """Between shards as within one: rows at distance zero under a singular metric."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, size=(300, 4)).astype(float), np.arange(300) % 2
    M = np.diag([1.0, 0.0, 0.0, 0.0])[None]
    rows = rng.permutation(300)  # the shards hold neighbouring rows, in no order of the user
    shards = [Shard(X[i], y[i], i, 0 * i) for i in np.array_split(rows, 4)]
    near = [
        contenders_in(X[:30], np.ones((30, 1)), M, 7, shard, training_squares(shard, M))
        for shard in shards
    ]
    found = nearest_of_all(near, 7)
    np.testing.assert_array_equal(found.distances.squared, 0.0)
    for i in range(30):
        squared = (X - X[i]) ** 2
        expected = np.lexsort((np.arange(300), squared.sum(axis=1), squared[:, 0]))[:7]
        np.testing.assert_array_equal(found.rows[i], expected)
        np.testing.assert_array_equal(found.known[0][i], y[expected])
