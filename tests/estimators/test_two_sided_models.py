"""Estimators with metrics at the cases, priors, votes by distance, and in any units."""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import judge
import plml
from plml import CBLML, DANN, PLML, PLMLCV, SML

KINDS = ["class", "local"]


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module", params=KINDS)
def fitted(request, wine):
    X, y, Q, _ = wine
    model = PLML(n_bases=3, n_neighbors=3, case_metrics=request.param, pull=0.1, random_state=0)
    V = np.eye(3)[y] if request.param == "class" else None
    model.fit(X, y)
    return model, X, y, Q, model.weights_ if V is None else V


def distances(model, X, V, q, w):
    """By the definition."""
    return np.array(
        [
            judge.local_distance(q, x, w, model.basis_metrics_)
            + judge.local_distance(q, x, v, model.case_metrics_)
            for x, v in zip(X, V, strict=True)
        ]
    )


def test_neighbours_and_votes_by_the_definition(fitted):
    model, X, y, Q, V = fitted
    d, found = model.kneighbors(Q)
    predicted, weights = model.predict(Q), model.local_weights(Q)
    for i, q in enumerate(Q):
        truth = distances(model, X, V, q, weights[i])
        order = np.argsort(truth, kind="stable")[:3]
        np.testing.assert_array_equal(found[i], order)
        np.testing.assert_allclose(d[i], np.sqrt(truth[order]), rtol=1e-9)
        assert predicted[i] == np.bincount(y[order], minlength=3).argmax()


def test_certificate_by_an_independent_judge(fitted):
    """The objective in the units of learning, from what the model returned alone."""
    model, X, y, _, V = fitted
    Z, unit = X / model.scale_, model.scale_**2
    M, N = model.basis_metrics_ * unit, model.case_metrics_ * unit
    value = model.regularization * (np.sum(M**2) + np.sum(N**2))
    targets, impostors = judge.triplet_lists(X, y, 3, 3)
    W = model.weights_
    for i in range(len(Z)):

        def d2(j, i=i):
            return judge.local_distance(Z[i], Z[j], W[i], M) + judge.local_distance(
                Z[i], Z[j], V[j], N
            )

        near, far = [d2(j) for j in targets[i]], [d2(k) for k in impostors[i]]
        value += 0.1 * sum(near) + sum(max(0.0, 1.0 + a - b) for a in near for b in far)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    assert model.dual_gap_ <= model.tol


def test_vectors_serve_the_neighbours(fitted):
    model, _, _, Q, _ = fitted
    scores = model.query_vectors(Q) @ model.index_vectors().T
    assert model.index_vectors().shape[1] == 2 * 13 + 3 + 3 + 1
    np.testing.assert_array_equal(
        np.argsort(-scores, axis=1)[:, :3], model.kneighbors(Q, return_distance=False)
    )


def test_pairs_matrices_and_explanations_mean_the_same_distance(fitted):
    model, X, _, Q, _ = fitted
    d, found = model.kneighbors(Q, 2)
    pairs = np.stack([Q, X[found[:, 0]]], axis=1)
    np.testing.assert_allclose(model.pair_distance(pairs), d[:, 0], rtol=1e-9)
    explanation = model.explain(Q, 2)
    np.testing.assert_allclose(explanation.contributions.sum(axis=2), d**2, rtol=1e-9)
    step = 1e-4 * np.ones(13)
    close = model.pair_distance(np.stack([X, X + step], axis=1), squared=True)
    form = np.einsum("d,nde,e->n", step, model.get_mahalanobis_matrix(), step)
    np.testing.assert_allclose(close, form, rtol=1e-6)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(X), model.get_mahalanobis_matrix(), rtol=1e-9
    )
    np.testing.assert_allclose(model.local_importance(Q).sum(axis=1), 1.0)


