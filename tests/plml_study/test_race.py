import json

import numpy as np
import pytest

import judge as naive
from plml.cli import main
from plml.stages.graph import graph_laplacian, similarity_graph
from plml.stages.metrics import learn_metrics
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors
from plml.stages.triplets import neighbor_triplets
from plml.stages.weights import WeightProblem, learn_weights, row_terms
from plml_study import race
from plml_study.judge import judge_metrics, judge_weights


@pytest.fixture
def solved(blobs):
    X, y = blobs
    S = similarity_graph(*euclidean_neighbors(X, 7), 6)
    problem = WeightProblem(row_terms(X, X[:4], 1.0), X[:4], 100.0, graph_laplacian(S))
    W = learn_weights(problem, solver="auto", tol=1e-3, max_iter=1000).x
    triplets = neighbor_triplets(ExactNeighbors(X, y), 3, 3)
    options = {"solver": "auto", "tol": 1e-3, "max_iter": 1000}
    return X, y, S, W, triplets, learn_metrics(X, W, triplets, 0.7, 0.5, **options)


def test_the_judge_agrees_with_plain_loops(solved):
    X, y, S, W, triplets, metrics = solved
    verdict = judge_weights(X, X[:4], W, S, 1.0, 100.0)
    expected = naive.weights_primal(X, X[:4], W, naive.similarity(X, 6), 1.0, 100.0)
    assert verdict.objective == pytest.approx(expected)
    assert 0 < verdict.gap <= 1e-3
    verdict = judge_metrics(X, W, triplets, metrics.M, metrics.gamma, 0.7, 0.5)
    assert verdict.objective == pytest.approx(naive.metrics_primal(X, y, W, metrics.M, 0.7, 0.5))
    assert verdict.gap == pytest.approx(metrics.gap, rel=1e-6)


def test_the_judge_is_not_fooled(solved):
    X, _, S, W, triplets, metrics = solved
    spoiled = 1.05 * metrics.M
    assert judge_metrics(X, W, triplets, spoiled, metrics.gamma, 0.7, 0.5).gap > metrics.gap
    with pytest.raises(ValueError, match="unit box"):
        judge_metrics(X, W, triplets, metrics.M, metrics.gamma + 1.0, 0.7, 0.5)
    with pytest.raises(ValueError, match="semidefinite"):
        judge_metrics(X, W, triplets, -metrics.M, metrics.gamma, 0.7, 0.5)
    with pytest.raises(ValueError, match="simplex"):
        judge_weights(X, X[:4], 0.5 * W, S, 1.0, 100.0)


def test_a_race_on_digits(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(race, "N_BASES", 4)
    out = tmp_path / "bench.json"
    arguments = ["bench", "--datasets", "digits", "--regularizations", "10", "--out", str(out)]
    assert main([*arguments, "--solvers", "fista", "lbfgsb", "auto"]) == 0
    said = capsys.readouterr().out
    assert "auto: " in said
    assert "fista: " not in said
    assert "times faster than fista" in said
    runs = json.loads(out.read_text())["runs"]
    assert [run["solver"] for run in runs] == ["fista", "lbfgsb", "auto"]
    objectives = [run["metrics_objective"] for run in runs]
    assert np.ptp(objectives) <= 2e-3 * min(objectives)
    assert max(run["metrics_gap"] for run in runs) <= 1.001e-3
    assert max(run["weights_gap"] for run in runs) <= 1.001e-3


def test_a_solver_alone_is_compared_with_nothing():
    row = dict.fromkeys(("weights_seconds", "metrics_seconds", "seconds"), 1.0)
    row |= {"dataset": "digits", "regularization": 1.0, "solver": "auto"}
    text = race.format_rows([row | {"weights_gap": 1e-4, "metrics_gap": 1e-4}])
    assert "nan" not in text
    assert text.endswith(" -")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--solvers", "magic"], "unknown solver magic"),
        (["--datasets", "iris"], "unknown data set iris"),
        (["--regularizations", "-1"], "must be positive"),
        (["--out", "/nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_bad_options_end_in_one_line(capsys, options, words):
    assert main(["bench", *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
