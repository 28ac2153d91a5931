"""How both stages run their solvers: precisions in turn, what is kept, counted and handed on."""

from copy import copy

import numpy as np
import pytest
from scipy import sparse

from plml.backend.threads import SERIAL, ThreadTeam
from plml.ops.pairs import PairOperator
from plml.solvers.problem import Checkpointer, SolverCheckpoint
from plml.stages import metrics as stage_2
from plml.stages import weights as stage_1
from plml.stages.graph import graph_laplacian, similarity_graph
from plml.stages.metrics import MetricsDual, learn_metrics
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors
from plml.stages.triplets import cross_triplets, neighbor_triplets
from plml.stages.weights import RowWeightProblem, WeightProblem, learn_weights, row_terms


class Recorder(Checkpointer, SolverCheckpoint):
    """Notes the runs of solvers, and how often each offers its state."""

    def __init__(self):
        self.runs, self.offers = [], []

    def solver(self, name):
        self.runs.append(name)
        self.offers.append(0)
        return self

    def offer(self, state):
        self.offers[-1] += 1

    def finish(self, solution):
        return solution._replace(x=np.asarray(solution.x))  # as it comes back from a file


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """As if the problems were large: below, everything is in double precision."""
    for stage in (stage_1, stage_2):
        monkeypatch.setattr(stage, "_SMALL", 0)


@pytest.fixture
def margins():
    rng = np.random.default_rng(3)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4)) + 1.2 * np.eye(3, 4)[y] + 5.0
    W = rng.dirichlet(np.full(2, 0.5), size=60)
    return X, W, neighbor_triplets(ExactNeighbors(X, y), 3, 3)


@pytest.fixture
def smooth():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 3))
    L = graph_laplacian(similarity_graph(*euclidean_neighbors(X, 7), 6))
    return WeightProblem(row_terms(X, X[:5], 0.7), X[:5], 20.0, L)


def learn(margins, **how):
    options = {"solver": "auto", "tol": 1e-3, "max_iter": 5000, **how}
    return learn_metrics(*margins, 0.3, 1.0, **options)


