"""How gaps are filled, and how that is chosen."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.impute import KNNImputer
from sklearn.preprocessing import StandardScaler

from plml import AutoPLML
from plml.estimators._encoding_choice import fill_scores
from plml.preprocessing import TableEncoder

FEW = {"n_bases": 3, "n_neighbors": (1, 5), "metrics": ("prior", "one"), "random_state": 0}


@pytest.fixture(scope="module")
def gappy():
    X, y = load_iris(return_X_y=True)
    return np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X), y


def told_by_gaps(n=300):
    """A gap in the first column is the class; all else is noise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 2)), np.resize([0, 1], n)
    X[(y == 1) & (rng.random(n) < 0.95), 0] = np.nan
    return X, y


def told_by_others(n=400):
    """A copy of the label's column, half of each missing: a neighbour knows, a median does not."""
    rng = np.random.default_rng(0)
    y = np.resize([0, 1], n)
    X = y[:, None] * 2.0 + rng.normal(0, 0.3, (n, 3))
    X[np.arange(n), rng.integers(0, 3, n)] = np.nan
    return X, y


def test_neighbours_fill_as_scikit_learn_does(gappy):
    X, _ = gappy
    expected = KNNImputer().fit_transform(StandardScaler().fit_transform(X))
    np.testing.assert_allclose(TableEncoder(missing="neighbors").fit(X).transform(X), expected)


def test_marks_say_where_the_gaps_are(gappy):
    X, _ = gappy
    encoder = TableEncoder(standardize=False, missing="indicator").fit(X)
    found = encoder.transform(X)
    np.testing.assert_array_equal(found[:, 4:], np.isnan(X))
    np.testing.assert_allclose(found[:, :4][~np.isnan(X)], X[~np.isnan(X)])


def test_what_helps_is_chosen_and_said():
    X, y = told_by_gaps()
    model = AutoPLML(**FEW).fit(X, y)
    assert model.encoder_.missing == "indicator"
    assert max(model.fill_scores_, key=model.fill_scores_.get) == "indicator"
    assert "the median with a mark, chosen by" in model.summary()
    assert f"{model.fill_scores_['median']:.2%}" in model.summary()
    assert model.score(X, y) > 0.9


def test_neighbours_are_chosen_where_other_columns_know():
    X, y = told_by_others()
    scores = fill_scores(X, y, True, 0)
    assert scores["neighbors"] >= scores["median"]


@pytest.mark.parametrize("framed", [False, True])
def test_columns_that_a_fold_knows_nothing_of_choose_nothing(framed):
    """One value, one date among 120 rows, in one fold held out."""
    X, y = told_by_others(120)
    lonely = np.where(np.arange(len(X)) == 7, 1.0, np.nan)
    table = np.column_stack([X, lonely])
    if framed:
        table = pd.DataFrame(table, columns=list("abcd"))
        table["when"] = pd.to_datetime(pd.Series(["2020-01-01"], index=[7]))
    model = AutoPLML(**FEW).fit(table, y)
    assert model.fill_scores_ == AutoPLML(**FEW).fit(X, y).fill_scores_
    assert model.n_features_in_ == table.shape[1]
    assert fill_scores(lonely[:, None], y, True, 0) == {}


def test_classes_may_have_fewer_rows_than_there_are_folds(gappy):
    X, y = gappy
    rows = np.r_[0:3, 50:54, 100:103]
    model = AutoPLML(**FEW).fit(X[rows], y[rows])
    assert set(model.fill_scores_) == {"median", "indicator", "neighbors"}
    assert fill_scores(X[:4], np.arange(4), True, 0) == {}


def test_nothing_is_chosen_where_nothing_is_missing_or_all_is_said(gappy):
    X, y = gappy
    full = np.nan_to_num(X, nan=1.0)
    assert AutoPLML(**FEW).fit(full, y).fill_scores_ == {}
    asked = AutoPLML(**FEW, missing="neighbors").fit(X, y)
    assert asked.fill_scores_ == {}
    assert asked.encoder_.missing == "neighbors"
    with pytest.raises(ValueError, match="missing"):
        AutoPLML(**FEW, missing="zero").fit(X, y)


@pytest.mark.parametrize("missing", ["median", "indicator", "neighbors"])
def test_stored_cases_are_as_they_were(gappy, missing):
    X, y = gappy
    table = pd.DataFrame(X, columns=list("abcd")).assign(when=pd.Timestamp("2020-01-01"))
    table["when"] += pd.to_timedelta(np.arange(len(table)) * 31, "h")
    table.loc[5, "when"] = pd.NaT
    model = AutoPLML(**FEW, missing=missing).fit(table, y)
    values = model.training_values()
    np.testing.assert_allclose(values[:, :4].astype(float), X)
    texts = table["when"].dt.strftime("%Y-%m-%d %H:%M")
    np.testing.assert_array_equal(np.delete(values[:, 4], 5), texts.drop(5))
    assert np.isnan(values[5, 4])
    told = model.explain(table[:4], 2)
    assert told.feature_names.tolist() == ["a", "b", "c", "d", "when"]
    np.testing.assert_allclose(told.likeness.sum(axis=2), told.squared_distances, atol=1e-9)


def test_many_categories_are_not_a_feature_each():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "town": rng.integers(0, 80, 400).astype(str)})
    table["town"] = "t" + table["town"]
    encoder = TableEncoder().fit(table)
    assert len(encoder.get_feature_names_out()) == 1 + 31
    assert "'town' has 80 values" in "\n".join(encoder.summary_lines())


def test_a_few_rows_with_a_gap():
    X, y = [[0.0, np.nan], [1.0, 2.0], [0.1, 3.0], [1.1, 2.5], [0.2, 1.0]], [0, 1, 0, 1, 0]
    assert AutoPLML(random_state=0).fit(X, y).predict(X).shape == (5,)
    assert fill_scores(np.array(X)[:2], np.array([0, 1]), True, 0) == {}
