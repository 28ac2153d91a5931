"""Whether a refit is due: on rows that the model knows well, and on rows that moved."""

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import plml
from plml import CBLML, LMNN, PLML, PLMLCV, SML, AutoPLML, KernelSVM
from plml.evaluation.staleness import AS_IS, EUCLIDEAN, REFIT, Staleness

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True, as_frame=True)
    return StandardScaler().set_output(transform="pandas").fit_transform(X), y


@pytest.mark.parametrize(
    "model",
    [
        PLML(n_bases=3, random_state=0),
        PLMLCV(n_bases=3, regularizations=(0.1, 1.0), random_state=0),
        SML(warm_start=True),
        CBLML(n_bases=2, random_state=0),
        LMNN(),
        pytest.param(AutoPLML(random_state=0), marks=pytest.mark.slow),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_new_row_is_judged_once(model, wine):
    X, y = wine
    model.fit(X[::2], y[::2])
    before = {name: np.copy(part) for name, part in vars(model).items() if name.endswith("_")}
    found = model.staleness(X[1::2], y[1::2])
    assert found.n_rows == len(y[1::2])
    assert all(len(right) == found.n_rows for right in found.right.values())
    np.testing.assert_array_equal(found.right[AS_IS], model.predict(X[1::2]) == y[1::2])
    for name, part in before.items():
        np.testing.assert_array_equal(np.asarray(getattr(model, name)), part)


def test_the_answers_are_those_of_naive_models(wine):
    X, y = (part.to_numpy() for part in wine)
    model = SML(n_neighbors=3).fit(X[::2], y[::2])
    new_X, new_y = X[1::2], y[1::2]
    found = plml.staleness(model, new_X, new_y, random_state=4)
    plain = KNeighborsClassifier(3).fit(X[::2], y[::2])
    np.testing.assert_array_equal(found.right[EUCLIDEAN], plain.predict(new_X) == new_y)
    right = np.zeros(len(new_y), dtype=bool)
    from sklearn.model_selection import StratifiedKFold

    for known, judged in StratifiedKFold(2, shuffle=True, random_state=4).split(new_X, new_y):
        refit = SML(n_neighbors=3).fit(
            np.concatenate([X[::2], new_X[known]]), np.concatenate([y[::2], new_y[known]])
        )
        right[judged] = refit.predict(new_X[judged]) == new_y[judged]
    np.testing.assert_array_equal(found.right[REFIT], right)


def test_rows_that_moved_make_a_refit_due():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = PLML(n_bases=3, random_state=0).fit(X[:600], y[:600])
    moved = X[600:, ::-1]
    found = model.staleness(moved, y[600:])
    assert found.due is True
    assert found.verdict.startswith("A refit is due")
    low = found.gain(REFIT, AS_IS)[1]
    assert low > 0.1


def test_few_rows_cannot_tell_and_many_right_ones_can(wine):
    X, y = wine
    model = SML().fit(X[::2], y[::2])
    found = model.staleness(X[1::8], y[1::8])
    assert found.due is None
    assert "cannot tell" in found.verdict
    right = np.arange(2000) > 20
    assert Staleness({AS_IS: right, EUCLIDEAN: right, REFIT: right}, 2).due is False


def test_it_shows_and_writes_itself(wine):
    X, y = wine
    found = SML().fit(X[::2], y[::2]).staleness(X[1::2], y[1::2])
    told = json.loads(json.dumps(found.to_dict()))
    assert told["rows"] == 89
    assert told["verdict"] == found.verdict
    assert told["accuracies"][AS_IS]["accuracy"] == pytest.approx(found.right[AS_IS].mean())
    text = repr(found)
    assert len(text.splitlines()) == 3 + len(found.right)
    assert REFIT in text
    assert "<table>" in found._repr_html_()


def test_at_the_end_of_a_pipeline():
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), SML()).fit(X[::2], y[::2])
    found = plml.staleness(model, X[1::2], y[1::2])
    assert found.accuracies[AS_IS][0] == pytest.approx(model.score(X[1::2], y[1::2]))
    assert found.accuracies[REFIT][0] > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y + 1), "classes that the model does not know: '3'"),
        (lambda X, y: (X[:1], y[:1]), "too few"),
        (lambda X, y: (X.iloc[:, :4], y), "features"),
        (lambda X, y: (X, y[:-3]), "give one label per row"),
        (
            lambda X, y: (X, y.astype(str)),
            "y holds texts, and the classes of the model",
        ),
        (lambda X, y: (X, np.where(y == 1, np.nan, y)), "missing labels, the first in row"),
        (lambda X, y: (X, sparse.csr_array(y.to_numpy()[None])), "y is a sparse matrix"),
    ],
)
def test_bad_rows_are_refused_in_one_line(change, message, wine):
    X, y = wine
    model = SML().fit(X.to_numpy()[::2], y[::2])
    rows, labels = change(X[1::2], y[1::2])
    with pytest.raises(ValueError, match=message) as caught:
        model.staleness(rows.to_numpy(), labels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n_parts", [1, 2.5, "2", None])
def test_bad_numbers_of_parts(n_parts, wine):
    X, y = wine
    with pytest.raises(ValueError, match="n_parts must be an integer of at least 2, got"):
        SML().fit(X[::2], y[::2]).staleness(X[1::2], y[1::2], n_parts=n_parts)


def test_what_has_no_neighbours_is_refused(wine):
    X, y = wine
    with pytest.raises(ValueError, match="stores no rows"):
        plml.staleness(KernelSVM().fit(X, y), X, y)
