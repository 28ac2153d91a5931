"""The pipeline: what is called in which order, and what comes out on one machine."""

from contextlib import contextmanager

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import judge
from plml.backend.arrays import share_of_memory
from plml.solvers.problem import Checkpointer
from plml.stages.one_machine import OneMachine
from plml.stages.pipeline import (
    ANCHORS,
    METRICS,
    NEIGHBORS,
    TRIPLETS,
    WEIGHTS,
    ClusterWeighting,
    Settings,
    SingleWeighting,
    SmoothWeighting,
    Weights,
    costs,
    learn,
    learn_metrics_of,
    with_triplets,
)
from plml.stages.run import Run

TIGHT = Settings(regularization=0.3, pull=0.5, tol=1e-6, max_iter=5000)


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 4)) + 1.2 * np.eye(3, 4)[y], y


ANCHORS_FOUND = np.zeros((3, 2)), np.arange(10) % 3


class NotedStages:
    """Notes what it is asked for, and answers with the name of the question."""

    shape = (10, 2)

    def __init__(self):
        self.asked = []

    def anchors(self, *arguments):
        self.asked.append(("anchors", *arguments))
        return ANCHORS_FOUND

    def __getattr__(self, name):
        def answer(*arguments):
            self.asked.append((name, *arguments))
            return Weights(name) if name.endswith("weights") else name

        return answer


class NotedCheckpointer(Checkpointer):
    """Notes when a fit is done."""

    finished = 0

    def finish(self):
        self.finished += 1


class TestOrder:
    def asked(self, weighting):
        stages, checkpoint = NotedStages(), NotedCheckpointer()
        settings = Settings(n_targets=4, n_impostors=5)
        learned = learn(stages, weighting, settings, Run(checkpoint))
        assert checkpoint.finished == 1
        assert learned.metrics == "metrics"
        assert learned.recall == "recall"
        return settings, checkpoint, learned, stages.asked

    def test_smooth(self):
        weighting = SmoothWeighting(n_bases=7, n_graph_neighbors=3, random_state=11)
        settings, checkpoint, learned, asked = self.asked(weighting)
        assert learned.weights == Weights("smooth_weights")
        assert [name for name, *_ in asked] == [
            "graph",
            "anchors",
            "smooth_weights",
            "triplets",
            "recall",
            "metrics",
        ]
        assert asked[0] == ("graph", 3, checkpoint)
        assert asked[1] == ("anchors", 7, 11, checkpoint)
        assert asked[2][1:5] == ("graph", ANCHORS_FOUND, weighting, settings)
        assert asked[3] == ("triplets", 4, 5, checkpoint)
        prepared, given, gamma = asked[5][1:4]
        assert (prepared.weights, prepared.triplets) == (learned.weights, "triplets")
        assert (given, gamma) == (settings, None)

    def test_clusters(self):
        _, checkpoint, learned, asked = self.asked(ClusterWeighting(3, 2))
        assert asked[0] == ("anchors", 3, 2, checkpoint)
        assert [name for name, *_ in asked][1:] == ["triplets", "recall", "metrics"]
        np.testing.assert_array_equal(learned.weights.weights, np.eye(3)[np.arange(10) % 3])
        assert learned.weights.anchors is ANCHORS_FOUND[0]

    def test_one_metric(self):
        _, _, learned, asked = self.asked(SingleWeighting())
        assert [name for name, *_ in asked] == ["triplets", "recall", "metrics"]
        np.testing.assert_array_equal(learned.weights.weights, np.ones((10, 1)))


class TestOneMachine:
    def test_both_stages_reach_their_certificates(self, table):
        X, y = table
        weighting = SmoothWeighting(4, 0.7, 20.0, 3, random_state=0)
        weights, metrics, recall = learn(OneMachine(X, y), weighting, TIGHT, Run())
        assert weights.gap <= 1e-6
        assert metrics.gap <= 1e-6
        assert recall == {"graph": 1.0, "targets": 1.0, "impostors": 1.0}
        np.testing.assert_allclose(weights.weights.sum(axis=1), 1.0)
        S = judge.similarity(X, 3)
        even = np.full((60, 4), 0.25)
        found, worse = (
            judge.weights_primal(X, weights.anchors, W, S, 0.7, 20.0)
            for W in (weights.weights, even)
        )
        assert found < worse
        primal = judge.metrics_primal(X, y, weights.weights, metrics.M, 0.3, 0.5)
        assert metrics.objective == pytest.approx(primal, rel=1e-9)

    def test_a_warm_start_ends_at_the_same_metrics(self, table):
        stages = OneMachine(*table)
        weights = SingleWeighting().learn(stages, TIGHT, Run())
        prepared = with_triplets(weights, stages, TIGHT, Run())
        cold = learn_metrics_of(stages, prepared, TIGHT, Run())
        warm = learn_metrics_of(stages, prepared, TIGHT, Run(), cold.gamma)
        assert warm.n_iter < cold.n_iter
        np.testing.assert_allclose(warm.M, cold.M, atol=1e-3 * np.abs(cold.M).max())

    def test_clusters_weigh_their_own_metric_alone(self, table):
        stages = OneMachine(*table)
        weights = ClusterWeighting(3, 0).learn(stages, TIGHT, Run())
        nearest = [np.argmin(np.linalg.norm(weights.anchors - x, axis=1)) for x in table[0]]
        np.testing.assert_array_equal(weights.weights, np.eye(3)[nearest])
        assert weights.gap == 0.0

    def test_rows_in_single_precision_get_weights_that_are(self, table):
        X, y = table
        weighting = SmoothWeighting(4, random_state=0)
        weights = weighting.learn(OneMachine(X.astype(np.float32), y), TIGHT, Run())
        assert weights.weights.dtype == np.float32
        assert 1e-9 < weights.gap < 1e-4  # of the rounded weights


class TestRun:
    def test_solvers_are_observed(self, table):
        seen = []

        @contextmanager
        def observe(name, show):
            yield lambda record: seen.append((name, record.iteration)) or show(record)

        learn(OneMachine(*table), SmoothWeighting(4, random_state=0), TIGHT, Run(observe=observe))
        assert {name for name, _ in seen} == {WEIGHTS, METRICS}

    def test_a_callback_stops_a_stage(self, table):
        @contextmanager
        def observe(name, show):
            yield lambda record: name == METRICS

        learned = learn(OneMachine(*table), SingleWeighting(), TIGHT, Run(observe=observe))
        assert learned.metrics.interrupted
        assert not learned.weights.interrupted

    def test_limits(self):
        x = np.zeros(1)
        usual = share_of_memory(x, 2**22)
        with Run(n_jobs=1, memory=1.0).limits():
            assert share_of_memory(x, 2**22) == 2**20 // 32 < usual
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        assert share_of_memory(x, 2**22) == usual

    @pytest.mark.parametrize(
        ("weighting", "names"),
        [
            (SmoothWeighting(), [NEIGHBORS, ANCHORS, WEIGHTS, TRIPLETS, METRICS]),
            (ClusterWeighting(), [ANCHORS, TRIPLETS, METRICS]),
            (SingleWeighting(), [TRIPLETS, METRICS]),
        ],
    )
    def test_the_plan_names_the_stages_in_their_order(self, weighting, names):
        planned = costs(1000, 20, weighting)
        assert list(planned) == names
        assert min(planned.values()) > 0.0
        assert sum(costs(2000, 20, weighting).values()) > sum(planned.values())
