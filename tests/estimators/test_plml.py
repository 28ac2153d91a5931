import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

import judge
from plml import PLML, SML
from plml.stages.metrics import learn_metrics
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import neighbor_triplets

SMALL = {"rescale": False, "n_bases": 4, "random_state": 0}


@pytest.fixture
def fitted(blobs):
    return PLML(**SMALL).fit(*blobs)


@pytest.mark.parametrize("solver", ["auto", "fista"])
@pytest.mark.parametrize("regularization", [0.3, 5.0])
def test_objective_and_gap_by_an_independent_judge(blobs, solver, regularization):
    X, y = blobs
    model = PLML(**SMALL, solver=solver, regularization=regularization, pull=0.5).fit(X, y)
    judged = judge.metrics_primal(
        X, y, model.weights_, model.basis_metrics_, regularization, pull=0.5
    )
    assert model.objective_ == pytest.approx(judged, rel=1e-9)
    assert 0 <= model.dual_gap_ <= model.tol
    assert 0 <= model.weights_gap_ <= model.tol
    # A much tighter solution for the same weights cannot be lower than the certificate allows.
    codes = np.unique(y, return_inverse=True)[1]
    tight = learn_metrics(
        X,
        model.weights_,
        neighbor_triplets(ExactNeighbors(X, codes), 3, 3),
        regularization,
        0.5,
        solver="auto",
        tol=1e-7,
        max_iter=20_000,
    )
    assert tight.converged
    assert tight.objective >= model.objective_ * (1 - model.dual_gap_) * (1 - 1e-7)


def test_stage_1_is_equation_4(blobs):
    X, y = blobs
    model = PLML(**SMALL).fit(X, y)
    judged = judge.weights_primal(
        X, model.anchors_, model.weights_, judge.similarity(X, 6), 1.0, 100.0
    )
    assert model.history_["weights"]["value"][-1] == pytest.approx(judged, rel=1e-9)
    assert model.weights_.min() >= 0
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0, atol=1e-10)
    assert np.linalg.eigvalsh(model.basis_metrics_).min() >= -1e-8


def test_kneighbors_of_the_definition(blobs, fitted, rng):
    X, _ = blobs
    Q = rng.normal(size=(20, 4))
    weights = fitted.local_weights(Q)
    distances, indices = fitted.kneighbors(Q, 4)
    for i in range(len(Q)):
        nearest = judge.nearest(X, Q[i], list(range(len(X))), 1)[0]
        np.testing.assert_array_equal(weights[i], fitted.weights_[nearest])
        expected, d2 = judge.local_neighbors(X, Q[i], weights[i], fitted.basis_metrics_, 4)
        np.testing.assert_array_equal(indices[i], expected)
        np.testing.assert_allclose(distances[i], np.sqrt(d2), rtol=1e-9)
    np.testing.assert_array_equal(fitted.kneighbors(Q, 4, return_distance=False), indices)


def test_kneighbors_of_the_training_instances_leave_themselves_out(blobs, fitted):
    X, _ = blobs
    _, indices = fitted.kneighbors(n_neighbors=3)
    for i in range(len(X)):
        expected, _ = judge.local_neighbors(
            X, X[i], fitted.weights_[i], fitted.basis_metrics_, 3, leave_out=i
        )
        np.testing.assert_array_equal(indices[i], expected)
    with_self = fitted.kneighbors(X, 1, return_distance=False)
    np.testing.assert_array_equal(with_self[:, 0], np.arange(len(X)))


def test_predictions_are_the_votes_of_the_neighbors(blobs, rng):
    X, y = blobs
    labels = np.array(["a", "b", "c"])[y]
    model = PLML(**SMALL, n_neighbors=5).fit(X, labels)
    Q = rng.normal(size=(30, 4))
    neighbors = model.kneighbors(Q, return_distance=False)
    assert neighbors.shape == (30, 5)
    shares = np.array([[np.mean(labels[row] == c) for c in "abc"] for row in neighbors])
    np.testing.assert_allclose(model.predict_proba(Q), shares)
    np.testing.assert_array_equal(model.predict(Q), model.classes_[shares.argmax(axis=1)])


