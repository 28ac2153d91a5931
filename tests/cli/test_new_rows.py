"""Rows that are not as the training rows were, and what predictions can carry."""

import numpy as np
import pandas as pd
import pytest

from command import run
from plml import tables

OPTIONS = ("--regularization", 1, "--bases", 3, "--quiet", "--folds", 0)


def training_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.uniform(10, 20, 90), "weight": rng.uniform(0, 1, 90)})
    table["colour"] = np.resize(["red", "blue", "green"], 90)
    table["kind"] = np.where(table["size"] > 15, "large", "small")
    table["name"] = [f"n{i}" for i in range(90)]
    table["note"] = "x"
    return table


@pytest.fixture(scope="module", params=["refuse", "impute"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    training_table().to_csv(folder / "train.csv", index=False)
    left_out = ("--drop", "note", "--id", "name", "--missing", request.param)
    out = folder / "model.skops"
    assert run("fit", folder / "train.csv", "--target", "kind", *left_out, "-o", out, *OPTIONS) == 0
    return out, request.param == "impute"


def predicted(model, table, folder, *options):
    table.to_csv(folder / "new.csv", index=False)
    return run("predict", model, folder / "new.csv", "--quiet", *options)


def test_rows_like_the_training_rows_pass_without_a_word(model, tmp_path, capsys):
    assert predicted(model[0], training_table(), tmp_path) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("size", [-500.0, 12.0, 31.0], "column 'size' has 2 values far outside the range of the"),
        ("weight", 300.0, "training rows, 0.00"),
        ("colour", ["red", "pink", "pink"], "has 2 values that no training row has, 'pink'; they"),
        ("colour", 7, "column 'colour' has no value that the training rows have, but '7'; they"),
        ("extra", 1, "nothing was learned from the new columns 'extra'"),
    ],
)
def test_oddities_are_named_and_predictions_made(model, tmp_path, capsys, column, values, words):
    table = training_table()[:3]
    table[column] = values
    assert predicted(model[0], table, tmp_path) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f"warning: {tmp_path / 'new.csv'}: ")
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out.count("\n") == 4


def test_values_a_little_outside_are_no_news(model, tmp_path, capsys):
    table = training_table()[:3].assign(size=[8.0, 23.0, 15.0])
    assert predicted(model[0], table, tmp_path) == 0
    assert capsys.readouterr().err == ""


def test_every_odd_column_has_a_line(model, tmp_path, capsys):
    table = training_table()[:3].assign(size=1e6, colour="pink", extra=1)
    assert predicted(model[0], table, tmp_path) == 0
    assert capsys.readouterr().err.count("warning: ") == 3


def test_new_gaps(model, tmp_path, capsys):
    out, imputes = model
    table = training_table()[:4]
    table.loc[1, "weight"] = np.nan
    table.loc[2:3, "colour"] = None
    assert predicted(out, table, tmp_path) == (0 if imputes else 2)
    error = capsys.readouterr().err
    if imputes:
        assert "'weight' has 1 missing value, which is filled in; no training row has" in error
        assert "'colour' has 2 missing values, which are filled in; no training row has" in error
    else:
        assert "does not fit the model: column 'weight' has 1 missing values" in error
        assert "; also, column 'colour' has 2 missing values, the first in row 2" in error
        assert error.count("\n") == 1


def test_what_makes_prediction_impossible_is_one_line(model, tmp_path, capsys):
    table = training_table()[:3].rename(columns={"colour": "Colour"}).assign(size=["1", "x", "2"])
    assert predicted(model[0], table, tmp_path) == 2
    error = capsys.readouterr().err
    assert "it lacks the column 'colour' ('Colour' may be 'colour'); add it, or" in error
    assert "; also, column 'size' holds 'x' in row 1, which is not a number" in error
    assert error.count("\n") == 1
    many = training_table()[:3].drop(columns="name")
    assert predicted(model[0], many, tmp_path, "--id", "name") == 2
    assert "has no column 'name' for --id; it has 'size'" in capsys.readouterr().err


def test_a_renamed_column_is_found_whatever_its_case(model, tmp_path, capsys):
    table = training_table()[:3].rename(columns={"size": " SIZE", "colour": "hue"})
    assert predicted(model[0], table, tmp_path) == 2
    assert "'size', 'colour' ('SIZE' may be 'size'); add them" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["prediction", "probability of large", "nearest case"])
def test_a_key_does_not_hide_a_prediction(model, tmp_path, capsys, name):
    table = training_table()[:3].rename(columns={"name": name})
    assert predicted(model[0], table, tmp_path, "--id", name) == 2
    assert f"--id {name}: the output has a column of this name" in capsys.readouterr().err


