"""Stage 1 on landmarks: weights are learned on some of the rows and extended to the others.

The extension is the rule for new points: equation 4 of a row alone, the weights of the landmarks
around it given. What an iteration moves then depends on the landmarks, not on the rows.
"""

from typing import NamedTuple

import numpy as np
from distributed import Future

from plml.dask.cluster import Cluster, offsets_of
from plml.dask.halo import collected, plan_halo
from plml.dask.neighbors import Found
from plml.dask.samples import some_rows
from plml.dask.shards import Shard, Shards, joined, laid_out
from plml.stages.weights import QueryWeightProblem, learn_weights, query_similarity

#: As many as there are rows, up to this.
MOST_LANDMARKS = 2**18
#: In a shard: below, an iteration takes less time than its messages.
FEWEST_LANDMARKS = 2**12


class Landmarks(NamedTuple):
    """Some rows as shards of their own; where they were among all rows."""

    shards: Shards
    chosen: list[Future]  # rows of every shard of all rows that are landmarks, increasing
    offsets: np.ndarray  # their numbers among the landmarks: those of shard s start at offsets[s]


class ExtensionRule(NamedTuple):
    """Equation 4 for one row."""

    anchors: np.ndarray
    locality: float
    smoothness: float
    n_graph_neighbors: int
    tol: float
    max_iter: int


def choose_landmarks(
    cluster: Cluster, shards: Shards, n_landmarks: int, n_shards: int, seed: int
) -> Landmarks:
    """An even sample of every shard, in fewer shards: runs of the shards of all rows.

    Classes do not matter to stage 1, so landmarks have none.
    """
    rng = np.random.default_rng(seed)
    sizes = np.diff(shards.offsets)
    shares = np.ceil(sizes * (n_landmarks / shards.n_rows)).astype(np.int64)
    chosen = [
        cluster.submit(some_rows, int(size), int(share), int(rng.integers(2**31)))
        for size, share in zip(sizes, shares, strict=True)
    ]
    pieces = [
        cluster.submit(_landmarks_of, part, rows)
        for part, rows in zip(shards.parts, chosen, strict=True)
    ]
    run_of = np.arange(len(shards)) * min(n_shards, len(shards)) // len(shards)
    runs = [np.flatnonzero(run_of == run) for run in range(run_of[-1] + 1)]
    workers = [shards.workers[run[0]] for run in runs]
    parts = [
        cluster.submit(joined, [pieces[s] for s in run], on=worker)
        for run, worker in zip(runs, workers, strict=True)
    ]
    few = laid_out(
        cluster, parts, workers, shards.centers, run_of[shards.shard_of_cell], shards.scaling
    )
    return Landmarks(few, chosen, offsets_of(shares.tolist()))


def _landmarks_of(shard: Shard, chosen: np.ndarray) -> Shard:
    some = Shard(*(part[chosen] for part in shard))
    return some._replace(codes=np.zeros_like(some.codes))


def extended_weights(
    cluster: Cluster,
    shards: Shards,
    landmarks: Landmarks,
    near: list[Future],
    weights: list[Future],
    scales: list[Future],
    rule: ExtensionRule,
) -> list[Future]:
    """Weights of all rows.

    Parameters
    ----------
    near : ``Found`` of every shard's rows among the landmarks
    weights, scales : of the landmarks' shards
    rule : ExtensionRule
    """
    known = cluster.put(rule)
    ranges = list(zip(landmarks.offsets[:-1].tolist(), landmarks.offsets[1:].tolist(), strict=True))
    numbers = [cluster.submit(_used, its, *own) for its, own in zip(near, ranges, strict=True)]
    halo = plan_halo(cluster, landmarks.shards, numbers)
    return [
        cluster.submit(
            _extended,
            part,
            near[s],
            (landmarks.chosen[s], ranges[s][0]),
            numbers[s],
            collected(cluster, halo, weights, s),
            collected(cluster, halo, scales, s),
            known,
        )
        for s, part in enumerate(shards.parts)
    ]


def _used(found: Found, first: int, last: int) -> np.ndarray:
    """The landmarks that a shard's rows are near to, and its own."""
    return np.unique(np.concatenate([found.graph.ravel(), np.arange(first, last)]))


def _extended(
    shard: Shard,
    found: Found,
    own: tuple[np.ndarray, int],
    numbers: np.ndarray,
    weights: list[np.ndarray],
    scales: list[np.ndarray],
    rule: ExtensionRule,
) -> np.ndarray:
    """What was learned where rows are landmarks, the rule elsewhere."""
    learned, its_scales = np.concatenate(weights), np.concatenate(scales)
    chosen, first = own
    others = np.delete(np.arange(len(shard.X)), chosen)
    W = np.empty((len(shard.X), learned.shape[1]), dtype=learned.dtype)
    W[chosen] = learned[np.searchsorted(numbers, first + np.arange(len(chosen)))]
    if not len(others):
        return W
    neighbors = np.searchsorted(numbers, found.graph[others])
    problem = QueryWeightProblem(
        shard.X[others],
        rule.anchors,
        rule.locality,
        rule.smoothness,
        learned,
        query_similarity(found.squared[others], neighbors, its_scales, rule.n_graph_neighbors),
    )
    W[others] = learn_weights(problem, solver="auto", tol=rule.tol, max_iter=rule.max_iter).x
    return W
