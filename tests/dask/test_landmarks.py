"""Weights learned on landmarks, and extended by the rule for new points."""

import dask.array as da
import numpy as np
import pytest
from sklearn.utils import check_random_state

from plml import PLML
from plml.dask import collect, fit
from plml.dask.cluster import Cluster
from plml.dask.landmarks import choose_landmarks
from plml.dask.reading import read_table
from plml.dask.shards import make_shards
from plml.solvers.simplex_rows import minimize_rows
from plml.stages.graph import graph_laplacian, local_scales, query_similarity, similarity_graph
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.weights import WeightProblem, learn_weights, query_problem, row_terms

PARAMETERS = {
    "n_bases": 5,
    "regularization": 3.0,
    "rescale": False,
    "random_state": 0,
    "tol": 1e-4,
}
N_LANDMARKS = 300


def blocks(X, y):
    return da.from_array(X, chunks=(300, -1)), da.from_array(y, chunks=300)


def weight_problem(X, model):
    """Equation 4 of some rows."""
    squared, neighbors = euclidean_neighbors(X, 7)
    L = graph_laplacian(similarity_graph(squared, neighbors, model.n_graph_neighbors))
    terms = row_terms(X, model.anchors_, model.locality)
    return WeightProblem(terms, model.anchors_, model.smoothness, L)


@pytest.fixture(scope="module")
def model(client, digits):
    X, y, _, _ = digits
    return fit(PLML(**PARAMETERS), *blocks(X, y), n_shards=3, n_landmarks=N_LANDMARKS)


@pytest.fixture(scope="module")
def landmarks(client, digits):
    """The rows that the fit chooses, in the order of the user."""
    X, y, _, _ = digits
    cluster = Cluster(client)
    table = read_table(cluster, *blocks(X, y))
    seed = int(check_random_state(0).randint(2**31 - 1))
    shards = make_shards(cluster, table, 3, seed)
    few = choose_landmarks(cluster, shards, N_LANDMARKS, 1, seed)
    parts, everything = client.gather((few.shards.parts, shards.parts))
    assert len(parts) == 1
    shares = [np.isin(shard.rows, parts[0].rows).mean() for shard in everything]
    np.testing.assert_allclose(shares, N_LANDMARKS / len(X), atol=0.01)  # as much of every shard
    return parts[0].rows


def test_a_sample_of_all_rows(landmarks, digits):
    assert N_LANDMARKS <= len(landmarks) <= N_LANDMARKS + 3
    assert len(np.unique(landmarks)) == len(landmarks)
    blocks_of_the_user = np.bincount(landmarks // 100, minlength=10)
    assert blocks_of_the_user.min() > 15  # of about 30


def test_the_weights_of_landmarks_solve_their_problem(model, landmarks, digits):
    """Equation 4 on the landmarks alone, as one machine learns it."""
    problem = weight_problem(digits[0][landmarks], model)
    expected = learn_weights(problem, solver="auto", tol=1e-7, max_iter=5000).x
    found = model.weights_.compute()[landmarks]
    assert float(problem.evaluate(found).value) <= (1 + 1e-4) * float(
        problem.evaluate(expected).value
    )
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_other_weights_are_those_of_new_points(model, landmarks, digits):
    X, weights = digits[0], model.weights_.compute()
    others = np.delete(np.arange(len(X)), landmarks)
    scales = local_scales(euclidean_neighbors(X[landmarks], 7)[0])
    squared, near = euclidean_neighbors(X[landmarks], 7, X[others])
    problem = query_problem(
        X[others],
        model.anchors_,
        model.locality,
        model.smoothness,
        weights[landmarks],
        query_similarity(squared, near, scales, model.n_graph_neighbors),
    )
    expected, gaps = minimize_rows(problem, 1e-7, 5000)
    assert gaps.max() <= 1e-7
    np.testing.assert_allclose(weights[others], expected, atol=0.02)
    assert np.abs(weights.sum(axis=1) - 1.0).max() < 1e-6


def test_nearly_the_fit_on_all_rows(model, client, digits):
    X, y, Q, labels = digits
    everything = fit(PLML(**PARAMETERS), *blocks(X, y), n_shards=3)
    problem = weight_problem(X, model)
    whole, extended = (
        float(problem.evaluate(fitted.weights_.compute()).value) for fitted in (everything, model)
    )
    assert whole < extended < 1.2 * whole  # 5 times as much with the nearest anchor alone
    assert abs(model.score(Q, labels) - everything.score(Q, labels)) <= 0.01
    assert model.neighbor_recall_["landmarks"] == 1.0
    assert "landmarks" not in everything.neighbor_recall_


def test_in_the_nearest_cells(client, digits):
    X, y, Q, labels = digits
    model = PLML(**PARAMETERS, neighbor_search="approximate")
    fit(model, *blocks(X, y), n_shards=4, n_landmarks=N_LANDMARKS)
    assert 0.9 <= model.neighbor_recall_["landmarks"] <= 1.0
    remote = model.predict(Q)
    assert np.mean(remote == labels) > 0.93
    np.testing.assert_array_equal(collect(model).predict(Q), remote)


@pytest.mark.parametrize("number", [3, 2.5, "all"])
def test_a_number_that_makes_no_sense(client, digits, number):
    X, y, _, _ = digits
    with pytest.raises(ValueError, match="n_landmarks must be an integer of at least 8"):
        fit(PLML(), *blocks(X, y), n_landmarks=number)


def test_as_many_as_there_are_rows(client, digits):
    X, y, _, _ = digits
    whole = fit(PLML(**PARAMETERS), *blocks(X, y), n_shards=3, n_landmarks=10**6)
    assert "landmarks" not in whole.neighbor_recall_