def test_saved_and_loaded(fitted, tmp_path):
    model, _, _, Q, _ = fitted
    plml.save(model, tmp_path / "model.skops")
    again = plml.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(Q), model.predict(Q))
    np.testing.assert_array_equal(again.case_metrics_, model.case_metrics_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_goes_on_from_its_checkpoint(wine, kind, tmp_path):
    X, y, Q, _ = wine
    model = PLML(n_bases=3, case_metrics=kind, prior="identity", random_state=0)
    whole = clone(model).fit(X, y)
    first = clone(model).fit(X, y, checkpoint=tmp_path / "fit.npz")
    again = clone(model).fit(X, y, checkpoint=tmp_path / "fit.npz")
    for other in (first, again):
        np.testing.assert_array_equal(other.case_metrics_, whole.case_metrics_)
        np.testing.assert_array_equal(other.predict(Q), whole.predict(Q))


@pytest.mark.parametrize("solver", ["fista", "auto"])
def test_solvers_agree(wine, solver):
    X, y, _, _ = wine
    options = {"n_bases": 2, "case_metrics": "class", "prior": "identity", "random_state": 0}
    tight = PLML(**options, tol=1e-6, max_iter=20_000).fit(X, y)
    model = PLML(**options, solver=solver, tol=1e-3).fit(X, y)
    assert model.objective_ == pytest.approx(tight.objective_, rel=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_refuses_what_it_cannot_do(wine, kind):
    da = pytest.importorskip("dask.array")
    X, y, _, _ = wine
    for parameters in ({"case_metrics": kind}, {"prior": "identity"}, {"vote": "distance"}):
        name = next(iter(parameters))
        with pytest.raises(ValueError, match=f"{name}=.* is for one machine; on a Dask cluster"):
            PLML(**parameters).fit(da.from_array(X, chunks=30), da.from_array(y, chunks=30))


class TestVotes:
    @pytest.mark.parametrize("k", [1, 4, 15])
    def test_by_distance_as_in_scikit_learn(self, k):
        X, y = load_iris(return_X_y=True)
        model = SML(n_neighbors=k, vote="distance", prior="identity", regularization=1e3).fit(X, y)
        Z = model.transform(X)
        peer = KNeighborsClassifier(k, weights="distance", algorithm="brute").fit(Z, y)
        queries = X[::3] + 0.05
        np.testing.assert_allclose(
            model.predict_proba(queries), peer.predict_proba(model.transform(queries)), atol=1e-6
        )
        shares = model.predict_proba(X)  # every row is at distance zero of itself
        assert (shares.argmax(axis=1) == y).mean() > 0.98

    @pytest.mark.parametrize("model", [DANN(vote="distance"), CBLML(n_bases=2, vote="distance")])
    def test_of_other_estimators(self, model):
        X, y = load_iris(return_X_y=True)
        model.set_params(n_neighbors=5).fit(X[::2], y[::2])
        queries = X[1::2] + 0.013  # rows repeat
        d, found = model.kneighbors(queries)
        weights = 1.0 / d
        expected = np.stack(
            [(weights * (y[::2][found] == c)).sum(axis=1) for c in range(3)], axis=1
        )
        np.testing.assert_allclose(
            model.predict_proba(queries), expected / expected.sum(axis=1, keepdims=True), rtol=1e-9
        )


class TestUnits:
    @pytest.mark.parametrize(
        "model",
        [
            PLML(n_bases=4, random_state=0),
            PLML(n_bases=4, query_weights="optimize", random_state=0),
            PLML(n_bases=2, case_metrics="class", prior="within", random_state=0),
            PLMLCV(n_bases=3, regularizations=(0.1, 1.0), random_state=0),
            SML(prior="identity", regularization=100.0),
            CBLML(n_bases=3, random_state=0),
        ],
        ids=["PLML", "optimize", "two-sided", "PLMLCV", "SML", "CBLML"],
    )
    @pytest.mark.parametrize("unit", [1000.0, 2.0**-20])
    def test_the_same_answer_in_any_units(self, wine, model, unit):
        X, y, Q, _ = wine
        here, there = clone(model).fit(X, y), clone(model).fit(unit * X, y)
        np.testing.assert_array_equal(here.predict(Q), there.predict(unit * Q))
        assert there.dual_gap_ == pytest.approx(here.dual_gap_, rel=1e-3, abs=1e-6)
        assert there.scale_ == pytest.approx(unit * here.scale_)
        np.testing.assert_allclose(
            there.basis_metrics_ * unit**2, here.basis_metrics_, rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(
            there.kneighbors(unit * Q)[0], here.kneighbors(Q)[0], rtol=1e-4, atol=1e-8
        )

    def test_without_it_the_rows_are_taken_as_they_are(self, wine):
        X, y, _, _ = wine
        model = PLML(n_bases=3, rescale=False, random_state=0).fit(X, y)
        assert model.scale_ == 1.0
        judged = judge.metrics_primal(X, y, model.weights_, model.basis_metrics_, 1.0, 1.0)
        assert model.objective_ == pytest.approx(judged, rel=1e-9)

    def test_the_scale_is_the_mean_distance_to_the_mean(self, wine):
        X, y, _, _ = wine
        model = SML().fit(X, y)
        assert model.scale_ == pytest.approx(
            np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        )
        assert SML().fit(np.ones((6, 2)), [0, 1] * 3).scale_ == 1.0


@pytest.mark.parametrize("later", [None, "class", "local"])
def test_a_parameter_that_is_set_after_the_fit_changes_nothing_of_it(fitted, tmp_path, later):
    model, _, _, Q, _ = fitted
    expected = model.predict(Q)
    changed = copy.deepcopy(model).set_params(case_metrics=later)
    np.testing.assert_array_equal(changed.predict(Q), expected)
    plml.save(changed, tmp_path / "model.skops")
    np.testing.assert_array_equal(plml.load(tmp_path / "model.skops").predict(Q), expected)
