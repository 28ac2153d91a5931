import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plml import PLML, SML, AutoPLML, KernelSVM
from plml.evaluation import cross_evaluate, evaluate, staleness


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X, np.array(["barolo", "grignolino", "barbera"])[y]


@pytest.mark.parametrize("last", [SML(), PLML(n_bases=3, random_state=0, n_neighbors=3)])
def test_a_pipeline_and_its_rivals(wine, last):
    X, y = wine
    model = make_pipeline(StandardScaler(), last).fit(X[::2], y[::2])
    card = evaluate(model, X[1::2], y[1::2])
    np.testing.assert_array_equal(card.predictions["learned metric"], model.predict(X[1::2]))
    # Rivals know the training rows alone, as the pipeline standardises them.
    knn = make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(X[::2], y[::2])
    np.testing.assert_allclose(card.shares["Euclidean 5-NN"], knn.predict_proba(X[1::2]))
    names, counts = np.unique(y[::2], return_counts=True)
    assert card.largest == names[counts.argmax()]


def test_a_table_with_categories(wine):
    X, y = wine
    table = pd.DataFrame(X).rename(columns=str).assign(cellar=np.resize(["n", "s"], len(X)))
    auto = AutoPLML(metrics=["one"], regularizations=[0.1], random_state=0)
    model = auto.fit(table[::2], y[::2])
    card = evaluate(model, table[1::2], y[1::2])
    np.testing.assert_array_equal(card.predictions["learned metric"], model.predict(table[1::2]))
    assert card.figures["Euclidean 5-NN"].accuracy > 0.9  # of standardised columns


def test_a_search_is_measured_as_what_it_found(wine):
    X, y = wine
    pipeline = make_pipeline(StandardScaler(), SML())
    search = GridSearchCV(pipeline, {"sml__n_neighbors": [1, 5]}, cv=2).fit(X[::2], y[::2])
    expected = search.best_estimator_
    assert repr(evaluate(search, X[1::2], y[1::2])) == repr(evaluate(expected, X[1::2], y[1::2]))
    one, other = (staleness(model, X[1::2], y[1::2]) for model in (search, expected))
    assert repr(one) == repr(other)
    assert cross_evaluate(search, X, y, n_folds=2).figures["learned metric"].accuracy > 0.9


def test_cross_evaluation_holds_rows_out(wine):
    """A naive loop over the same folds; labels at random must not seem to be known."""
    X, y = wine
    model = make_pipeline(StandardScaler(), SML())
    card = cross_evaluate(model, X, y, random_state=5)
    folds = StratifiedKFold(3, shuffle=True, random_state=5).split(X, y)
    right = [model.fit(X[a], y[a]).predict(X[b]) == y[b] for a, b in folds]
    np.testing.assert_array_equal(card.right("learned metric"), np.concatenate(right))
    noise = np.random.default_rng(0).permutation(y)
    card = cross_evaluate(model, X, noise)
    assert all(found.accuracy < 0.55 for found in card.figures.values())
    assert card.figures["tuned kNN"].high < 0.65


def test_one_fold_is_a_third_of_the_rows_held_out_once(wine):
    X, y = wine
    card = cross_evaluate(make_pipeline(StandardScaler(), SML()), X, y, n_folds=1)
    assert len(card.labels) == 60
    with pytest.raises(ValueError, match="n_folds must be at least 1"):
        cross_evaluate(SML(), X, y, n_folds=0)


def test_a_class_of_one_row_is_no_reason_to_stop(wine):
    X, y = wine
    rare = y.astype("U12")
    rare[0] = "alone"
    card = cross_evaluate(make_pipeline(StandardScaler(), SML()), X, rare)
    assert len(card.classes) == 4
    assert not card.right("learned metric")[card.labels == "alone"].any()
    assert card.shares["tuned kNN"].sum(axis=1) == pytest.approx(np.ones(178))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y[:-1], "X has 89 rows and y has 88 labels"),
        (lambda y: np.append(y[:-1].astype(object), None), "missing labels, the first in row 88"),
        (lambda y: np.append(np.zeros(88), np.nan), "missing labels, the first in row 88"),
        (lambda y: np.stack([y, y], axis=1), "should be a 1d array"),
    ],
)
def test_labels_that_are_none_are_refused_before_the_work(wine, change, message, monkeypatch):
    X, y = wine[0][::2], change(wine[1][::2])
    model = SML().fit(*wine)
    monkeypatch.setattr(SML, "fit", pytest.fail)
    monkeypatch.setattr(SML, "predict_proba", pytest.fail)
    for measure in (evaluate, cross_evaluate):
        with pytest.raises(ValueError, match=message):
            measure(model, X, y)


def test_labels_are_of_the_kind_of_the_classes(wine):
    model = SML().fit(*wine)
    with pytest.raises(ValueError, match="y holds numbers, and the classes of the model are texts"):
        evaluate(model, wine[0], np.zeros(178))


def test_what_stores_no_rows_is_refused(wine):
    X, y = wine
    with pytest.raises(ValueError, match="KernelSVM stores no rows"):
        evaluate(KernelSVM(Cs=(1.0,)).fit(X, y), X, y)


def test_copies_of_rows_that_were_learned_from_are_counted_in_every_fold(wine):
    X, y = wine
    model = make_pipeline(StandardScaler(), SML(max_iter=5))
    assert cross_evaluate(model, X, y).n_known == 0
    twice, labels = np.concatenate([X, X[:60]]), np.concatenate([y, y[:60]])
    card = cross_evaluate(model, twice, labels)
    assert 40 < card.n_known <= 120  # both copies are counted unless they share a fold
    assert f"; {card.n_known} are the same as cases of that fit" in str(card)
    assert "tuned kNN: Euclidean neighbours, their number and weights selected on" in str(card)
    mostly = cross_evaluate(model, np.concatenate([X, X]), np.concatenate([y, y]))
    assert "cases of that fit: unless new rows are, too" in mostly.verdict


def test_a_fold_learns_from_no_more_rows_than_the_fit(wine, monkeypatch):
    X, y = wine
    sizes, fit = [], SML.fit
    monkeypatch.setattr(SML, "fit", lambda self, X, y: sizes.append(len(X)) or fit(self, X, y))
    cross_evaluate(SML(max_iter=5), X, y, max_rows=50)
    assert len(sizes) == 3
    assert max(sizes) <= 50
