"""What ``benchmarks/tables.py`` computes, which others may put their classifiers into."""

import gzip
import json
import sys

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
    assert benchmark.in_words(found).startswith("2 wins, 1 tie, 1 loss (signed-rank test: p = ")
    assert benchmark.compared(a, a)["p"] == 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decisions_become_probabilities(rng, n_classes):
    y = np.arange(30) % n_classes
    X = rng.normal(size=(30, 3)) + 3.0 * np.eye(3)[y]
    model = SVC().fit(X, y)
    P = benchmark.probabilities(model, X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_array_equal(P.argmax(axis=1), model.predict(X))


def folded(rng):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 3)) + 3.0 * np.eye(3)[y]
    return FoldedTable(X, np.array(["a", "b", "c"])[y], 1 + np.arange(60) // 30)


@pytest.mark.parametrize(
    "method",
    [
        "sklearn.naive_bayes.GaussianNB",
        "sklearn.naive_bayes:GaussianNB",
        'sklearn.svm:SVC {"C": 10, "kernel": "linear"}',
    ],
)
def test_any_classifier_by_its_import_path(rng, method):
    found = benchmark.fold_result(folded(rng), benchmark.canonical(method), 1)
    assert found["accuracy"] > 0.8
    assert 0.0 < found["log_loss"] < 1.0


def test_parameters_reach_the_classifier_and_name_it():
    method = benchmark.canonical('  sklearn.svm:SVC   {"kernel":"linear", "C":10}')
    assert method == 'sklearn.svm.SVC {"C": 10, "kernel": "linear"}'
    assert benchmark.title(method) == 'SVC {"C": 10, "kernel": "linear"}'
    model = benchmark.build(method)[-1]
    assert (model.C, model.kernel) == (10, "linear")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("no.such:Classifier", "'no.such.Classifier' is neither one of kNN"),
        ("sklearn.svm:SVCC", "nor a class to import: .*no attribute 'SVCC'"),
        ("Forest", "'Forest' is neither one of kNN"),
        ("sklearn.svm:SVC {C: 10}", "parameters are not JSON"),
        ("sklearn.svm:SVC 10", "must be a JSON object"),
        ('sklearn.svm:SVC {"c": 10}', "cannot be made: .*unexpected keyword argument 'c'"),
        ("sklearn.svm:SVR", "is not a classifier"),
        ("sklearn.preprocessing:StandardScaler", "is not a classifier"),
    ],
)
def test_a_wrong_method_gets_one_line(method, message):
    with pytest.raises(SystemExit, match=message) as caught:
        benchmark.build(benchmark.canonical(method))
    assert "\n" not in str(caught.value)


MINE = """
import numpy as np
from sklearn.base import BaseEstimator


class Mine(BaseEstimator):
    def __init__(self, path="fits.txt"):
        self.path = path

    def fit(self, X, y):
        with open(self.path, "a") as fits:
            fits.write("fit\\n")
        self.labels_ = np.unique(y)
        self.means_ = np.stack([X[y == label].mean(axis=0) for label in self.labels_])
        return self

    def predict(self, X):
        distances = np.linalg.norm(X[:, None] - self.means_, axis=2)
        return self.labels_[distances.argmin(axis=1)]


class Strange:
    def fit(self, X, y): ...
    def predict(self, X): ...


class Failing(Mine):
    def predict(self, X):
        raise ValueError("cannot\\nat all")
"""


@pytest.fixture
def in_a_folder(rng, tmp_path, monkeypatch):
    """Two tables and a module of one's own; call the benchmark there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "tables").mkdir()
    for name in ("one", "two"):
        table = folded(rng)
        lines = [
            ",".join([*map(str, row), label]) + f";{fold}\n"
            for row, label, fold in zip(*table, strict=True)
        ]
        with gzip.open(tmp_path / "tables" / f"{name}.csv.gz", "wt") as stream:
            stream.writelines(lines)

    def call(*arguments):
        own = [*sys.path]
        fixed = ["--data-dir", ".", "--out", "found.json"]
        monkeypatch.setattr(sys, "argv", ["tables.py", *fixed, *arguments])
        monkeypatch.setattr(sys, "path", own)
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        benchmark.main()

    return call


def test_a_classifier_of_ones_own_next_to_the_others(in_a_folder, tmp_path, capsys):
    """Neither ``classes_`` nor probabilities are needed; what is done is not done again."""
    command = ("--methods", "DANN", "--add", "mine:Mine")
    in_a_folder(*command, "--tables", "one")
    assert "Mine against DANN: " in (said := capsys.readouterr().out)
    assert "(signed-rank test: p = " in said
    written = (tmp_path / "found.md").read_text()
    assert written.startswith("| table | DANN | Mine |")
    assert "| *log-loss* | " in written
    assert written.endswith(" | - |\n")
    assert (tmp_path / "fits.txt").read_text() == "fit\n" * 2
    in_a_folder(*command)
    assert (tmp_path / "fits.txt").read_text() == "fit\n" * 4  # of the other table
    assert json.loads((tmp_path / "found.json").read_text())["two"]["mine.Mine"]["2"]["accuracy"]
    assert "Mine, one: 2 folds of an earlier run; --again computes anew" in capsys.readouterr().out
    in_a_folder(*command, "sklearn.dummy:DummyClassifier", "--again")  # after a change of the class
    assert (tmp_path / "fits.txt").read_text() == "fit\n" * 8
    said = capsys.readouterr().out
    assert "earlier run" not in said
    for added in ("Mine against DANN: ", "Mine against Dummy", "DummyClassifier against Mine: "):
        assert added in said


def test_a_classifier_that_fails_gets_one_line_and_costs_no_other(in_a_folder, tmp_path):
    with pytest.raises(SystemExit) as caught:
        in_a_folder("--methods", "DANN", "--add", "mine:Failing", "--tables", "one")
    assert str(caught.value).splitlines() == [
        "mine.Failing fails on one, fold 1: cannot",
        "the others are kept in found.json",
    ]
    assert len(json.loads((tmp_path / "found.json").read_text())["one"]["DANN"]) == 2


def test_what_scikit_learn_would_not_take_gets_one_line(in_a_folder):
    with pytest.raises(SystemExit, match=r"mine\.Strange' cannot be made: .*__sklearn_tags__"):
        in_a_folder("--methods", "DANN", "--add", "mine:Strange")


def test_a_table_that_is_not_there_gets_one_line(in_a_folder):
    with pytest.raises(SystemExit, match=r"three.*--data-dir names the data folder"):
        in_a_folder("--methods", "DANN", "--tables", "three")
