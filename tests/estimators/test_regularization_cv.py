import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold

from plml import CBLML, PLML, PLMLCV, SML
from plml.estimators.regularization_cv import RegularizationCV

GRID = (0.1, 1.0, 10.0)


def test_it_is_the_selection_of_plml_cv(blobs):
    """The same folds, path, scores and last fit, for an estimator that has both ways."""
    X, y = blobs
    common = {"n_bases": 3, "random_state": 0, "n_jobs": 1}
    expected = PLMLCV(**common, regularizations=GRID).fit(X, y)
    found = RegularizationCV(PLML(**common), regularizations=GRID, n_jobs=1).fit(X, y)
    assert found.best_regularization_ == expected.best_regularization_
    assert found.best_score_ == expected.best_score_
    assert found.cv_results_.keys() == expected.cv_results_.keys()
    for name in found.cv_results_:
        np.testing.assert_array_equal(found.cv_results_[name], expected.cv_results_[name])
    np.testing.assert_array_equal(found.estimator_.basis_metrics_, expected.basis_metrics_)
    np.testing.assert_array_equal(found.predict(X + 0.3), expected.predict(X + 0.3))


@pytest.mark.parametrize("estimator", [SML(), CBLML(n_bases=3, random_state=0)])
def test_the_value_with_the_best_score_over_the_folds(rng, estimator):
    X = rng.normal(size=(120, 5))
    y = np.array(["no", "yes"])[(X[:, 0] + 0.7 * rng.normal(size=120) > 0).astype(int)]
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    found = RegularizationCV(
        estimator, regularizations=(100.0, *GRID), cv=folds, selection_tol=1e-6
    ).fit(X, y)
    scores = {
        value: np.mean(
            [
                clone(estimator)
                .set_params(regularization=value, tol=1e-6)
                .fit(X[train], y[train])
                .score(X[test], y[test])
                for train, test in folds.split(X, y)
            ]
        )
        for value in (100.0, *GRID)
    }
    best = max(scores, key=lambda value: (scores[value], value))
    assert found.best_regularization_ == best
    assert found.best_score_ == pytest.approx(scores[best])
    assert len(set(scores.values())) > 1
    assert found.estimator_.regularization == best
    assert list(found.classes_) == ["no", "yes"]
    again = clone(estimator).set_params(regularization=best).fit(X, y)
    np.testing.assert_array_equal(found.predict(X), again.predict(X))


def test_what_is_given_stays_as_it_is(blobs):
    estimator = SML(regularization=3.0)
    model = RegularizationCV(estimator, regularizations=GRID)
    with pytest.raises(NotFittedError):
        model.predict(blobs[0])
    model.fit(*blobs)
    assert estimator.get_params() == SML(regularization=3.0).get_params()
    assert not hasattr(estimator, "classes_")
    assert clone(model).get_params()["estimator__regularization"] == 3.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regularizations": ()}, "regularizations must be a non-empty sequence"),
        ({"regularizations": (0.0, 1.0)}, "positive numbers"),
        ({"cv": 100}, "lower cv=100"),
        ({"estimator": SML(tol=-1.0)}, "'tol' parameter of SML"),
    ],
)
def test_bad_parameters_are_refused_by_name(blobs, options, words):
    with pytest.raises(ValueError, match=words):
        RegularizationCV(**{"estimator": SML(), **options}).fit(*blobs)


def test_rows_are_checked_as_in_a_fit(blobs):
    X, y = blobs
    X = X.copy()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN in feature 1, row 3"):
        RegularizationCV(SML()).fit(X, y)


@pytest.mark.parametrize("verbose", [0, 1])
def test_progress_is_shown_where_the_estimator_shows_it(blobs, capsys, verbose):
    RegularizationCV(SML(verbose=verbose), regularizations=(10.0,)).fit(*blobs)
    assert bool(capsys.readouterr().err) == bool(verbose)
