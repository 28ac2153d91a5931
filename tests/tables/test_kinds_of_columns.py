"""Columns as people have them: what each is taken for, and what is said of it."""

from datetime import time
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import plml
from plml import AutoPLML, tables
from plml.preprocessing.dates import read_dates

N = 120
RNG = np.random.default_rng(3)
DAYS = pd.Timestamp("2021-03-04 05:06:07") + pd.to_timedelta(RNG.integers(0, 9 * 10**7, N), "s")
SIZES = RNG.normal(5.0, 1.0, N).round(2)
LEVELS = RNG.integers(0, 6, N)


def days(form):
    return DAYS.strftime(form)


COLUMNS = {
    "ISO": (days("%Y-%m-%d"), "date", "date", "date: "),
    "Zulu": (days("%Y-%m-%dT%H:%M:%SZ"), "date", "date", "date: "),
    "zone": (days("%Y-%m-%d %H:%M:%S+02:00"), "date", "date", "date: "),
    "German": (days("%d.%m.%Y"), "date", "date", "date: "),
    "German, two digits": (days("%d.%m.%y"), "date", "date", "date: "),
    "German with time": (days("%d.%m.%Y, %H:%M"), "date", "date", "date: "),
    "American": (days("%m/%d/%Y"), "date", "date", "date: "),
    "American with time": (days("%m/%d/%Y %I:%M %p"), "date", "date", "date: "),
    "British words": (days("%d %B %Y"), "date", "date", "date: "),
    "American words": (days("%b %d, %Y"), "date", "date", "date: "),
    "of SAS": (days("%d-%b-%Y"), "date", "date", "date: "),
    "DATE9 of SAS": (days("%d%b%Y").str.upper(), "date", "date", "date: "),
    "DATETIME of SAS": (days("%d%b%Y:%H:%M:%S").str.upper(), "date", "date", "date: "),
    "two forms": (
        np.where(np.arange(N) % 3, days("%Y-%m-%d"), days("%d.%m.%Y")),
        "text",
        "ignore",
        "its dates are in two forms, as",
    ),
    "two orders": (
        np.where(np.arange(N) % 3, days("%m/%d/%Y"), days("%d/%m/%Y")),
        "text",
        "ignore",
        "year-month-day, or use it: --as 'two orders=category'",
    ),
    "month": (days("%Y-%m"), "date", "date", "date: "),
    "compact": (days("%Y%m%d").astype(int), "date", "date", "date: "),
    "time": (days("%H:%M:%S"), "date", "date", "date: "),
    "time of 12 hours": (days("%I:%M %p"), "date", "date", "date: "),
    "time objects": ([time(i % 24, i % 60) for i in range(N)], "date", "date", "date: "),
    "one that is none": ([*days("%Y-%m-%d")[1:], "soon"], "text", "ignore", "'soon' among dates"),
    "patient": (RNG.permutation(10**6)[:N], "identifier", "ignore", "as of a key"),
    "Patientennummer": (RNG.permutation(9000)[:N], "identifier", "ignore", "as of a key"),
    "every tenth": (np.arange(10, 10 * N + 10, 10), "identifier", "ignore", "as of a key"),
    "backwards": (np.arange(N, 0, -1), "identifier", "ignore", "as of a key"),
    "all different": (RNG.permutation(10**6)[:N], "number", "number", "if they are a key, --drop"),
    "customer_id": (RNG.integers(0, 40, N), "number", "number", "if they are a key, --drop"),
    "address": ([f"u{i}@x.org" for i in range(N)], "identifier", "ignore", "different texts"),
    "zeros": (
        [f"{v:05d}" for v in RNG.integers(100, 99999, N)],
        "identifier",
        "ignore",
        "different",
    ),
    "few zeros": (RNG.choice(["02134", "10001", "60601"], N), "category", "category", "3 values"),
    "IBAN": ([str(10**17 + int(v)) for v in RNG.integers(0, 10**9, N)], "identifier", "ignore", ""),
    "plz": (RNG.integers(10000, 10050, N), "number", "number", "if they are codes, --as plz"),
    "sex": (RNG.choice(["male", "Male", "female"], N), "category", "category", "two of them"),
    "unseen": (np.resize(["Süd", "Su\u0308d", "Ost"], N), "category", "category", r"'S\xfcd' and"),
    "marks behind": (np.resize(["a", "b", "b\u200b"], N), "category", "category", r"'b\u200b'"),
    "code": (np.resize(["a1", "1", "1.0"], N), "category", "category", "'1' and '1.0'; correct"),
    "grade": (np.resize(["1", "2", "3", ".", ".a"], N), "category", "category", "--na . .a if"),
    "grip": (
        np.resize(["weak", "strong", "--"], N),
        "category",
        "category",
        "'--'; give --na ' --'",
    ),
    "factor": (np.resize(["+", "-"], N), "category", "category", "category of 2 values"),
    "bytes": ([bytes([128 + i % 7]) for i in range(N)], "text", "ignore", "every entry is a bytes"),
    "city": (
        [f"c{v}" for v in RNG.integers(0, 45, N)],
        "category",
        "category",
        "the others are one",
    ),
    "yes": (RNG.choice(["ja", "nein"], N), "category", "category", "2 values"),
    "ticked": (
        np.where(RNG.random(N) < 0.4, "x", None),
        "category",
        "category",
        "there or missing",
    ),
    "nothing": (np.full(N, np.nan), "empty", "ignore", "it is empty"),
    "one": (np.full(N, "a"), "constant", "ignore", "'a' in every row"),
    "decimals": ([Decimal(int(v)) / 100 for v in RNG.integers(0, 9999, N)], "number", "number", ""),
    "span": (pd.to_timedelta(RNG.integers(0, 999, N), "h"), "number", "number", "number of days"),
    "period": (pd.period_range("2000-01", periods=N, freq="M"), "date", "date", "date: "),
    "again": (SIZES, "duplicate", "ignore", "it is the same as 'size'"),
    "in inches": (SIZES / 2.54, "duplicate", "ignore", "it is 'size' on another scale"),
    "negative": (7.0 - SIZES, "duplicate", "ignore", "it is 'size' on another scale"),
    "nearly": (
        np.where(np.arange(N) > 5, SIZES, SIZES + 0.01),
        "number",
        "number",
        "nearly 'size'",
    ),
    "rounded": (SIZES.round(0), "ordinal", "number", "number, of few whole values"),
    "in letters": ([*map("ABCDEF".__getitem__, LEVELS)], "duplicate", "ignore", "in other words"),
    "lists": ([[i] for i in range(N)], "text", "ignore", "every entry is a list"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kind(name):
    values, kind, use, words = COLUMNS[name]
    table = pd.DataFrame({"size": SIZES, "level": LEVELS, name: values})
    read, understood = plml.read_table(table)
    (fact,) = (
        fact
        for fact in plml.describe(read, doubts=understood.marks.doubts).columns
        if fact.name == name
    )
    assert (fact.kind, fact.use) == (kind, use), fact.what
    assert words in fact.what


def test_a_date_is_copied_by_one_in_another_order():
    table = pd.DataFrame({"iso": days("%Y-%m-%d"), "german": days("%d.%m.%y"), "x": SIZES})
    assert plml.describe(table).used == ["iso", "x"]


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y %I:%M %p", "%H:%M"])
def test_dates_are_what_python_reads(form):
    """Against the standard library, text by text."""
    texts = pd.Series(days(form))
    found = read_dates(texts, day_first=form.startswith("%d"))
    expected = [pd.Timestamp(pd.to_datetime(text, format=form)) for text in texts]
    assert found.tolist() == expected


def test_what_may_be_two_dates_is_asked():
    either = [f"{a:02d}/{b:02d}/21" for a, b in RNG.integers(1, 13, (N, 2))]
    (fact, _) = plml.describe(pd.DataFrame({"when": either, "x": SIZES})).columns
    assert fact.use == "ignore"
    assert "day first or month first?" in fact.what
    told = plml.describe(pd.DataFrame({"when": either, "x": SIZES}), uses={"when": "date"})
    assert "the month before the day" in told.columns[0].what


def test_a_code_that_is_kept_stays_a_text():
    table = pd.DataFrame({"plz": [f"{v:05d}" for v in range(N)], "x": SIZES})
    (fact, _) = plml.describe(table, keep=["plz"]).columns
    assert fact.use == "category"


def test_a_doubt_of_the_reader_is_described_and_not_raised():
    table = pd.DataFrame({"dose": [*map(str, range(N - 1)), "lots"], "x": SIZES})
    read, understood = plml.read_table(table)
    report = plml.describe(read, doubts=understood.marks.doubts)
    assert "'lots' among numbers" in report.columns[0].what
    with pytest.raises(ValueError, match="'lots' among numbers"):
        tables.fit(read.assign(y=LEVELS % 2), "y", "t.csv", doubts=understood.marks.doubts)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (RNG.normal(size=N).round(2), "numbers that are not whole"),
        (np.arange(N), "120 different numbers in 120 rows, which are no classes"),
        ([*["a", "b"] * (N // 2 - 1), None, None], "has no label in 2 rows"),
        (["a"] * N, "has one class alone"),
        (["a"] * 6 + ["b"] * (N - 6), "has 1 class of fewer than 10 rows"),
        (LEVELS, ""),
    ],
)
def test_the_target_is_looked_at(target, words):
    table = pd.DataFrame({"x": SIZES, "z": RNG.normal(size=N), "y": target})
    report = plml.describe(table, "y")
    assert words in report.doubt
    assert bool(report.doubt) == bool(words)
    assert report.doubt in str(report)
    if "classes;" in words or "whole" in words:
        with pytest.raises(ValueError, match="cut the numbers into classes"):
            tables.fit(table, "y", "t.csv")


def test_a_part_of_very_many_rows_is_learned_from():
    y = np.resize(["a", "b", "b"], 600)
    x = RNG.normal(size=600) + 3.0 * (y == "a")
    table = pd.DataFrame({"key": np.arange(600) + 7, "x": x, "z": RNG.random(600), "y": y})
    model = tables.fit(table, "y", "t.csv", key="key", max_rows=150, random_state=0)
    rows, codes = model.classifier.training_cases()
    assert len(rows) == len(model.keys) == 150
    assert np.bincount(codes).tolist() == [50, 100]
    taken = table.set_index("key").loc[model.keys]
    assert (taken["y"] == model.classifier.classes_[codes]).all()
    low, high = model.profile.ranges["x"]
    assert (low, high) == (x.min(), x.max())  # of all rows
    with pytest.raises(ValueError, match="max_rows must be at least 2"):
        tables.fit(table, "y", "t.csv", max_rows=1)


def test_the_classifier_takes_a_data_frame_as_the_command_line_does():
    """Dates in texts and codes are the same to both, with the same predictions."""
    y = np.resize(["a", "b"], N)
    codes = np.where(y == "a", "007", "0815")
    table = pd.DataFrame({"x": SIZES, "when": days("%d.%m.%y"), "code": codes})
    table.loc[::7, "code"] = "0815"
    model = AutoPLML(metrics=["prior"], random_state=0).fit(table, y)
    assert model.encoder_.dates_ == model.encoder_.day_first_ == ["when"]
    assert model.encoder_.categories_ == ["code"]
    fitted = tables.fit(
        table.assign(y=y), "y", "t.csv", metrics=["prior"], random_state=0, keep=["code"]
    )
    tidy = fitted.columns.tidy(table, "t.csv")
    np.testing.assert_array_equal(model.predict(table), fitted.pipeline.predict(tidy))
    np.testing.assert_allclose(model.predict_proba(table), fitted.pipeline.predict_proba(tidy))
    either = table.assign(when=[f"{i % 12 + 1:02d}/05/21" for i in range(N)])
    with pytest.raises(ValueError, match="column 'when' holds dates, day first or month first"):
        AutoPLML(metrics=["prior"]).fit(either, y)


def test_the_classifier_says_that_a_column_is_a_key():
    y = np.resize([0, 1], N)
    table = pd.DataFrame({"patient": RNG.permutation(10**6)[:N], "x": SIZES})
    with pytest.warns(UserWarning, match="column 'patient' has another number in every row"):
        AutoPLML(metrics=["prior"], random_state=0).fit(table, y)
