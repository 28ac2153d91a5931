"""What the commands say of a model: figures beside those of rivals, reports, pictures."""

import json
import re
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from command import run
from plml import tables
from plml.cli.figure_options import n_folds

OPTIONS = ("--regularization", 1, "--bases", 3, "--quiet")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """6 of 364 rows are of a class that the columns say nothing of."""
    folder = tmp_path_factory.mktemp("uneven")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(728, 4)), columns=list("abcd"))
    table["ill"] = "no"
    table.loc[::61, "ill"] = "yes"
    table["key"] = [f"patient {i}" for i in range(728)]
    table[:364].to_csv(folder / "train.csv", index=False)
    table[364:].to_csv(folder / "test.csv", index=False)
    assert run("fit", *fit_arguments(folder), "--folds", 0) == 0
    return folder


def fit_arguments(folder):
    out = ("--target", "ill", "--id", "key", "-o", folder / "model.skops")
    return (folder / "train.csv", *out, *OPTIONS)


def test_a_fit_is_measured_on_rows_that_were_held_out(uneven, capsys):
    assert run("fit", *fit_arguments(uneven), "--positive", "yes") == 0
    printed = capsys.readouterr().out
    assert "364 rows of" in printed
    assert "each predicted by a fit without it, 6 of them 'yes'" in printed
    assert "always 'no'" in printed
    assert "It is not better than no model at all: always answering 'no'" in printed
    assert re.search(r"learned metric +9[5-8]\.\d% .* 0\.0% ", printed)


@pytest.mark.parametrize(("n_rows", "expected"), [(100, 3), (3001, 1), (20_001, 0)])
def test_large_tables_are_measured_less(n_rows, expected):
    assert n_folds(None, n_rows) == expected
    assert n_folds(5, n_rows) == 5


def test_what_cannot_be_measured_is_said(uneven, tmp_path, capsys):
    arguments = fit_arguments(uneven)
    assert run("fit", *arguments, "--folds", 0) == 0
    assert "not measured: evaluate it on other rows" in capsys.readouterr().out
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "y": ["u", "u", "u", "v"]})
    table.to_csv(tmp_path / "few.csv", index=False)
    few = ("fit", tmp_path / "few.csv", "--target", "y", "-o", tmp_path / "m.skops", *OPTIONS)
    assert run(*few) == 0
    assert "not measured: " in capsys.readouterr().out
    assert (tmp_path / "m.skops").exists()
    assert run("fit", *arguments, "--folds", -1) == 2
    assert "--folds must be at least 0, got -1" in capsys.readouterr().err


@pytest.mark.parametrize("folds", [0, 1])
def test_a_fit_to_a_part_of_the_rows_is_said(uneven, tmp_path, capsys, folds):
    model = tmp_path / "m.skops"
    part = ("--max-rows", 200, "--folds", folds, "-o", model)
    assert run("fit", *fit_arguments(uneven), *part) == 0
    printed = capsys.readouterr().out
    n_cases = len(tables.load(model).classifier.training_cases()[1])
    assert 190 < n_cases <= 200
    assert "199 cases, 4 columns as 4 features" in printed
    assert f"learned from a stratified part, {n_cases} of 364 rows (--max-rows)" in printed
    assert ("not measured: " in printed) == (folds == 0)
    assert run("fit", *fit_arguments(uneven), "--folds", 0, "-o", model) == 0
    assert "stratified part" not in capsys.readouterr().out


def test_rivals_are_trained_on_the_stored_rows(uneven, tmp_path, capsys):
    out = tmp_path / "figures.json"
    test = uneven / "test.csv"
    assert run("evaluate", uneven / "model.skops", test, "--json", out, "--quiet") == 0
    assert "not better than no model at all" in capsys.readouterr().out
    found = json.loads(out.read_text())
    train, test = (pd.read_csv(uneven / name) for name in ("train.csv", "test.csv"))
    scaler = StandardScaler().fit(train[list("abcd")])
    rows, queries = (scaler.transform(part[list("abcd")]) for part in (train, test))
    knn = KNeighborsClassifier(5).fit(rows, train["ill"])
    expected = knn.score(queries, test["ill"])
    assert found["figures"]["Euclidean 5-NN"]["accuracy"] == pytest.approx(expected)
    majority = np.mean(test["ill"] == "no")
    assert found["figures"]["largest class"]["accuracy"] == pytest.approx(majority)
    assert found["known_rows"] == 0


