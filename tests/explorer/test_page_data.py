"""What the page says is what ``explain`` says."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler

from every_estimator import ESTIMATORS
from plml import SML, AutoPLML, KernelSVM, tables
from plml.explorer.case_records import records_of
from plml.explorer.page_data import page_data, texts_of
from plml.explorer.questions import changed_case, new_case, training_case
from plml.explorer.subject import subject_of
from plml.inspection.explanation_text import vote_text
from plml.inspection.values import snapped

SAME = (
    "predictions",
    "probabilities",
    "squared_distances",
    "votes",
    "likeness",
    "cases_for",
    "cases_against",
    "contrasts",
    "for_values",
    "against_values",
    "neighbor_values",
    "queries",
)


def assert_same(found, expected):
    for name in SAME:
        one, other = getattr(found, name), getattr(expected, name)
        if one.dtype.kind in "fiu":
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)
    for one, other in zip(found.ballots, expected.ballots, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "KernelSVM"])
def test_a_subject_explains_as_the_estimator_does(name, blobs):
    X, y = blobs
    model = ESTIMATORS[name](n_neighbors=3).fit(X[:60], y[:60])
    subject = subject_of(model)
    assert_same(subject.explain(X[60:], 4), model.explain(X[60:], 4))
    expected = model.explain(n_neighbors=4)
    rows = np.array([3, 17, 40, 59])
    assert_same(subject.explain_training(rows, 4), expected[rows])
    np.testing.assert_array_equal(
        subject.classes[subject.training_votes.codes], expected.predictions
    )


@pytest.mark.parametrize("vote", ["distance", "linear"])
def test_weighted_votes(vote, blobs):
    X, y = blobs
    model = ESTIMATORS["PLML"](n_neighbors=7, vote=vote).fit(X[:60], y[:60])
    subject, rows = subject_of(model), np.arange(10)
    assert_same(subject.explain(X[60:], 5), model.explain(X[60:], 5))
    assert_same(subject.explain_training(rows, 5), model.explain(n_neighbors=5)[rows])


def test_a_committee_predicts_as_it_does(auto_model, mixed):
    new = mixed[1].drop(columns="grape")
    found = subject_of(auto_model).explain(new)
    np.testing.assert_array_equal(found.predictions, auto_model.predict(new))
    np.testing.assert_allclose(found.probabilities, auto_model.predict_proba(new))
    assert sum(ballot.weight for ballot in found.ballots) == pytest.approx(1.0)
    np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("which", ["saved_model", "auto_model"])
def test_values_are_those_of_the_table(which, request, mixed):
    model, (table, new) = request.getfixturevalue(which), mixed
    subject, columns = subject_of(model), [c for c in table if c != "grape"]
    rows = np.array([0, 5, 77])
    values = subject.view.training_values(rows)
    pd.testing.assert_frame_equal(
        pd.DataFrame(values, columns=columns).infer_objects(),
        table[columns].iloc[rows].reset_index(drop=True),
        check_dtype=False,
    )
    found = subject.explain(new[columns])
    assert found.feature_names.tolist() == columns
    assert found.queries.tolist() == new[columns].to_numpy(dtype=object).tolist()
    np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(
        found.predictions,
        model.predict(new[columns])
        if which == "auto_model"
        else subject.classes[subject.votes(subject.view.encoded(new)).codes],
    )


def test_columns_have_their_kinds_and_ranges(saved_model, mixed):
    table, _ = mixed
    columns = {column.name: column for column in subject_of(saved_model).view.columns}
    assert columns["proline"].whole
    assert not columns["hue"].whole
    assert columns["hue"].low == pytest.approx(table["hue"].min())
    assert columns["hue"].high == pytest.approx(table["hue"].max())
    (category,) = [column for column in columns.values() if not column.is_number]
    assert set(category.choices) == {"north & <b>", "south"}


def test_records_say_what_explain_says(metric_model, wine, wine_data):
    found = metric_model.explain(wine[2], 5)
    left_out = metric_model.explain(n_neighbors=5)
    points = wine_data.points
    for i in (0, 20, 47, 48, 100, len(points.rows) - 1):
        record = json.loads(wine_data.records[i])
        one = found[int(points.rows[i])] if points.is_new[i] else left_out[int(points.rows[i])]
        assert found.classes[record["prediction"]] == one.predictions[0]
        assert record["votes"] == [vote_text(ballot, one.classes, 0) for ballot in one.ballots]
        assert record["case_for"] == one.cases_for[0]
        assert record["case_against"] == one.cases_against[0]
        assert record["margin"] == pytest.approx(one.margins[0], rel=1e-5)
        parts = dict(line[:2] for line in record["contrast"])
        top = np.argsort(-np.abs(one.contrasts[0]))[:8]
        assert set(parts) == set(top.tolist())
        for column, part in parts.items():
            assert part == pytest.approx(one.contrasts[0, column], rel=1e-5)
        total = sum(parts.values()) + record["rest"]
        assert total == pytest.approx(record["margin"], rel=1e-3, abs=1e-6)
        assert [line[0] for line in record["neighbors"]] == one.neighbors[0].tolist()
        assert sum(line[1] for line in record["metric"]) <= 1.0 + 1e-6


def test_points_know_what_is_wrong(metric_model, wine, wine_data):
    _X, y, new, y_new = wine
    points = wine_data.points
    np.testing.assert_array_equal(points.wrong[points.is_new], metric_model.predict(new) != y_new)
    np.testing.assert_array_equal(
        points.wrong[~points.is_new], metric_model.explain().predictions != y
    )
    top = metric_model.predict_proba(new).max(axis=1)
    np.testing.assert_allclose(points.doubts[points.is_new], 1.0 - top)


def test_a_map_of_some_of_the_cases(metric_model, wine):
    _X, y, new, y_new = wine
    data = page_data(subject_of(metric_model), new, y_new, most_training=100, most_new=10)
    points = data.points
    assert (~points.is_new).sum() == 100
    assert points.is_new.sum() == 10
    wrong = np.flatnonzero(metric_model.explain().predictions != y)
    assert set(wrong) <= set(points.rows[~points.is_new])
    assert "100 of 130 training cases" in data.facts["chosen"]
    record = json.loads(data.records[3])
    expected = metric_model.explain(new.iloc[[points.rows[3]]])
    assert record["case_for"] == expected.cases_for[0]
    hidden = next(row for row in range(130) if row not in points.rows[~points.is_new])
    visited = training_case(data, hidden)
    left_out = metric_model.explain()[hidden]
    assert visited["record"]["case_against"] == left_out.cases_against[0]
    assert visited["label"] == y[hidden]
    hidden = next(row for row in range(48) if row not in points.rows[points.is_new])
    visited = new_case(data, hidden)
    assert visited["record"]["case_against"] == metric_model.explain(new[hidden:][:1]).cases_against
    assert visited["label"] == y_new[hidden]
    assert [float(text) for text in visited["values"]] == new.iloc[hidden].tolist()


def test_without_new_cases(metric_model):
    data = page_data(subject_of(metric_model), None)
    assert not data.points.is_new.any()
    assert data.facts["values"] == []


@pytest.mark.parametrize("which", ["wine_data", "mixed_data"])
def test_a_case_that_is_not_changed_stays_where_it_is(which, request):
    data = request.getfixturevalue(which)
    for i in (0, 11):
        texts = data.facts["values"][i]
        found = changed_case(data, i, texts)
        assert found["record"] == json.loads(data.records[i])
        np.testing.assert_allclose([found["x"], found["y"]], data.points.places[i], atol=1e-6)


def test_a_changed_case_is_predicted_anew(metric_model, wine, wine_data):
    texts = list(wine_data.facts["values"][0])
    column = list(wine[2].columns).index("proline")
    texts[column] = "1600"
    row = wine[2].iloc[[0]].copy()
    row["proline"] = 1600.0
    expected = metric_model.explain(row)
    record = changed_case(wine_data, 0, texts)["record"]
    assert wine_data.subject.classes[record["prediction"]] == expected.predictions[0]
    assert record["margin"] == pytest.approx(expected.margins[0], rel=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "alcohol: 'abc' is not a number"),
        ("inf", "alcohol: 'inf' is not a finite number"),
        ("nan", "alcohol: 'nan' is not a finite number"),
    ],
)
def test_a_bad_number_is_named(mixed_data, text, message):
    before = mixed_data.facts["values"][0]
    with pytest.raises(ValueError, match=message):
        changed_case(mixed_data, 0, [text, *before[1:]])


def test_a_bad_category_is_named(mixed_data):
    before = mixed_data.facts["values"][0]
    with pytest.raises(ValueError, match="is not one of its categories"):
        changed_case(mixed_data, 0, [*before[:-1], "east"])


@pytest.fixture(scope="module")
def dated():
    """Rows whose class follows from a date."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 700, 90)
    table = pd.DataFrame(
        {
            "when": pd.Timestamp("2023-01-01") + pd.to_timedelta(days, unit="D"),
            "size": rng.normal(size=90),
            "kind": np.where(days < 350, "old", "new"),
        }
    )
    table.loc[3, "when"] = pd.NaT
    return table


