"""The training data of a fitted model, where it stays: in shards on a cluster."""

from contextlib import suppress
from dataclasses import dataclass
from operator import getitem
from typing import Any, NamedTuple
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Future, default_client

from plml.dask.cluster import offsets_of
from plml.dask.shards import Shard
from plml.dask.sums import stacked


class TrainingShards(NamedTuple):
    """Futures of all that is known of the training rows, one of each kind per shard."""

    client: Client
    shards: list[Future]  # of Shard
    weights: list[Future]  # (n_s, m)
    scales: list[Future]  # (n_s,)
    chunks: tuple[int, ...]  # rows of the blocks that the user gave

    @property
    def rows(self) -> Any:
        """What stands here for any array of them."""
        return RemoteRows(sum(self.chunks))

    def running_client(self) -> Client:
        """That of the cluster that holds the data."""
        if self.client.status != "running":
            raise RuntimeError(
                "the Dask cluster that held the training data of this model is gone; fit it again"
            )
        return self.client

    def check_current(self) -> None:
        """A ``RuntimeError`` where what is computed later would go to another cluster."""
        own = self.running_client()
        with suppress(ValueError):  # there is none
            if default_client() is own:
                return
        raise RuntimeError(
            "the training data of this model is on the cluster of another client; make "
            "it the current one (client.as_current()) where you compute this"
        )

    def collected(self) -> tuple[np.ndarray, ...]:
        """Rows, class numbers, weights and scales on this machine, in the order of the user."""
        client = self.running_client()
        shards, weights, scales = client.gather((self.shards, self.weights, self.scales))
        whole: Shard = stacked(shards)
        parts = whole.X, whole.codes, np.concatenate(weights), np.concatenate(scales)
        order = np.argsort(whole.rows)
        return tuple(part[order] for part in parts)

    def weights_in_order(self, n_bases: int, dtype: np.dtype) -> da.Array:
        """The weights as a Dask array with the blocks of the user's X."""
        offsets = offsets_of(self.chunks)
        cut = [
            delayed(cut_by_block, pure=False)(shard, weights, offsets)
            for shard, weights in zip(self.shards, self.weights, strict=True)
        ]
        # As a graph, because Delayed objects for all pairs of shards and blocks would take minutes.
        name = f"plml-weights-{uuid4().hex}"
        tasks: dict[Any, Any] = {}
        for b in range(len(self.chunks)):
            pieces = [(f"{name}-pick", s, b) for s in range(len(cut))]
            tasks |= {key: (getitem, shard.key, b) for key, shard in zip(pieces, cut, strict=True)}
            tasks[name, b, 0] = (sorted_by_row, pieces)
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=cut)
        return da.Array(graph, name, (self.chunks, (n_bases,)), dtype=dtype)


def cut_by_block(
    shard: Shard, weights: np.ndarray, offsets: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of a shard and their weights, for every block of the user."""
    block = np.searchsorted(offsets, shard.rows, side="right") - 1
    chosen = [np.flatnonzero(block == b) for b in range(len(offsets) - 1)]
    return [(shard.rows[rows], weights[rows]) for rows in chosen]


def sorted_by_row(pieces: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The weights of all pieces, in the order of the rows."""
    rows, weights = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return weights[np.argsort(rows)]


@dataclass(frozen=True)
class RemoteRows:
    """Stands for an array of training rows on a cluster: of it, only the length is here."""

    n_rows: int

    def __len__(self) -> int:
        return self.n_rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ValueError(
            "the training data of this model is on a Dask cluster; bring it here with "
            "plml.dask.collect(model)"
        )

    __getitem__ = __array__ = __array_namespace__ = _refuse
