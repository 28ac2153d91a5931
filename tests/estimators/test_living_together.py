"""Weights, cases that come and go, and warm refits, where they meet."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris

from living import LIVING
from plml import CBLML, PLML, SML, AutoPLML, load, save
from plml.preprocessing.table_encoder import TableEncoder

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
#: Whose predictions are votes.
VOTING = [name for name in LIVING if name != "LMNN-energy"]
K = 7


@pytest.fixture
def weighted(rng):
    """Rows to learn from with their weights, some of them zero; cases to add; queries."""
    X, y = load_iris(return_X_y=True)
    X = X + 0.1 * rng.normal(size=X.shape)
    parts = np.split(rng.permutation(len(X)), [80, 110])
    counts = rng.integers(0, 4, size=80).astype(float)
    return [(X[part], y[part]) for part in parts], counts


def fitted(name, weighted, **parameters):
    ((X, y), *_), counts = weighted
    model = LIVING[name](n_neighbors=K, weigh_votes=True, **parameters)
    return model.fit(X, y, sample_weight=counts)


def weights_by_definition(learned, codes, added):
    """Of all cases: an added one has the average weight of the learned rows of its class."""
    return np.concatenate([learned, [learned[codes == code].mean() for code in added]])


@pytest.mark.parametrize("vote", ["uniform", "distance"])
@pytest.mark.parametrize("name", VOTING)
def test_votes_of_cases_that_came_and_went_are_weighed(name, vote, weighted, tmp_path):
    (_, (X_new, y_new), (Q, _)), counts = weighted
    model = fitted(name, weighted, vote=vote)
    y = weighted[0][0][1][counts > 0]
    model.add_cases(X_new, y_new).forget_cases([0, 5, 9, len(y) + 3])
    learned = np.delete(counts[counts > 0], [0, 5, 9])
    codes, added = np.delete(y, [0, 5, 9]), np.delete(y_new, 3)
    weights, codes_of_all = (
        weights_by_definition(learned, codes, added),
        np.concatenate([codes, added]),
    )
    distances, nearest = model.kneighbors(Q)
    votes = weights[nearest] / (distances if vote == "distance" else 1.0)
    shares = np.stack(
        [np.bincount(codes_of_all[row], v, 3) for row, v in zip(nearest, votes, strict=True)]
    )
    shares /= shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(Q), shares, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.explain(Q).probabilities, shares, rtol=1e-9, atol=1e-12)
    save(model, tmp_path / "model.skops")
    found = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(found.predict_proba(Q), model.predict_proba(Q))


@pytest.mark.parametrize("name", ["PLML", "LMNN", "DANN", "GLML"])
def test_weighed_votes_do_not_depend_on_the_order_of_changes(name, weighted):
    (_, (X_new, y_new), (Q, _)), _ = weighted
    out = [0, 5, 7, 8, 9, 10, 20]
    first = fitted(name, weighted, class_weight="balanced")
    other = fitted(name, weighted, class_weight="balanced")
    first.add_cases(X_new, y_new).forget_cases(out)
    other.forget_cases(out).add_cases(X_new[:9], y_new[:9]).add_cases(X_new[9:], y_new[9:])
    np.testing.assert_allclose(first.predict_proba(Q), other.predict_proba(Q), rtol=1e-9)


@pytest.mark.parametrize("make", [CBLML, partial(PLML, query_weights="optimize")])
def test_an_anchor_becomes_the_weighted_mean_of_the_rest(make, weighted):
    ((X, y), *_), counts = weighted
    model = make(n_bases=4, random_state=0).fit(X, y, sample_weight=counts)
    rows, learned = model.training_cases()[0], counts[counts > 0]
    labels = cdist(rows, model.anchors_).argmin(axis=1)
    out = np.flatnonzero(labels == 1)[:2]
    model.forget_cases(out)
    members = np.setdiff1d(np.flatnonzero(labels == 1), out)
    expected = np.average(rows[members], axis=0, weights=learned[members])
    np.testing.assert_allclose(model.anchors_[1], expected, rtol=1e-9)


def test_names_of_added_cases_are_their_own_where_rows_were_left_out(weighted):
    ((X, y), (X_new, y_new), _), counts = weighted
    for model in (SML(), PLML(n_bases=3, random_state=0)):
        model.fit(X, y, sample_weight=counts).add_cases(X_new, y_new)
        names = model.training_names()
        assert len(np.unique(names)) == len(names) == len(model.training_cases()[1])
        np.testing.assert_array_equal(names[: model.n_learned], model.kept_rows_)


def test_kept_rows_follow_what_is_forgotten(weighted):
    ((X, y), (X_new, y_new), _), counts = weighted
    auto = AutoPLML(metrics=("prior", "one"), n_neighbors=(3,), n_members=1, cv=2, random_state=0)
    for model in (auto, PLML(n_bases=3, random_state=0)):
        model.fit(X, y, sample_weight=counts).add_cases(X_new, y_new)
        model.forget_cases([2, 4, model.n_learned + 1])
        kept = np.delete(np.flatnonzero(counts), [2, 4])
        np.testing.assert_array_equal(model.kept_rows_, kept)
        np.testing.assert_allclose(model.training_cases()[0][: model.n_learned], X[kept])


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 2: 0.5}])
@pytest.mark.parametrize("name", ["SML", "AutoPLML"])
def test_staleness_refits_with_the_weights(name, class_weight, weighted, monkeypatch):
    ((X, y), (X_new, y_new), (Q, labels)), counts = weighted
    model = SML(n_neighbors=5, weigh_votes=True, class_weight=class_weight)
    if name == "AutoPLML":
        shown = {"metrics": ("one",), "n_neighbors": (5,), "vote": ("uniform",), "cv": 2}
        model = AutoPLML(**shown, weigh_votes=True, class_weight=class_weight, random_state=0)
    model.fit(X, y, sample_weight=counts).add_cases(X_new, y_new)
    rows, codes = model.training_cases()
    given = []
    fit = type(model).fit
    monkeypatch.setattr(
        type(model), "fit", lambda self, X, y, **how: given.append(how) or fit(self, X, y, **how)
    )
    found = model.staleness(Q, labels)
    assert found.n_rows == len(Q)
    assert len(given) == 2
    old = model.training_weights()
    for how in given:
        weights = how["sample_weight"]
        np.testing.assert_array_equal(weights[: len(old)], old)
        expected = {old[: model.n_learned][codes[: model.n_learned] == c].mean() for c in range(3)}
        assert {round(w, 9) for w in weights[len(old) :]} == {round(w, 9) for w in expected}
    places, queries = rows, Q
    if name == "AutoPLML":
        places, queries = model.model_.training_cases()[0], model.encoder_.transform(Q)
    nearest = np.argsort(cdist(queries, places), axis=1)[:, :5]
    plain = [np.bincount(codes[i], old[i], 3).argmax() for i in nearest]
    np.testing.assert_array_equal(found.right["Euclidean neighbours"], plain == labels)


@pytest.fixture
def table(rng):
    """Numbers, categories, codes, dates with the day first, and gaps; the classes."""
    n = 120
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D")
    table = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    table["colour"] = rng.choice(["red", "green"], n)
    table["code"] = pd.Categorical(rng.integers(1, 4, n))
    table["day"] = days.strftime("%d/%m/%Y")
    y = np.where(table["a"] + (table["colour"] == "red") > 0.4, "yes", "no")
    for column, rows in zip(table, rng.integers(0, n, size=(5, 8)), strict=True):
        table.loc[rows, column] = None
    return table, y


def small_auto(table, y):
    how = {"metrics": ("prior", "one"), "n_neighbors": (1, 5), "cv": 2, "random_state": 0}
    return AutoPLML(**how).fit(table, y)


@pytest.mark.parametrize("dates", ["day first", "dates"])
def test_staleness_refits_to_the_table_as_it_was_understood(dates, table, monkeypatch):
    rows, y = table
    if dates == "dates":
        rows["day"] = pd.to_datetime(rows["day"], format="%d/%m/%Y")
    model, given = small_auto(rows[:80], y[:80]), []
    fit = AutoPLML.fit

    def recorded(self, X, y, **how):
        given.append(X)
        return fit(self, X, y, **how)

    monkeypatch.setattr(AutoPLML, "fit", recorded)
    assert model.staleness(rows[80:], y[80:]).n_rows == 40
    assert len(given) == 2
    for joined in given:
        assert len(joined) == 100
        encoder = TableEncoder().fit(joined)
        assert encoder.categories_ == ["colour", "code"]
        assert encoder.dates_ == ["day"]
        first, expected = (model.encoder_.transform(part) for part in (joined[:80], rows[:80]))
        np.testing.assert_allclose(first, expected, atol=1e-9)


@pytest.mark.parametrize("names", [None, [30, 10, 20, 40]])
def test_cases_of_a_table_without_names(names, table):
    rows, y = table
    rows = rows.drop(columns="code")  # an array does not say that numbers are codes
    unnamed = rows.to_numpy(object) if names is None else rows.set_axis(names, axis=1)
    named, other = small_auto(rows[:80], y[:80]), small_auto(unnamed[:80], y[:80])
    for model, X in ((named, rows), (other, unnamed)):
        model.add_cases(X[80:100], y[80:100]).forget_cases([0, 3, 85])
    np.testing.assert_array_equal(
        other.predict_proba(unnamed[100:]), named.predict_proba(rows[100:])
    )
    values = [pd.DataFrame(model.training_values()).astype(str) for model in (named, other)]
    pd.testing.assert_frame_equal(*values)
    told = [m.explain(X[100:]).contrasts for m, X in ((named, rows), (other, unnamed))]
    np.testing.assert_allclose(*told)
    verdicts = [m.staleness(X[100:], y[100:]).verdict for m, X in ((named, rows), (other, unnamed))]
    assert verdicts[0] == verdicts[1]
