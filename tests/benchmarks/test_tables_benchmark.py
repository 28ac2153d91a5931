"""What ``benchmarks/tables.py`` computes, which others may put their classifiers into."""

import numpy as np
import pytest
from sklearn.svm import SVC

import tables as benchmark
from plml_study.tables import FoldedTable


def test_calibration_error_by_hand():
    P = np.array([[0.95, 0.05], [0.95, 0.05], [0.3, 0.7], [0.4, 0.6]])
    right = np.array([True, False, True, True])
    # Two rows at 0.95 of which half are right, one at 0.7 and one at 0.6 that are right.
    expected = 0.5 * 0.45 + 0.25 * 0.3 + 0.25 * 0.4
    assert benchmark.calibration_error(P, right) == pytest.approx(expected)


def test_wins_ties_and_losses():
    a, b = np.array([0.9, 0.8, 0.7, 0.6]), np.array([0.8, 0.8, 0.6, 0.7])
    found = benchmark.compared(a, b)
    assert (found["wins"], found["ties"], found["losses"]) == (2, 1, 1)
    assert benchmark.compared(a, a)["p"] == 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decisions_become_probabilities(rng, n_classes):
    y = np.arange(30) % n_classes
    X = rng.normal(size=(30, 3)) + 3.0 * np.eye(3)[y]
    model = SVC().fit(X, y)
    P = benchmark.probabilities(model, X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_array_equal(P.argmax(axis=1), model.predict(X))


def test_any_classifier_by_its_import_path(rng):
    y = np.arange(60) % 3
    table = FoldedTable(
        rng.normal(size=(60, 3)) + 3.0 * np.eye(3)[y],
        np.array(["a", "b", "c"])[y],
        1 + np.arange(60) // 30,
    )
    found = benchmark.fold_result(table, "sklearn.naive_bayes.GaussianNB", 1)
    assert set(found) >= {"accuracy", "log_loss", "calibration_error", "seconds"}
    with pytest.raises(SystemExit, match=r"'no\.such\.Classifier' is neither one of kNN"):
        benchmark.build("no.such.Classifier")
