"""Search under a learned metric, the training rows in shards: a block of queries meets them all."""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import Delayed, delayed

from plml.dask.cluster import Cluster
from plml.dask.shards import Shard
from plml.dask.sums import RunningSum
from plml.dask.training_shards import TrainingShards
from plml.metric.basis_metric import BasisMetric
from plml.metric.weight_rules import NewPoint, WeightRule
from plml.ops.topk import Measured, neighbor_order
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.search import LocalMetricIndex, index_vectors
from plml.stages.weights import NewPointRule

#: Queries that are searched together.
_QUERY_ROWS = 2**14
#: Training rows whose squares are computed together.
_ROWS_AT_ONCE = 2**10


class Nearest(NamedTuple):
    """The nearest rows of one shard or of several, nearest first, and what is known of them."""

    distances: Measured  # (q, k)
    rows: np.ndarray  # (q, k), in the order of the user
    known: tuple[np.ndarray, ...]  # (q, k, ...) each


class ShardedMetric(BasisMetric):
    """``BasisMetric`` of training rows in shards.

    Arrays of queries are answered at once, delayed blocks of queries by delayed answers.

    Parameters
    ----------
    training : TrainingShards
    weights : theirs, a Dask array
    M : (m, d, d) array
    rule : weights of new points
    """

    searches_on_gpu = False

    def __init__(
        self, training: TrainingShards, weights: Any, M: np.ndarray, rule: WeightRule
    ) -> None:
        super().__init__(training.rows, weights, M, rule)
        self.training = training
        self._new_point = rule.rule if isinstance(rule, NewPoint) else None
        cluster = Cluster(training.running_client())
        with cluster.doing("queries"):
            self._M = cluster.put_rows(M)
            self._squares = cluster.map(training_squares, training.shards, known=(self._M,))

    def search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As in ``BasisMetric``; numbers are rows in the order of the user."""
        found = self._at_once(Q, lambda block: self.delayed_nearest(block, k))
        squared = np.concatenate([part.distances.squared for part in found])
        return squared, np.concatenate([part.rows for part in found])

    def nearest_labels(self, Q: np.ndarray, k: int, labels: Any) -> np.ndarray:
        """As in ``BasisMetric``; the labels are those in the shards."""
        found = self._at_once(Q, lambda block: self.delayed_nearest(block, k))
        return np.concatenate([codes for _, _, (codes,) in found])

    def weights(self, Q: np.ndarray | None) -> Any:
        """As in ``BasisMetric``; a Dask array for the training rows."""
        if Q is None:
            return self.training_weights
        return np.concatenate(self._at_once(Q, self.delayed_weights))

    def recall(self, k: int) -> float:
        """As in ``BasisMetric``; the search is exact."""
        return 1.0

    def delayed_weights(self, Q: Delayed) -> Delayed:
        """Weights (q, m) of a block of queries."""
        rule, training = self._new_point, self.training
        n_near = 1 if rule is None else rule.n_near
        near = self._merged(neighborhood_in, (Q,), n_near, training.weights, training.scales)
        return delayed(weights_from, pure=False)(Q, near, rule)

    def delayed_nearest(self, Q: Delayed, k: int) -> Delayed:
        """The nearest rows of a block of queries, with their classes."""
        if k > len(self.X):
            raise ValueError(f"n_neighbors={k} is more than the {len(self.X)} training rows")
        queries = Q, self.delayed_weights(Q), self._M
        return self._merged(contenders_in, queries, k, self._squares)

    def _merged(
        self, look: Callable[..., Nearest], queries: tuple[Any, ...], k: int, *of_shards: list[Any]
    ) -> Delayed:
        """The k nearest of what all shards find, of which a few are in memory at a time."""
        look, merge = (delayed(function, pure=False) for function in (look, nearest_of_all))
        shards = zip(self.training.shards, *of_shards, strict=True)
        running = RunningSum(
            lambda some: merge(some, k), (look(*queries, k, *shard) for shard in shards)
        )
        return merge(running.parts, k)

    def _at_once(self, Q: np.ndarray | None, answer: Callable[[Delayed], Delayed]) -> list[Any]:
        client = self.training.running_client()
        Q = np.asarray(self.X if Q is None else Q)
        blocks = [Q[start : start + _QUERY_ROWS] for start in range(0, len(Q), _QUERY_ROWS)]
        return client.gather(client.compute([answer(delayed(b, pure=False)) for b in blocks]))


def training_squares(shard: Shard, M: np.ndarray) -> np.ndarray:
    """x^T M_b x of a shard's rows about their mean, as ``LocalMetricIndex`` wants them."""
    center = shard.X.mean(axis=0, dtype=np.float64)
    M, d = M.astype(np.float64), shard.X.shape[1]
    blocks = np.array_split(shard.X, max(1, len(shard.X) // _ROWS_AT_ONCE))
    return np.concatenate([index_vectors(block - center, M)[:, d:] for block in blocks])


def neighborhood_in(
    Q: np.ndarray, k: int, shard: Shard, weights: np.ndarray, scales: np.ndarray
) -> Nearest:
    """The k nearest rows of a shard with weights and scales, fewer where it has fewer."""
    order = np.argsort(shard.rows)  # equals by the order of the user
    squared, at = euclidean_neighbors(shard.X[order], k, Q)
    numbers = order[at]
    return Nearest(Measured(squared), shard.rows[numbers], (weights[numbers], scales[numbers]))


def contenders_in(
    Q: np.ndarray, W: np.ndarray, M: np.ndarray, k: int, shard: Shard, squares: np.ndarray
) -> Nearest:
    """The k nearest rows of a shard under the metrics of weights W, with their classes."""
    order = np.argsort(shard.rows)
    index = LocalMetricIndex(shard.X[order], M, squares[order])
    _, at = index.search(Q, W, min(k, len(shard.X)))
    numbers = order[at]
    return Nearest(index.distances(Q, W, at), shard.rows[numbers], (shard.codes[numbers],))


def nearest_of_all(found: list[Nearest], k: int) -> Nearest:
    """The k nearest of several shards, ordered as one index orders them."""
    distances = reduce(Measured.joined_with, (part.distances for part in found))
    rows, *known = (
        np.concatenate(arrays, axis=1)
        for arrays in zip(*((part.rows, *part.known) for part in found), strict=True)
    )
    order = neighbor_order(distances, rows)[:, :k]
    at = np.arange(len(rows))[:, None], order
    return Nearest(distances.take(order), rows[at], tuple(part[at] for part in known))


def weights_from(Q: np.ndarray, near: Nearest, rule: NewPointRule | None) -> np.ndarray:
    """The weights of the nearest row, or those by the rule for new points."""
    weights, scales = near.known
    if rule is None:
        return weights[:, 0]
    numbers = np.arange(scales.size).reshape(scales.shape)
    known = weights.reshape(-1, weights.shape[2]), scales.ravel()
    return rule.weights(Q, near.distances.squared, numbers, *known)[0].astype(weights.dtype)
