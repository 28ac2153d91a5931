"""A fit on a Dask cluster: read, sort into shards, and the pipeline over them."""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import is_collection
from plml.backend.progress import stage
from plml.dask.cluster import Cluster, connected
from plml.dask.landmarks import MOST_LANDMARKS
from plml.dask.reading import Table, read_table
from plml.dask.sharded_stages import ShardedStages, seed_of
from plml.dask.shards import Shard, Shards, make_shards
from plml.dask.training_shards import TrainingShards
from plml.stages.approximate import APPROXIMATE_FROM, MOST_CLASSES
from plml.stages.graph import n_nearest
from plml.stages.pipeline import Learned, Settings, SmoothWeighting, in_units, learn
from plml.stages.run import Run
from plml.stages.triplets import check_class_sizes

#: Rough shares of the time of a fit.
_SHARES = {"read": 1, "shards": 2, "unit": 0.1, "pipeline": 20}


class ShardedFit(NamedTuple):
    """The outcome of the pipeline, and where its training data is."""

    learned: Learned  # its weights a Dask array in the order of the user, its scales remote
    table: Table  # what is known of all rows; the blocks themselves are gone
    training: TrainingShards
    unit: float  # the length that the parameters call one


def fit_on_cluster(
    X: Any,
    y: Any,
    weighting: SmoothWeighting,
    settings: Settings,
    run: Run,
    *,
    rescale: bool = False,
    neighbor_search: str = "auto",
    n_neighbors: int = 1,
    n_shards: int | None = None,
    n_landmarks: int | None = None,
) -> ShardedFit:
    """The pipeline on Dask collections, on the cluster of the current client.

    Parameters
    ----------
    X, y, n_shards, n_landmarks : as in ``plml.dask.fit``
    weighting, settings, run : of the pipeline
    rescale : whether the parameters are about rows whose mean squared distance to the mean is one
    neighbor_search : {"auto", "exact", "approximate"}
    n_neighbors : that will vote; there must be as many rows
    """
    _check_collection(X)
    _check_count("n_shards", n_shards, 1)
    _check_count("n_landmarks", n_landmarks, 1 + n_nearest(weighting.n_graph_neighbors))
    cluster, seed = Cluster(connected(run.n_jobs), run.memory), seed_of(weighting.random_state)
    with run.shown():
        run.plan(_SHARES)
        table, shards = _sorted_rows(cluster, X, y, n_neighbors, n_shards, seed)
        with cluster.doing("unit"):
            unit = _mean_radius(cluster, table, shards) if rescale else 1.0
        stages = ShardedStages(
            cluster,
            table,
            shards,
            exact=searches_exactly(neighbor_search, table.n_rows, len(table.classes)),
            n_targets=settings.n_targets,
            n_impostors=settings.n_impostors,
            n_landmarks=n_landmarks or MOST_LANDMARKS,
            seed=seed,
        )
        with stage("pipeline", named=False):
            learned = learn(stages, *in_units(weighting, settings, unit), run)
    return _left_there(cluster, table, shards, learned, unit)


def _sorted_rows(
    cluster: Cluster, X: Any, y: Any, n_neighbors: int, n_shards: int | None, seed: int
) -> tuple[Table, Shards]:
    """What is known of all rows, and the rows in their shards alone."""
    with cluster.doing("read"):
        table = read_table(cluster, X, y)
        if n_neighbors > table.n_rows:
            raise ValueError(
                f"n_neighbors={n_neighbors} is more than the {table.n_rows} training rows"
            )
        check_class_sizes(table.class_sizes)
    with cluster.doing("shards"):
        shards = make_shards(cluster, table, n_shards, seed)
    return table._replace(blocks=[]), shards


def _mean_radius(cluster: Cluster, table: Table, shards: Shards) -> float:
    """As ``plml.ops.distances.mean_radius``, of the rows of all shards."""
    largest = table.largest or 1.0
    parts = cluster.map(squares_about, shards.parts, known=(table.mean, largest))
    return largest * float(sum(cluster.gather(parts)) / table.n_rows) ** 0.5 or 1.0


def squares_about(shard: Shard, mean: np.ndarray, unit: float) -> float:
    """The sum of the squares of a shard's rows about a point, in some unit of length."""
    return float(np.sum(((shard.X - mean) / unit) ** 2))


def _left_there(
    cluster: Cluster, table: Table, shards: Shards, learned: Learned, unit: float
) -> ShardedFit:
    """What was learned, for a model whose training data stays on the cluster."""
    weights, metrics, recall = learned
    training = TrainingShards(
        cluster.client, shards.parts, weights.weights, weights.scales, tuple(table.sizes)
    )
    in_order = training.weights_in_order(len(weights.anchors), table.dtype)
    weights = weights._replace(weights=in_order, scales=training.rows)
    metrics = metrics._replace(gamma=None)  # no longer needed on the cluster
    return ShardedFit(Learned(weights, metrics, recall), table, training, unit)


def _check_collection(X: Any) -> None:
    if not is_collection(X):
        raise ValueError(
            f"X is of type {type(X).__name__}; give a Dask array or data frame, or use model.fit "
            "for data on this machine"
        )


def _check_count(name: str, value: Any, least: int) -> None:
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and (not is_number or value < least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def searches_exactly(how: str, n_rows: int, n_classes: int) -> bool:
    """Whether all cells are searched for neighbours."""
    pays = n_rows >= APPROXIMATE_FROM and n_classes <= MOST_CLASSES
    return how == "exact" or (how == "auto" and not pays)
