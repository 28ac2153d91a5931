"""What an attacker found once: wrong answers without a warning."""

import pickle

import numpy as np
import pandas as pd
import pytest

from every_estimator import ESTIMATORS
from plml import CBLML, DANN, GLML, LMNN, PLML, SML, KernelSVM

WITH_NEIGHBORS = [name for name in ESTIMATORS if name != "KernelSVM"]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def data(rng):
    y = rng.integers(0, 2, size=60)
    X = rng.normal(size=(60, 3))
    X[:, 0] += 2 * y
    return X, y


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_array_that_changes_after_the_fit_changes_nothing(data, name):
    X, y = data
    mine = X.copy()
    model = ESTIMATORS[name]().fit(mine, y)
    before = model.predict(X)
    mine *= 100.0
    np.testing.assert_array_equal(model.predict(X), before)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), before)


def test_explanations_explain_what_is_predicted(data, rng):
    X, y = data
    model = LMNN(decision="energy").fit(X, y ^ (rng.uniform(size=60) < 0.2))
    Q = rng.normal(size=(200, 3)) + np.eye(3)[0]
    np.testing.assert_array_equal(model.explain(Q).predictions, model.predict(Q))


@pytest.mark.parametrize("name", ["SML", "PLML", "DANN"])
def test_masked_points_are_refused_everywhere(data, name):
    X, y = data
    model = ESTIMATORS[name]().fit(X, y)
    pairs = np.ma.masked_array(np.stack([X, X + 1.0], axis=1))
    pairs[:, :, 0] = np.ma.masked
    with pytest.raises(ValueError, match="masked"):
        model.pair_distance(pairs)
    with pytest.raises(ValueError, match="masked"):
        model.get_metric()(pairs[0, 0], X[0])


@pytest.mark.parametrize(("dtype", "offset"), [("float32", 1e4), ("float64", 1e7)])
@pytest.mark.parametrize("name", ["SML", "PLML", "CBLML", "BoostMetric"])
def test_vectors_serve_the_neighbors_wherever_the_data_lies(data, name, dtype, offset):
    X, y = data
    X, Q = ((part + offset).astype(dtype) for part in (X, X + 0.1))
    model = ESTIMATORS[name]().fit(X, y)
    scores = model.query_vectors(Q) @ model.index_vectors().T
    nearest = model.kneighbors(Q, 1, return_distance=False)[:, 0]
    np.testing.assert_array_equal(scores.argmax(axis=1), nearest)


def test_metrics_that_vanish_somewhere_are_spoken_of():
    rng = np.random.default_rng(3)
    X, y = rng.integers(0, 3, size=(60, 3)).astype(float), rng.integers(0, 3, size=60)
    with pytest.warns(
        UserWarning, match=r"at \d+ of the 60 training rows the learned metric is zero"
    ):
        model = CBLML(n_bases=5, random_state=0).fit(X, y)
    zero = np.trace(model.get_mahalanobis_matrix(X), axis1=1, axis2=2) == 0.0
    assert zero.any()
    shares = model.local_importance(X)
    assert np.isfinite(shares).all()
    assert set(shares.sum(axis=1).round(9)) <= {0.0, 1.0}


@pytest.mark.parametrize("name", WITH_NEIGHBORS)
def test_a_neighbor_at_exactly_the_radius_is_within_it(data, name):
    X, y = data
    model = ESTIMATORS[name]().fit(X, y)
    distances, indices = model.kneighbors(X[:20] + 0.1, 5)
    for row in range(20):
        for far, index in zip(distances[row], indices[row], strict=True):
            assert index in model.radius_neighbors(X[row : row + 1] + 0.1, far)[1][0]


def test_any_radius():
    X = np.arange(20.0)[:, None]
    model = GLML(metric_shrinkage=1.0).fit(X, np.arange(20) % 2)
    for radius in (1e200, float("inf")):
        assert len(model.radius_neighbors(X[:1], radius)[1][0]) == 20


def test_missing_labels_of_any_kind(data):
    X, _ = data
    labels = pd.Series([None] + ["a", "b"] * 29 + ["a"], dtype="string")
    for model in (SML(), KernelSVM()):
        with pytest.raises(ValueError, match="missing labels, the first in row 0"):
            model.fit(X, labels)


@pytest.mark.filterwarnings("error")
def test_both_infinities(data):
    X, y = data
    X[3, 1], X[4, 2] = np.inf, -np.inf
    with pytest.raises(ValueError, match="infinity in feature 1, row 3"):
        SML().fit(X, y)


def test_labels_are_asked_for_in_the_name_of_the_estimator(data):
    with pytest.raises(ValueError, match="PLML estimator requires y"):
        PLML().fit(data[0])


def test_decisions_predictions_and_shares_agree(rng):
    X = rng.normal(size=(200, 3)).astype(np.float32)
    model = KernelSVM(kernels=("linear",), Cs=(1.0,)).fit(X, (X[:, 0] > 0.1).astype(int))
    Q = rng.normal(size=(20_000, 3)).astype(np.float32)
    predicted = model.predict(Q)
    np.testing.assert_array_equal(predicted, model.decision_function(Q) > 0)
    np.testing.assert_array_equal(predicted, model.predict_proba(Q).argmax(axis=1))


@pytest.mark.parametrize("change", [{"epsilon": 50.0}, {"n_iterations": 3}])
def test_parameters_set_after_a_fit_mean_the_same_to_a_copy(data, rng, change):
    """A model that was asked before answers as one that comes out of a file."""
    X, y = data
    model, Q = DANN().fit(X, y ^ (rng.uniform(size=60) < 0.3)), rng.normal(size=(200, 3))
    before = model.kneighbors(Q, 1)[0]
    model.set_params(**change)
    after = model.kneighbors(Q, 1)[0]
    assert (before != after).any()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).kneighbors(Q, 1)[0], after)