class TestDates:
    @pytest.fixture(scope="class", params=["of a table", "alone"])
    @staticmethod
    def data(request, dated):
        if request.param == "alone":
            model = AutoPLML(n_bases=2, random_state=0).fit(dated[["when", "size"]], dated["kind"])
        else:
            model = tables.fit(dated, "kind", "dated", keep=["when"], n_bases=2, random_state=0)
        return page_data(subject_of(model), dated[:5].drop(columns="kind"))

    def test_their_range(self, data, dated):
        column = data.subject.view.columns[0]
        assert column.date
        assert not column.is_number
        assert not column.choices
        days = (dated["when"] - pd.Timestamp(0)).dt.days
        assert (column.low, column.high) == pytest.approx((days.min(), days.max()))

    def test_a_date_that_no_training_row_has(self, data):
        before = data.facts["values"][0]
        for text, prediction in (("2022-12-30", "old"), ("2024-12-15", "new")):
            found = changed_case(data, 0, [text, before[1]])["record"]
            assert data.facts["classes"][found["prediction"]] == prediction
            assert text in [line[2] for line in found["contrast"]]

    def test_in_the_form_of_the_cases(self, dated):
        texts = dated.assign(when=dated["when"].dt.strftime("%d.%m.%Y"))[["when", "size"]]
        model = AutoPLML(n_bases=2, random_state=0).fit(texts, dated["kind"])
        shown = page_data(subject_of(model), texts[:1]).facts["values"][0][0]
        assert shown == f"{dated['when'][0]:%Y-%m-%d}"

    def test_a_missing_one(self, data):
        before = data.facts["values"][3]
        assert before[0] == ""
        assert changed_case(data, 3, before)["record"] == json.loads(data.records[3])

    @pytest.mark.parametrize("text", ["2023-02-30", "soon", "12", "99999-01-01"])
    def test_a_bad_one_is_named(self, data, text):
        before = data.facts["values"][0]
        with pytest.raises(ValueError, match=f"when: '{text}' is not a date; give it as year-"):
            changed_case(data, 0, [text, before[1]])


