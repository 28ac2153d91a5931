"""scikit-learn's own checks, on every public estimator, with nothing expected to fail."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from plml import (
    CBLML,
    DANN,
    GLML,
    LMNN,
    LMNNMM,
    PLML,
    PLMLCV,
    SML,
    AutoPLML,
    BoostMetric,
    KernelSVM,
)
from plml.preprocessing import TableEncoder

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@parametrize_with_checks(
    [TableEncoder(), PLML(), SML(), CBLML(), LMNNMM(), GLML(), DANN(), KernelSVM()]
)
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        AutoPLML(random_state=0),
        PLMLCV(),
        PLML(query_weights="optimize", solver="fista"),
        LMNN(),
        LMNN(solver="factored", decision="energy"),
        BoostMetric(),
    ]
)
def test_sklearn_checks_of_slower_estimators(estimator, check):
    check(estimator)
