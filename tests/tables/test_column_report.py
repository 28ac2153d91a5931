"""What columns are taken for, and what is done with each."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

import plml
from plml import tables
from plml.tables.column_report import ColumnReport

N = 150


@pytest.fixture(scope="module")
def table():
    """Iris with every wart that a column can have."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.columns = ["sl", "sw", "pl", "pw"]
    rng = np.random.default_rng(0)
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, N), "D"))
    X.insert(0, "Unnamed: 0", range(N))
    X["patient_id"] = rng.permutation(10**6)[:N]
    X["code"] = [f"A-{i:04d}" for i in range(N)]
    X["note"] = [" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(N)]
    X["iso"] = days.dt.strftime("%Y-%m-%d")
    X["stamp"] = days.dt.strftime("%Y-%m-%dT%H:%M:%S")
    X["day first"] = days.dt.strftime("%d/%m/%Y")
    X["month first"] = days.dt.strftime("%m/%d/%Y")
    X["either"] = [f"{a:02d}/{b:02d}/2020" for a, b in rng.integers(1, 13, (N, 2))]
    X["constant"], X["empty"] = "x", np.nan
    X["given"] = np.where(rng.random(N) < 0.5, "yes", None)
    X["sl again"] = X["sl"]
    X["city"] = rng.choice([f"c{i}" for i in range(45)], N)
    X["city code"] = X["city"].map({f"c{i}": f"#{i * 7}" for i in range(45)})
    X["leak"] = np.array(["u", "v", "w"])[y]
    X["noisy leak"] = y + rng.normal(0, 0.05, N)
    X["level"] = rng.integers(1, 6, N)
    X["flag"] = rng.random(N) < 0.5
    X["salary"] = rng.integers(20_000, 900_000, N)
    X["texts of numbers"] = rng.normal(size=N).astype(str)
    X["species"] = np.array(["setosa", "versicolor", "virginica"])[y]
    return X


KINDS = {
    "Unnamed: 0": ("identifier", "ignore"),
    "sl": ("number", "number"),
    "patient_id": ("identifier", "ignore"),
    "code": ("identifier", "ignore"),
    "note": ("text", "ignore"),
    "iso": ("date", "date"),
    "stamp": ("duplicate", "ignore"),
    "day first": ("duplicate", "ignore"),
    "month first": ("duplicate", "ignore"),
    "either": ("date", "ignore"),
    "constant": ("constant", "ignore"),
    "empty": ("empty", "ignore"),
    "given": ("category", "category"),
    "sl again": ("duplicate", "ignore"),
    "city": ("category", "category"),
    "city code": ("duplicate", "ignore"),
    "leak": ("leak", "ignore"),
    "noisy leak": ("leak", "ignore"),
    "level": ("ordinal", "number"),
    "flag": ("category", "category"),
    "salary": ("number", "number"),
    "texts of numbers": ("number", "number"),
}


@pytest.fixture(scope="module")
def report(table):
    return plml.describe(table, "species", source="iris.csv")


@pytest.mark.parametrize("name", KINDS)
def test_kinds(report, name):
    (fact,) = [fact for fact in report.columns if fact.name == name]
    assert (fact.kind, fact.use) == KINDS[name], fact.what
    assert fact.use != "ignore" or fact.what.startswith("left out: ")


def test_counts_and_classes(table, report):
    assert report.classes == {"setosa": 50, "versicolor": 50, "virginica": 50}
    missing = {fact.name: fact.n_missing for fact in report.columns}
    assert missing["empty"] == N
    assert missing["given"] == int(table["given"].isna().sum())
    copies = pd.concat([table, table[:7]])
    assert plml.describe(copies, "species").n_copies == 7


def test_a_user_knows_better(table):
    found = plml.describe(
        table,
        "species",
        keep=["leak", "note", "patient_id", "sl again"],
        drop=["sw"],
        uses={"level": "category", "iso": "ignore", "either": "date"},
    )
    uses = {fact.name: fact.use for fact in found.columns}
    assert uses["leak"] == uses["note"] == uses["level"] == "category"
    assert uses["patient_id"] == uses["sl again"] == "number"
    assert uses["sw"] == uses["iso"] == "ignore"
    assert uses["either"] == "date"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": ["nobody"]}, "--keep: the table has no column 'nobody'"),
        ({"drop": ["nobody"]}, "--drop: the table has no column 'nobody'"),
        ({"uses": {"sl": "colour"}}, "--as sl=colour: it must be one of"),
        ({"uses": {"city": "number"}}, "column 'city' holds 'c.*', which is not a number"),
        ({"uses": {"city": "date"}}, "column 'city' holds 'c.*', which is not a date"),
        ({"keep": ["sl"], "drop": ["sl"]}, "both kept and left out"),
        ({"keep": ["empty"]}, "the column is empty"),
        ({"target": "nobody"}, "has no column 'nobody'; it has 'Unnamed: 0'"),
    ],
)
def test_what_cannot_be_is_named(table, options, words):
    with pytest.raises(ValueError, match=words):
        plml.describe(table, **{"target": "species", **options})


