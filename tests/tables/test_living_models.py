"""Models of tables whose cases come and go: votes, keys, profile, and what is left in the file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import run
from model_bytes import is_in, members
from plml import AutoPLML, load, save, tables
from plml.cli import case_commands

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = {"metrics": ("one",), "priors": ("identity",), "n_members": 1, "random_state": 0}


@pytest.fixture
def table(rng):
    """Two numbers with gaps, categories of which some are rare, dates, keys, labels."""
    n = 90
    y = np.arange(n) % 3
    frame = pd.DataFrame(
        {
            "key": [f"row-{i:03d}" for i in range(n)],
            "size": rng.normal(size=n) + y,
            "weight": rng.normal(size=n) - 2.0 * y,
            "colour": np.array(["red", "green", "blue"])[(y + rng.integers(0, 2, n)) % 3],
            "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "kind": np.array(["a", "b", "c"])[y],
        }
    )
    frame.loc[[5, 40, 41], "size"] = np.nan
    frame.loc[[6, 42], "seen"] = pd.NaT
    return frame


def distinctive(table):
    """Row 3 has values that nobody else has: extremes, a median, a category, a date, a key."""
    table.loc[3, "weight"] = 777.1234567
    table.loc[3, "colour"] = "ultramarine"
    table.loc[3, "key"] = "private-name"
    table.loc[3, "seen"] = pd.Timestamp("2031-07-13")
    median = table["size"].drop(3).median() + 1e-5
    table.loc[3, "size"] = median
    assert table["size"].median() == median
    return table


@pytest.mark.parametrize("missing", ["median", "indicator", "neighbors"])
@pytest.mark.parametrize("paper", [False, True])
def test_nothing_of_a_forgotten_row_is_in_the_file(table, tmp_path, missing, paper):
    table, path = distinctive(table), tmp_path / "model.skops"
    how = {"regularizations": (1.0,), "n_bases": 3, "random_state": 0} if paper else QUICK
    model = tables.fit(table, "kind", "t", key="key", paper=paper, missing=missing, **how)
    encoded = model.classifier.training_cases()[0] if paper else model.classifier.model_._fit_X
    row = encoded[3]
    others = np.delete(encoded, [3, 5, 6, 40, 41, 42], axis=0)  # nor those whose gaps are filled
    private = [
        float(v)
        for f, v in enumerate(row)
        if len(np.unique(others[:, f])) > 2 and not np.isclose(others[:, f], v, rtol=1e-9).any()
    ]
    private += [777.1234567, "ultramarine", "private-name", float(table.loc[3, "size"])]
    private += [(pd.Timestamp("2031-07-13") - pd.Timestamp(0)).days]
    model.save(path)
    there = is_in(path, private)
    assert len(there) >= 6  # the search can find them
    before = model.classifier.predict_proba(model.prepared(table.drop(index=[3]), "t"))
    model.forget_cases(keys=["private-name"])
    model.save(path)
    assert is_in(path, private) == []
    assert row.tobytes() not in b"".join(members(path))
    again = tables.load(path)
    assert len(again.keys) == 89
    after = again.classifier.predict_proba(again.prepared(table.drop(index=[3]), "t"))
    assert np.abs(after - before).mean() < 0.1
    np.testing.assert_array_equal(
        after, model.classifier.predict_proba(model.prepared(table.drop(index=[3]), "t"))
    )
    again.explain(table.iloc[:2], "t")


@pytest.mark.parametrize("paper", [False, True])
def test_ends_of_ranges_and_remarks_go_with_their_row(table, rng, tmp_path, paper):
    """Times to the second, a small number among huge ones, a spelling that nobody else has."""
    path = tmp_path / "model.skops"
    seconds = rng.integers(0, 10**8, len(table))
    table["seen"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(seconds, "s")
    table["size"] = rng.lognormal(25, 6, len(table))
    table.loc[3, ["size", "colour"]] = -1.23456789, "RED"
    table.loc[3, "seen"] = pd.Timestamp("1999-12-31 23:11:07")
    days = (table.loc[3, "seen"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    how = {"regularizations": (1.0,), "n_bases": 3, "random_state": 0} if paper else QUICK
    model = tables.fit(table, "kind", "t", key="key", paper=paper, missing="median", **how)
    model.save(path)
    private = [-1.23456789, days, "RED"]
    assert is_in(path, private) == private
    model.forget_cases(rows=[3])
    model.save(path)
    assert is_in(path, private) == []


@pytest.mark.parametrize("missing", ["median", "neighbors"])
@pytest.mark.parametrize("paper", [False, True])
def test_what_an_added_case_took_over_goes_with_it(table, tmp_path, missing, paper):
    """A median, a donor and a category, first of a row that was learned from, then of its copy."""
    table, path = distinctive(table), tmp_path / "model.skops"
    how = {"regularizations": (1.0,), "n_bases": 3, "random_state": 0} if paper else QUICK
    model = tables.fit(table, "kind", "t", key="key", paper=paper, missing=missing, **how)
    model.add_cases(table.iloc[[3]].assign(key="copy"), key="key")
    model.forget_cases(keys=["private-name"])
    model.save(path)
    private = ["ultramarine", 777.1234567, float(table.loc[3, "size"])]
    assert "ultramarine" in is_in(path, private)  # the case that was added has it
    encoded = model.classifier.training_cases()[0] if paper else model.classifier.model_._fit_X
    private += [float(value) for value in encoded[89][:2]]
    model.forget_cases(keys=["copy"])
    model.save(path)
    assert is_in(path, private) == []


def test_a_copy_that_goes_takes_nothing_from_the_rows_that_stay(table):
    for missing in ("median", "indicator", "neighbors"):
        model = tables.fit(table, "kind", "t", key="key", missing=missing, **QUICK)
        before = model.classifier.predict_proba(model.prepared(table, "t"))
        model.add_cases(table.assign(key=[f"copy {i}" for i in range(90)]), key="key")
        model.forget_cases(keys=[f"copy {i}" for i in range(90)])
        after = model.classifier.predict_proba(model.prepared(table, "t"))
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("missing", ["median", "indicator", "neighbors"])
def test_all_values_of_a_column_cannot_be_forgotten(table, missing):
    table.loc[table.index[3:], "size"] = np.nan
    model = tables.fit(table, "kind", "t", missing=missing, keep=["size"], **QUICK)
    with pytest.raises(ValueError, match="no other row has a value in column 'size'"):
        model.forget_cases(rows=[0, 1, 2])
    model.forget_cases(rows=[0, 1])
    assert model.profile.ranges["size"] == pytest.approx((table["size"][2],) * 2)


def test_cases_of_a_table_vote_and_the_profile_follows(table, tmp_path):
    old, new = table.iloc[:60], table.iloc[60:].reset_index(drop=True)
    new.loc[0, "weight"], new.loc[1, "colour"] = 50.0, "violet"
    model = tables.fit(old, "kind", "t", key="key", missing="median", **QUICK)
    assert "far outside" in str(model.misfits(new, "key").warnings)
    model.add_cases(new, key="key")
    assert model.misfits(new, "key").warnings == []
    assert list(model.keys) == list(table["key"])
    found = tables.nearest_cases(model, model.prepared(new, "t"))
    np.testing.assert_array_equal(found["nearest case"], new["key"])
    np.testing.assert_allclose(found["nearest distance"].astype(float), 0.0, atol=1e-7)
    model.save(tmp_path / "m.skops")
    told = tables.load(tmp_path / "m.skops").explain(new.iloc[:3], "t", 2)
    assert list(told.row_names[told.neighbors[:, 0]]) == list(new["key"][:3])
    values = model.classifier.training_values()
    np.testing.assert_allclose(values[60:, 1].astype(float), new["weight"])
    model.forget_cases(rows=[0, 61])
    assert list(model.keys) == [k for i, k in enumerate(table["key"]) if i not in (0, 61)]
    with pytest.raises(ValueError, match="'row-061'"):
        model.forget_cases(keys=["row-061"])


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(90),
        np.where(np.arange(90) == 7, np.nan, np.arange(90)),  # a gap makes floats of numbers
        pd.date_range("2020-01-01", periods=90),
    ],
)
def test_a_key_is_the_same_in_every_type(table, keys):
    table["key"] = keys
    model = tables.fit(table, "kind", "t", key="key", missing="median", **QUICK)
    shown = str(keys[3]) if keys.dtype.kind == "M" else "3"
    new = table.iloc[[3]]
    others = [] if keys.dtype.kind == "M" else [new["key"].astype(float), new["key"].astype(int)]
    for same in (new["key"], new["key"].astype(object), *others):
        with pytest.raises(ValueError, match=f"a case with the key '{shown}' is already there"):
            model.add_cases(new.assign(key=same), key="key")
    assert len(model.forget_cases(keys=[shown]).keys) == 89
    assert len(model.add_cases(new, key="key").keys) == 90
    with pytest.raises(ValueError, match="is already there"):
        model.add_cases(new, key="key")


@pytest.mark.parametrize("gap", [False, True])
def test_keys_that_are_whole_numbers(table, gap):
    """A column of them with a gap has floats, and the key 7 is no other one than 7.0."""
    table["key"] = np.arange(1000, 1090)
    old = table.iloc[:60].astype({"key": float}) if gap else table.iloc[:60]
    old.loc[3, "key"] = np.nan if gap else 1003
    model = tables.fit(old, "kind", "t", key="key", missing="median", **QUICK)
    for again in (1005, 1005.0, "1005"):
        new = table.iloc[60:62].assign(key=[again, 2000])
        with pytest.raises(ValueError, match="a case with the key '1005' is already there"):
            model.add_cases(new, key="key")
    model.add_cases(table.iloc[60:62].astype({"key": float}), key="key")
    assert [str(key) for key in model.keys[-3:]] == ["1059", "1060", "1061"]
    for key in (1005, [1006.0], ["1007"], np.array([1008, 1009])):
        model.forget_cases(keys=key)
    assert model.n_cases == 57
    with pytest.raises(ValueError, match="no case has the key '1005', '7'"):
        model.forget_cases(keys=[1005, 1010, 7])


def test_a_model_changes_in_one_step(table, monkeypatch):
    """Whatever interrupts it, its keys are those of its cases."""
    table["key"] = np.arange(90)
    model = tables.fit(table.iloc[:60], "kind", "t", key="key", missing="median", **QUICK)
    steps = []

    def stepwise(one, name, value):
        steps.append(name)
        object.__setattr__(one, name, value)

    monkeypatch.setattr(tables.Model, "__setattr__", stepwise)
    model.add_cases(table.iloc[60:])
    model.forget_cases([3])
    assert steps == ["__dict__", "__dict__"]
    assert model.n_cases == len(model.keys) == 89


def test_keys_of_unsigned_numbers_are_not_rounded(table):
    table["key"] = np.arange(90)
    model = tables.fit(table.iloc[:60], "kind", "t", key="key", missing="median", **QUICK)
    model.add_cases(table.iloc[60:61].assign(key=np.array([2**63 + 7], np.uint64)), key="key")
    assert str(model.keys[-1]) == str(2**63 + 7)


def test_what_is_refused(table):
    model = tables.fit(table, "kind", "t", key="key", missing="median", **QUICK)
    new = table.iloc[:2].assign(key=["x", "y"])
    unnamed = replace(model, key=None)  # as a file of an older version
    before = model.classifier.predict_proba(model.prepared(table, "t"))
    for change, message in [
        (lambda: unnamed.add_cases(new), "the cases of this model have keys; name the column"),
        (lambda: model.add_cases(new.drop(columns="key")), "the table has no column 'key'"),
        (lambda: model.add_cases(new, key="name"), "the table has no column 'name'"),
        (
            lambda: model.add_cases(new.assign(key="z"), key="key"),
            "two rows have the key 'z'; give each case one of its own",
        ),
        (
            lambda: model.add_cases(new.assign(key=["x", None]), key="key"),
            "the table: column 'key' has no key in row 1; give each case one of its own",
        ),
        (lambda: model.add_cases(table, key="key"), "a case with the key 'row-000' is already"),
        (lambda: model.add_cases(new.assign(kind="q"), key="key"), "does not know: 'q'"),
        (lambda: model.add_cases(new.drop(columns="kind"), key="key"), "no column 'kind'"),
        (lambda: model.forget_cases(), "name the cases by their rows, or by their keys"),
        (lambda: model.forget_cases(rows=[90]), "there is no case 90"),
        (lambda: model.forget_cases(keys=["x"]), "no case has the key 'x'"),
        (lambda: model.forget_cases(rows=np.arange(0, 90, 3)), "class 'a' would have no case"),
    ]:
        with pytest.raises(ValueError, match=message):
            change()
    after = model.classifier.predict_proba(model.prepared(table, "t"))
    np.testing.assert_array_equal(after, before)
    model.add_cases(new.assign(kind="q"), key="key", new_classes="allow")
    assert list(model.classifier.classes_) == ["a", "b", "c", "q"]


def test_auto_plml_is_the_model_that_had_the_cases(table, tmp_path):
    """Members, values and names; a model of the same settings that holds them answers alike."""
    X, y = table.drop(columns=["kind", "key"]), table["kind"]
    X = X.set_index(table["key"])
    model = AutoPLML(missing="median", **(QUICK | {"n_members": 2})).fit(X[:60], y[:60])
    model.predict(X)
    model.add_cases(X[60:], y[60:])
    assert list(model.training_names()) == list(table["key"])
    rows = model.encoder_.transform(X)
    np.testing.assert_array_equal(model.model_._fit_X, rows)
    np.testing.assert_array_equal(model.training_cases()[1], np.searchsorted(["a", "b", "c"], y))
    for one in model.models_:
        M = one.basis_metrics_[0]
        differences = rows[:, None] - rows
        squared = np.einsum("ijd,de,ije->ij", differences, M, differences)
        squared[np.arange(90), np.arange(90)] = np.inf
        np.testing.assert_allclose(
            one.kneighbors(None, 3)[0] ** 2, np.sort(squared, axis=1)[:, :3], atol=1e-9
        )
    save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(
        load(tmp_path / "m.skops").predict_proba(X), model.predict_proba(X)
    )
    few = AutoPLML(n_neighbors=(30,), vote=("uniform",), **QUICK).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match="n_neighbors=30 is more than the 24 cases"):
        few.forget_cases(np.arange(36))


@pytest.fixture
def files(table, tmp_path):
    table.iloc[:60].to_csv(tmp_path / "old.csv", index=False)
    table.iloc[60:].to_csv(tmp_path / "new.csv", index=False)
    tables.fit(tables.read_table(tmp_path / "old.csv")[0], "kind", "t", key="key", **QUICK).save(
        tmp_path / "model.skops"
    )
    return tmp_path


def test_commands(files, capsys, monkeypatch):
    model, other = files / "model.skops", files / "other.skops"
    before = model.read_bytes()
    with monkeypatch.context() as without:  # what is only read may be where no lock can be
        without.setattr(case_commands, "exclusively", pytest.fail)
        assert run("add", model, files / "new.csv", "--id", "key", "-o", other) == 0
    assert capsys.readouterr().out == "30 cases added, 3 classes, 90 cases in all\n"
    assert model.read_bytes() == before
    assert run("add", model, files / "new.csv", "-o", files / "same.skops") == 0  # as at the fit
    capsys.readouterr()
    np.testing.assert_array_equal(tables.load(files / "same.skops").keys, tables.load(other).keys)
    assert run("forget", other, "--id", "row-003", "row-061", "--quiet") == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("2 cases forgotten, 3 classes, 88 cases in all\n", "")
    assert run("forget", other, "--rows", 0) == 0
    assert capsys.readouterr().out == "1 case forgotten, 3 classes, 87 cases in all\n"
    assert len(tables.load(other).keys) == 87
    assert run("predict", other, files / "new.csv", "--nearest", "--quiet") == 0
    assert capsys.readouterr().out.startswith("key,prediction,nearest case,")
    table = pd.read_csv(files / "new.csv").drop(columns="key")
    table.to_csv(files / "nameless.csv", index=False)
    assert run("predict", other, files / "nameless.csv", "--quiet") == 0
    assert capsys.readouterr().out.startswith("prediction\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("add model.skops old.csv", "a case with the key 'row-000' is already there"),
        ("add model.skops old.csv --id key", "a case with the key 'row-000' is already there"),
        ("add none.skops new.csv", "there is no model"),
        ("add model.skops none.csv", "none.csv"),
        ("add model.skops new.csv --id key -o a/b.skops", "there is no folder"),
        ("forget model.skops --rows 60", "there is no case 60"),
        ("forget model.skops --rows 3 3", "case 3 is named more than once"),
        ("forget model.skops --rows -1", "there is no case -1"),
        ("forget model.skops --id nobody", "no case has the key 'nobody'"),
        ("forget old.csv --rows 1", "is not a model"),
    ],
)
def test_bad_commands_end_in_one_line(files, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(files)
    before = (files / "model.skops").read_bytes()
    assert run(*arguments.split()) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"plml {arguments.split()[0]}: ")
    assert message in said
    assert (files / "model.skops").read_bytes() == before
    with pytest.raises(SystemExit, match="2"):
        run("forget", "model.skops")


def test_models_of_the_first_format(tmp_path):
    data = Path(__file__).parents[1] / "data"
    model = tables.load(data / "table-format-1.skops")
    n, new = len(model.classifier.training_cases()[0]), tables.read_table(data / "table.csv")[0][:4]
    model.add_cases(new).forget_cases(rows=[n])
    model.save(tmp_path / "model.skops")
    assert len(tables.load(tmp_path / "model.skops").classifier.training_cases()[0]) == n + 3
    with pytest.raises(ValueError, match=r"this model is of an older version.*fit again"):
        model.forget_cases(rows=[0])
    plain = load(data / "plml-format-1.skops")
    X, codes = plain.training_cases()
    before = plain.predict_proba(X)
    plain.add_cases(X[:3] + 9.0, plain.classes_[codes[:3]])
    np.testing.assert_allclose(plain.predict_proba(X), before)
    save(plain.forget_cases([0]), tmp_path / "plain.skops")
    assert len(load(tmp_path / "plain.skops").training_cases()[0]) == len(X) + 2
