"""The dual of stage 2 as a sum over shards, against that of all rows."""

from itertools import pairwise

import numpy as np
import pytest

from cluster_at_once import ClusterAtOnce
from plml.backend.threads import SERIAL
from plml.dask.sharded_dual import Point, metrics_from, sent, sharded_dual
from plml.dask.sharded_moves import ShardedMoves, gram_of, moved, way_to
from plml.dask.shards import Quantizer, Scaling, Shard, Shards
from plml.ops.pairs import PairOperator
from plml.ops.projections import PsdMatrices
from plml.stages.metrics import MetricsDual
from plml.stages.neighbors import ExactNeighbors
from plml.stages.pipeline import Prepared, Settings, Weights
from plml.stages.triplets import neighbor_triplets

OFFSETS = np.array([0, 30, 75, 120])


@pytest.fixture(params=[4, 24], ids=["narrow", "with factors"])
def both(request):
    """The same problem on one machine and in three shards; the rows are in the same order."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, request.param)), np.arange(120) % 3
    W = rng.dirichlet(np.ones(3), size=120)
    neighbors = ExactNeighbors(X, y)
    mean = X.mean(axis=0)
    triplets = neighbor_triplets(neighbors, 2, 2)
    here = MetricsDual(PairOperator(X - mean, W, triplets.pairs), triplets, 3.0, 0.5)
    ranges = [slice(*ends) for ends in pairwise(OFFSETS)]
    partners = np.concatenate([neighbors.targets(2), neighbors.impostors(2)], axis=1)
    shards = Shards(
        [Shard(X[own], y[own], np.arange(120)[own], np.zeros(120, int)[own]) for own in ranges],
        ["here"] * 3,
        OFFSETS,
        Quantizer(np.zeros((3, 1)), np.arange(3), Scaling(mean, 1.0)),
        OFFSETS,
    )
    prepared = Prepared(
        Weights([W[own] for own in ranges], X[:3]),  # three anchors
        [partners[own] for own in ranges],
        {},
    )
    settings = Settings(regularization=3.0, pull=0.5, n_targets=2)
    return here, sharded_dual(ClusterAtOnce(), shards, prepared, settings, SERIAL)


def cut(dual, gamma):
    """Gammas of all triplets, in the order of their rows, as points of the shards."""
    sizes = [len(part.triplets.target) for part in dual.duals]
    return [Point(part, 0.0) for part in np.split(gamma, np.cumsum(sizes)[:-1])]


def test_value_gap_and_certificate(both):
    here, there = both
    gamma = np.random.default_rng(1).random(len(here.triplets.target))
    assert there.n_triplets == len(gamma)
    points = cut(there, gamma)
    at = there.arrive(points)
    value = at.evaluation
    truth = here.evaluate(gamma)
    assert value.value == pytest.approx(float(truth.value), rel=1e-12)
    assert at.slope == 0.0
    assert at.value == value.value
    np.testing.assert_allclose(value.cache.matrices, truth.cache.matrices, atol=1e-12)
    slacks = there.slacks(at)
    gradient = here.gradient(truth)
    np.testing.assert_allclose(
        np.concatenate([slack.gradient for slack in slacks]), gradient, atol=1e-10
    )
    hinge = sum(slack.hinge for slack in slacks)
    assert there.gap_of(value, hinge) == pytest.approx(float(here.gap(gamma, truth, gradient)))
    np.testing.assert_allclose(there.scatter_sizes(points), here.scatter_sizes(gamma))
    for dtype in (np.float32, np.float64):
        M, primal, dual = there.certificate(points, dtype)
        assert M.dtype == dtype
        assert primal == pytest.approx(float(here.primal(M.astype(float))), rel=1e-10)
        assert dual == pytest.approx(float(truth.value), rel=1e-12)


def test_the_best_uniform_start(both):
    here, there = both
    start = there.uniform_start()
    size = start[0].x[0]
    assert all((point.x == size).all() for point in start)
    values = [float(here.evaluate(here.constant(size * by)).value) for by in (0.5, 1.0, 2.0)]
    assert values[1] == min(values[1], values[0], values[2] if size < 0.5 else np.inf)


def test_metrics_arrive_as_they_were_sent():
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=(5, rank)) for rank in (2, 0, 4)]
    whole = PsdMatrices(np.stack([L @ L.T for L in factors]), factors)
    for found in (whole, PsdMatrices(whole.matrices)):
        arrived = sent(ClusterAtOnce(), found)
        np.testing.assert_allclose(arrived.matrices, whole.matrices, atol=1e-14)
        assert (arrived.factors is None) == (found.factors is None)
    again = metrics_from(np.concatenate([L.T for L in factors]), [2, 0, 4])
    assert [L.shape for L in again.factors] == [(5, 2), (5, 0), (5, 4)]


class TestMoves:
    def test_the_first_step_is_along_the_gradient(self, both):
        _, there = both
        moves = ShardedMoves(there, there.uniform_start())
        at = moves.start({})
        trial = moves.trial(at, 1e-3)
        for old, slack, new in zip(at.x, at.slacks, trial.x, strict=True):
            np.testing.assert_allclose(new.x, np.clip(old.x - 1e-3 * slack.gradient, 0.0, 1.0))
        expected = sum(
            float(slack.gradient @ (new.x - old.x))
            for old, slack, new in zip(at.x, at.slacks, trial.x, strict=True)
        )
        assert trial.slope == pytest.approx(expected)
        assert trial.value < at.value
        after = moves.accept(trial, at)
        assert moves.n_remembered == 1
        assert after.gram.shape == (3, 3)
        assert moves.forget(after).gram.shape == (1, 1)
        assert moves.n_remembered == 0

    def test_inner_products_over_the_free_coordinates(self, both):
        _, there = both
        points = there.uniform_start()
        slack = there.slacks(there.arrive(points))[0]
        way = way_to(points[0], slack, None, [(0.1, 0.0, 0.0)], np.float64)
        assert way.step is None
        g = np.where(way.free, slack.gradient, 0.0)
        np.testing.assert_allclose(gram_of(slack, [], way, np.float64), [[g @ g]])
        held = way._replace(free=np.zeros_like(way.free))
        far = moved(points[0], slack, held, [], np.array([5.0]), 1e-3)
        expected = np.clip(points[0].x - 1e-3 * slack.gradient, 0.0, 1.0)
        np.testing.assert_allclose(far.x, expected)
