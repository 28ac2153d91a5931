"""Columns and targets that mislead a fit where nothing is said of them."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

import plml
from command import run
from plml import AutoPLML, tables
from plml.preprocessing import TableEncoder
from plml.preprocessing.dates import days_of

N = 90
RNG = np.random.default_rng(8)
DAYS = pd.Timestamp("2022-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D")
SIZES = RNG.normal(5.0, 1.0, N).round(2)
KINDS = np.where(SIZES + RNG.normal(size=N) > 5, "a", "b")


def fact(values, name="x", **options):
    return plml.describe(pd.DataFrame({name: values, "b": SIZES}), **options).columns[0]


def with_last(values, last):
    return [*list(values)[:-1], last]


@pytest.mark.parametrize(
    ("values", "mark"),
    [
        (with_last(SIZES, 1e18), "1e+18"),
        (np.where(np.arange(N) % 3, SIZES, 999.0), "999"),
        (with_last(RNG.integers(20, 90, N), 99999), "99999"),
        (with_last(DAYS.strftime("%Y-%m-%d"), "2199-12-31"), "2199-12-31"),
        (with_last(DAYS.strftime("%d.%m.%Y"), "01.01.1900"), "01.01.1900"),
    ],
)
def test_what_is_far_from_all_others_is_said_and_the_cure_works(tmp_path, values, mark):
    found = fact(values)
    assert found.doubt
    assert f"one is far from all others: '{mark}'" in found.what
    pd.DataFrame({"x": values, "b": SIZES}).to_csv(tmp_path / "t.csv", index=False)
    table, _ = plml.read_table(tmp_path / "t.csv", na=(mark,))
    assert not plml.describe(table).columns[0].doubt
    assert table["x"].isna().sum() in (1, N // 3)


@pytest.mark.parametrize("values", [SIZES, np.exp(1.5 * RNG.normal(size=N)), RNG.integers(0, 2, N)])
def test_what_is_not_far_is_not(values):
    assert not fact(values).doubt


def test_days_after_2262():
    moments = np.array(["1969-12-31", "9999-12-31", "NaT"], dtype="datetime64[s]")
    days = days_of(pd.Series(moments))
    np.testing.assert_array_equal(days, [-1.0, 2932896.0, np.nan])


def test_columns_of_one_name_are_refused():
    table = pd.DataFrame(np.zeros((30, 3)), columns=["a", "a", "b"])
    with pytest.raises(ValueError, match="the table has columns of the same name: 'a'; rename one"):
        plml.describe(table, "b")


def test_numbers_that_differ_by_rounding_are_constant():
    assert fact(0.1 + 1e-16 * RNG.integers(0, 3, N)).kind == "constant"


def test_complex_numbers_are_left_out():
    assert fact(SIZES * 1j).what == "left out: its numbers are complex"


def test_dates_as_objects_are_dates():
    days = [day.date() for day in DAYS]
    assert fact(days).use == "date"
    assert fact([date(9999, 12, 31), *days[1:]]).doubt
    encoder = TableEncoder().fit(pd.DataFrame({"x": days, "b": SIZES}))
    assert encoder.dates_ == ["x"]


def test_names_in_cures_are_quoted_where_a_shell_needs_it():
    assert fact(RNG.permutation(10**6)[:N], "Patient no").kind == "identifier"
    assert "--drop 'the lot'" in fact(RNG.permutation(10**6)[:N], "the lot").what
    assert "--as 'zip code=category'" in fact(RNG.integers(1000, 1040, N), "zip code").what


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d/%m/%Y"])
@pytest.mark.parametrize("options", [{"regularization": 1.0}, {"regularizations": [1.0]}])
def test_dates_that_are_said_to_be_categories_are_categories(form, options):
    days = np.resize(["2024-01-02", "2024-03-04", "2024-05-06"], N)
    days = pd.to_datetime(pd.Series(days)).dt.strftime(form)
    table = pd.DataFrame({"x": days, "b": SIZES, "kind": KINDS})
    options = {"metrics": ["one"], **options} if "regularizations" in options else options
    model = tables.fit(table, "kind", "t", uses={"x": "category"}, random_state=0, **options)
    encoder = model.classifier.encoder_ if "metrics" in options else model.pipeline[0]
    assert encoder.categories_ == ["x"]
    assert not encoder.dates_


class TestSpans:
    """Spans of time are numbers of days, and a gap stays one."""

    @pytest.mark.parametrize("kind", ["timedelta64[ns]", "duration[us][pyarrow]"])
    def test_in_days(self, kind):
        spans = pd.to_timedelta(pd.Series(SIZES), unit="D").astype(kind)
        spans[3] = pd.NaT
        table = pd.DataFrame({"x": spans, "b": SIZES[::-1]})
        assert fact(spans).what == "number of days"
        encoder = TableEncoder(standardize=False).fit(table)
        there = np.delete(np.arange(N), 3)
        encoded = encoder.transform(table)[:, 0]
        np.testing.assert_allclose(encoded[there], SIZES[there], rtol=1e-6)
        assert encoded[3] == pytest.approx(np.median(SIZES[there]))

    def test_a_copy_in_hours(self):
        spans = pd.Series(pd.to_timedelta(SIZES, unit="D"))
        spans[3] = pd.NaT
        report = plml.describe(pd.DataFrame({"x": spans, "hours": 24 * spans.dt.total_seconds()}))
        assert report.columns[1].kind == "duplicate"


def test_columns_of_arrow():
    """Of a column of texts pandas makes numbers that are NaN and not missing."""
    table = pd.DataFrame({"kind": np.resize(["a", "b", None], N), "size": SIZES, "day": DAYS})
    arrow = table.convert_dtypes(dtype_backend="pyarrow")
    arrow["day"] = arrow["day"].astype("date32[pyarrow]")
    encoder = TableEncoder().fit(arrow)
    assert (encoder.categories_, encoder.dates_) == (["kind"], ["day"])
    np.testing.assert_allclose(encoder.transform(arrow), TableEncoder().fit_transform(table))
    with pytest.raises(ValueError, match="which is not a number"):
        plml.describe(arrow, uses={"kind": "number"})


class TestTarget:
    @pytest.mark.parametrize(
        ("labels", "words"),
        [
            ([f"u{i}" for i in range(N)], "holds 90 different labels in 90 rows"),
            (DAYS, "different dates in 90 rows, which are no classes"),
            (DAYS.strftime("%d.%m.%Y"), "or cut the dates into classes"),
            (np.full(N, "a"), "one class only"),
        ],
    )
    def test_what_is_no_class_is_refused(self, labels, words):
        table = pd.DataFrame({"size": SIZES, "kind": labels})
        with pytest.raises(ValueError, match=rf"t: column 'kind' .*{words}"):
            tables.fit(table, "kind", "t", regularization=1.0)

    def test_many_classes_of_a_few_rows_are_classes(self):
        labels = [f"u{i % 30}" for i in range(N)]
        assert "90 rows" not in plml.describe(pd.DataFrame({"a": SIZES, "y": labels}), "y").doubt

    def test_classes_that_are_alike_are_said(self):
        labels = np.resize(["small", "large", "Large"], N)
        report = plml.describe(pd.DataFrame({"a": SIZES, "y": labels}), "y")
        assert report.doubt.startswith("has the classes 'large' and 'Large': correct one")

    def test_a_class_that_may_stand_for_no_label_is_said(self):
        table = pd.DataFrame({"a": SIZES, "y": np.resize(["ill", "well", "unknown"], N)})
        assert plml.describe(table, "y").doubt.startswith("has the class 'unknown'; give --na")
        signs = table.assign(y=np.resize(["+", "-"], N))
        assert not plml.describe(signs, "y").doubt

    def test_levels_without_rows_are_no_classes(self):
        labels = pd.Categorical(np.resize(["a", "b"], N), categories=["a", "b", "c"])
        report = plml.describe(pd.DataFrame({"a": SIZES, "y": labels}), "y")
        assert report.classes == {"a": 45, "b": 45}
        assert not report.doubt


class TestMarksForMissing:
    """Marks that are given replace those that are known, and that is said of these."""

    def test_known_marks_beside_those_that_are_given(self):
        table = pd.DataFrame({"a": with_last(SIZES, -999.0), "b": with_last(SIZES, 999.0)})
        table["c"] = with_last(np.resize(["x", "y"], N), "NA")
        read, understood = plml.read_table(table, na=("999",))
        assert read.isna().sum().to_dict() == {"a": 0, "b": 1, "c": 0}
        assert "column 'a': -999 (1 time) is not among --na, so it is a value" in str(understood)
        assert "column 'c': 'NA' (1 time) is not among --na" in str(understood)

    def test_half_floats_pass_without_a_warning(self):
        read, _ = plml.read_table(pd.DataFrame({"a": SIZES.astype(np.float16), "b": SIZES}))
        assert read["a"].dtype in (np.float32, np.float64)


class TestNumbersThatCannotBeComputedWith:
    @pytest.mark.parametrize(("value", "words"), [(1e300, "too large"), (np.inf, "infinite")])
    def test_they_are_named(self, value, words):
        table = pd.DataFrame({"a": with_last(SIZES, value), "c": np.resize(["x", "y"], N)})
        with pytest.raises(ValueError, match=rf"column 'a' holds .*{words}.* row 89"):
            TableEncoder().fit(table)

    def test_of_numbers_alone(self):
        with pytest.raises(ValueError, match="column 'a' of X reaches"):
            AutoPLML().fit(pd.DataFrame({"a": with_last(SIZES, 1e300)}), np.resize([0, 1], N))


def write_weights(path, unit):
    texts = [f"{size} {unit}".strip() for size in SIZES]
    pd.DataFrame({"weight": texts, "size": SIZES[::-1], "kind": KINDS}).to_csv(path, index=False)


@pytest.fixture(scope="module")
def model_of_kilograms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("units")
    write_weights(folder / "train.csv", "kg")
    options = ("--regularization", 1, "--quiet", "--folds", 0, "-o", folder / "m.skops")
    assert run("fit", folder / "train.csv", "--target", "kind", *options) == 0
    return folder / "m.skops"


class TestUnits:
    @pytest.mark.parametrize(
        ("unit", "words"),
        [
            ("lb", "column 'weight' is in 'lb', and in the training rows it was in 'kg'"),
            ("", "column 'weight' is without a unit, and in the training rows it was in 'kg'"),
            ("kg", None),
        ],
    )
    def test_another_unit_is_said(self, model_of_kilograms, tmp_path, capsys, unit, words):
        write_weights(tmp_path / "new.csv", unit)
        assert run("predict", model_of_kilograms, tmp_path / "new.csv", "--quiet") == 0
        error = capsys.readouterr().err
        assert error == "" if words is None else words in error

    def test_who_knows_no_units_says_nothing(self, model_of_kilograms):
        table = pd.DataFrame({"weight": SIZES, "size": SIZES})
        assert tables.load(model_of_kilograms).misfits(table).warnings == []


def test_all_misfits_are_said_at_once(tmp_path, capsys):
    table = pd.DataFrame({"a": SIZES, "b": SIZES[::-1], "c": np.resize(["x", "y"], N)})
    table["kind"] = KINDS
    table.to_csv(tmp_path / "t.csv", index=False)
    options = ("--regularization", 1, "--quiet", "--folds", 0, "-o", tmp_path / "m.skops")
    assert run("fit", tmp_path / "t.csv", "--target", "kind", "--id", "c", *options) == 0
    capsys.readouterr()
    table.drop(columns="b").assign(a=1e6).to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", tmp_path / "m.skops", tmp_path / "new.csv", "--quiet") == 2
    error = capsys.readouterr().err
    assert "column 'a' has 90 values far outside" in error
    assert error.endswith("it lacks the column 'b'; add it, or fit without it\n")  # nor the key
