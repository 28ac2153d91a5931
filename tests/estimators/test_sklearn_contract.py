"""scikit-learn's own checks, on every public estimator, with nothing expected to fail."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from plml import CBLML, DANN, GLML, LMNN, LMNNMM, PLML, PLMLCV, SML, BoostMetric, KernelSVM

ESTIMATORS = [
    PLML(),
    PLML(query_weights="optimize", solver="fista"),
    PLMLCV(),
    SML(),
    CBLML(),
    LMNN(),
    LMNN(solver="factored", decision="energy"),
    LMNNMM(),
    BoostMetric(),
    GLML(),
    DANN(),
    KernelSVM(),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_sklearn_checks(estimator, check):
    check(estimator)