class TestMetrics:
    @pytest.mark.parametrize(
        ("how", "runs"),
        [
            ({"tol": 1e-3}, ["lbfgs in float32"]),
            ({"tol": 1e-6}, ["lbfgs in float32", "lbfgs in float64"]),
            ({"tol": 1e-3, "solver": "fista"}, ["fista in float64"]),
        ],
    )
    def test_precisions_in_turn(self, margins, how, runs):
        kept = Recorder()
        found = learn(margins, checkpoint=kept, **how)
        assert kept.runs == [f"metrics by {run}" for run in runs]
        assert min(kept.offers) > 0
        assert found.converged
        assert not found.interrupted

    def test_fista_finishes_what_a_line_search_cannot(self, margins, monkeypatch):
        """A quasi-Newton run that gives up at once: FISTA goes on from where it stopped."""
        real = stage_2.projected_lbfgs
        handed = []

        def lazy(problem, start, *, tol, max_iter, **options):
            options["patience"] = None
            found = real(problem, start, tol=0.5, max_iter=4, **options)
            handed.append(found)
            return found._replace(converged=False)

        monkeypatch.setattr(stage_2, "projected_lbfgs", lazy)
        kept, seen = Recorder(), []
        found = learn(
            margins, tol=1e-5, checkpoint=kept, callback=lambda r: seen.append(r) and False
        )
        assert kept.runs[-1] == "metrics by fista in float64"
        assert kept.offers[-1] > 0
        assert found.converged
        assert found.n_iter == found.history[-1].iteration
        assert [r.iteration for r in seen] == [r.iteration for r in found.history]
        assert (np.diff([r.iteration for r in seen]) >= 0).all()
        assert found.n_iter > sum(part.n_iter for part in handed)

    def test_iterations_of_all_runs_share_one_limit(self, margins):
        for limit in (1, 2, 7, 20):
            seen = []
            found = learn(margins, tol=1e-14, max_iter=limit, callback=seen.append)
            assert found.n_iter <= limit
            assert not found.converged
            assert seen[-1].iteration <= limit

    def test_a_callback_stops_everything(self, margins):
        seen = []

        def stop(record):
            seen.append(record)
            return record.iteration >= 5

        found = learn(margins, tol=1e-12, callback=stop)
        assert found.interrupted
        assert len([r for r in seen if r.iteration >= 5]) == 1
        assert not found.converged

    def test_the_last_line_is_what_is_returned(self, margins):
        for dtype in (np.float32, np.float64):
            X, W, triplets = margins
            found = learn((X.astype(dtype), W, triplets), tol=1e-2)
            last = found.history[-1]
            assert last.gap == found.gap
            assert found.objective + last.value == pytest.approx(found.gap * found.objective)
            assert len(found.history) > 3
            iterations = [record.iteration for record in found.history]
            assert iterations == sorted(set(iterations))
            assert found.M.dtype == dtype

    def test_a_warm_start_is_used(self, margins):
        cold = learn(margins, tol=1e-5)
        warm = learn(margins, tol=1e-5, gamma=cold.gamma)
        assert warm.n_iter < 0.3 * cold.n_iter

    def test_without_triplets_the_answer_is_zero(self, margins):
        X, W, _ = margins
        nothing = cross_triplets(np.full((60, 1), -1), np.full((60, 1), -1))
        seen = []
        found = learn((X, W, nothing), callback=seen.append)
        assert (found.objective, found.gap, found.n_iter) == (0.0, 0.0, 1)
        assert found.converged
        assert not found.interrupted
        assert found.history == ()
        assert not found.M.any()
        assert found.gamma.shape == (0,)
        assert found.gamma.dtype == np.float64
        assert not seen

    def test_the_origin_does_not_matter(self, margins):
        X, W, triplets = margins
        here = learn(margins, tol=1e-6).objective
        offset = np.array([1e4, -1e4, 3e4, 0.0])
        assert learn((X + offset, W, triplets), tol=1e-6).objective == pytest.approx(here, rel=1e-5)
        single = learn(((X + 100).astype(np.float32), W, triplets), tol=1e-3).objective
        assert single == pytest.approx(here, rel=2e-3)

    @pytest.mark.parametrize(("scale", "phases"), [(1.0, 2), (1e-8, 1), (1e8, 1), (1e5, 2)])
    def test_single_precision_only_where_squares_fit(self, rng, scale, phases):
        X = rng.normal(size=(20, 3))
        X *= scale / np.abs(X).max()
        found = stage_2.phases(np, X.dtype, np.abs(X).max(), "auto", 1e-2)
        assert len(found) == phases
        assert found[-1] == (np.float64, 1e-2)
        if phases == 2:
            assert found[0][0] == np.float32
            assert 0.9e-2 < found[0][1] < 1e-2
            assert stage_2.phases(np, X.dtype, np.abs(X).max(), "auto", 1e-9)[0][1] == 1e-4
        assert stage_2.phases(np, X.dtype, 1.0, "fista", 1e-2) == [(X.dtype, 1e-2)]

    @pytest.mark.parametrize("size", [0.02, 1.0, 30.0])
    def test_the_start_is_the_best_of_the_halvings(self, margins, size):
        """Data in large units ends at tiny gammas; the start is within a factor of two of them."""
        X, W, triplets = margins
        problem = MetricsDual(PairOperator(size * X, W, triplets.pairs), triplets, 0.3, 0.0)
        start, evaluation = stage_2._uniform_start(problem)
        assert start.dtype == np.float64
        assert len(set(start.tolist())) == 1
        values = {0.5**k: problem.evaluate(np.full(len(start), 0.5**k)).value for k in range(1, 45)}
        assert start[0] == min(values, key=values.get)
        assert evaluation.value == pytest.approx(values[start[0]])
        assert (start[0] == 0.5) == (size < 1)