def test_one_odd_value_among_numbers_is_asked_about(table):
    odd = table.assign(dose=[*map(str, np.arange(N - 1) / 7), "lots"])
    with pytest.raises(ValueError, match="'dose' holds numbers, but 'lots' in row 149; correct it"):
        plml.describe(odd, "species")


def test_honest_columns_are_not_taken_for_leaks():
    for load in (load_iris, load_wine, load_breast_cancer):
        frame = load(as_frame=True).frame
        assert not plml.describe(frame, "target").left_out


def test_where_most_columns_tell_the_label_none_is_left_out():
    y = np.resize([0, 1], 100)
    rng = np.random.default_rng(0)
    easy = pd.DataFrame({"a": 5.0 * y + rng.random(100), "b": -3.0 * y + rng.random(100), "y": y})
    found = plml.describe(easy, "y")
    assert found.used == ["a", "b"]
    assert all(fact.doubt for fact in found.columns)


def test_the_order_of_the_rows_is_no_leak():
    """Texts that are all different say nothing of rows that are sorted by class."""
    y = np.repeat([0, 1], 100)
    table = pd.DataFrame({"who": [f"p{i}" for i in range(200)], "x": np.arange(200) % 7, "y": y})
    found = plml.describe(table, "y", keep=["who"])
    (who,) = [fact for fact in found.columns if fact.name == "who"]
    assert "alone it predicts" not in who.what


def test_text_json_and_page(table, report):
    text = str(report)
    assert all(name in text for name in KINDS)
    assert f"{len(report.used)} columns are used" in text
    assert f" rows, {len(report.columns)} columns and the target" in text.splitlines()[0]
    assert ColumnReport.from_dict(json.loads(report.to_json())) == report
    page = report.html(table[["sl", "species"]])
    assert "left out: it is the same as" in page
    assert "<script src" not in page
    evil = plml.describe(pd.DataFrame({"<b>": [1.0, 2.0, 3.5]}))
    assert "<b></td>" not in evil._repr_html_()


def test_a_model_keeps_its_report(table, tmp_path):
    seen = []
    model = tables.fit(
        table, "species", "iris.csv", regularization=1.0, n_bases=3, tell=seen.append
    )
    model.save(tmp_path / "m.skops")
    loaded = tables.load(tmp_path / "m.skops")
    assert loaded.report == model.report == seen[0]
    assert set(loaded.columns.names) == set(seen[0].used)
    new = table.drop(columns=["leak", "species", "note"])
    assert not loaded.misfits(new).errors
    np.testing.assert_array_equal(
        loaded.pipeline.predict(loaded.columns.tidy(new, "new")),
        model.pipeline.predict(model.columns.tidy(new, "new")),
    )


def test_nothing_to_learn_from():
    table = pd.DataFrame({"id": range(60), "one": 1, "y": np.resize([0, 1], 60)})
    with pytest.raises(ValueError, match=r"no column to learn from \('id': left out"):
        tables.fit(table, "y", "table.csv")


def test_columns_are_counted_in_english():
    left = pd.DataFrame({"key": range(40), "size": [1.5, 2.5] * 20})
    assert str(tables.describe(left)).endswith("1 column is used, 1 is left out")
    assert "<p>1 column is used, 1 is left out.</p>" in tables.describe(left).html()
    both = left.assign(key=left["size"] * 0.5 + np.arange(40) % 7)
    assert str(tables.describe(both)).endswith("\n2 columns are used")