def test_metric_matrices_and_pair_distances_agree(fitted, rng):
    Q, Z = rng.normal(size=(6, 4)), rng.normal(size=(6, 4))
    metrics = fitted.get_mahalanobis_matrix(Q)
    assert metrics.shape == (6, 4, 4)
    expected = [(q - z) @ M @ (q - z) for q, z, M in zip(Q, Z, metrics, strict=True)]
    pairs = np.stack([Q, Z], axis=1)
    np.testing.assert_allclose(fitted.pair_distance(pairs, squared=True), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted.pair_distance(pairs), np.sqrt(expected), rtol=1e-9)
    assert not np.allclose(fitted.pair_distance(pairs), fitted.pair_distance(pairs[:, ::-1]))
    training = fitted.get_mahalanobis_matrix()
    np.testing.assert_allclose(
        training[7], np.tensordot(fitted.weights_[7], fitted.basis_metrics_, axes=1)
    )


def test_served_vectors_rank_like_kneighbors(blobs, fitted, rng):
    Q = rng.normal(size=(15, 4))
    scores = fitted.query_vectors(Q) @ fitted.index_vectors().T
    np.testing.assert_array_equal(
        np.argsort(-scores, axis=1)[:, :3], fitted.kneighbors(Q, 3, return_distance=False)
    )
    assert fitted.query_vectors().shape == fitted.index_vectors().shape == (75, 8)


def test_optimized_query_weights_are_on_the_simplex_and_near_their_neighbors(blobs):
    X, y = blobs
    model = PLML(**SMALL, query_weights="optimize", tol=1e-4).fit(X, y)
    weights = model.local_weights(X + 1e-9)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-10)
    assert weights.min() >= 0
    # At a training point equation 4 gives about the weights that it has.
    assert np.abs(weights - model.weights_).max() < 0.1
    assert model.score(X, y) == 1.0


def test_optimized_query_weights_do_not_depend_on_the_batch(blobs, rng):
    X, y = blobs
    model = PLML(**SMALL, query_weights="optimize").fit(X, y)
    Q = rng.normal(size=(30, 4))
    alone = np.vstack([model.local_weights(q[None]) for q in Q])
    np.testing.assert_allclose(model.local_weights(Q), alone, atol=1e-3)
    crowd = np.vstack([Q, np.full((25, 4), 1e4)])  # far from everything: no similarity at all
    np.testing.assert_allclose(model.local_weights(crowd)[:30], alone, atol=1e-3)
    model.max_iter = 1
    with pytest.warns(ConvergenceWarning, match="weights of new points"):
        model.local_weights(Q)


def test_optimized_query_weights_next_to_many_duplicates(blobs, rng):
    X, y = np.repeat(blobs[0], 10, axis=0), np.repeat(blobs[1], 10)
    model = PLML(**SMALL, query_weights="optimize").fit(X, y)
    assert model.score(X + 1e-3 * rng.normal(size=X.shape), y) > 0.9


def test_float32_stays_float32(blobs):
    X, y = blobs
    model = PLML(**SMALL).fit(X.astype(np.float32), y)
    for name in ("anchors_", "weights_", "basis_metrics_"):
        assert getattr(model, name).dtype == np.float32
    assert model.local_weights(X.astype(np.float32)).dtype == np.float32
    assert isinstance(model.objective_, float)
    assert model.dual_gap_ <= model.tol
    judged = judge.metrics_primal(
        X.astype(np.float32), y, model.weights_, model.basis_metrics_, 1.0, 1.0
    )
    assert model.objective_ == pytest.approx(judged, rel=1e-6)
    double = PLML(**SMALL).fit(X, y)
    assert model.objective_ == pytest.approx(double.objective_, rel=2e-3)
    assert np.mean(model.predict(X) == double.predict(X)) == 1.0


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_names(blobs, fitted, frame):
    X, y = blobs
    names = ["length", "width", "height", "mass"]
    table = frame(dict(zip(names, X.T, strict=True)))
    model = PLML(**SMALL).fit(table, pd.Series(y) if frame is pd.DataFrame else pl.Series(y))
    assert list(model.feature_names_in_) == names
    np.testing.assert_array_equal(model.predict(table), fitted.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["width", "length", "height", "mass"]])


def test_clone_pickle_pipeline_and_grid_search(blobs, fitted):
    X, y = blobs
    again = clone(fitted).fit(X, y)
    np.testing.assert_array_equal(again.basis_metrics_, fitted.basis_metrics_)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.kneighbors(X, 3)[0], fitted.kneighbors(X, 3)[0])
    pipeline = make_pipeline(StandardScaler(), PLML(**SMALL))
    search = GridSearchCV(pipeline, {"plml__regularization": [0.1, 10.0]}, cv=2).fit(X, y)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max() > 0.6
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.6