class TestWeights:
    @pytest.mark.parametrize(
        ("how", "runs"),
        [
            ({"tol": 1e-2}, ["weights in float32", "weights in float64"]),
            ({"tol": 1e-2, "solver": "fista"}, ["weights"]),
        ],
    )
    def test_runs_and_what_they_keep(self, smooth, how, runs):
        kept, seen = Recorder(), []
        options = {"solver": "auto", "max_iter": 5000, **how}
        found = learn_weights(smooth, checkpoint=kept, callback=seen.append, **options)
        assert kept.runs == runs
        assert kept.offers[0] > 0
        assert [r.iteration for r in seen] == [r.iteration for r in found.history]
        assert (np.diff([r.iteration for r in seen]) >= 0).all()
        assert found.n_iter == seen[-1].iteration
        assert found.x.dtype == np.float64
        if options["solver"] == "fista":
            first = smooth.evaluate(smooth.start()).value
        else:
            first = smooth.evaluate(smooth.even_start()).value
        assert seen[0].value == pytest.approx(first, rel=1e-5)

    def test_double_precision_finishes_a_tight_tolerance(self, smooth):
        found = learn_weights(smooth, solver="auto", tol=1e-9, max_iter=20_000)
        assert found.converged
        gaps = np.array([record.gap for record in found.history])
        assert (gaps[:-1] > 1e-9).all()
        assert found.gap == gaps[-1]

    def test_one_limit_and_one_stop_for_both_precisions(self, smooth):
        for limit in (0, 3, 20):
            found = learn_weights(smooth, solver="auto", tol=1e-14, max_iter=limit)
            assert found.n_iter == limit
        seen = []

        def stop(record):
            seen.append(record.iteration)
            return record.iteration >= 10

        stopped = learn_weights(smooth, solver="auto", tol=1e-14, max_iter=500, callback=stop)
        assert stopped.n_iter == 10
        assert not stopped.converged

    def test_problems_beyond_single_precision(self, smooth):
        smooth.A, smooth.B = 1e20 * smooth.A, 1e20 * smooth.B
        smooth.constant = 1e20 * smooth.constant
        smooth.smoothness *= 1e20
        kept, seen = Recorder(), []
        found = learn_weights(
            smooth, solver="auto", tol=1e-4, max_iter=5000, checkpoint=kept, callback=seen.append
        )
        assert kept.runs == ["weights in float64"]
        assert found.converged
        assert seen == list(found.history)

    def test_the_majoriser(self, smooth):
        for dtype in (np.float32, np.float64):
            rows = RowWeightProblem(smooth, dtype, SERIAL)
            assert rows.A.dtype == rows.linear.dtype == rows.metric.dtype == dtype
            L = smooth.laplacian
            degrees = L.diagonal()
            # diag(metric) - 2 H is positive semidefinite, and doubled edges make it so.
            H = 20.0 * L.toarray() + np.linalg.norm(smooth.A, 2) * np.eye(len(degrees))
            majoriser = np.diag(rows.metric[:, 0].astype(float))
            scale = np.abs(majoriser).max()
            assert np.linalg.eigvalsh(majoriser - 2 * H).min() >= -1e-6 * scale
            exact = 2 * np.linalg.norm(smooth.A, 2) + 2 * 20.0 * 2.0 * degrees
            np.testing.assert_allclose(rows.metric[:, 0], exact, rtol=1e-6)
        assert rows.team is SERIAL

    def test_points_without_edges_take_steps_of_their_own(self, smooth):
        alone = copy(smooth)
        alone.laplacian = sparse.csr_array(sparse.diags_array(smooth.laplacian.diagonal()))
        rows = RowWeightProblem(alone, np.float64, SERIAL)
        degrees = smooth.laplacian.diagonal()
        exact = 2 * np.linalg.norm(smooth.A, 2) + 2 * 20.0 * degrees
        np.testing.assert_allclose(rows.metric[:, 0], exact, rtol=1e-12)

    def test_small_problems_are_not_shared(self, smooth, monkeypatch):
        team = ThreadTeam(None, 3)
        assert RowWeightProblem(smooth, np.float64, team).team is SERIAL
        monkeypatch.setattr(stage_1, "_WORTH_SHARING", smooth.B.size - 1)
        assert RowWeightProblem(smooth, np.float64, team).team is team


@pytest.mark.parametrize("stage", [stage_1, stage_2])
def test_small_problems_are_solved_in_double_precision(margins, smooth, monkeypatch, stage):
    monkeypatch.setattr(stage, "_SMALL", 2**25)
    keep = Recorder()
    if stage is stage_1:
        learn_weights(smooth, solver="auto", tol=1e-3, max_iter=500, checkpoint=keep)
    else:
        learn(margins, checkpoint=keep)
    assert keep.runs
    assert not [name for name in keep.runs if "float32" in name]
