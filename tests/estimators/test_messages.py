"""Advice can be followed where it is given."""

import re
import warnings

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from every_estimator import ESTIMATORS
from plml import GLML, PLML, PLMLCV, KernelSVM
from plml.estimators._fit_warnings import GapWarning
from plml.preprocessing import MeanNormScaler


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("keyword", ["sample_weight", "weights"])
def test_an_unknown_keyword_is_refused_in_the_name_of_the_estimator(blobs, name, keyword):
    model = ESTIMATORS[name]()
    with pytest.raises(TypeError) as caught:
        model.fit(*blobs, **{keyword: np.ones(75)})
    message = str(caught.value)
    assert message.startswith(f"{type(model).__name__}.fit() got an unexpected keyword argument")
    assert keyword in message
    assert ("repeat rows" in message) == (keyword == "sample_weight")


SELECTING = [PLMLCV(regularizations=(1.0,), n_bases=2), GLML(), KernelSVM()]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", SELECTING, ids=lambda model: type(model).__name__)
class TestFolds:
    def test_classes_too_small_for_any_fold(self, rng, model):
        X, y = rng.normal(size=(6, 2)), np.array(["a", "b", "c", "d", "e", "f"])
        with pytest.raises(ValueError, match=r"needs a class with more rows|at least one class"):
            model.fit(X, y)
        with pytest.raises(ValueError) as caught:
            model.fit(X, y)
        assert "n_splits" not in str(caught.value)

    def test_a_fold_with_one_class(self, rng, model):
        """Its only row of the other class is tested: the message names what is left."""
        X, y = rng.normal(size=(20, 2)), np.array(["ill"] + ["well"] * 19)
        with pytest.raises(ValueError, match="has one class to train on, 'well'") as caught:
            model.fit(X, y)
        message = str(caught.value)
        assert "'ill' has 1; give more of those" in message
        assert re.search(r"set (regularization|metric_shrinkage|kernels and Cs) yourself", message)
        assert "n_splits" not in message
        assert "cv=" not in message  # which nobody has set

    def test_more_folds_than_the_largest_class_has_rows(self, rng, model):
        X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
        with pytest.raises(ValueError, match="lower cv=40, or set"):
            model.set_params(cv=40).fit(X, y)
        model.set_params(cv=2)

    def test_a_fold_of_the_users_own(self, rng, model):
        X, y = rng.normal(size=(20, 2)), np.arange(20) // 10
        split = [(np.arange(10), np.arange(10, 20))]
        with pytest.raises(ValueError, match="has one class to train on, '0'"):
            model.set_params(cv=split).fit(X, y)
        model.set_params(cv=2)


def test_a_rare_class_is_no_reason_to_stop_nor_to_speak_of_folds(rng):
    X = rng.normal(size=(41, 2)) + np.repeat([[0.0], [4.0], [9.0]], [20, 20, 1], axis=0)
    y = np.repeat(["a", "b", "rare"], [20, 20, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PLMLCV(regularizations=(1.0,), n_bases=2, random_state=0).fit(X, y)
    said = " ".join(str(warning.message) for warning in caught)
    assert "n_splits" not in said
    assert "'rare'" in said


def unclosed(X, y):
    with pytest.warns(GapWarning) as caught:
        PLML(n_bases=3, max_iter=1, random_state=0).fit(X, y)
    return str(caught[-1].message)


def test_a_gap_that_stays_open_gets_the_advice_that_the_data_asks_for(rng):
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + np.eye(3, 4)[y]
    assert "standardise the features" in unclosed(X * [1.0, 1.0, 100.0, 1.0], y)
    standardised = StandardScaler().fit_transform(X) * 5.0
    message = unclosed(standardised, y)
    assert "MeanNormScaler" in message
    assert "standardise" not in message
    prepared = MeanNormScaler().fit_transform(standardised)
    message = unclosed(prepared, y)
    assert message.endswith("above tol=0.001; raise max_iter=1 or tol")