def test_random_state_reproduces(blobs):
    X, y = blobs
    first, second = (PLML(n_bases=4, random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.basis_metrics_, second.basis_metrics_)
    other = PLML(n_bases=4, random_state=4).fit(X, y)
    assert not np.array_equal(first.anchors_, other.anchors_)


def test_fit_leaves_its_input_alone(blobs):
    X, y = blobs
    X.setflags(write=False)
    before = X.copy()
    PLML(**SMALL).fit(X, y).predict(X)
    np.testing.assert_array_equal(X, before)


def test_history_falls_to_the_certificate(fitted):
    for stage, gap in (("weights", fitted.weights_gap_), ("metrics", fitted.dual_gap_)):
        history = fitted.history_[stage]
        assert history["gap"][-1] == pytest.approx(gap, rel=1e-6)
        assert (np.diff(history["seconds"]) >= 0).all()
        assert history["gap"][0] > history["gap"][-1]


@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_an_unclosed_gap_is_named(blobs, solver):
    X, y = blobs
    model = PLML(**SMALL, tol=1e-9, max_iter=3, solver=solver)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y)
    messages = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert any("stage 1" in m and f"{model.weights_gap_:.2e}" in m for m in messages)
    assert any("stage 2" in m and f"{model.dual_gap_:.2e}" in m for m in messages)
    # The certificate is of the matrices that are returned, converged or not.
    judged = judge.metrics_primal(X, y, model.weights_, model.basis_metrics_, 1.0, 1.0)
    assert model.objective_ == pytest.approx(judged, rel=1e-9)


def test_warnings_point_at_the_caller(blobs):
    X, y = blobs
    with pytest.warns(ConvergenceWarning) as caught:
        PLML(**SMALL, tol=1e-9, max_iter=2).fit(X, y)
    assert {w.filename for w in caught} == {__file__}


def test_a_class_of_one_is_named_and_still_predicted(blobs):
    X, y = blobs
    X, y = np.vstack([X, [[9.0, 9, 9, 9]]]), np.append(np.array(["x", "y", "z"])[y], "alone")
    with pytest.warns(UserWarning, match="'alone'"):
        model = PLML(**SMALL).fit(X, y)
    assert model.predict([[9.0, 9, 9, 9]])[0] == "alone"


def test_more_bases_than_rows(blobs):
    X, y = blobs
    with pytest.warns(UserWarning, match=r"n_bases=20 .* 10 training rows give 10"):
        model = PLML(random_state=0).fit(X[::8], y[::8])
    assert len(model.anchors_) == model.weights_.shape[1] == len(model.basis_metrics_) == 10


def test_constant_features_and_all_rows_equal(blobs):
    X, y = blobs
    model = PLML(**SMALL).fit(np.column_stack([X, np.full(len(X), 7.0)]), y)
    assert model.dual_gap_ <= model.tol
    with pytest.warns(UserWarning, match="learned metric is zero"):
        flat = PLML(random_state=0).fit(np.ones((10, 3)), np.arange(10) % 2)
    assert flat.dual_gap_ <= flat.tol
    assert set(flat.predict(np.ones((2, 3)))) <= {0, 1}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_bases", 0),
        ("n_bases", 2.5),
        ("regularization", 0.0),
        ("regularization", -1),
        ("regularization", np.nan),
        ("regularization", "big"),
        ("pull", -0.1),
        ("locality", -1.0),
        ("smoothness", None),
        ("n_targets", 0),
        ("n_impostors", "3"),
        ("n_graph_neighbors", 0),
        ("n_neighbors", 0),
        ("query_weights", "guess"),
        ("tol", 0.0),
        ("max_iter", 0),
        ("solver", "newton"),
        ("device", 3),
        ("n_jobs", 1.5),
        ("random_state", "seed"),
    ],
)
def test_bad_parameters_are_named_before_the_work(blobs, parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}'"):
        PLML(**{**SMALL, parameter: value}).fit(*blobs)


def test_bad_data_is_named(blobs):
    X, y = blobs
    model = PLML(**SMALL)
    with pytest.raises(ValueError, match=r"one class only .*'cat'"):
        model.fit(X, np.repeat("cat", len(X)))
    with pytest.raises(ValueError, match="every class has a single member"):
        model.fit(X, np.arange(len(X)))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(X, X[:, 0])
    huge = pd.DataFrame(X.copy(), columns=["a", "b", "c", "d"])
    huge["c"] *= 1e200
    with pytest.raises(ValueError, match=r"feature 'c' reaches .* standardise"):
        model.fit(huge, y)
    with pytest.raises(ValueError, match="n_neighbors=76 is more than the 75"):
        PLML(**SMALL, n_neighbors=76).fit(X, y)
    with pytest.raises(NotFittedError):
        PLML().predict(X)


