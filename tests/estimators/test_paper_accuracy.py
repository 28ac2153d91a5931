"""Accuracy on real data under the paper's protocol, with a closed certificate."""

import pytest

from plml import PLML


@pytest.mark.data
@pytest.mark.parametrize(("name", "at_least"), [("pendigits", 0.980), ("optdigits", 0.974)])
def test_paper_accuracy(paper_split, name, at_least):
    X_train, y_train, X_test, y_test = paper_split(name)
    model = PLML(n_bases=20, regularization=1.0, random_state=0).fit(X_train, y_train)
    assert model.dual_gap_ <= 1e-3
    assert model.weights_gap_ <= 1e-3
    assert model.score(X_test, y_test) >= at_least
