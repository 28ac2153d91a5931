"""A fit on a Dask cluster: read, sort into shards, and the pipeline over them."""

from numbers import Integral
from typing import Any, NamedTuple

from plml.backend.arrays import is_collection
from plml.backend.progress import stage
from plml.dask.cluster import Cluster, connected
from plml.dask.landmarks import MOST_LANDMARKS
from plml.dask.sharded_stages import ShardedStages, seed_of
from plml.dask.shards import FEWEST_ROWS, make_shards, n_shards_for
from plml.dask.training_blocks import TrainingBlocks, read_table
from plml.dask.training_shards import RemoteRows, TrainingShards
from plml.stages.approximate import APPROXIMATE_FROM, MOST_CLASSES
from plml.stages.graph import n_nearest
from plml.stages.pipeline import Learned, Settings, SmoothWeighting, learn
from plml.stages.run import Run
from plml.stages.triplets import check_class_sizes

#: Rough shares of the time of a fit.
_SHARES = {"read": 1, "shards": 2, "pipeline": 20}


class ShardedFit(NamedTuple):
    """The outcome of the pipeline, and where its training data is."""

    learned: Learned  # its weights a Dask array in the order of the user, its scales remote
    rows: Any  # RemoteRows, for any array of the training rows
    table: TrainingBlocks  # what is known of all rows; the blocks themselves are gone
    training: TrainingShards


def fit_on_cluster(
    X: Any,
    y: Any,
    weighting: SmoothWeighting,
    settings: Settings,
    run: Run,
    *,
    neighbor_search: str = "auto",
    n_neighbors: int = 1,
    n_shards: int | None = None,
    n_landmarks: int | None = None,
) -> ShardedFit:
    """The pipeline on Dask collections, on the cluster of the current client.

    Parameters
    ----------
    X : Dask array (n_samples, n_features) or data frame
    y : labels, a Dask array or series with the same blocks, or one label per row on this machine
    weighting, settings, run : of the pipeline
    neighbor_search : {"auto", "exact", "approximate"}
    n_neighbors : that will vote; there must be as many rows
    n_shards, n_landmarks : as in ``plml.dask.fit``
    """
    if not is_collection(X):
        raise ValueError(
            f"X is of type {type(X).__name__}; give a Dask array or data frame, or use model.fit "
            "for data on this machine"
        )
    _check_count("n_shards", n_shards, 1)
    _check_count("n_landmarks", n_landmarks, 1 + n_nearest(weighting.n_graph_neighbors))
    cluster = Cluster(connected(run.n_jobs), run.memory)
    with run.shown():
        run.plan(_SHARES)
        with cluster.doing("read"):
            table = read_table(cluster, X, y)
            _check_table(table, n_neighbors)
        seed = seed_of(weighting.random_state)
        with cluster.doing("shards"):
            wanted = n_shards or n_shards_for(cluster, table, table.n_rows)
            wanted = max(1, min(wanted, table.n_rows // FEWEST_ROWS))
            shards = make_shards(cluster, table, wanted, seed)
            table = table._replace(blocks=[])  # the rows are in the shards
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
            learned = learn(stages, weighting, settings, run)
    weights = learned.weights
    training = TrainingShards(
        cluster.client, shards.parts, weights.weights, weights.scales, tuple(table.sizes)
    )
    rows = RemoteRows(table.n_rows)
    in_order = training.weights_in_order(len(weights.anchors), table.dtype)
    learned = Learned(
        weights._replace(weights=in_order, scales=rows),
        learned.metrics._replace(gamma=None),  # no longer needed on the cluster
        learned.recall,
    )
    return ShardedFit(learned, rows, table, training)


def _check_count(name: str, value: Any, least: int) -> None:
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and (not is_number or value < least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def _check_table(table: TrainingBlocks, n_neighbors: int) -> None:
    if n_neighbors > table.n_rows:
        raise ValueError(f"n_neighbors={n_neighbors} is more than the {table.n_rows} training rows")
    check_class_sizes(table.class_sizes)


def searches_exactly(how: str, n_rows: int, n_classes: int) -> bool:
    """Whether all cells are searched for neighbours."""
    pays = n_rows >= APPROXIMATE_FROM and n_classes <= MOST_CLASSES
    return how == "exact" or (how == "auto" and not pays)