@pytest.mark.parametrize("scale", [1e7, 1e30])
def test_float32_too_large_for_its_fourth_power_is_computed_in_float64(blobs, scale):
    X, y = blobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unscaled data rarely closes the gap
        model = PLML(**SMALL, max_iter=20).fit((X * scale).astype(np.float32), y)
    assert model.basis_metrics_.dtype == np.float64
    assert np.isfinite(model.basis_metrics_).all()
    assert np.isfinite(model.objective_)


def test_queries_unlike_constant_training_rows(rng):
    X, y = np.ones((4, 2)), [0, 1, 0, 1]
    with pytest.warns(UserWarning, match="learned metric is zero"):
        model = PLML(n_bases=1).fit(X, y)
    np.testing.assert_array_equal(
        model.kneighbors(rng.normal(size=(3, 2)), 2, return_distance=False), [[0, 1]] * 3
    )


def test_bad_queries_are_named(blobs, fitted):
    X, _ = blobs
    with pytest.raises(ValueError, match="3 features"):
        fitted.predict(X[:, :3])
    with pytest.raises(ValueError, match="n_neighbors=75 is more than the 74"):
        fitted.kneighbors(n_neighbors=75)
    with pytest.raises(ValueError, match="positive integer"):
        fitted.kneighbors(X, n_neighbors=0)
    with pytest.raises(ValueError, match=r"shape \(n_pairs, 2, 4\)"):
        fitted.pair_distance(X)
    with pytest.raises(ValueError, match="5 features"):
        fitted.pair_distance(np.zeros((3, 2, 5)))
    with pytest.raises(ValueError, match="NaN"):
        fitted.pair_distance(np.full((3, 2, 4), np.nan))
    with pytest.raises(ValueError, match="too large"):
        fitted.pair_distance(np.full((3, 2, 4), 1e300))
    fitted.n_neighbors = 76
    with pytest.raises(ValueError, match="n_neighbors=76 is more than the 75"):
        fitted.predict(X)


def test_n_jobs_limits_threads_without_changing_the_answer(blobs, monkeypatch):
    X, y = blobs
    seen = []
    learn = PLML._learn

    def spy(self, *args):
        seen.append({pool["num_threads"] for pool in threadpool_info()})
        return learn(self, *args)

    monkeypatch.setattr(PLML, "_learn", spy)
    one = PLML(**SMALL, n_jobs=1).fit(X, y)
    two = PLML(**SMALL, n_jobs=2).fit(X, y)
    assert seen[0] == {1}
    assert max(seen[1]) == 2
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-6)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_verbose_shows_both_stages_and_their_gaps(blobs, capfd):
    PLML(**SMALL, verbose=1).fit(*blobs)
    shown = capfd.readouterr().err
    assert "stage 1" in shown
    assert "stage 2" in shown
    assert "gap" in shown


class TestSML:
    def test_is_plml_with_one_basis(self, blobs):
        X, y = blobs
        options = {"tol": 1e-7, "max_iter": 5000}
        single = SML(**options).fit(X, y)
        local = PLML(n_bases=1, **options).fit(X, y)
        np.testing.assert_allclose(single.basis_metrics_, local.basis_metrics_, atol=1e-4)
        assert single.objective_ == pytest.approx(local.objective_, rel=1e-6)

    def test_transform_is_the_metric(self, blobs, rng):
        X, y = blobs
        model = SML().fit(X, y)
        Q = rng.normal(size=(5, 4))
        pairs = np.stack([Q, X[:5]], axis=1)
        mapped = np.linalg.norm(model.transform(Q) - model.transform(X[:5]), axis=1)
        np.testing.assert_allclose(mapped, model.pair_distance(pairs), rtol=1e-6)
        np.testing.assert_allclose(
            model.components_.T @ model.components_, model.basis_metrics_[0], atol=1e-10
        )
        assert model.get_mahalanobis_matrix().shape == (75, 4, 4)
        assert len(model.get_feature_names_out()) == len(model.components_)


@pytest.mark.parametrize("device", ["abacus", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_one_line(blobs, device):
    with pytest.raises(ValueError, match=f"device.*{device}|PyTorch") as error:
        PLML(device=device).fit(*blobs)
    assert "\n" not in str(error.value)
