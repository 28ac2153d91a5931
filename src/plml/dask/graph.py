"""The similarity graph across shards: every shard holds its rows of the Laplacian."""

from typing import NamedTuple

import numpy as np
from distributed import Future
from scipy import sparse

from plml.dask.cluster import Cluster, pick
from plml.dask.halo import Halo, local_numbers, outside, plan_halo
from plml.dask.neighbors import Found
from plml.dask.shards import Shards
from plml.stages.graph import local_scales, self_tuning_similarity


class Edges(NamedTuple):
    """Edges from rows of one shard to rows of another (or the same)."""

    tail: np.ndarray  # numbers in the order of the fit
    head: np.ndarray
    squared: np.ndarray
    tail_scale: np.ndarray


class Similar(NamedTuple):
    """The same edges with their similarities."""

    tail: np.ndarray
    head: np.ndarray
    similarity: np.ndarray


class SimilarityRows(NamedTuple):
    """A shard's rows of S, columns in the order of the fit, and the columns outside."""

    row: np.ndarray
    column: np.ndarray
    similarity: np.ndarray
    outside: np.ndarray


class Graph(NamedTuple):
    """L by shard: (own rows, own rows and halo) sparse arrays."""

    laplacians: list[Future]
    halo: Halo


def build_graph(
    cluster: Cluster,
    shards: Shards,
    found: list[Future],
    scales: list[Future],
    n_graph_neighbors: int,
) -> Graph:
    """The union of the k-NN graph; an edge is handed to the shards of both its ends."""
    n, offsets = len(shards), shards.offsets
    edges = [
        cluster.submit(_edges, its, scales[s], offsets, s, n_graph_neighbors)
        for s, its in enumerate(found)
    ]
    reached = cluster.gather([cluster.submit(_shards_reached, its) for its in edges])
    out: list[list[Future]] = [[] for _ in range(n)]
    into: list[list[Future]] = [[] for _ in range(n)]
    for s, numbers in enumerate(reached):
        for r in numbers:
            some = cluster.submit(pick, edges[s], r)
            similar = cluster.submit(_similarities, some, scales[r], int(offsets[r]))
            out[s].append(similar)
            into[r].append(similar)
    rows = [cluster.submit(_joined, out[s], into[s], _range(shards, s)) for s in range(n)]
    halo = plan_halo(cluster, shards, [cluster.submit(_outside, its) for its in rows])
    laplacians = [
        cluster.submit(_laplacian, its, halo.numbers[s], _range(shards, s))
        for s, its in enumerate(rows)
    ]
    return Graph(laplacians, halo)


def scales_of(cluster: Cluster, found: list[Future]) -> list[Future]:
    """Local scales of the rows of every shard."""
    return [cluster.submit(_scales, its) for its in found]


def _range(shards: Shards, s: int) -> tuple[int, int]:
    return int(shards.offsets[s]), int(shards.offsets[s + 1])


def _scales(found: Found) -> np.ndarray:
    return local_scales(found.squared)


def _edges(
    found: Found, scales: np.ndarray, offsets: np.ndarray, s: int, n_graph_neighbors: int
) -> list[Edges]:
    """The edges that a shard's rows have found, by the shard of their other end."""
    k = min(n_graph_neighbors, found.graph.shape[1])
    head, squared = found.graph[:, :k].ravel(), found.squared[:, :k].ravel()
    tail = np.repeat(np.arange(len(scales)), k)
    shard = np.searchsorted(offsets, head, side="right") - 1
    pieces = []
    for r in range(len(offsets) - 1):
        there = np.flatnonzero(shard == r)
        tails = tail[there]
        pieces.append(Edges(offsets[s] + tails, head[there], squared[there], scales[tails]))
    return pieces


def _shards_reached(edges: list[Edges]) -> list[int]:
    return [r for r, part in enumerate(edges) if len(part.tail)]


def _similarities(edges: Edges, head_scales: np.ndarray, offset: int) -> Similar:
    """S_ij, where the scales of the heads are."""
    head_scale = head_scales[edges.head - offset]
    similarity = self_tuning_similarity(edges.squared, edges.tail_scale, head_scale)
    return Similar(edges.tail, edges.head, similarity)


def _joined(out: list[Similar], into: list[Similar], own: tuple[int, int]) -> SimilarityRows:
    """Rows of S = max(S, S^T): what a shard found, and what others found of it."""
    first, last = own
    row = np.concatenate([*(e.tail for e in out), *(e.head for e in into)]) - first
    column = np.concatenate([*(e.head for e in out), *(e.tail for e in into)])
    similarity = np.concatenate([e.similarity for e in (*out, *into)])
    order = np.lexsort((-similarity, column, row))
    row, column, similarity = row[order], column[order], similarity[order]
    # The largest of an edge's values comes first; edges of no weight are none.
    is_first = np.ones(len(row), dtype=bool)
    is_first[1:] = (np.diff(row) != 0) | (np.diff(column) != 0)
    keep = is_first & (similarity != 0)
    row, column, similarity = row[keep], column[keep], similarity[keep]
    return SimilarityRows(row, column, similarity, outside(column, first, last))


def _outside(rows: SimilarityRows) -> np.ndarray:
    return rows.outside


def _laplacian(rows: SimilarityRows, halo: np.ndarray, own: tuple[int, int]) -> sparse.csr_array:
    """Rows of L = D - S, the shard's own columns first."""
    first, last = own
    n = last - first
    degrees = np.bincount(rows.row, rows.similarity, n)
    columns = local_numbers(rows.column, first, last, halo)
    diagonal = np.arange(n)
    entries = np.concatenate([-rows.similarity, degrees])
    where = np.concatenate([rows.row, diagonal]), np.concatenate([columns, diagonal])
    return sparse.csr_array((entries, where), shape=(n, n + len(halo)))
