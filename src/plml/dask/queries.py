"""Prediction over blocks of queries: the model is broadcast, the training side stays in shards."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed
from distributed import Client, Future, default_client

from plml.backend.arrays import is_collection
from plml.dask.data import row_blocks
from plml.dask.neighbors import Near, nearest_of
from plml.dask.shards import Shard
from plml.ops.topk import Measured, neighbor_order
from plml.stages.graph import SCALE_NEIGHBOR
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.search import LocalMetricIndex, index_vectors, vote
from plml.stages.weights import QueryWeightProblem, learn_query_weights, query_similarity
from plml.validation import column_names, positive_integer, query_data

#: Queries that are searched together.
_QUERY_ROWS = 2**14
#: Shards whose answers are merged by one task.
_AT_ONCE = 8
#: Training rows whose squares are computed together.
_ROWS_AT_ONCE = 2**10


class TrainingSide(NamedTuple):
    """The training data of a model, on the cluster."""

    shards: list[Future]  # of Shard
    weights: list[Future]  # (n_s, m)
    scales: list[Future]  # (n_s,)
    squares: list[Future]  # (n_s, m), x^T M_b x of the rows about their mean
    n_rows: int
    chunks: tuple[int, ...]  # rows of the blocks that the user gave


class Rule(NamedTuple):
    """What a query needs to know of the model; small."""

    M: np.ndarray
    anchors: np.ndarray
    classes: np.ndarray
    n_neighbors: int
    query_weights: str
    locality: float
    smoothness: float
    n_graph_neighbors: int
    tol: float
    max_iter: int

    @classmethod
    def of(cls, model: Any) -> "Rule":
        """From a fitted PLML."""
        parameters = {name: getattr(model, name) for name in cls._fields[3:]}
        return cls(model.basis_metrics_, model.anchors_, model.classes_, **parameters)


def training_squares(shard: Shard, M: np.ndarray) -> np.ndarray:
    """x^T M_b x of a shard's rows about their mean, as ``LocalMetricIndex`` wants them."""
    center = shard.X.mean(axis=0, dtype=np.float64)
    M, d = M.astype(np.float64), shard.X.shape[1]
    blocks = np.array_split(shard.X, max(1, len(shard.X) // _ROWS_AT_ONCE))
    return np.concatenate([index_vectors(block - center, M)[:, d:] for block in blocks])


class ShardedQueries:
    """The query methods of a model whose training data is in shards.

    Queries are NumPy arrays or data frames, answered by arrays; or Dask collections, answered by
    Dask arrays with the blocks of the queries.

    Parameters
    ----------
    model : fitted PLML
    side : its training data
    client : Client
    """

    def __init__(self, model: Any, side: TrainingSide, client: Client) -> None:
        self.model = model
        self.side = side
        self._client = client

    def client(self) -> Client:
        """That of the cluster that holds the training data."""
        if self._client.status != "running":
            raise RuntimeError(
                "the Dask cluster that held the training data of this model is gone; fit it again"
            )
        return self._client

    def predict(self, X: Any) -> Any:
        """As ``PLML.predict``."""
        k = self._k(None)
        classes = self.model.classes_
        return self._answer(
            X, lambda Q, rule: _predicted(*self._near(Q, rule, k), rule), classes.dtype
        )

    def predict_proba(self, X: Any) -> Any:
        """As ``PLML.predict_proba``."""
        k, width = self._k(None), len(self.model.classes_)
        return self._answer(X, lambda Q, rule: _shares(*self._near(Q, rule, k), rule), float, width)

    def kneighbors(self, X: Any, n_neighbors: int | None, return_distance: bool) -> Any:
        """As ``PLML.kneighbors``; indices are rows in the order of the user."""
        k = self._k(n_neighbors)
        found = self._answer(X, lambda Q, rule: _numbers(*self._near(Q, rule, k)), float, 2 * k)
        distances, indices = _cut_in_two(found, k)
        return (distances, indices) if return_distance else indices

    def local_weights(self, X: Any) -> Any:
        """As ``PLML.local_weights``."""
        width = len(self.model.basis_metrics_)
        return self._answer(X, self._weights, self.model.basis_metrics_.dtype, width)

    def _k(self, n_neighbors: int | None) -> int:
        k = _asked_for(self.model, n_neighbors)
        if k > self.side.n_rows:
            raise ValueError(f"n_neighbors={k} is more than the {self.side.n_rows} training rows")
        return k

    def _answer(
        self,
        X: Any,
        answer: Callable[[Delayed, Delayed], Delayed],
        dtype: Any,
        width: int | None = None,
    ) -> Any:
        rule = delayed(Rule.of(self.model), pure=False)
        client = self.client()
        if is_collection(X):
            if not _is_current(client):
                raise RuntimeError(
                    "the training data of this model is on the cluster of another client; make "
                    "it the current one (client.as_current()) where you compute this"
                )
            return over_blocks(self.model, X, lambda Q: answer(Q, rule), dtype, width)
        X = self.model._validate_on_host(X)
        parts = [
            answer(delayed(X[start : start + _QUERY_ROWS], pure=False), rule)
            for start in range(0, len(X), _QUERY_ROWS)
        ]
        return np.concatenate(client.gather(client.compute(parts)))

    def _weights(self, Q: Delayed, rule: Delayed) -> Delayed:
        side = self.side
        near = [
            _euclidean(Q, shard, weights, scales, rule)
            for shard, weights, scales in zip(side.shards, side.weights, side.scales, strict=True)
        ]
        return _weights_of(Q, _few(near, lambda some: _nearest_neighborhood(some, rule)), rule)

    def _near(self, Q: Delayed, rule: Delayed, k: int) -> tuple[list[Delayed], int]:
        W = self._weights(Q, rule)
        side = self.side
        found = [
            _local(Q, W, shard, squares, rule, k)
            for shard, squares in zip(side.shards, side.squares, strict=True)
        ]
        return _few(found, lambda some: _nearest_voters(some, k)), k


def _few(parts: list[Delayed], merged: Callable[[list[Delayed]], Delayed]) -> list[Delayed]:
    """Merged a few at a time: what all shards say of some queries may be more than fits memory."""
    while len(parts) > _AT_ONCE:
        runs = [parts[start : start + _AT_ONCE] for start in range(0, len(parts), _AT_ONCE)]
        parts = [merged(run) for run in runs]
    return parts


def _is_current(client: Client) -> bool:
    try:
        return default_client() is client
    except ValueError:  # there is none
        return False


class BlockQueries:
    """The query methods of a model on this machine for Dask collections: the model is broadcast.

    Parameters
    ----------
    model : fitted PLML
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._sent = delayed(model, pure=False)

    def predict(self, X: Any) -> Any:
        """As ``PLML.predict``."""
        return self._ask(X, self.model.classes_.dtype, None, "predict")

    def predict_proba(self, X: Any) -> Any:
        """As ``PLML.predict_proba``."""
        return self._ask(X, np.float64, len(self.model.classes_), "predict_proba")

    def kneighbors(self, X: Any, n_neighbors: int | None, return_distance: bool) -> Any:
        """As ``PLML.kneighbors``."""
        k = _asked_for(self.model, n_neighbors)
        if not return_distance:
            return self._ask(X, np.int64, k, "kneighbors", k, False)
        return _cut_in_two(self._ask(X, np.float64, 2 * k, "kneighbors", k), k)

    def local_weights(self, X: Any) -> Any:
        """As ``PLML.local_weights``."""
        width = len(self.model.basis_metrics_)
        return self._ask(X, self.model.weights_.dtype, width, "local_weights")

    def _ask(self, X: Any, dtype: Any, width: int | None, method: str, *arguments: Any) -> Any:
        def answer(Q: Delayed) -> Delayed:
            return _asked(self._sent, method, Q, *arguments)

        return over_blocks(self.model, X, answer, dtype, width)


def _asked_for(model: Any, n_neighbors: int | None) -> int:
    return positive_integer(
        "n_neighbors", model.n_neighbors if n_neighbors is None else n_neighbors
    )


@delayed(pure=False)
def _asked(model: Any, method: str, Q: np.ndarray, *arguments: Any) -> np.ndarray:
    names = getattr(model, "feature_names_in_", None)
    rows = Q if names is None else _named(Q, names)  # checked before, not to be complained of twice
    answer = getattr(model, method)(rows, *arguments)
    return np.concatenate(answer, axis=1) if isinstance(answer, tuple) else answer


def _named(Q: np.ndarray, names: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(Q, columns=names)


def _cut_in_two(found: Any, k: int) -> tuple[Any, Any]:
    """Distances and indices that came side by side."""
    return found[:, :k], found[:, k:].astype(np.int64)


def over_blocks(
    model: Any,
    X: Any,
    answer: Callable[[Delayed], Delayed],
    dtype: Any,
    width: int | None = None,
) -> Any:
    """A Dask array of answers, block by block of a Dask collection of queries."""
    names = column_names(X)
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got {X.ndim}")
    if X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input"
        )
    blocks = row_blocks(X)
    sizes = X.chunks[0] if names is None and hasattr(X, "chunks") else (np.nan,) * len(blocks)
    columns = delayed(_unfitted(model), pure=False)
    trailing = () if width is None else (width,)
    return da.concatenate(
        [
            da.from_delayed(
                _as_long(answer(_checked(block, columns)), _length(block)),
                (size, *trailing),
                dtype=dtype,
            )
            for block, size in zip(blocks, sizes, strict=True)
        ]
    )


def _unfitted(model: Any) -> Any:
    """An estimator that knows the columns of a model and nothing else of its fit.

    It is small, and what the checks of queries say is said of the estimator that the user knows.
    """
    estimator = type(model)(**model.get_params(deep=False))
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(estimator, name, getattr(model, name))
    return estimator


@delayed(pure=False)
def _checked(block: Any, columns: Any) -> np.ndarray:
    """A block without rows asks for one, and gets none of the answer."""
    if not len(block):
        return np.zeros((1, columns.n_features_in_))
    return query_data(columns, block)


@delayed(pure=False)
def _length(block: Any) -> int:
    return len(block)


@delayed(pure=False)
def _as_long(answer: np.ndarray, n_rows: int) -> np.ndarray:
    return answer[:n_rows]


class _Neighborhood(NamedTuple):
    """Near training rows of some queries in one shard, with what weights are made from."""

    near: Near
    weights: np.ndarray  # (q, k, m)
    scales: np.ndarray  # (q, k)


def _n_wanted(rule: Rule) -> int:
    """Neighbours that the weights of a query are made from."""
    if rule.query_weights == "nearest":
        return 1
    return max(rule.n_graph_neighbors, SCALE_NEIGHBOR)


@delayed(pure=False)
def _euclidean(
    Q: np.ndarray, shard: Shard, weights: np.ndarray, scales: np.ndarray, rule: Rule
) -> _Neighborhood:
    k = _n_wanted(rule)
    order = np.argsort(shard.rows)
    squared, at = euclidean_neighbors(shard.X[order], k, Q)
    numbers = order[at]
    return _Neighborhood(
        Near(squared, numbers, shard.rows[numbers]), weights[numbers], scales[numbers]
    )


def _nearest(found: list[_Neighborhood], rule: Rule) -> _Neighborhood:
    """Of several shards, the rows that matter."""
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
    near = nearest_of(places, min(_n_wanted(rule), sum(widths)), n_queries)
    chosen = np.arange(n_queries)[:, None], near.numbers
    weights, scales = (
        np.concatenate([getattr(part, name) for part in found], axis=1)[chosen]
        for name in ("weights", "scales")
    )
    return _Neighborhood(near, weights, scales)


_nearest_neighborhood = delayed(_nearest, pure=False)


@delayed(pure=False)
def _weights_of(Q: np.ndarray, found: list[_Neighborhood], rule: Rule) -> np.ndarray:
    """The weights of the queries: of the nearest training row, or by equation 4."""
    near, weights, scales = _nearest(found, rule)
    if rule.query_weights == "nearest":
        return weights[:, 0]
    problem = QueryWeightProblem(
        Q,
        rule.anchors,
        rule.locality,
        rule.smoothness,
        weights.reshape(-1, weights.shape[2]),
        query_similarity(
            near.squared,
            np.arange(scales.size).reshape(scales.shape),
            scales.ravel(),
            rule.n_graph_neighbors,
        ),
    )
    found_weights, _ = learn_query_weights(problem, rule.tol, rule.max_iter)
    return found_weights.astype(weights.dtype)


class _Voters(NamedTuple):
    """The nearest rows of a shard under the metrics of some queries."""

    distances: Measured
    rows: np.ndarray  # (q, k), in the order of the user
    codes: np.ndarray  # (q, k)


@delayed(pure=False)
def _local(
    Q: np.ndarray, W: np.ndarray, shard: Shard, squares: np.ndarray, rule: Rule, k: int
) -> _Voters:
    order = np.argsort(shard.rows)
    index = LocalMetricIndex(shard.X[order], rule.M, squares[order])
    _, at = index.search(Q, W, min(k, len(shard.X)))
    numbers = order[at]
    return _Voters(index.distances(Q, W, at), shard.rows[numbers], shard.codes[numbers])


def _merged(found: list[_Voters], k: int) -> _Voters:
    """The k nearest of several shards, ordered as one index orders them."""
    distances = functools.reduce(Measured.beside, (part.distances for part in found))
    rows, codes = (
        np.concatenate([getattr(part, name) for part in found], axis=1)
        for name in ("rows", "codes")
    )
    order = neighbor_order(distances, rows)[:, :k]
    rows, codes = (np.take_along_axis(part, order, axis=1) for part in (rows, codes))
    return _Voters(distances.take(order), rows, codes)


_nearest_voters = delayed(_merged, pure=False)


@delayed(pure=False)
def _predicted(found: list[_Voters], k: int, rule: Rule) -> np.ndarray:
    return rule.classes[vote(_merged(found, k).codes, len(rule.classes)).argmax(axis=1)]


@delayed(pure=False)
def _shares(found: list[_Voters], k: int, rule: Rule) -> np.ndarray:
    return vote(_merged(found, k).codes, len(rule.classes))


@delayed(pure=False)
def _numbers(found: list[_Voters], k: int) -> np.ndarray:
    """Distances and rows side by side."""
    near = _merged(found, k)
    return np.concatenate([np.sqrt(near.distances.squared), near.rows.astype(float)], axis=1)
