"""The pipeline over shards is that of one machine; here without a cluster, task by task."""

from itertools import pairwise

import numpy as np
import pytest

from cluster_at_once import ClusterAtOnce
from plml.dask.reading import Block, Table
from plml.dask.sharded_stages import ShardedStages, clustered, seed_of
from plml.dask.shards import make_shards
from plml.dask.sums import stacked
from plml.solvers.problem import NO_CHECKPOINT
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import local_scales
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.one_machine import OneMachine
from plml.stages.pipeline import Settings, SmoothWeighting, learn
from plml.stages.run import Run

WEIGHTING = SmoothWeighting(n_bases=4, random_state=0)
SETTINGS = Settings(regularization=20.0, tol=1e-5, n_targets=3, n_impostors=2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    centers = 3.0 * rng.normal(size=(6, 5))
    cloud = rng.integers(6, size=400)
    return (centers[cloud] + rng.normal(size=(400, 5))) / 6.0, cloud % 3


def stages_of(X, y, *, n_shards=3, n_landmarks=10**6, memory=2.0**30):
    cluster = ClusterAtOnce(memory=memory)
    mean = X.mean(axis=0)
    cuts = [0, 150, 290, len(X)]
    table = Table(
        [Block(X[a:b], y[a:b]) for a, b in pairwise(cuts)],
        np.diff(cuts).tolist(),
        np.unique(y),
        np.bincount(y),
        None,
        X.dtype,
        mean,
        float(np.abs(X - mean).max()),
    )
    return ShardedStages(
        cluster,
        table,
        make_shards(cluster, table, n_shards, seed=1),
        exact=True,
        n_targets=SETTINGS.n_targets,
        n_impostors=SETTINGS.n_impostors,
        n_landmarks=n_landmarks,
        seed=1,
    )


def in_order(stages, parts):
    """Arrays of the shards in the order of the user."""
    rows = np.concatenate([shard.rows for shard in stages.shards.parts])
    return np.concatenate(parts)[np.argsort(rows)]


@pytest.mark.parametrize("n_shards", [1, 3])
def test_weights_and_metrics_of_one_machine(data, n_shards):
    stages = stages_of(*data, n_shards=n_shards)
    assert len(stages.shards) == n_shards
    assert stages.shape == (400, 5)
    there = learn(stages, WEIGHTING, SETTINGS, Run())
    here = learn(OneMachine(*data, "exact"), WEIGHTING, SETTINGS, Run())
    np.testing.assert_allclose(there.weights.anchors, here.weights.anchors, atol=1e-12)
    assert there.weights.n_iter == here.weights.n_iter
    for name in ("weights", "scales"):
        found = in_order(stages, getattr(there.weights, name))
        np.testing.assert_allclose(found, getattr(here.weights, name), atol=1e-6)
    assert there.weights.gap <= SETTINGS.tol
    assert there.metrics.gap <= SETTINGS.tol
    assert there.metrics.objective == pytest.approx(here.metrics.objective, rel=2e-5)
    assert there.recall == {"graph": 1.0, "targets": 1.0, "impostors": 1.0}


def test_a_callback_stops_stage_1(data):
    seen = []
    graph = (stages := stages_of(*data)).graph(6, NO_CHECKPOINT)
    anchors = stages.anchors(4, 0, NO_CHECKPOINT)
    stop = lambda record: seen.append(record.iteration) or record.iteration >= 10  # noqa: E731
    weights = stages.smooth_weights(graph, anchors, WEIGHTING, SETTINGS, stop, NO_CHECKPOINT)
    assert weights.interrupted
    assert weights.n_iter == seen[-1] == 10


def test_landmarks_are_learned_and_the_others_follow(data):
    X, _ = data
    stages = stages_of(*data, n_landmarks=150)
    graph = stages.graph(6, NO_CHECKPOINT)
    anchors = stages.anchors(4, 0, NO_CHECKPOINT)
    learned = stages.smooth_weights(graph, anchors, WEIGHTING, SETTINGS, None, NO_CHECKPOINT)
    W, rows = in_order(stages, learned.weights), stacked(graph.shards.parts).rows
    assert 150 <= len(rows) <= 153
    alone = OneMachine(*(part[rows] for part in data), "exact")
    problem = alone.weight_problem(alone.graph(6, NO_CHECKPOINT), anchors, WEIGHTING)
    at = problem.evaluate(W[rows])
    assert float(problem.gap(W[rows], at, problem.gradient(at))) <= SETTINGS.tol
    others = np.delete(np.arange(400), rows)
    squared, near = euclidean_neighbors(X[rows], 7, X[others])
    scales = local_scales(euclidean_neighbors(X[rows], 7)[0])
    rule = WEIGHTING.rule_for_new_points(anchors, SETTINGS.tol, SETTINGS.max_iter)
    expected, _ = rule.weights(X[others], squared, near, W[rows], scales)
    np.testing.assert_allclose(W[others], expected, atol=1e-9)
    assert stages.recall(NO_CHECKPOINT)["landmarks"] == 1.0


def test_anchors_of_as_many_rows_as_a_task_has_room_for(data):
    X, _ = data
    everything = stages_of(*data).anchors(4, 7, NO_CHECKPOINT)
    np.testing.assert_array_equal(everything, kmeans_anchors(X, 4, 7).centers)
    tight = stages_of(*data, memory=100 * 48.0 * 5)  # 100 rows
    some = tight.anchors(4, 7, NO_CHECKPOINT)
    assert some.shape == (4, 5)
    assert not np.allclose(some, everything)


def test_a_random_state_goes_on(data):
    stages, random = stages_of(*data), np.random.RandomState(3)
    before = random.get_state()[1].copy(), random.get_state()[2]
    seed_of(random)
    assert (random.get_state()[1] == before[0]).all()
    assert random.get_state()[2] == before[1]
    stages.anchors(4, random, NO_CHECKPOINT)
    assert random.get_state()[2] != before[1]


def test_clusters_of_rows_in_the_order_of_the_user(data):
    stages = stages_of(*data)
    found = clustered(stages.shards.parts, 5, np.random.RandomState(0))
    np.testing.assert_array_equal(found, kmeans_anchors(data[0], 5, 0).centers)


def test_triplets_of_numbers_that_were_not_searched_for(data):
    stages = stages_of(*data)
    stages.graph(6, NO_CHECKPOINT)
    assert len(stages.triplets(3, 2, NO_CHECKPOINT)) == len(stages.shards)
    with pytest.raises(ValueError, match="other numbers"):
        stages.triplets(4, 2, NO_CHECKPOINT)