def test_keys_that_name_no_row(tmp_path, capsys):
    table = training_table()
    table.loc[:2, "name"] = [None, "n4", "n5"]
    table.to_csv(tmp_path / "train.csv", index=False)
    out = ("--drop", "note", "-o", tmp_path / "m.skops", *OPTIONS)
    command = ("fit", tmp_path / "train.csv", "--target", "kind", *out)
    assert run(*command, "--id", "name") == 0
    assert "column 'name' names 2 rows by a key that another row has" in capsys.readouterr().err
    assert tables.load(tmp_path / "m.skops").keys[:4].tolist() == ["", "n4", "n5", "n3"]
    assert run(*command, "--id", "kind") == 2
    assert "column 'kind' is the target, so it can neither" in capsys.readouterr().err


def test_dates_are_no_numbers(model, tmp_path, capsys):
    table = training_table()[:3].assign(size=pd.date_range("2020-01-01", periods=3))
    table.to_parquet(tmp_path / "new.parquet")
    assert run("predict", model[0], tmp_path / "new.parquet", "--quiet") == 2
    assert "column 'size' holds dates, and the model knows numbers" in capsys.readouterr().err


def test_predictions_carry_key_shares_and_nearest_case(model, tmp_path):
    table, out = training_table()[5:9], tmp_path / "found.csv"
    table.insert(0, "number", [41, 42, 43, 44])
    options = ("--id", "number", "--probabilities", "--nearest", "-o", out)
    assert predicted(model[0], table, tmp_path, *options) == 0
    found = pd.read_csv(out)
    assert found.columns.tolist() == [
        "number",
        "prediction",
        "probability of large",
        "probability of small",
        "nearest case",
        "nearest class",
        "nearest distance",
    ]
    assert found["number"].tolist() == [41, 42, 43, 44]
    assert found["nearest case"].tolist() == table["name"].tolist()  # they are training rows
    assert found["nearest class"].tolist() == table["kind"].tolist()
    np.testing.assert_allclose(found["nearest distance"], 0, atol=1e-6)


def test_the_nearest_case_is_that_of_a_naive_loop():
    """Its number where there is no key; distances under the metric at the query."""
    table = training_table().drop(columns=["name", "note"])
    model = tables.fit(table, "kind", "t", regularization=1.0, n_bases=3, random_state=0)
    rows = model.prepared(table[:6].assign(size=[11.0, 13.1, 14.9, 15.2, 17.0, 19.0]), "t")
    found = tables.nearest_cases(model, rows)
    cases = model.prepared(table, "t").to_numpy()
    matrices = model.classifier.get_mahalanobis_matrix(rows)
    for i, (query, M) in enumerate(zip(rows.to_numpy(), matrices, strict=True)):
        distances = [np.sqrt(max((query - case) @ M @ (query - case), 0)) for case in cases]
        assert found["nearest distance"][i] == pytest.approx(min(distances), rel=1e-5)
        assert distances[found["nearest case"][i]] == pytest.approx(min(distances), rel=1e-5)
        assert found["nearest class"][i] == table["kind"][found["nearest case"][i]]


def test_an_older_file_has_no_profile_and_still_predicts(model):
    fitted = tables.load(model[0])
    old = tables.Model(fitted.pipeline, fitted.target, fitted.columns)
    table = training_table().assign(size=1e6)
    assert old.misfits(table).warnings == []
    assert len(fitted.misfits(table).warnings) == 1


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("profile", {"ranges": {}}),
        ("profile", [1]),
        ("keys", np.arange(3)),
        ("keys", ["a"]),
    ],
)
def test_a_damaged_profile_is_refused(model, tmp_path, part, value):
    from plml.io.model_files import read_record, write_record

    record = read_record(model[0])
    del record["format"]
    write_record(tmp_path / "m.skops", {**record, part: value})
    with pytest.raises(ValueError, match="was not written by plml fit"):
        tables.load(tmp_path / "m.skops")


def test_how_columns_were_read_is_told_of_those_that_are_used(tmp_path, capsys):
    table = training_table().assign(name=[f"INS-{100 + i}" for i in range(90)])
    table["size"] = [f"{size:.1f} mm" for size in table["size"]]
    table["note"] = [f"{number % 7} kg" for number in range(90)]
    path, out = tmp_path / "train.csv", tmp_path / "model.skops"
    table.to_csv(path, index=False)
    loud = [option for option in OPTIONS if option != "--quiet"]
    fit = ("fit", path, "--target", "kind", "--drop", "note", "-o", out, *loud)
    for command in ((*fit, "--id", "name"), fit, ("explain", out, path)):
        assert run(*command) == 0
        said = capsys.readouterr().err
        assert "column 'size' is numbers in 'mm'" in said
        assert "'name'" not in said
        assert "'note'" not in said
    assert run("describe", path) == 0
    assert "column 'note' is numbers in 'kg'" in capsys.readouterr().err
