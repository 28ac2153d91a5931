"""The certificate of a fit in words."""

from types import SimpleNamespace

import pytest

from plml.estimators._certificate import certificate_text


def fitted(converged=True, **gaps):
    return SimpleNamespace(converged_=converged, **gaps)


@pytest.mark.parametrize(
    ("models", "text"),
    [
        (
            [fitted(dual_gap_=6.01e-4)],
            "certificate: the objective could be lower by at most 0.061%",
        ),
        (
            [fitted(dual_gap_=5e-4, weights_gap_=8.95e-4), fitted(dual_gap_=7.91e-4)],
            "certificate: the objective of each metric could be lower by at most 0.090% in stage 1 "
            "and 0.080% in stage 2",
        ),
        (
            [fitted(dual_gap_=0.25, converged=False)],
            "certificate: the objective could be lower by at most 25%: not converged",
        ),
        ([fitted(dual_gap_=0.0)], "certificate: the objective could be lower by at most 0%"),
    ],
)
def test_it_is_a_bound_that_is_never_rounded_down(models, text):
    assert certificate_text(models) == text
