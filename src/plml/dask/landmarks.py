"""Stage 1 on landmarks: weights are learned on some of the rows and extended to the others.

The extension is the rule for new points: equation 4 of a row alone, the weights of the landmarks
around it given. Stage 1 then takes the memory of the landmarks, however many rows there are.
"""

from typing import NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cluster import Cluster, offsets_of
from plml.dask.sharded_neighbors import NeighborLists
from plml.dask.shards import Shard, Shards, laid_out, some_numbers
from plml.dask.sums import rows_of, stacked
from plml.stages.weights import NewPointRule

#: As many as there are rows, up to this.
MOST_LANDMARKS = 2**18
#: In a shard: below, a search takes less time than its messages.
FEWEST_LANDMARKS = 2**12


class Landmarks(NamedTuple):
    """Some rows as shards of their own; where they were among all rows."""

    shards: Shards
    chosen: list[Future]  # rows of every shard of all rows that are landmarks, increasing
    offsets: np.ndarray  # their numbers among the landmarks: those of shard s start at offsets[s]


def choose_landmarks(
    cluster: Cluster, shards: Shards, n_landmarks: int, n_shards: int, seed: int
) -> Landmarks:
    """An even sample of every shard, in fewer shards: runs of the shards of all rows.

    Classes do not matter to stage 1, so landmarks have none.
    """
    shares = [int(np.ceil(size * (n_landmarks / shards.n_rows))) for size in shards.sizes]
    seeds = np.random.default_rng(seed).integers(2**31, size=len(shards)).tolist()
    chosen = cluster.map(some_numbers, shards.sizes, shares, seeds)
    pieces = cluster.map(_landmarks_of, shards.parts, chosen)
    run_of = np.arange(len(shards)) * min(n_shards, len(shards)) // len(shards)
    runs = [np.flatnonzero(run_of == run) for run in range(run_of[-1] + 1)]
    workers = [shards.workers[run[0]] for run in runs]
    parts = [
        cluster.submit(stacked, [pieces[s] for s in run], on=worker)
        for run, worker in zip(runs, workers, strict=True)
    ]
    quantizer = shards.quantizer
    quantizer = quantizer._replace(shard_of_cell=run_of[quantizer.shard_of_cell])
    return Landmarks(laid_out(cluster, parts, workers, quantizer), chosen, offsets_of(shares))


def _landmarks_of(shard: Shard, chosen: np.ndarray) -> Shard:
    some = rows_of(shard, chosen)
    return some._replace(codes=np.zeros_like(some.codes))


def extended_weights(
    shard: Shard,
    found: NeighborLists,
    chosen: np.ndarray,
    first: int,
    weights: np.ndarray,
    scales: np.ndarray,
    rule: NewPointRule,
) -> np.ndarray:
    """Weights of a shard's rows: those learned where rows are landmarks, the rule elsewhere.

    Parameters
    ----------
    found : the rows' neighbours among the landmarks
    chosen : numbers of the rows that are landmarks
    first : number of the first of these among all landmarks
    weights, scales : (n_landmarks, m) and (n_landmarks,) arrays
    rule : of new points
    """
    W = np.empty((len(shard.X), weights.shape[1]), dtype=weights.dtype)
    W[chosen] = weights[first : first + len(chosen)]
    others = np.delete(np.arange(len(shard.X)), chosen)
    if len(others):
        near = found.squared[others], found.graph[others]
        W[others] = rule.weights(shard.X[others], *near, weights, scales)[0]
    return W
