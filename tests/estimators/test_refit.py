"""Predictions while the same object is fitted again: the old answer or the new one."""

import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError

from every_estimator import ESTIMATORS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def tables():
    """Two tables of other rows, labels and numbers of rows, with the same columns."""
    X, y = load_iris(return_X_y=True)
    return (X[:100], np.array(["a", "b"])[y[:100]]), (X[30:][::-1], y[30:][::-1] + 5), X


SLOW = ("PLMLCV", "BoostMetric", "CBLML", "DANN", "GLML", "LMNN", "LMNN-energy", "LMNNMM")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ESTIMATORS],
)
def test_the_old_answer_or_the_new_one(name, tables):
    first, second, Q = tables
    expected = {clone(ESTIMATORS[name]()).fit(*part).predict(Q).tobytes() for part in tables[:2]}
    model = ESTIMATORS[name]().fit(*first)
    done, found, errors = threading.Event(), [], []

    def ask():
        while not done.is_set():
            try:
                found.append(model.predict(Q).tobytes())
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(1000):
            model.fit(*(second, first)[turn % 2])
            if turn >= 5 and len(found) >= 8:
                break
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert len(found) >= 8
    assert set(found) <= expected


def test_every_question_sees_one_fit(tables, monkeypatch):
    """A refit in the middle of an answer: the answer is that of the fit it began with."""
    first, second, Q = tables
    model = ESTIMATORS["PLML"]().fit(*first)
    questions = {
        "predict": lambda: model.predict(Q),
        "predict_proba": lambda: model.predict_proba(Q),
        "kneighbors": lambda: model.kneighbors(Q, 3)[1],
        "local_weights": lambda: model.local_weights(Q),
        "query_vectors": lambda: model.query_vectors(Q),
        "get_mahalanobis_matrix": lambda: model.get_mahalanobis_matrix(Q),
        "explain": lambda: model.explain(Q).predictions,
    }
    for name, ask in questions.items():
        model.fit(*first)
        before = ask()
        real = type(model)._validate_queries

        def refit_then_validate(self, X, real=real):
            monkeypatch.setattr(type(model), "_validate_queries", real)
            model.fit(*second)
            return real(self, X)

        monkeypatch.setattr(type(model), "_validate_queries", refit_then_validate)
        np.testing.assert_array_equal(ask(), before, err_msg=name)
        monkeypatch.setattr(type(model), "_validate_queries", real)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_of_an_earlier_fit_is_left(name, tables):
    X, y = load_wine(return_X_y=True, as_frame=True)
    model = ESTIMATORS[name]().fit(X, y)
    model.fit(*tables[0])
    fresh = ESTIMATORS[name]().fit(*tables[0])
    assert set(vars(model)) == set(vars(fresh))
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_that_fails_leaves_the_model_as_it_was(name, tables):
    (X, y), _, Q = tables
    model = ESTIMATORS[name]()
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X[3, 1] == X, np.nan, X), y)
    with pytest.raises(NotFittedError):
        model.predict(Q)
    before = model.fit(X, y).predict(Q)
    state = dict(vars(model))
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.zeros(len(X)))
    assert vars(model) == state
    np.testing.assert_array_equal(model.predict(Q), before)


def test_parameters_set_during_a_fit_stay(tables):
    model = ESTIMATORS["SML"]()
    learn = type(model)._learn

    def set_meanwhile(self, X, y, run):
        model.set_params(n_neighbors=7)
        learn(self, X, y, run)

    type(model)._learn = set_meanwhile
    try:
        model.fit(*tables[0])
    finally:
        type(model)._learn = learn
    assert model.n_neighbors == 7