def test_missing_values_where_the_model_fills_them_in(auto_model, mixed):
    new = mixed[1].drop(columns="grape")
    new.loc[0, "hue"] = np.nan
    data = page_data(subject_of(auto_model), new)
    before = data.facts["values"][0]
    assert "" in before
    assert changed_case(data, 0, before)["record"] == json.loads(data.records[0])


def test_texts_are_exact(metric_model, wine):
    texts = texts_of(subject_of(metric_model), wine[2])
    np.testing.assert_array_equal(np.array(texts, dtype=float), wine[2].to_numpy())


def test_numbers_lose_the_noise_of_coding():
    numbers = np.array([[3.0 + 4e-16, -1.4e-14, 122812.0 + 1e-10, 0.25], [5.0, 2.0, 1.0, 0.5]])
    assert snapped(numbers)[0].tolist() == [3.0, 0.0, 122812.0, 0.25]


def test_labels_that_the_model_never_saw_are_errors(metric_model, wine):
    y = wine[3].copy()
    y[0] = 9
    data = page_data(subject_of(metric_model), wine[2], y)
    assert data.points.wrong[0]
    assert data.points.labels[0] == 3


def test_labels_may_be_missing_in_some_rows(metric_model, wine):
    for missing in (None, np.nan):
        y = wine[3].astype(object if missing is None else float)
        y[:5] = missing
        points = page_data(subject_of(metric_model), wine[2], y).points
        assert (points.labels[:5] == -1).all()
        assert not points.wrong[:5].any()
        np.testing.assert_array_equal(points.labels[5:48], wine[3][5:])


