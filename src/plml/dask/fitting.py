"""``PLML`` on a Dask cluster: the stages in the order data flows."""

import warnings
from numbers import Integral
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import Future
from sklearn.utils import check_random_state

from plml.backend.arrays import is_collection
from plml.backend.progress import plan, work
from plml.dask.anchors import distributed_anchors
from plml.dask.cluster import Cluster, connected, offsets_of, pick
from plml.dask.data import Table, read_table
from plml.dask.dual import sharded_dual
from plml.dask.graph import build_graph, scales_of
from plml.dask.landmarks import (
    FEWEST_LANDMARKS,
    MOST_LANDMARKS,
    ExtensionRule,
    choose_landmarks,
    extended_weights,
)
from plml.dask.metrics import learn_metrics
from plml.dask.neighbors import Wanted, find_neighbors
from plml.dask.queries import ShardedQueries, TrainingSide, training_squares
from plml.dask.shards import FEWEST_ROWS, Shard, Shards, make_shards, n_shards_for
from plml.dask.weights import LearnedWeights, learn_weights
from plml.estimators._callbacks import begin_fit, end_fit, with_callbacks
from plml.estimators._fitted_state import refitted
from plml.estimators._large_margin import METRICS
from plml.estimators._smooth import WEIGHTS
from plml.solvers.problem import history_arrays
from plml.stages.approximate import APPROXIMATE_FROM, MOST_CLASSES
from plml.stages.graph import SCALE_NEIGHBOR
from plml.stages.metrics import Metrics

#: Rough shares of the time of a fit.
_SHARES = {
    "read": 1,
    "anchors": 2,
    "shards": 2,
    "neighbors": 5,
    "landmarks": 2,
    "stage-weights": 4,
    "stage-metrics": 10,
    "queries": 1,
}


@with_callbacks
def fit(
    model: Any,
    X: Any,
    y: Any,
    *,
    n_shards: int | None = None,
    n_landmarks: int | None = None,
) -> Any:
    """Fit a ``PLML`` to Dask collections, on the cluster of the current client.

    Where there is no client, a ``LocalCluster`` with a worker a core is started and kept.

    Parameters
    ----------
    model : PLML
    X : Dask array (n_samples, n_features) or data frame
    y : labels, a Dask array or series with the same blocks, or one label a row on this machine
    n_shards : pieces that the rows are sorted into; by default one a thread of the cluster, or as
        many as its memory asks for
    n_landmarks : rows that stage 1 is learned on; the weights of the others are those that a new
        point gets. By default all rows up to 262,144, and as many beyond.

    Returns
    -------
    model : its training data stays on the cluster; ``collect`` brings it here
    """
    model._validate_params()
    _check_parameters(model)
    _check_numbers(model, n_shards, n_landmarks)
    if not is_collection(X):
        raise ValueError(
            f"X is of type {type(X).__name__}; give a Dask array or data frame, or use model.fit "
            "for data on this machine"
        )
    cluster = Cluster(connected(model.n_jobs), model.working_memory)
    with refitted(model) as fitting, work(model.verbose):
        begin_fit(fitting, 2)
        _fit(cluster, fitting, X, y, n_shards, n_landmarks or MOST_LANDMARKS)
        end_fit(fitting)
    for trouble in model._troubles():
        warnings.warn(trouble, stacklevel=3)
    return model


def _check_parameters(model: Any) -> None:
    for name, value in (("solver", "auto"), ("device", "cpu"), ("search_backend", "exact")):
        if getattr(model, name) != value:
            raise ValueError(
                f"{name}={getattr(model, name)!r} is for one machine; on a Dask cluster use "
                f"{name}={value!r}"
            )


def _check_numbers(model: Any, n_shards: int | None, n_landmarks: int | None) -> None:
    fewest = {"n_shards": 1, "n_landmarks": 1 + _graph_neighbors(model)}
    for (name, least), value in zip(fewest.items(), (n_shards, n_landmarks), strict=True):
        is_number = isinstance(value, Integral) and not isinstance(value, bool)
        if value is not None and (not is_number or value < least):
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def _graph_neighbors(model: Any) -> int:
    """Of a row, for its edges and its scale."""
    return max(model.n_graph_neighbors, SCALE_NEIGHBOR)


