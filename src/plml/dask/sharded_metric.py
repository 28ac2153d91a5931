"""Search under a learned metric, the training rows in shards: a block of queries meets them all."""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from dask.delayed import Delayed, delayed

from plml.dask.cluster import Cluster
from plml.dask.sharded_neighbors import Near, nearest_of
from plml.dask.shards import Shard
from plml.dask.sums import stacked
from plml.dask.training_shards import RemoteRows, TrainingShards
from plml.metric.basis_metric import BasisMetric
from plml.metric.weight_rules import NewPoint, WeightRule
from plml.ops.topk import Measured, neighbor_order
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.search import LocalMetricIndex, index_vectors
from plml.stages.weights import NewPointRule

#: Queries that are searched together.
_QUERY_ROWS = 2**14
#: Shards whose answers are merged by one task.
_AT_ONCE = 8
#: Training rows whose squares are computed together.
_ROWS_AT_ONCE = 2**10


class Neighborhood(NamedTuple):
    """Near training rows of some queries, with what weights are made from."""

    near: Near
    weights: np.ndarray  # (q, k, m)
    scales: np.ndarray  # (q, k)


class Contenders(NamedTuple):
    """The nearest rows of some shards under the metrics of some queries."""

    distances: Measured
    rows: np.ndarray  # (q, k), in the order of the user
    codes: np.ndarray  # (q, k)


