"""What a fit no longer needs is freed when it ends, not whenever Python looks for cycles."""

import gc

import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from backend_devices import DEVICES
from every_estimator import ESTIMATORS
from plml import PLML, SML, AutoPLML


@pytest.fixture
def unreachable():
    """From work to the types of this library that only the search for cycles can free after it."""

    def left_by(work):
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            work()
            gc.collect()
            return {type(x).__qualname__ for x in gc.garbage if type(x).__module__[:4] == "plml"}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    return left_by


def test_what_cannot_be_reached_is_found(unreachable):
    def work():
        model = SML()
        model.itself = model

    assert unreachable(work) == {"SML"}


MODELS = [
    *(make() for make in ESTIMATORS.values()),
    *(
        pytest.param(PLML(n_bases=5, random_state=0, device=where.values[0]), marks=where.marks)
        for where in DEVICES[1:]
    ),
    PLML(n_bases=5, random_state=0, case_metrics="class"),
    PLML(n_bases=5, random_state=0, warm_start=True),
    AutoPLML(random_state=0),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_nothing_of_a_fit_is_left(unreachable, model):
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200]

    def work():
        fitted = clone(model).fit(X, y)
        fitted.predict(X[:10])
        if model.get_params().get("warm_start"):
            fitted.fit(X[:190], y[:190])

    work()  # what is imported stays
    assert unreachable(work) == set()
