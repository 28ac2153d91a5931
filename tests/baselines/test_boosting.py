import cvxpy as cp
import numpy as np
import pytest

from plml.baselines.boosting import learn_boosted_metric
from plml.solvers.problem import Monitor
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import neighbor_triplets


def make_problem(seed, n=30, d=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 1.5 * np.eye(3, d)[y]
    return X, neighbor_triplets(ExactNeighbors(X, y), 2, 2)


def outer_differences(X, triplets):
    for t, k in zip(triplets.target, triplets.impostor, strict=True):
        a, b = (X[i] - X[j] for i, j in (triplets.pairs[t], triplets.pairs[k]))
        yield np.outer(b, b) - np.outer(a, a)


def naive_objective(X, triplets, M, trace_weight):
    margins = [float(np.sum(A * M)) for A in outer_differences(X, triplets)]
    return np.log(np.sum(np.exp(-np.array(margins)))) + trace_weight * np.trace(M)


def learn(X, triplets, trace_weight, update, max_iter=400, tol=1e-5):
    return learn_boosted_metric(
        X,
        triplets,
        trace_weight=trace_weight,
        update=update,
        max_iter=max_iter,
        monitor=Monitor(tol),
    )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("trace_weight", [0.05, 0.3])
def test_totally_corrective_reaches_the_convex_optimum(seed, trace_weight):
    X, triplets = make_problem(seed)
    result = learn(X, triplets, trace_weight, "totally-corrective")
    M = cp.Variable((3, 3), PSD=True)
    margins = cp.hstack([cp.trace(A @ M) for A in outer_differences(X, triplets)])
    objective = cp.log_sum_exp(-margins) + trace_weight * cp.trace(M)
    best = cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL)
    assert result.excess <= 1e-5
    assert result.objective == pytest.approx(best, rel=1e-5)
    assert result.objective == pytest.approx(naive_objective(X, triplets, result.M, trace_weight))
    assert np.linalg.eigvalsh(result.M).min() >= -1e-10


def test_stage_wise_descends_and_stays_above(rng):
    X, triplets = make_problem(2)
    stage_wise = learn(X, triplets, 0.05, "stage-wise", max_iter=50)
    corrective = learn(X, triplets, 0.05, "totally-corrective")
    values = [record.value for record in stage_wise.history]
    assert (np.diff(values) <= 1e-12).all()
    assert values[0] == pytest.approx(np.log(len(triplets.target)))
    assert corrective.objective - 1e-6 <= stage_wise.objective < values[0]


def test_the_first_stage_wise_weight_minimises_its_line():
    X, triplets = make_problem(3)
    one = learn(X, triplets, 0.05, "stage-wise", max_iter=1)
    w = float(np.trace(one.M))
    Z = one.M / w
    around = [naive_objective(X, triplets, s * w * Z, 0.05) for s in (0.99, 1.0, 1.01)]
    assert around[1] < min(around[0], around[2])
    assert np.linalg.matrix_rank(one.M) == 1


@pytest.mark.parametrize("update", ["stage-wise", "totally-corrective"])
def test_a_large_trace_weight_gives_zero(update):
    X, triplets = make_problem(4)
    result = learn(X, triplets, 1e6, update)
    assert not result.M.any()
    assert result.excess == 0


@pytest.mark.parametrize("update", ["stage-wise", "totally-corrective"])
def test_separable_triplets_stay_finite(update):
    X = np.array([[0.0], [0.1], [5.0], [5.1]])
    y = np.array([0, 0, 1, 1])
    triplets = neighbor_triplets(ExactNeighbors(X, y), 1, 2)
    result = learn(X, triplets, 1e-7, update, max_iter=20)
    assert np.isfinite(result.M).all()


def test_a_weight_is_found_across_all_scales():
    """Columns of 1e18 and rows that differ by 1e9: the slope is flat, and then a cliff."""
    a = 9980292541
    X = np.full((9, 3), a, dtype=float)
    X[0, 1], X[5, 1:], X[6, 2] = 1582427338257196161, [-240, 391745], -75583659534418
    X[7, 0], X[8, 0] = -18011925087, -296
    y = np.array([0, 1, 0, 0, 1, 0, 1, 0, 0])
    triplets = neighbor_triplets(ExactNeighbors(X, y), 10, 10)
    X = (X - X.mean(axis=0)) / (X - X.mean(axis=0)).std()
    result = learn(X, triplets, np.finfo(float).tiny, "stage-wise", max_iter=100)
    values = [record.value for record in result.history]
    assert len(values) > 1
    assert (np.diff(values) <= 1e-12).all()
