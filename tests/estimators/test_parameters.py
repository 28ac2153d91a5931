"""Parameters are declared as fields of dataclasses; nothing else of an estimator is one."""

import inspect
from dataclasses import fields

import pytest
from sklearn.datasets import load_iris

from every_estimator import ESTIMATORS
from plml import PLML, PLMLCV
from plml.estimators._parameters import COUNT, parameter


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_is_a_keyword_with_a_constraint(name):
    model = ESTIMATORS[name]()
    parameters = inspect.signature(type(model)).parameters
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert set(parameters) == set(model.get_params()) == {field.name for field in fields(model)}
    assert set(model._parameter_constraints) == set(parameters)
    assert all(model._parameter_constraints.values())
    assert set(vars(model)) == set(parameters)


def test_a_parameter_is_declared_with_its_default_and_what_it_may_be():
    field = parameter(3, COUNT, None)
    assert field.default == 3
    assert field.metadata == {"allowed": [COUNT, None]}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_at_most_two_classes_lie_between_an_estimator_and_scikit_learn(name):
    """On any way up; mixins that know nothing of scikit-learn end nowhere."""

    def levels(kind):
        if kind.__module__.startswith("sklearn."):
            return [0]
        return [1 + above for base in kind.__bases__ for above in levels(base)]

    assert max(levels(type(ESTIMATORS[name]()))) <= 1 + 2


def test_a_selected_regularization_is_no_parameter():
    assert "regularization" not in PLMLCV().get_params()
    assert not hasattr(PLMLCV(), "regularization")


def test_estimators_are_equal_only_to_themselves():
    assert PLML() != PLML()
    assert len({PLML(), PLML()}) == 2


def test_dask_tells_fits_apart():
    tokenize = pytest.importorskip("dask.tokenize").tokenize
    X, y = load_iris(return_X_y=True)
    first, second = (
        PLML(n_bases=2, random_state=0).fit(X[part], y[part])
        for part in (slice(0, 100), slice(50, 150))
    )
    again = PLML(n_bases=2, random_state=0).fit(X[:100], y[:100])
    assert first.get_params() == second.get_params()
    assert tokenize(first) != tokenize(second)
    assert tokenize(first) == tokenize(first)
    assert tokenize(again) != tokenize(PLML(n_bases=2, random_state=0))


def test_limits_and_progress_are_those_of_the_parameters():
    run = PLML(n_jobs=2, working_memory=3.0, verbose=1)._run()
    assert (run.n_jobs, run.memory, run.verbose) == (2, 3.0, 1)