def test_labels_that_nobody_knows_are_no_errors(metric_model, wine):
    X, y, new, _ = wine
    names = np.array(["barolo", "grignolino", "barbera"])
    named = SML(n_neighbors=5, regularization=1.0).fit(X, names[y])
    for model, labels in (
        (metric_model, np.array([np.nan, 1.0, 2.0])),
        (named, np.array([np.nan, "barolo", "barbera"], dtype=object)),
        (named, pd.Series([pd.NA, "barolo", "barbera"])),
    ):
        data = page_data(subject_of(model), new[:3], labels)
        assert data.points.labels[0] == -1
        assert (data.points.labels[1:3] >= 0).all()
        assert not data.points.wrong[0]


def test_bad_input(metric_model, wine, blobs):
    with pytest.raises(ValueError, match="y holds texts, and the classes of the model are numbers"):
        page_data(subject_of(metric_model), wine[2], wine[3].astype(str))
    with pytest.raises(ValueError, match="one label per row"):
        page_data(subject_of(metric_model), wine[2], wine[3][:4])
    with pytest.raises(ValueError, match="KernelSVM has no neighbours"):
        subject_of(KernelSVM().fit(*blobs))
    forgetful = make_pipeline(Normalizer(), SML()).fit(wine[0], wine[1])
    with pytest.raises(ValueError, match="as Normalizer does"):
        subject_of(forgetful)


def test_a_pipeline_is_explored_in_its_columns(wine):
    model = make_pipeline(StandardScaler(), SML(n_neighbors=3)).fit(wine[0], wine[1])
    subject = subject_of(model)
    assert [column.name for column in subject.view.columns] == list(wine[0].columns)
    np.testing.assert_array_equal(subject.view.training_values(np.arange(5)), wine[0][:5])
    told = subject.explain(wine[2][:3])
    np.testing.assert_array_equal(told.predictions, model.predict(wine[2][:3]))


@pytest.mark.parametrize("scaled", [False, True])
def test_columns_that_are_numbered_are_explored_by_place(wine, scaled):
    X, y, new, y_new = wine
    X, new = (pd.DataFrame(part.to_numpy()) for part in (X, new))
    learner = SML(n_neighbors=5, regularization=1.0)
    model = (make_pipeline(StandardScaler(), learner) if scaled else learner).fit(X, y)
    data = page_data(subject_of(model), new, y_new)
    assert [column["name"] for column in data.facts["columns"]][:2] == ["x0", "x1"]
    texts = list(data.facts["values"][0])
    assert float(texts[1]) == new.iloc[0, 1]
    found = changed_case(data, 0, [texts[0], "4.5", *texts[2:]])["record"]
    turned = new.iloc[[0]].copy()
    turned[1] = 4.5
    assert found == records_of(data.subject.explain(turned), data.subject, data.average)[0]