def test_rows_that_were_learned_from_are_noticed(uneven, capsys):
    model = uneven / "model.skops"
    assert run("evaluate", model, uneven / "train.csv", "--quiet") == 0
    printed = capsys.readouterr().out
    assert "; 364 are the same as cases of the model" in printed
    assert "But most of the rows are the same as cases of the model" in printed


def test_a_positive_class_a_report_and_a_picture(uneven, tmp_path, capsys):
    model, test = uneven / "model.skops", uneven / "test.csv"
    report, picture = tmp_path / "report.html", tmp_path / "curves.svg"
    options = ("--positive", "yes", "--html", report, "--picture", picture, "--quiet")
    assert run("evaluate", model, test, *options) == 0
    printed = capsys.readouterr().out
    for heading in ("precision", "recall", "ROC AUC", "avg. precision"):
        assert heading in printed
    page = report.read_text()
    assert "model.skops on test.csv" in page
    assert "http" not in page
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_a_positive_class_that_there_is_not(uneven, capsys, command):
    paths = (uneven / "model.skops", uneven / "test.csv", "--quiet")
    arguments = fit_arguments(uneven) if command == "fit" else paths
    assert run(command, *arguments, "--positive", "maybe") == 2
    error = capsys.readouterr().err
    assert "--positive maybe: there is no class 'maybe'; the classes are 'no', 'yes'" in error
    assert error.count("\n") == 1


def test_rows_of_one_class(uneven, tmp_path, capsys):
    table = pd.read_csv(uneven / "test.csv")
    table[table["ill"] == "no"].to_csv(tmp_path / "one.csv", index=False)
    command = ("evaluate", uneven / "model.skops", tmp_path / "one.csv", "--positive", "yes")
    assert run(*command, "--html", tmp_path / "one.html", "--quiet") == 0
    assert "All rows are of class 'no': of other classes" in capsys.readouterr().out
    assert run(*command, "--picture", tmp_path / "one.png", "--quiet") == 2
    captured = capsys.readouterr()
    assert "column 'ill' has the class 'no' alone, so --picture has no ROC curve" in captured.err
    assert captured.out == ""


def test_labels_that_the_model_does_not_know_are_named(uneven, tmp_path, capsys):
    table = pd.read_csv(uneven / "test.csv")
    table.loc[:2, "ill"] = "perhaps"
    table.to_csv(tmp_path / "test.csv", index=False)
    assert run("evaluate", uneven / "model.skops", tmp_path / "test.csv", "--quiet") == 0
    captured = capsys.readouterr()
    assert "column 'ill' has 3 labels that the model does not know, 'perhaps'" in captured.err
    assert "perhaps" in captured.out


def test_no_figure_replaces_an_input(uneven, capsys):
    model, test = uneven / "model.skops", uneven / "test.csv"
    for option in ("--html", "--json", "--picture"):
        assert run("evaluate", model, test, option, test) == 2
        assert "is the table itself" in capsys.readouterr().err


def test_the_report_in_a_browser(uneven, tmp_path):
    """It is drawn without a request to anywhere, at the width of a telephone as well."""
    sync_api = pytest.importorskip("playwright.sync_api")
    report = tmp_path / "report.html"
    options = ("--positive", "yes", "--html", report, "--quiet")
    assert run("evaluate", uneven / "model.skops", uneven / "test.csv", *options) == 0
    with sync_api.sync_playwright() as playwright:
        browser = _browser(playwright)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        requests = []
        page.on("request", lambda request: requests.append(request.url.split(":")[0]))
        page.goto(report.as_uri())
        assert set(requests) <= {"file", "data"}
        assert page.locator("img").count() == 2
        assert page.evaluate("[...document.images].every(i => i.naturalWidth > 0)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        browser.close()


def _browser(playwright):
    try:
        return playwright.chromium.launch()
    except Exception:
        found = subprocess.run(["which", "chromium"], capture_output=True, text=True).stdout.strip()
        if not found:
            pytest.skip("there is no browser")
        return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