def _fit(
    cluster: Cluster, model: Any, X: Any, y: Any, n_shards: int | None, n_landmarks: int
) -> None:
    plan(_SHARES)
    with cluster.doing("read"):
        table = read_table(cluster, X, y)
        _check_table(model, table)
    rng = check_random_state(model.random_state)
    with cluster.doing("anchors"):
        anchors = distributed_anchors(cluster, table, model.n_bases, rng)
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    with cluster.doing("shards"):
        n_shards = n_shards or n_shards_for(cluster, table, table.n_rows)
        n_shards = max(1, min(n_shards, table.n_rows // FEWEST_ROWS))
        shards = make_shards(cluster, table, n_shards, seed)
        table = table._replace(blocks=[])  # the rows are in the shards
    with cluster.doing("neighbors"):
        exact = _is_exact(model.neighbor_search, table)
        wanted = Wanted(_graph_neighbors(model), model.n_targets, model.n_impostors)
        found, recall = find_neighbors(cluster, shards, table.class_sizes, wanted, exact, seed)
        scales = scales_of(cluster, found)
    stage = _WeightsStage(cluster, model, table, anchors, exact, seed)
    if n_landmarks < table.n_rows:
        weights, its_recall = stage.on_landmarks(shards, n_landmarks)
        recall |= its_recall
    else:
        weights = stage.on_all_rows(shards, found, scales)
    with cluster.doing("stage-metrics", METRICS):
        penalties = model.regularization, model.pull
        dual = sharded_dual(cluster, shards, found, weights, *penalties, len(anchors))
        del found
        with model._stage(METRICS, model.tol) as callback:
            metrics = learn_metrics(
                dual,
                dtype=table.dtype,
                largest=table.largest,
                tol=model.tol,
                max_iter=model.max_iter,
                callback=callback,
            )
    with cluster.doing("queries"):
        _set_fitted(cluster, model, table, shards, scales, weights, metrics, anchors)
    model.neighbor_recall_ = recall


class _WeightsStage:
    """Stage 1 of a model, on all rows or on landmarks."""

    def __init__(
        self,
        cluster: Cluster,
        model: Any,
        table: Table,
        anchors: np.ndarray,
        exact: bool,
        seed: int,
    ) -> None:
        self.cluster = cluster
        self.model = model
        self.table = table
        self.anchors = anchors
        self.exact = exact
        self.seed = seed

    def on_all_rows(
        self, shards: Shards, found: list[Future], scales: list[Future]
    ) -> LearnedWeights:
        """The steps of one machine, with an exchange at the borders of the shards."""
        model = self.model
        with self.cluster.doing("neighbors"):
            graph = build_graph(self.cluster, shards, found, scales, model.n_graph_neighbors)
        stage = model._stage(WEIGHTS, model.tol)
        with self.cluster.doing("stage-weights", WEIGHTS), stage as callback:
            return learn_weights(
                self.cluster,
                shards,
                graph,
                self.anchors,
                model.locality,
                model.smoothness,
                dtype=self.table.dtype,
                tol=model.tol,
                max_iter=model.max_iter,
                callback=callback,
            )

    def on_landmarks(
        self, shards: Shards, n_landmarks: int
    ) -> tuple[LearnedWeights, dict[str, float]]:
        """The same on some of the rows, and the rule for new points on the others."""
        cluster, model = self.cluster, self.model
        with cluster.doing("landmarks"):
            n_shards = n_shards_for(cluster, self.table, n_landmarks, FEWEST_LANDMARKS)
            landmarks = choose_landmarks(cluster, shards, n_landmarks, n_shards, self.seed)
            found, _ = self._near(landmarks.shards)
            scales = scales_of(cluster, found)
            near, recall = self._near(shards, landmarks.shards)
        learned = self.on_all_rows(landmarks.shards, found, scales)
        with cluster.doing("landmarks"):
            rule = ExtensionRule(
                self.anchors,
                model.locality,
                model.smoothness,
                model.n_graph_neighbors,
                model.tol,
                model.max_iter,
            )
            parts = extended_weights(cluster, shards, landmarks, near, learned.parts, scales, rule)
        return learned._replace(parts=parts), {"landmarks": recall["graph"]}

    def _near(
        self, shards: Shards, among: Shards | None = None
    ) -> tuple[list[Future], dict[str, float]]:
        wanted = Wanted(_graph_neighbors(self.model), 0, 0)
        sizes = self.table.class_sizes
        return find_neighbors(self.cluster, shards, sizes, wanted, self.exact, self.seed, among)


def _check_table(model: Any, table: Table) -> None:
    if model.n_neighbors > table.n_rows:
        raise ValueError(
            f"n_neighbors={model.n_neighbors} is more than the {table.n_rows} training rows"
        )
    if table.class_sizes.max() < 2:
        raise ValueError(
            "every class has a single member, so no instance has a same-class neighbour to learn "
            "from; give at least one class two or more rows"
        )


def _is_exact(how: str, table: Table) -> bool:
    pays = table.n_rows >= APPROXIMATE_FROM and len(table.classes) <= MOST_CLASSES
    return how == "exact" or (how == "auto" and not pays)


def _set_fitted(
    cluster: Cluster,
    model: Any,
    table: Table,
    shards: Shards,
    scales: list[Future],
    weights: LearnedWeights,
    metrics: Metrics,
    anchors: np.ndarray,
) -> None:
    model._forget_copies()
    model.classes_ = table.classes
    model.n_features_in_ = table.n_features
    model.__dict__.pop("feature_names_in_", None)
    if table.names is not None:
        model.feature_names_in_ = table.names
    model.anchors_, model.basis_metrics_ = anchors, metrics.M
    model.objective_, model.dual_gap_ = metrics.objective, metrics.gap
    model.weights_gap_, model.weights_n_iter_ = weights.gap, weights.solution.n_iter
    model.n_iter_, model.search_recall_ = metrics.n_iter, 1.0
    model.converged_ = bool(metrics.gap <= model.tol and weights.gap <= model.tol)
    stages: dict[str, Any] = {"weights": weights.solution, "metrics": metrics}
    model._cut = [name for name, its in stages.items() if its.interrupted]
    model.history_ = {name: history_arrays(its.history) for name, its in stages.items()}
    M = cluster.put(metrics.M)
    squares = [cluster.submit(training_squares, part, M) for part in shards.parts]
    chunks = tuple(table.sizes)
    side = TrainingSide(shards.parts, weights.parts, scales, squares, shards.n_rows, chunks)
    model._sharded = ShardedQueries(model, side, cluster.client)
    model._class_sizes = table.class_sizes
    model._fit_X = model._fit_codes = model._scales = Elsewhere(shards.n_rows)
    model.weights_ = _in_user_order(cluster, side, len(anchors), table.dtype)


class Elsewhere:
    """Stands for training data that is on a cluster."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def __getitem__(self, rows: Any) -> Any:
        raise self._error()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._error()

    def __array_namespace__(self, *_: Any, **__: Any) -> Any:
        raise self._error()

    def _error(self) -> ValueError:
        return ValueError(
            "the training data of this model is on a Dask cluster; bring it here with "
            "plml.dask.collect(model)"
        )


def _in_user_order(cluster: Cluster, side: TrainingSide, m: int, dtype: Any) -> Any:
    """The weights as a Dask array with the blocks of the user's X."""
    offsets = offsets_of(side.chunks)
    cut = [
        delayed(_by_block, pure=False)(shard, weights, offsets)
        for shard, weights in zip(side.shards, side.weights, strict=True)
    ]
    # As a graph, because Delayed objects for all pairs of shards and blocks would take minutes.
    name = f"plml-weights-{uuid4().hex}"
    tasks: dict[Any, Any] = {}
    for b in range(len(side.chunks)):
        pieces = [(f"{name}-pick", s, b) for s in range(len(cut))]
        tasks |= {key: (pick, its.key, b) for key, its in zip(pieces, cut, strict=True)}
        tasks[name, b, 0] = (_sorted, pieces)
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=cut)
    return da.Array(graph, name, (side.chunks, (m,)), dtype=dtype)


def _by_block(
    shard: Shard, weights: np.ndarray, offsets: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    block = np.searchsorted(offsets, shard.rows, side="right") - 1
    chosen = [np.flatnonzero(block == b) for b in range(len(offsets) - 1)]
    return [(shard.rows[rows], weights[rows]) for rows in chosen]


def _sorted(pieces: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    rows, weights = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return weights[np.argsort(rows)]


def collect(model: Any) -> Any:
    """Bring the training data of a model from the cluster to this machine, in its order.

    Afterwards the model is as if it had been fitted here: it explains, plots, saves and serves.
    """
    sharded = getattr(model, "_sharded", None)
    if sharded is None:
        return model
    side: TrainingSide = sharded.side
    shards, weights, scales = sharded.client().gather((side.shards, side.weights, side.scales))
    order = np.argsort(np.concatenate([shard.rows for shard in shards]))
    here = {
        "_fit_X": np.concatenate([shard.X for shard in shards])[order],
        "_fit_codes": np.concatenate([shard.codes for shard in shards])[order],
        "weights_": np.concatenate(weights)[order],
        "_scales": np.concatenate(scales)[order],
    }
    # In one step: whoever predicts meanwhile asks the cluster or this machine.
    model.__dict__ = {k: v for k, v in vars(model).items() if k != "_sharded"} | here
    return model
