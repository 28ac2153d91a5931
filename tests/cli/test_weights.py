"""Weights and scorers on the command line."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from command import run
from plml import PLML
from plml.preprocessing import MeanNormScaler, TableEncoder
from plml.tables import load


@pytest.fixture(scope="module")
def wine():
    """Wine with a key, a column of weights, some of them zero, and few rows of one class."""
    data = load_wine(as_frame=True)
    table = data.data.iloc[:, :6].copy()
    rng = np.random.default_rng(0)
    table["bottle"] = [f"no {i}" for i in range(len(table))]
    table["count"] = rng.choice([0.0, 0.5, 2.0], size=len(table))
    table["grape"] = np.array(["barolo", "grignolino", "barbera"])[data.target]
    return table[(data.target != 2) | (np.arange(len(table)) % 2 == 0)].reset_index(drop=True)


def fitted(wine, folder, *options):
    wine.to_csv(folder / "wine.csv", index=False)
    path = folder / "model.skops"
    arguments = ("--target", "grape", "-o", path, "--weight", "count", "--id", "bottle")
    code = run("fit", folder / "wine.csv", *arguments, *options)
    return code, path


def test_fit_weighs_rows_and_leaves_those_of_weight_zero_out(wine, tmp_path, capsys):
    how = ("--regularization", "1", "--bases", "3", "--class-weight", "balanced", "--folds", "2")
    code, path = fitted(wine, tmp_path, *how)
    assert code == 0
    printed = capsys.readouterr().out
    there = wine["count"] > 0
    assert f"{there.sum()} cases, 6 columns as 6 features" in printed
    assert f"{there.sum()} rows of" in printed  # the rows that are measured on
    model = load(path)
    np.testing.assert_array_equal(model.keys, wine["bottle"][there])
    assert "count" not in model.columns.names
    X, y, v = (part[there] for part in (wine.iloc[:, :6], wine["grape"], wine["count"].to_numpy()))
    rows = TableEncoder().fit(X, sample_weight=v).transform(X)
    rows = MeanNormScaler().fit(rows, sample_weight=v).transform(rows)
    by_hand = PLML(regularization=1.0, n_bases=3, random_state=0, class_weight="balanced")
    by_hand.fit(rows, y, sample_weight=v)
    np.testing.assert_allclose(model.classifier.basis_metrics_, by_hand.basis_metrics_, rtol=1e-6)
    found = tmp_path / "found.csv"
    assert run("predict", path, tmp_path / "wine.csv", "-o", found, "--nearest") == 0
    answers = pd.read_csv(found)
    assert set(answers["nearest case"]) <= set(wine["bottle"][there])
    np.testing.assert_array_equal(answers["prediction"][there], by_hand.predict(rows))


def test_fit_selects_by_a_scorer_and_votes_by_weight(wine, tmp_path, capsys):
    how = ("--paper", "--bases", "2", "--scoring", "balanced_accuracy", "--weigh-votes")
    code, path = fitted(wine, tmp_path, *how, "--folds", "0")
    assert code == 0
    classifier = load(path).classifier
    assert f"balanced_accuracy in cross-validation {classifier.best_score_:.2%}" in (
        capsys.readouterr().out
    )
    assert classifier.scoring == "balanced_accuracy"
    assert classifier.weigh_votes


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, ("--weight", "weights"), "has no column 'weights'; it has"),
        ({"count": "many"}, (), "column 'count' holds 'many' in row 0, and weights are numbers"),
        ({"count": -1.0}, (), "the weight in column 'count' is -1 in row 0"),
        ({"count": 0.0}, (), "the weight in column 'count' is zero in every row"),
        ({}, ("--weight", "grape"), "column 'grape' is the target"),
        ({}, ("--scoring", "accurate"), "--scoring 'accurate' is no scorer"),
        ({}, ("--scoring", "roc_auc"), "--scoring 'roc_auc' cannot score votes for 3 classes"),
        (
            {},
            ("--scoring", "f1_macro", "--regularization", "1"),
            "--scoring is for a selection, and --regularization leaves none",
        ),
    ],
)
def test_bad_weights_and_scorers_are_refused_in_a_line(
    wine, tmp_path, capsys, change, options, message
):
    code, _ = fitted(wine.assign(**change), tmp_path, *options)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("plml fit:")]
    assert code == 2
    assert len(lines) == 1
    assert message in lines[0]
