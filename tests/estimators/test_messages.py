"""Advice can be followed where it is given."""

import re
import warnings

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from every_estimator import ESTIMATORS
from plml import GLML, PLML, PLMLCV, KernelSVM
from plml.estimators._fit_warnings import (
    GapWarning,
    classes_of_one,
    cures_of,
    fewer_anchors,
    flat_rows,
    zero_metric,
)
from plml.preprocessing import MeanNormScaler


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("keyword", ["sample_weights", "weights"])
def test_an_unknown_keyword_is_refused_in_the_name_of_the_estimator(blobs, name, keyword):
    model = ESTIMATORS[name]()
    with pytest.raises(TypeError) as caught:
        model.fit(*blobs, **{keyword: np.ones(75)})
    message = str(caught.value)
    assert message.startswith(f"{type(model).__name__}.fit() got an unexpected keyword argument")
    assert keyword in message


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


def test_weights_of_new_points_that_are_not_solved_are_named(blobs):
    X, y = blobs
    model = PLML(n_bases=3, query_weights="optimize", random_state=0).fit(X, y)
    model.set_params(max_iter=1, tol=1e-9)
    with pytest.warns(GapWarning) as caught:
        model.predict(X + 0.3)
    (text,) = {str(warning.message) for warning in caught}
    assert re.match(r"the weights of new points stopped at a relative gap of \S+, above", text)
    assert text.endswith("raise max_iter=1 or tol")


class TestTexts:
    def test_a_gap_names_what_stopped_and_what_to_do(self):
        warning = GapWarning("stage 1", 0.25, tol=1e-3, max_iter=7, cures=("standardise",))
        assert str(warning) == (
            "stage 1 stopped at a relative gap of 2.50e-01, above tol=0.001; standardise, or raise "
            "max_iter=7 or tol"
        )
        named = GapWarning("it", 0.25, tol=1e-2, max_iter=7, tol_name="selection_tol")
        assert str(named).endswith("above selection_tol=0.01; raise max_iter=7 or selection_tol")

    def test_a_gap_with_a_reason_asks_for_nothing(self):
        warning = GapWarning("it", 0.25, tol=1e-3, max_iter=7, reason="a callback stopped it")
        assert str(warning).endswith("above tol=0.001; a callback stopped it")
        assert warning.on_the_command_line({"tol": "--tol"}) == str(warning)

    def test_a_command_is_told_its_own_options(self):
        warning = GapWarning("it", 0.25, tol=1e-3, max_iter=7, cures=("standardise",))
        stopped = "it stopped at a relative gap of 2.50e-01, above tol=0.001"
        options = {"tol": "--tol", "max_iter": "--max-iter", "n_bases": "--bases"}
        found = warning.on_the_command_line(options)
        assert found == f"{stopped}; raise --max-iter (now 7) or --tol (now 0.001)"
        assert warning.on_the_command_line({"tol": "--tol"}) == (
            f"{stopped}; raise --tol (now 0.001)"
        )
        assert warning.on_the_command_line({}) == stopped

    def test_cures_by_what_the_rows_lack(self, rng):
        X = rng.normal(size=(200, 3))
        X /= np.sqrt(np.square(X - X.mean(axis=0)).sum(axis=1).mean())
        assert cures_of(X) == ()
        assert cures_of(X * [1.0, 1.0, 11.0]) == ("standardise the features",)
        assert cures_of(X * [1.0, 1.0, 0.0]) == ()  # a constant column needs no scale
        assert cures_of("rows on a cluster") == ("standardise the features",)
        unit = ("bring the rows to a mean length of one (plml.preprocessing.MeanNormScaler)",)
        assert cures_of(3.1 * X) == cures_of(X / 3.1) == unit
        assert cures_of(2.9 * X) == cures_of(X / 2.9) == ()
        assert cures_of(np.zeros((4, 2))) == ()

    def test_anchors_classes_and_metrics(self):
        (text,) = map(str, fewer_anchors(5, 3, 40))
        assert text == (
            "n_bases=5 anchors were asked for; the 40 training rows give 3 distinct clusters, so 3 "
            "are used"
        )
        assert list(fewer_anchors(3, 3, 40)) == []
        classes = np.array(list("abcdefgh"))
        (text,) = map(str, classes_of_one(np.array([1, 2, 1, 3, 1, 1, 1, 1]), classes))
        assert text == (
            "classes with one member have no same-class neighbour and give no triplets: "
            "'a', 'c', 'e', 'f', 'g', ..."
        )
        assert list(classes_of_one(np.array([2, 3]), classes[:2])) == []
        (text,) = map(str, zero_metric(np.zeros((2, 3, 3))))
        assert text == (
            "the learned metric is zero, so neighbours are the Euclidean ones: same-class "
            "neighbours are no nearer than other-class ones; check the labels, the features and "
            "their scale, or lower pull or regularization"
        )
        assert list(zero_metric(np.eye(3)[None])) == []
        M = np.stack([np.eye(2), np.zeros((2, 2))])
        (text,) = map(str, flat_rows(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), M))
        assert text == (
            "at 1 of the 3 training rows the learned metric is zero, so distances there are zero "
            "and neighbours are the Euclidean ones; lower pull or regularization, or take fewer "
            "bases"
        )
        assert list(flat_rows(np.array([[1.0, 0.0]]), M)) == []
