"""The command line as someone meets it who installs the wheel, far from any repository."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

TABLES = """
from sklearn.datasets import load_wine
table = load_wine(as_frame=True).frame.sample(frac=1, random_state=0)
table["grape"] = table.pop("target").map({0: "barolo", 1: "grignolino", 2: "barbera"})
table[:120].to_csv("train.csv", index=False)
table[120:].to_csv("test.csv", index=False)
"""


def test_it_is_the_wheel_that_runs(run, installed):
    where = run("python", "-c", "import plml; print(plml.__file__)").stdout
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run("plml", "--version").stdout.startswith("plml ")


def test_demo(run, tmp_path):
    assert "PLML, local metrics" in run("plml", "demo").stdout
    assert (tmp_path / "plml-demo.png").stat().st_size > 10_000


def test_from_a_table_to_an_explanation(run, tmp_path):
    run("python", "-c", TABLES)
    assert (
        "model: wine.skops"
        in run("plml", "fit", "train.csv", "--target", "grape", "-o", "wine.skops").stdout
    )
    assert "accuracy " in run("plml", "evaluate", "wine.skops", "test.csv").stdout
    assert "row 0: " in run("plml", "explain", "wine.skops", "test.csv").stdout
    run("plml", "predict", "wine.skops", "test.csv", "-o", "predictions.csv")
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 59
    error = run("plml", "fit", "train.csv", "--target", "grapes", exit_code=2).stderr
    assert "has no column 'grapes'" in error.splitlines()[-1]


def test_a_study_is_kept_and_continued(run, tmp_path):
    """Records made where there is no commit count: a second call has nothing to do."""
    command = ["plml", "reproduce", "table1", "--datasets", "digits", "--jobs", "2"]
    command += ["--methods", "SML", "KernelSVM", "--out", "small"]
    first = run(*command)
    assert "| Digits |" in first.stdout
    assert "report: " in first.stdout
    assert "Digits" in (tmp_path / "small" / "report.html").read_text(encoding="utf-8")
    (records,) = (tmp_path / "small" / "records").iterdir()
    lines = records.read_text().splitlines()
    assert len(lines) == 20
    assert {json.loads(line)["commit"] for line in lines} == {None}
    written = records.stat().st_mtime_ns
    second = run(*command)
    assert second.stdout == first.stdout
    assert records.stat().st_mtime_ns == written


def test_a_study_without_its_data_says_so(run):
    """Neither files nor a network: one line for the reason, one for the outcome, exit code 2."""
    no_network = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "from plml.cli import main\n"
        "sys.exit(main(['reproduce', 'table1', '--datasets', 'letter', '--methods', 'SML']))"
    )
    done = run("python", "-c", no_network, exit_code=2)
    assert "all 10 tasks failed" in done.stderr.splitlines()[-1]
    assert "10 done" not in done.stderr


def test_bench(run):
    found = run("plml", "bench", "--datasets", "digits", "--regularizations", "1")
    assert "digits" in found.stdout
