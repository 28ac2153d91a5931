"""Advice in the words of the command."""

import json
import shlex

import numpy as np
import pytest

from plml.cli import main
from plml.preprocessing.text_numbers import na_option


@pytest.mark.filterwarnings("always::sklearn.exceptions.ConvergenceWarning")
def test_the_command_line_gives_advice_in_its_own_options(rng, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = rng.normal(size=(90, 3)) + 0.5 * np.eye(3)[np.arange(90) % 3]
    lines = ["a,b,c,kind", *(",".join([*map(str, row), f"k{i % 3}"]) for i, row in enumerate(rows))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    command = ["fit", "t.csv", "--target", "kind", "--quiet", "--bases", "3"]
    assert main([*command, "--max-iter", "2", "--tol", "1e-5"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "stopped at" in line]
    assert said
    for line in said:
        assert "raise --max-iter (now 2)" in line
        assert "standardise" not in line
        assert "max_iter" not in line
    assert any("or --tol (now 1e-05)" in line for line in said)
    assert main([*command, "--regularization", "1"]) == 0
    assert "stopped at" not in capsys.readouterr().err
    wrong = {"--max-iter": "0", "--regularization": "-1", "--bases": "0", "--max-rows": "1"}
    for option, value in wrong.items():
        assert main([*command, option, value]) == 2
        error = capsys.readouterr().err
        assert f"{option} must be" in error
        assert "parameter of" not in error
    assert main([*command, "--seed", "-3"]) == 2
    assert "--seed must be between" in capsys.readouterr().err
    assert main([*command, "--neighbors", "500", "--regularization", "1"]) == 2
    assert "--neighbors 500 is more than" in capsys.readouterr().err
    assert main(["fit", "t.csv", "--target", "a", "--quiet"]) == 2
    assert "column 'a' holds numbers that are not whole" in capsys.readouterr().err


def test_one_class_in_a_fold_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{i % 3},{'ill' if i == 7 else 'well'}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,state", *rows]))
    assert main(["fit", "t.csv", "--target", "state", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "has one class to train on, 'well': of the rows 'ill' has 1" in error
    assert "or set --regularization yourself" in error
    assert "n_splits" not in error
    assert "cv=" not in error
    assert main(["fit", "t.csv", "--target", "state", "--quiet", "--regularization", "1"]) == 0


@pytest.mark.parametrize("mark", ["-1e+30", "-888", "-.-", "--", "-", "none given"])
def test_the_advised_marks_for_missing_are_taken(mark, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{mark if i % 9 == 4 else i / 7},{mark if i % 9 == 5 else 'xy'[i % 2]}" for i in range(60)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows]))
    assert (
        main(["describe", "t.csv", *shlex.split(na_option("lost", mark)), "--format", "json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [column["n_missing"] for column in told["columns"]] == [7, 7]
