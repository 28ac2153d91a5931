"""``plml describe``, and the options that say what columns are."""

import json

import numpy as np
import pandas as pd
import pytest

from command import run


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = np.resize(["ill", "well"], 90)
    table = pd.DataFrame({"id": range(90), "dose": np.where(y == "ill", 2.0, 1.0)})
    table["dose"] += rng.normal(0, 0.6, 90)
    table["weight"] = [f"{w:.1f} kg" for w in rng.uniform(50, 90, 90)]
    table["ward"] = rng.integers(1, 4, 90)
    table["seen"] = pd.Series(pd.date_range("2021-01-01", periods=90)).dt.strftime("%Y-%m-%d")
    table["outcome"], table["state"] = np.where(y == "ill", "treated", "sent home"), y
    path = tmp_path_factory.mktemp("describe") / "ward.csv"
    table.to_csv(path, index=False, sep=";")
    return path


def test_text_json_and_page(path, tmp_path, capsys):
    assert run("describe", path, "--target", "state") == 0
    captured = capsys.readouterr()
    assert "ward.csv: text" in captured.err
    assert "weight" in captured.err  # in kg
    assert "left out: alone it gives 100.0% of the labels away" in captured.out
    assert run("describe", path, "--target", "state", "--format", "json", "--quiet") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    uses = {fact["name"]: fact["use"] for fact in json.loads(captured.out)["columns"]}
    assert uses == {
        "id": "ignore",
        "dose": "number",
        "weight": "number",
        "ward": "number",
        "seen": "date",
        "outcome": "ignore",
    }
    page = tmp_path / "columns.html"
    assert run("describe", path, "--target", "state", "-o", page) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "Distributions" in text


def test_fit_says_what_it_leaves_out_and_can_be_told_otherwise(path, tmp_path, capsys):
    arguments = ("fit", path, "--target", "state", "-o", tmp_path / "m.skops", "--folds", 0)
    quick = ("--regularization", 1, "--bases", 3)
    assert run(*arguments, *quick, "--quiet") == 0
    printed = capsys.readouterr().out
    assert "column 'id' is left out: every row has another number" in printed
    assert "column 'outcome' is left out: alone it gives" in printed
    told = ("--keep", "outcome", "--drop", "weight", "--as", "ward=category", "seen=ignore")
    assert run(*arguments, *quick, *told) == 0
    assert "3 columns are used, 3 are left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--as", "ward"), "--as ward: give a column and what it is"),
        (("--as", "ward=colour"), "it can be number, category, date, ignore"),
        (("--keep", "nobody"), "has no column 'nobody' besides the target"),
        (("--target", "nobody"), "has no column 'nobody'"),
        (("-o", "nowhere/columns.html"), "nowhere"),
    ],
)
def test_what_cannot_be_ends_in_one_line(path, capsys, options, words):
    assert run("describe", path, "--quiet", *options) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
