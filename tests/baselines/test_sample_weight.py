"""The baselines with weights of the instances: naive objectives, convex solvers, repeated rows."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import logsumexp

from plml import GLML, LMNN, LMNNMM
from plml.baselines.boosting import learn_boosted_metric
from plml.baselines.discriminant import discriminant_metrics
from plml.baselines.energy import energies
from plml.baselines.kernel_machines import fit_temperature, mean_pairwise_distance
from plml.baselines.lmnn_problem import ActiveSet, LmnnData, find_violations
from plml.solvers.problem import Monitor
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import neighbor_triplets


def make(rng, n=30, d=3):
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) + 1.2 * np.eye(3, d)[y]
    return X, y, rng.choice([0.2, 1.0, 2.5], size=n)


def lmnn_objective(X, y, groups, targets, M, pull, v):
    """The loop of the definition."""
    value = 0.0
    for i in range(len(X)):
        for j in targets[i]:
            near = (X[i] - X[j]) @ M[groups[j]] @ (X[i] - X[j])
            value += v[i] * pull * near
            for k in np.flatnonzero(y != y[i]):
                far = (X[i] - X[k]) @ M[groups[k]] @ (X[i] - X[k])
                value += v[i] * max(0.0, 1.0 + near - far)
    return value


@pytest.mark.parametrize("several", [False, True])
def test_lmnn_objective_is_the_loop(rng, several):
    X, y, v = make(rng)
    groups = y if several else np.zeros(len(y), dtype=int)
    targets = ExactNeighbors(X, y).targets(2)
    data = LmnnData(X, y, groups, groups.max() + 1, targets, 0.7, sample_weight=v)
    A = rng.normal(size=(groups.max() + 1, 3, 3))
    M = A @ A.swapaxes(1, 2) / 6.0
    found = find_violations(data, M)
    assert found.objective == pytest.approx(lmnn_objective(X, y, groups, targets, M, 0.7, v))
    active = ActiveSet(data, found.pairs)
    value, _ = active.value_and_subgradient(M)
    assert value == pytest.approx(found.objective)

    def at(a):
        A = a.reshape(M.shape)
        value, G = active.value_and_subgradient(A @ A.swapaxes(1, 2))
        return value, 2.0 * (G @ A).ravel()

    a = (A / 6.0**0.5).ravel()
    error = check_grad(lambda a: at(a)[0], lambda a: at(a)[1], a)
    assert error <= 1e-5 * np.linalg.norm(at(a)[1])


@pytest.mark.parametrize("model", [LMNN, LMNNMM])
def test_lmnn_reaches_the_optimum_of_a_convex_solver(rng, model):
    X, y, v = make(rng, n=24)
    model = model(n_targets=2, solver="convex", tol=1e-3).fit(X, y, sample_weight=v)
    groups = y if isinstance(model, LMNNMM) else np.zeros(len(y), dtype=int)
    targets = ExactNeighbors(X, y).targets(2)
    M = [cp.Variable((3, 3), PSD=True) for _ in range(groups.max() + 1)]

    def distance(i, j):
        return cp.trace(np.outer(X[i] - X[j], X[i] - X[j]) @ M[groups[j]])

    value = 0.0
    for i in range(len(X)):
        for j in targets[i]:
            value += 0.5 * v[i] * distance(i, j)
            for k in np.flatnonzero(y != y[i]):
                value += 0.5 * v[i] * cp.pos(1 + distance(i, j) - distance(i, k))
    best = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    assert model.dual_gap_ <= 1e-3
    assert best * (1 - 1e-6) <= model.objective_ <= best * (1 + 2e-3)
    naive = 0.5 * lmnn_objective(X, y, groups, targets, model.basis_metrics_, 1.0, v)
    assert model.objective_ == pytest.approx(naive, rel=1e-6)


def test_energies_are_the_growth_of_the_weighted_objective(rng):
    X, y, v = make(rng, n=18)
    targets, M = ExactNeighbors(X, y).targets(2), 0.4 * np.eye(3)[None]
    groups = np.zeros(len(y), dtype=int)
    data = LmnnData(X, y, groups, 1, targets, 0.7, sample_weight=v)
    query = rng.normal(size=3)
    found = energies(data, M, query[None], 3)[0]
    for label in range(3):
        d2 = np.sum((X - query) ** 2, axis=1) * 0.4
        own = np.sort(d2[y == label])[:2]
        expected = 0.7 * own.sum()
        expected += np.maximum(0.0, 1.0 + own[:, None] - d2[y != label]).sum()
        for i in np.flatnonzero(y != label):
            near = 0.4 * np.sum((X[i] - X[targets[i]]) ** 2, axis=1)
            expected += v[i] * np.maximum(0.0, 1.0 + near - d2[i]).sum()
        assert found[label] == pytest.approx(expected)


def test_early_stopping_weighs_the_errors(rng):
    X, y, v = make(rng, n=60)
    model = LMNN(validation_fraction=0.3, solver="factored", random_state=0)
    weighted = model.fit(X, y, sample_weight=v).validation_error_
    _, held_out = model._hold_out(y)
    in_units = weighted * v[held_out].sum() / 0.1
    assert in_units == pytest.approx(round(in_units), abs=1e-6)  # a sum of weights of 0.2, 1, 2.5


@pytest.mark.parametrize("update", ["stage-wise", "totally-corrective"])
def test_boosting_minimises_the_weighted_exponential_loss(rng, update):
    X, y, v = make(rng)
    triplets = neighbor_triplets(ExactNeighbors(X, y), 2, 2)
    options = {"trace_weight": 0.05, "update": update}
    found = learn_boosted_metric(
        X, triplets, **options, max_iter=300, monitor=Monitor(1e-4), sample_weight=v
    )
    i, j = triplets.pairs.T
    squares = np.einsum("pd,de,pe->p", X[i] - X[j], found.M, X[i] - X[j])
    margins = squares[triplets.impostor] - squares[triplets.target]
    counts = v[i[triplets.target]]
    value = logsumexp(-margins, b=counts) + 0.05 * np.trace(found.M)
    assert found.objective == pytest.approx(value, rel=1e-6)
    if update == "totally-corrective":
        M = cp.Variable((3, 3), PSD=True)
        outer = [np.outer(X[a] - X[b], X[a] - X[b]) for a, b in triplets.pairs]
        terms = [
            np.log(v[i[t]]) - cp.trace((outer[k] - outer[t]) @ M)
            for t, k in zip(triplets.target, triplets.impostor, strict=True)
        ]
        loss = cp.log_sum_exp(cp.hstack(terms)) + 0.05 * cp.trace(M)
        best = cp.Problem(cp.Minimize(loss)).solve(solver=cp.CLARABEL)
        assert found.objective == pytest.approx(best, rel=1e-3)


def test_a_weight_is_as_many_rows_in_local_scatters(rng):
    X, y, _ = make(rng)
    counts = rng.integers(1, 4, size=len(y))
    Q, copies = rng.normal(size=(5, 3)), np.repeat(np.arange(len(y)), counts)
    how = {"n_classes": 3, "epsilon": 1.0, "n_iterations": 2}
    weighted = discriminant_metrics(
        X, y, Q, **how, n_local=len(y), sample_weight=counts.astype(float)
    )
    repeated = discriminant_metrics(X[copies], y[copies], Q, **how, n_local=len(copies))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-8)


def test_a_weight_is_as_many_rows_in_gaussians(rng):
    X, y, _ = make(rng)
    counts = rng.integers(1, 4, size=len(y))
    copies = np.repeat(np.arange(len(y)), counts)
    weighted = GLML(metric_shrinkage=0.4).fit(X, y, sample_weight=counts)
    repeated = GLML(metric_shrinkage=0.4).fit(X[copies], y[copies])
    np.testing.assert_allclose(weighted.means_, repeated.means_)
    np.testing.assert_allclose(weighted.precisions_, repeated.precisions_)
    metrics = [one.get_mahalanobis_matrix(X) for one in (weighted, repeated)]
    np.testing.assert_allclose(*metrics, rtol=1e-6)


def test_a_weight_is_as_many_rows_in_the_kernel_width_and_the_temperature(rng):
    X, counts = rng.normal(size=(20, 3)), rng.integers(1, 4, size=20)
    expected = mean_pairwise_distance(np.repeat(X, counts, axis=0))
    assert mean_pairwise_distance(X, counts.astype(float)) == pytest.approx(expected)
    small = np.full(20, 0.01)  # which sum to less than one row
    assert mean_pairwise_distance(X, small) == pytest.approx(mean_pairwise_distance(X))
    decisions, truth = rng.normal(size=(20, 3)), rng.integers(3, size=20)
    found = fit_temperature(decisions, truth, counts.astype(float))
    more = np.repeat(decisions, counts, axis=0), np.repeat(truth, counts)
    assert found == pytest.approx(fit_temperature(*more), rel=1e-3)