class Voters(NamedTuple):
    """The nearest of all rows, nearest first."""

    squared: np.ndarray  # (q, k)
    rows: np.ndarray
    codes: np.ndarray


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
        rows: Any = RemoteRows(training.n_rows)
        super().__init__(rows, weights, M, rule)
        self.training = training
        self._new_point = rule.rule if isinstance(rule, NewPoint) else None
        cluster = Cluster(training.running_client())
        with cluster.doing("queries"):
            self._M = cluster.put_rows(M)
            self._squares = [
                cluster.submit(training_squares, shard, self._M) for shard in training.shards
            ]

    def search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As in ``BasisMetric``; numbers are rows in the order of the user."""
        squared, rows, _ = self._voters(Q, k)
        return squared, rows

    def nearest_labels(self, Q: np.ndarray, k: int, labels: Any) -> np.ndarray:
        """As in ``BasisMetric``; the labels are those in the shards."""
        return self._voters(Q, k).codes

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
        n_near = 1 if self._new_point is None else self._new_point.n_near
        training = self.training
        look, merge, end = _delayed(neighborhood_in, merged_neighborhoods, weights_from)
        found = [
            look(Q, shard, weights, scales, n_near)
            for shard, weights, scales in zip(
                training.shards, training.weights, training.scales, strict=True
            )
        ]
        return end(Q, _few(found, lambda some: merge(some, n_near)), n_near, self._new_point)

    def delayed_voters(self, Q: Delayed, k: int) -> Delayed:
        """``Voters`` of a block of queries."""
        if k > len(self.X):
            raise ValueError(f"n_neighbors={k} is more than the {len(self.X)} training rows")
        W = self.delayed_weights(Q)
        look, merge, end = _delayed(contenders_in, merged_contenders, voters_among)
        found = [
            look(Q, W, shard, squares, self._M, k)
            for shard, squares in zip(self.training.shards, self._squares, strict=True)
        ]
        return end(_few(found, lambda some: merge(some, k)), k)

    def _voters(self, Q: np.ndarray | None, k: int) -> Voters:
        found = self._at_once(Q, lambda block: self.delayed_voters(block, k))
        return stacked(found)

    def _at_once(self, Q: np.ndarray | None, answer: Callable[[Delayed], Delayed]) -> list[Any]:
        client = self.training.running_client()
        Q = np.asarray(self.X if Q is None else Q)
        blocks = [Q[start : start + _QUERY_ROWS] for start in range(0, len(Q), _QUERY_ROWS)]
        return client.gather(client.compute([answer(delayed(b, pure=False)) for b in blocks]))


def _delayed(*functions: Callable[..., Any]) -> list[Callable[..., Delayed]]:
    return [delayed(function, pure=False) for function in functions]


def _few(parts: list[Delayed], merged: Callable[[list[Delayed]], Delayed]) -> list[Delayed]:
    """Merged a few at a time: what all shards say of some queries may be more than fits memory."""
    while len(parts) > _AT_ONCE:
        runs = [parts[start : start + _AT_ONCE] for start in range(0, len(parts), _AT_ONCE)]
        parts = [merged(run) for run in runs]
    return parts


def training_squares(shard: Shard, M: np.ndarray) -> np.ndarray:
    """x^T M_b x of a shard's rows about their mean, as ``LocalMetricIndex`` wants them."""
    center = shard.X.mean(axis=0, dtype=np.float64)
    M, d = M.astype(np.float64), shard.X.shape[1]
    blocks = np.array_split(shard.X, max(1, len(shard.X) // _ROWS_AT_ONCE))
    return np.concatenate([index_vectors(block - center, M)[:, d:] for block in blocks])


def neighborhood_in(
    Q: np.ndarray, shard: Shard, weights: np.ndarray, scales: np.ndarray, k: int
) -> Neighborhood:
    """Of the k nearest rows of a shard, fewer where it has fewer; equals by the user's order."""
    order = np.argsort(shard.rows)
    squared, at = euclidean_neighbors(shard.X[order], k, Q)
    numbers = order[at]
    near = Near(squared, numbers, shard.rows[numbers])
    return Neighborhood(near, weights[numbers], scales[numbers])


def merged_neighborhoods(found: list[Neighborhood], k: int) -> Neighborhood:
    """Of the k nearest rows of several shards."""
    widths = [part.near.squared.shape[1] for part in found]
    # Numbers into what the shards say, side by side.
    starts = np.cumsum([0, *widths])
    places = [
        part.near._replace(
            numbers=np.broadcast_to(start + np.arange(width), part.near.squared.shape)
        )
        for start, width, part in zip(starts[:-1], widths, found, strict=True)
    ]
    n_queries = len(found[0].scales)
    near = nearest_of(places, min(k, sum(widths)))
    chosen = np.arange(n_queries)[:, None], near.numbers
    weights, scales = (
        np.concatenate([getattr(part, name) for part in found], axis=1)[chosen]
        for name in ("weights", "scales")
    )
    return Neighborhood(near, weights, scales)


def weights_from(
    Q: np.ndarray, found: list[Neighborhood], k: int, rule: NewPointRule | None
) -> np.ndarray:
    """The weights of the nearest row, or those by the rule for new points."""
    near, weights, scales = merged_neighborhoods(found, k)
    if rule is None:
        return weights[:, 0]
    numbers = np.arange(scales.size).reshape(scales.shape)
    known = weights.reshape(-1, weights.shape[2]), scales.ravel()
    return rule.weights(Q, near.squared, numbers, *known)[0].astype(weights.dtype)


def contenders_in(
    Q: np.ndarray, W: np.ndarray, shard: Shard, squares: np.ndarray, M: np.ndarray, k: int
) -> Contenders:
    """The k nearest rows of a shard under the metrics of weights W."""
    order = np.argsort(shard.rows)
    index = LocalMetricIndex(shard.X[order], M, squares[order])
    _, at = index.search(Q, W, min(k, len(shard.X)))
    numbers = order[at]
    return Contenders(index.distances(Q, W, at), shard.rows[numbers], shard.codes[numbers])


def merged_contenders(found: list[Contenders], k: int) -> Contenders:
    """The k nearest of several shards, ordered as one index orders them."""
    distances = reduce(Measured.beside, (part.distances for part in found))
    rows, codes = (
        np.concatenate([getattr(part, name) for part in found], axis=1)
        for name in ("rows", "codes")
    )
    order = neighbor_order(distances, rows)[:, :k]
    rows, codes = (np.take_along_axis(part, order, axis=1) for part in (rows, codes))
    return Contenders(distances.take(order), rows, codes)


def voters_among(found: list[Contenders], k: int) -> Voters:
    """The k nearest of all shards."""
    nearest = merged_contenders(found, k)
    return Voters(nearest.distances.squared, nearest.rows, nearest.codes)