def test_features_are_called_as_their_columns_are(wine, mixed):
    """In ellipses and directions too, of which the steps of a pipeline know no names."""
    X = wine[0][["alcohol", "hue", "proline"]]
    model = make_pipeline(StandardScaler(), SML()).fit(X, wine[1])
    (record, *_) = page_data(subject_of(model), None).records
    names = {name for name, _ in json.loads(record)["directions"][1]}
    assert names | set(json.loads(record)["ellipse"][:2]) <= set(X.columns)
    category = mixed[0].columns[5]
    encoder = ColumnTransformer(
        [("n", StandardScaler(), ["alcohol", "hue"]), ("c", OneHotEncoder(), [category])]
    )
    model = make_pipeline(encoder, SML()).fit(mixed[0], mixed[0]["grape"])
    categories = [f"c__{category}_{name}" for name in ("north & <b>", "south")]
    view = subject_of(model).view
    assert view.feature_names.tolist() == ["alcohol", "hue", *categories]
    assert view.numbers.tolist() == [0, 1]


def test_a_mark_of_what_is_missing_is_no_number(wine):
    X = wine[0][["alcohol", "hue", "proline"]].copy()
    X.loc[::3, "hue"] = np.nan
    fill = SimpleImputer(add_indicator=True).set_output(transform="pandas")
    view = subject_of(make_pipeline(fill, StandardScaler(), SML()).fit(X, wine[1])).view
    assert len(view.feature_names) == 4
    assert view.feature_names[view.numbers].tolist() == list(X.columns)


def test_values_that_nobody_sees_stay_in_a_changed_case(wine):
    """Columns that a selector leaves out, and gaps that an imputer fills."""
    X, new = wine[0], wine[2].copy()
    new.iloc[0, 0] = np.nan
    steps = SimpleImputer(), StandardScaler(), SelectKBest(k=4), SML(n_neighbors=3)
    data = page_data(subject_of(make_pipeline(*steps).fit(X, wine[1])), new[:3])
    for i in range(3):
        texts = data.facts["values"][i]
        assert len(texts) == 4
        assert changed_case(data, i, texts)["record"] == json.loads(data.records[i])
    assert "prediction" in changed_case(data, 0, ["1.5", *data.facts["values"][0][1:]])["record"]
    gaps = make_pipeline(SimpleImputer(), SML(n_neighbors=3)).fit(X, wine[1])
    data = page_data(subject_of(gaps), new[:3])
    texts = data.facts["values"][0]
    assert texts[0] == ""
    assert changed_case(data, 0, texts)["record"] == json.loads(data.records[0])


def test_columns_that_a_step_mixes_cannot_be_changed(wine):
    model = make_pipeline(StandardScaler(), PCA(3), SML(n_neighbors=3)).fit(wine[0], wine[1])
    data = page_data(subject_of(model), wine[2])
    assert not data.facts["can_change"]
    with pytest.raises(ValueError, match="a step of this pipeline mixes columns"):
        changed_case(data, 0, data.facts["values"][0])


def test_neighbours_that_voted_are_not_looked_for_again(metric_model, wine, monkeypatch):
    subject = subject_of(metric_model)
    rows = wine[2].iloc[:9]
    votes, expected = subject.votes(subject.view.encoded(rows)), subject.explain(rows)
    monkeypatch.setattr(type(subject.metric), "search", None)
    found = subject.explain(rows, votes=votes)
    np.testing.assert_array_equal(found.neighbors, expected.neighbors)
    np.testing.assert_array_equal(found.votes, expected.votes)
    np.testing.assert_array_equal(found.contrasts, expected.contrasts)
