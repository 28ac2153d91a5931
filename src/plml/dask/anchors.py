"""Anchor points: k-means with the rows where they are, as scikit-learn's ``KMeans`` does it."""

import hashlib
from typing import NamedTuple

import numpy as np
from distributed import Future
from sklearn.utils import check_random_state

from plml.dask.cluster import Cluster, offsets_of
from plml.dask.data import Block, Table
from plml.dask.samples import shares_of, some_rows
from plml.stages.anchors import (
    MAX_ITER,
    TOLERANCE,
    cluster_sums,
    moved_centers,
    squared_distances_to,
    trials_a_center,
)

#: Rows that are clustered at the most, and their share of what tasks may take; beyond, a sample.
MOST_ROWS = 2**18
_SHARE_OF_MEMORY = 0.1


def distributed_anchors(
    cluster: Cluster,
    table: Table,
    n_bases: int,
    random_state: int | np.random.RandomState | None,
) -> np.ndarray:
    """U, the means of at most ``n_bases`` clusters, none of them empty.

    Where all rows are clustered, these are the anchors of a fit on one machine, to rounding.
    """
    rng = check_random_state(random_state)
    blocks, sizes = _sampled(cluster, table, rng)
    n_clusters = min(n_bases, sum(sizes))
    centers = _spread_out(cluster, blocks, sizes, n_clusters, rng)
    mean = sum(cluster.gather([cluster.submit(_total, block) for block in blocks])) / sum(sizes)
    spread = sum(cluster.gather([cluster.submit(_scatter, block, mean) for block in blocks]))
    enough = TOLERANCE * float(np.mean(spread / sum(sizes)))
    centers, counts = _lloyd(cluster, blocks, centers, enough)
    return centers[counts > 0].astype(table.dtype)


def _sampled(
    cluster: Cluster, table: Table, rng: np.random.RandomState
) -> tuple[list[Future], list[int]]:
    """Blocks of float64 rows: all, or a random sample, in the order of the rows."""
    row_bytes = table.n_features * np.dtype(np.float64).itemsize
    most = int(min(MOST_ROWS, _SHARE_OF_MEMORY * cluster.memory() / row_bytes))
    sizes = list(table.sizes)
    seeds: list[int] | list[None] = [None] * len(sizes)
    if table.n_rows > most:
        sizes, seeds = shares_of(table.sizes, most, np.random.default_rng(rng.randint(2**31)))
    blocks = [
        cluster.submit(_rows, block, size, seed)
        for block, size, seed in zip(table.blocks, sizes, seeds, strict=True)
    ]
    filled = [number for number, size in enumerate(sizes) if size]
    # A block a thread: every iteration sends a message to each.
    runs = np.array_split(np.array(filled), min(len(filled), len(cluster.workers())))
    joined = [cluster.submit(_joined, [blocks[b] for b in run]) for run in runs]
    return joined, [sum(sizes[b] for b in run) for run in runs]


def _rows(block: Block, size: int, seed: int | None) -> np.ndarray:
    """All of a block's rows, or some."""
    X = block.X if seed is None else block.X[some_rows(len(block.X), size, seed)]
    return X.astype(np.float64)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts)


def _total(X: np.ndarray) -> np.ndarray:
    return X.sum(axis=0)


def _scatter(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return np.square(X - mean).sum(axis=0)


def _spread_out(
    cluster: Cluster,
    blocks: list[Future],
    sizes: list[int],
    n_clusters: int,
    rng: np.random.RandomState,
) -> np.ndarray:
    """The greedy k-means++ start, with the random numbers in scikit-learn's order."""
    n, starts = sum(sizes), offsets_of(sizes)
    first = int(rng.choice(n, p=np.full(n, 1.0 / n)))
    number = int(np.searchsorted(starts, first, side="right")) - 1
    centers = [cluster.gather(cluster.submit(_row, blocks[number], first - starts[number]))]
    closest = [cluster.submit(_distances, block, centers[0]) for block in blocks]
    for _ in range(1, n_clusters):
        sums = cluster.gather([cluster.submit(np.sum, part) for part in closest])
        potential = float(sum(sums))
        targets = rng.uniform(size=trials_a_center(n_clusters)) * potential
        trials = cluster.put(_found(cluster, blocks, closest, np.asarray(sums), targets))
        shrunk = [
            cluster.submit(_shrunk, block, part, trials)
            for block, part in zip(blocks, closest, strict=True)
        ]
        best = int(
            sum(cluster.gather([cluster.submit(_potentials, part) for part in shrunk])).argmin()
        )
        centers.append(cluster.gather(cluster.submit(_row, trials, best)))
        closest = [cluster.submit(_column, part, best) for part in shrunk]
    return np.array(centers)


def _found(
    cluster: Cluster,
    blocks: list[Future],
    closest: list[Future],
    sums: np.ndarray,
    targets: np.ndarray,
) -> np.ndarray:
    """The rows at which the running sum of ``closest`` reaches the targets."""
    ends = np.cumsum(sums)
    numbers = np.minimum(np.searchsorted(ends, targets), len(ends) - 1)
    rows = [
        cluster.submit(_at, blocks[b], closest[b], target - (ends[b] - sums[b]))
        for b, target in zip(numbers, targets, strict=True)
    ]
    return np.array(cluster.gather(rows))


def _at(X: np.ndarray, closest: np.ndarray, target: float) -> np.ndarray:
    return X[min(int(np.searchsorted(np.cumsum(closest), target)), len(X) - 1)]


def _row(X: np.ndarray, number: int) -> np.ndarray:
    return X[number]


def _column(part: np.ndarray, number: int) -> np.ndarray:
    return part[:, number].copy()


def _distances(X: np.ndarray, center: np.ndarray) -> np.ndarray:
    return squared_distances_to(X, center[None])[:, 0]


def _shrunk(X: np.ndarray, closest: np.ndarray, trials: np.ndarray) -> np.ndarray:
    return np.minimum(closest[:, None], squared_distances_to(X, trials))


def _potentials(part: np.ndarray) -> np.ndarray:
    return part.sum(axis=0)


class _Sums(NamedTuple):
    """What a block says of centres."""

    counts: np.ndarray
    sums: np.ndarray
    labels: str  # a digest: it changes where some row changes its cluster


def _lloyd(
    cluster: Cluster, blocks: list[Future], centers: np.ndarray, enough: float
) -> tuple[np.ndarray, np.ndarray]:
    """Centres and the rows of each, stopped as scikit-learn's ``KMeans`` stops."""
    labels: list[str] = []
    for _ in range(MAX_ITER):
        counts, sums, new_labels = _assigned(cluster, blocks, centers)
        if new_labels == labels:
            break
        labels = new_labels
        centers, shift = moved_centers(centers, counts, sums)
        if shift <= enough:
            counts, _, _ = _assigned(cluster, blocks, centers)
            break
    return centers, counts[:, 0]


def _assigned(
    cluster: Cluster, blocks: list[Future], centers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    parts = cluster.gather([cluster.submit(_assign, block, centers) for block in blocks])
    counts, sums, labels = zip(*parts, strict=True)
    return np.sum(counts, axis=0), np.sum(sums, axis=0), list(labels)


def _assign(X: np.ndarray, centers: np.ndarray) -> _Sums:
    labels, counts, sums = cluster_sums(X, centers)
    return _Sums(counts, sums, hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest())
