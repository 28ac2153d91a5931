"""The benchmarks of neighbours and of selection say what they measured."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import judge
import selection
from plml import PLML


def test_three_lists_are_those_of_the_definition(blobs):
    neighbors = pytest.importorskip("neighbors", reason="needs faiss")
    X, y = blobs
    nearest, targets, impostors = neighbors.three_lists(X, y)
    found = neighbors.seven_nearest(X.astype(np.float32))
    assert (found[:, 0] == np.arange(len(X))).all()
    np.testing.assert_array_equal(found[:, 1:], nearest)
    for ours, expected in zip((targets, impostors), judge.triplet_lists(X, y, 3, 3), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_the_floor_and_the_ratio_are_of_the_turns():
    neighbors = pytest.importorskip("neighbors", reason="needs faiss")
    X = np.zeros((1000, 50))
    clock = [(1.0, 2.0, 3.0), (1.0, 3.0, 4.0), (2.0, 3.0, 5.0)]
    turns = [neighbors.Turn(times, (2.0, 5.0, 4.0)) for times in clock]
    found = neighbors.summary(X, [1e9, 3e9, 2e9], turns)
    assert found["floor_seconds"] == 2.0 * 1000**2 * 50 / 2e9
    assert found["ratio_to_faiss"] == 2.0
    assert found["ratio_of_processor_seconds"] == 2.5
    assert found["ratio_to_floor"] == 3.0 / found["floor_seconds"]


def test_the_cost_of_a_fit_has_its_parts():
    X, y = load_iris(return_X_y=True)
    cost = selection.cost_of(PLML(random_state=0), X, y)
    assert 0.0 < cost.neighbours + cost.weights < cost.seconds
    assert min(cost) > 0.0


def test_the_report_counts_in_fits():
    results = {
        "wine": {"rows": 178, "features": 13, "one fit": (2.0, 0.1, 0.1)},
        "letter": {"rows": 15000, "features": 16, "one fit": (1.0, 0.1, 0.1)},
        "iris": {"rows": 150, "features": 4, "one fit": (1.0, 0.1, 0.1)},
    }
    for found, seconds in zip(results.values(), (4.0, 5.0, 8.0), strict=True):
        found |= {"PLMLCV": (seconds, 0.5, 1.0), "AutoPLML": (10.0, 1.0, 2.5)}
    lines = selection.report(results).splitlines()
    assert "one fit   2.00 s; PLMLCV    4.00 s =   2.0 fits (12%, 25%)" in lines[0]
    assert "PLMLCV: 2.0 to 8.0 fits, geometric mean 4.0, over 2 tables" in lines
    assert "AutoPLML: 10.0 to 10.0 fits, geometric mean 10.0, over 1 data sets" in lines
