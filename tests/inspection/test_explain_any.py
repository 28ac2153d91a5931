"""``plml.explain`` and ``plml.counterfactual``: pipelines, columns, values."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.preprocessing import SplineTransformer as Spline

import plml
from plml import PLML, SML, AutoPLML
from plml.inspection.explanation_text import percent, short
from plml.preprocessing import TableEncoder
from plml.preprocessing.date_encoder import date_texts


@pytest.fixture(scope="module")
def table():
    frame = load_wine(as_frame=True).frame
    frame["proline"] = frame["proline"].astype(int)
    frame["colour"] = np.where(frame["color_intensity"] > 5, "deep", "pale")
    y = frame.pop("target").map({0: "barolo", 1: "grignolino", 2: "barbera"})
    return frame[::2], y[::2], frame[1::2]


def encoder():
    numbers = ["alcohol", "proline", "flavanoids", "hue"]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), ["colour"]),
    )


NUMBERS = ["alcohol", "proline", "flavanoids", "hue"]
PIPELINES = {
    "columns": (lambda: make_pipeline(encoder(), PLML(n_bases=3, random_state=0)), None),
    "scaled": (lambda: make_pipeline(StandardScaler(), SML(n_neighbors=3)), NUMBERS),
    "twice": (
        lambda: make_pipeline(MinMaxScaler(), StandardScaler(), SML(n_neighbors=3)),
        NUMBERS,
    ),
    "auto": (lambda: make_pipeline(StandardScaler(), AutoPLML(n_bases=3, random_state=0)), NUMBERS),
    "alone": (lambda: SML(n_neighbors=3), NUMBERS),
}


@pytest.mark.parametrize("kind", list(PIPELINES))
def test_in_the_columns_that_went_in(table, kind):
    make, columns = PIPELINES[kind]
    X, y, Q = table
    X, Q = (X, Q) if columns is None else (X[columns], Q[columns])
    model = make().fit(X, y)
    found = plml.explain(model, Q, 3)
    np.testing.assert_array_equal(found.predictions, model.predict(Q))
    used = [*NUMBERS, "colour"] if columns is None else columns
    assert set(found.feature_names) == set(used)
    np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.likeness.sum(axis=2), found.squared_distances, rtol=1e-6)
    for i in range(0, len(Q), 5):
        for f, name in enumerate(found.feature_names):
            assert found.queries[i, f] == Q.iloc[i][name]
            assert found.for_values[i, f] == X.iloc[found.cases_for[i]][name]
            assert found.neighbor_values[i, 2, f] == X.iloc[found.neighbors[i, 2]][name]
    assert len(plml.explain(model)) == len(X)


def test_a_category_is_one_line(table):
    X, y, Q = table
    model = make_pipeline(encoder(), SML(n_neighbors=3)).fit(X, y)
    features = model[-1].explain(model[:-1].transform(Q))
    found = plml.explain(model, Q)
    place = list(found.feature_names).index("colour")
    np.testing.assert_allclose(found.contrasts[:, place], features.contrasts[:, 4:].sum(axis=1))
    assert set(found.queries[:, place]) == {"deep", "pale"}


def test_values_that_a_step_forgets_are_unknown_unless_given(table):
    X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
    model = make_pipeline(StandardScaler(), Normalizer(), SML(n_neighbors=3)).fit(X, y)
    found = plml.explain(model, Q)
    assert found.for_values[0, 0] is None
    assert "(unknown)" in found.text()
    given = plml.explain(model, Q, cases=X)
    np.testing.assert_array_equal(given.for_values, X.to_numpy()[given.cases_for])
    with pytest.raises(ValueError, match="cases=X_train"):
        plml.counterfactual(model, Q[:1])
    assert plml.counterfactual(model, Q[:1], cases=X).changes


def test_a_step_that_mixes_columns_speaks_of_its_own(table):
    X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
    model = make_pipeline(StandardScaler(), Spline(), SML(n_neighbors=3)).fit(X, y)
    assert len(plml.explain(model, Q).feature_names) == len(model[:-1].get_feature_names_out())


@pytest.mark.parametrize("last", [SML(n_neighbors=3), AutoPLML(n_bases=2, random_state=0)])
def test_through_components(table, last):
    """PCA is an affine map: what adds up over components adds up over columns."""
    X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
    model = make_pipeline(StandardScaler(), PCA(2), last).fit(X, y)
    found = plml.explain(model, Q, 4)
    assert list(found.feature_names) == NUMBERS
    np.testing.assert_array_equal(found.predictions, model.predict(Q))
    np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.likeness.sum(axis=2), found.squared_distances, rtol=1e-6)
    inside = model[-1].explain(model[:-1].transform(Q), 4)
    np.testing.assert_array_equal(found.neighbors, inside.neighbors)
    np.testing.assert_allclose(found.margins, inside.margins)
    np.testing.assert_allclose(found.votes, inside.votes)
    assert found.for_values[0, 0] is None  # many rows have the same two components
    given = plml.explain(model, Q, 4, cases=X)
    np.testing.assert_array_equal(given.for_values, X.to_numpy()[given.cases_for])
    np.testing.assert_allclose(given.contrasts.sum(axis=1), inside.margins, rtol=1e-6, atol=1e-9)
    whole = make_pipeline(StandardScaler(), PCA(4), SML(n_neighbors=3)).fit(X, y)
    told = plml.explain(whole, Q)
    expected = X.to_numpy()[told.cases_for]
    np.testing.assert_allclose(told.for_values.astype(float), expected, rtol=1e-9)


def test_a_search_is_its_best_pipeline(table):
    X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SML()), {"sml__n_neighbors": [1, 3]}, cv=2
    ).fit(X, y)
    np.testing.assert_array_equal(plml.explain(search, Q).predictions, search.predict(Q))


def test_others_have_no_neighbours_to_explain_by(table):
    X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
    with pytest.raises(ValueError, match="KNeighborsClassifier has no neighbours to explain by"):
        plml.explain(make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(X, y), Q)


class TestCounterfactual:
    @pytest.mark.parametrize("kind", list(PIPELINES))
    def test_it_turns_the_prediction(self, table, kind):
        make, columns = PIPELINES[kind]
        X, y, Q = table
        X, Q = (X, Q) if columns is None else (X[columns], Q[columns])
        model = make().fit(X, y)
        turned = 0
        for i in range(0, len(Q), 20):
            row = Q.iloc[[i]]
            change = plml.counterfactual(model, row)
            if change is None:
                continue
            turned += 1
            assert model.predict(row)[0] == change.prediction
            assert model.predict(change.row)[0] == change.changed_prediction != change.prediction
            proba = model.predict_proba(change.row)[0]
            assert change.probability == pytest.approx(
                proba[list(model.classes_).index(change.changed_prediction)]
            )
            assert 1 <= len(change.changes) <= 3
            for name in Q.columns:
                same = change.row.iloc[0][name] == row.iloc[0][name]
                assert same != (name in change.changes)
            assert str(change).count(" from ") == len(change.changes)
        assert turned >= 2

    def test_only_columns_that_may_change(self, table):
        X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
        model = AutoPLML(n_bases=3, random_state=0).fit(X, y)
        change = plml.counterfactual(model, Q[:1], ["proline", "flavanoids"])
        assert set(change.changes) <= {"proline", "flavanoids"}
        assert all(
            float(after).is_integer()
            for name, (_, after) in change.changes.items()
            if name == "proline"
        )
        to = plml.counterfactual(model, Q[:1], target="barbera")
        assert to is None or to.changed_prediction == "barbera"

    def test_half_the_way_does_not_turn_it(self, table):
        """What is returned is the shortest of the way that it goes."""
        X, y, Q = (part[["flavanoids"]] if hasattr(part, "columns") else part for part in table)
        model = SML(n_neighbors=5).fit(X, y)
        change = plml.counterfactual(model, Q[:1])
        before, after = change.changes["flavanoids"]
        almost = Q[:1].assign(flavanoids=before + 0.99 * (after - before))
        assert model.predict(almost)[0] == change.prediction

    def test_numbers_that_differ_in_late_digits(self, rng):
        edge = 1_000_000.5
        X = pd.DataFrame({"level": edge + 0.01 * rng.normal(size=80)})
        model = make_pipeline(StandardScaler(), SML(n_neighbors=3)).fit(X, X["level"] > edge)
        change = plml.counterfactual(model, pd.DataFrame({"level": [edge + 0.0225]}))
        assert abs(change.changes["level"][1] - edge) < 0.005

    def test_a_date_goes_no_farther_than_needed(self):
        days = pd.date_range("2020-01-01", periods=120)
        X = pd.DataFrame({"day": days, "size": np.arange(120) % 7})
        y = np.where(np.arange(120) < 60, "early", "late")
        model = AutoPLML(n_bases=2, random_state=0).fit(X[::2], y[::2])
        change = plml.counterfactual(model, X[95:96], ["day"])
        assert change.changed_prediction == "early"
        after = pd.Timestamp(change.changes["day"][1])
        assert change.row["day"].iloc[0] == after
        later = X[95:96].assign(day=after + pd.Timedelta(days=1))
        assert model.predict(later)[0] == "late"

    def test_bad_questions(self, table):
        X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
        model = SML().fit(X, y)
        with pytest.raises(ValueError, match="give one row, got 2"):
            plml.counterfactual(model, Q[:2])
        with pytest.raises(ValueError, match="there is no column 'sugar'; there are alcohol"):
            plml.counterfactual(model, Q[:1], ["sugar"])
        with pytest.raises(ValueError, match="target must be one of the classes"):
            plml.counterfactual(model, Q[:1], target="merlot")
        predicted = model.predict(Q[:1])[0]
        with pytest.raises(ValueError, match="is what is predicted already"):
            plml.counterfactual(model, Q[:1], target=predicted)
        with pytest.raises(ValueError, match="max_columns must be at least 1"):
            plml.counterfactual(model, Q[:1], max_columns=0)

    def test_arrays(self, table):
        X, y, Q = (part[NUMBERS].to_numpy() if hasattr(part, "columns") else part for part in table)
        model = SML(n_neighbors=3).fit(X, y)
        change = plml.counterfactual(model, Q[:1], [1, 2])
        assert set(change.changes) <= {"x1", "x2"}
        assert model.predict(change.row)[0] == change.changed_prediction


def test_without_pandas_names_are_numbers(rng):
    X = rng.normal(size=(40, 3))
    model = make_pipeline(StandardScaler(), SML()).fit(X, X[:, 0] > 0)
    found = plml.explain(model, X[:2])
    assert list(found.feature_names) == ["x0", "x1", "x2"]
    np.testing.assert_allclose(found.queries.astype(float), X[:2])


def test_a_frame_of_explanations(table):
    X, y, Q = table
    found = plml.explain(make_pipeline(encoder(), SML(n_neighbors=2)).fit(X, y), Q[:3])
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 3 * 2 * 5


def test_cases_that_are_given_are_shown_to_the_last_digit(rng):
    X = pd.DataFrame({"size": rng.normal(size=40), "member": rng.random(40) > 0.5})
    steps = make_column_transformer((StandardScaler(), ["size"]), remainder="passthrough")
    model = make_pipeline(steps, SML(n_neighbors=2)).fit(X, X["size"] > 0)
    found = plml.explain(model, X[:5], cases=X)
    np.testing.assert_array_equal(found.for_values[:, 0], X["size"].to_numpy()[found.cases_for])
    assert found.for_values[0, 1] is X["member"].to_numpy(dtype=object)[found.cases_for[0]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1228123.75, "1228124"),
        (-123456789.25, "-123456789"),
        (89999.6, "90000"),
        (36594.25, "36594"),
        (0.25, "0.25"),
        (0.00012345, "0.00012345"),
        (3.0, "3"),
    ],
)
def test_numbers_have_five_digits_and_all_before_the_point(value, text):
    assert short(value) == text


def test_a_stored_zero_is_zero(rng):
    """Also where it is the only value that is asked for."""
    X = rng.normal(loc=3.0, size=(60, 2))
    X[7] = 0.0
    model = make_pipeline(StandardScaler(), SML(n_neighbors=1)).fit(X, rng.random(60) > 0.5)
    found = plml.explain(model, X[7:8] + 1e-9, 1)
    assert found.neighbors[0, 0] == 7
    assert found.neighbor_values[0, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "cure"),
    [
        (lambda X: X.iloc[0], "X.iloc[[i]]"),
        (lambda X: X.iloc[0].to_numpy(), "[X]"),
        (lambda X: X.iloc[:0], "at least one"),
    ],
)
def test_what_is_no_table_is_refused_with_the_cure(rows, cure):
    X, y = load_iris(return_X_y=True, as_frame=True)
    alone = SML(n_neighbors=3).fit(X, y)
    for model in (alone, make_pipeline(StandardScaler(), SML(n_neighbors=3)).fit(X, y)):
        with pytest.raises(ValueError, match=re.escape(cure)):
            plml.explain(model, rows(X))


def test_rows_are_called_by_their_labels():
    X, y = load_iris(return_X_y=True, as_frame=True)
    X = X.set_axis([f"plant {i}" for i in range(len(X))])
    told = SML(n_neighbors=3).fit(X, y).explain(X.iloc[[60]])
    assert "of row plant 60" in repr(told)
    text = str(told)
    assert text.startswith("row plant 60: predicted 1")
    assert f"case {told.neighbors[0, 1]} [plant {told.neighbors[0, 1]}]" in text
    assert "plant 60" in told._repr_html_()
    assert f"case {told.cases_against[0]} [plant {told.cases_against[0]}]" in told._repr_html_()
    assert told.to_dict()[0]["name"] == "plant 60"
    assert set(told.contrast_frame()["name_for"]) == {f"plant {told.cases_for[0]}"}
    assert SML(n_neighbors=3).fit(X.to_numpy(), y).explain(X.to_numpy()[:1]).query_names is None


@pytest.fixture(scope="module")
def dated():
    """Rows with the day before the month, and a class for the younger ones."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 2000, 120)
    dates = pd.Timestamp("2015-01-01") + pd.to_timedelta(days, "D")
    table = pd.DataFrame({"first": dates.strftime("%d.%m.%Y"), "size": rng.normal(size=120)})
    return table, dates, np.where(days > 1000, "new", "old")


@pytest.mark.parametrize(
    "model",
    [
        plml.AutoPLML(n_bases=2, random_state=0),
        make_pipeline(TableEncoder(), StandardScaler(), SML(n_neighbors=5)),
    ],
    ids=["AutoPLML", "pipeline"],
)
def test_dates_of_rows_and_cases_are_shown_alike(model, dated):
    """The queries' were shown as they were typed, next to those of cases as year-month-day."""
    X, dates, y = dated
    model.fit(X[:110], y[:110])
    for cases in (None, X[:110]):
        told = plml.explain(model, X[110:112], cases=cases)
        assert list(told.queries[:, 0]) == list(dates[110:112].strftime("%Y-%m-%d"))
        near = dates[told.neighbors.ravel()].strftime("%Y-%m-%d")
        assert list(told.neighbor_values[..., 0].ravel()) == list(near)
        change = plml.counterfactual(model, X[110:111], ["first"], cases=cases)
        assert model.predict(change.row)[0] == change.changed_prediction
        assert change.changes["first"][0] == f"{dates[110]:%Y-%m-%d}"
    if not hasattr(model, "steps"):
        assert list(model.explain(X[110:112]).queries[:, 0]) == list(told.queries[:, 0])


class TestValuesAsInTheTable:
    """Whole numbers, truth values and names as the rows that are explained have them."""

    @pytest.fixture(scope="class")
    @staticmethod
    def warts():
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, 80)
        return pd.DataFrame(
            {
                "amount": 120_000 + 5_000 * y + rng.integers(0, 4_000, 80),
                "flag": rng.random(80) < 0.2 + 0.6 * y,
                "ratio": np.round(rng.normal(size=80) + y, 3),
            }
        ), np.array(["no", "yes"])[y]

    @pytest.mark.parametrize("kind", ["alone", "scaled", "encoded", "auto"])
    def test_kinds_are_kept(self, warts, kind):
        X, y = warts
        if kind == "alone":
            model = SML(n_neighbors=5)
        elif kind == "scaled":
            model = make_pipeline(StandardScaler(), SML(n_neighbors=5))
        elif kind == "encoded":
            model = make_pipeline(
                ColumnTransformer(
                    [("one", OneHotEncoder(), ["flag"]), ("all", StandardScaler(), ["amount"])]
                ),
                SML(n_neighbors=5),
            )
        else:
            model = plml.AutoPLML(n_bases=2, random_state=0)
        model.fit(X[:60], y[:60])
        found = plml.explain(model, X[60:])
        told = found.to_dict()[3]
        for values in (
            told["values"],
            told["contrast"]["values_for"],
            told["contrast"]["values_against"],
            *(case["values"] for case in told["neighbors"]),
        ):
            assert type(values["amount"]) is int
            assert type(values["flag"]) is bool
        case = found.cases_for[3]
        assert told["contrast"]["values_for"]["amount"] == X["amount"][case]
        assert told["contrast"]["values_for"]["flag"] == X["flag"][case]
        frame = found.to_frame()
        stored = frame[frame["feature"] == "flag"]["neighbor_value"]
        assert set(map(type, stored)) == {bool}

    def test_columns_that_are_called_by_numbers(self, warts):
        X, y = warts
        X = X.set_axis([10, 20, 30], axis=1)
        model = make_pipeline(StandardScaler(), SML(n_neighbors=5)).fit(X[:60], y[:60])
        found = plml.explain(model, X[60:])
        assert found.feature_names.tolist() == ["10", "20", "30"]
        change = plml.counterfactual(model, X.iloc[[61]], [10])
        assert change is not None
        assert list(change.changes) == ["10"]

    def test_single_precision_has_no_digits_of_its_own(self, warts):
        X, y = warts
        X = X.to_numpy(np.float32)
        told = SML(n_neighbors=5).fit(X[:60], y[:60]).explain(X[60:]).to_dict()[0]
        assert told["values"]["x2"] == warts[0]["ratio"][60]

    def test_bad_questions_of_a_change(self, warts):
        X, y = warts
        model = SML(n_neighbors=5).fit(X[:60], y[:60])
        for row, options, message in [
            (X.iloc[60], {}, "X is a Series with 3 values: give a table of one row"),
            (X.iloc[:0], {}, "X has no rows"),
            (X.iloc[[60]], {"columns": []}, "columns names no column"),
            (X.iloc[[60]], {"max_columns": 1.5}, "max_columns must be at least 1, a whole number"),
        ]:
            with pytest.raises(ValueError, match=message):
                plml.counterfactual(model, row, **options)


def test_almost_certain_is_not_certain():
    assert percent(0.9967) == ">99%"
    assert percent(1.0) == "100%"
    assert percent(0.003) == "<1%"
    assert percent(0.0) == "0%"
    assert percent(0.804) == "80%"


class TestStepsThatMixColumns:
    """What no name of a column fits is called by the name of the output."""

    @staticmethod
    def parts_of_features(model, Q):
        return model[-1].explain(model[:-1].transform(Q), 3).contrasts

    @pytest.mark.parametrize(
        "step",
        [
            FunctionTransformer(lambda X: np.asarray(X)[:, ::-1] ** 2),
            FunctionTransformer(lambda X: np.column_stack([X, np.prod(X, axis=1)])),
            PolynomialFeatures(2),
        ],
    )
    def test_features_keep_their_parts(self, table, step):
        X, y, Q = (part[NUMBERS[:2]] if hasattr(part, "columns") else part for part in table)
        model = make_pipeline(step, StandardScaler(), SML(n_neighbors=3)).fit(X, y)
        found = plml.explain(model, Q, 3)
        np.testing.assert_allclose(found.contrasts, self.parts_of_features(model, Q))
        np.testing.assert_allclose(
            found.queries.astype(float), np.asarray(step.transform(Q), dtype=float), rtol=1e-9
        )

    def test_columns_in_another_order_are_followed(self, table):
        X, y, Q = table
        X, Q = X[NUMBERS], Q[NUMBERS]
        turned = FunctionTransformer(lambda X: np.asarray(X)[:, ::-1])
        one = make_pipeline(turned, StandardScaler(), SML(n_neighbors=3)).fit(X, y)
        found = plml.explain(one, Q, 3)
        assert list(found.feature_names) == NUMBERS
        parts = self.parts_of_features(one, Q)
        np.testing.assert_allclose(found.contrasts, parts[:, ::-1], rtol=1e-6, atol=1e-9)

    def test_a_function_of_each_value(self, table):
        X, y, Q = (part[["proline", "hue"]] if hasattr(part, "columns") else part for part in table)
        logs = make_pipeline(FunctionTransformer(np.log1p), SML(n_neighbors=3)).fit(X, y)
        found = plml.explain(logs, Q, 3)
        assert list(found.feature_names) == ["proline", "hue"]
        assert found.for_values[0].tolist() == [None, None]  # there is no inverse
        back = FunctionTransformer(np.log1p, np.expm1)
        found = plml.explain(make_pipeline(back, SML(n_neighbors=3)).fit(X, y), Q, 3)
        assert found.for_values[0, 0] == X.iloc[found.cases_for[0]]["proline"]

    @pytest.mark.parametrize("inner", [PCA(2), KBinsDiscretizer(3, encode="onehot-dense")])
    def test_inside_a_column_transformer(self, table, inner):
        X, y, Q = table
        mixed = make_column_transformer(
            (inner, ["alcohol", "hue"]), (OneHotEncoder(handle_unknown="ignore"), ["colour"])
        )
        model = make_pipeline(mixed, SML(n_neighbors=3)).fit(X, y)
        found = plml.explain(model, Q, 3)
        assert "colour" in found.feature_names
        assert not {"alcohol", "hue"} & set(found.feature_names)
        parts = self.parts_of_features(model, Q)
        np.testing.assert_allclose(found.contrasts[:, 0], parts[:, -2:].sum(axis=1))
        np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, atol=1e-9)

    def test_bins_forget_values(self, table):
        X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
        bins = KBinsDiscretizer(4, encode="ordinal")
        found = plml.explain(make_pipeline(bins, SML(n_neighbors=3)).fit(X, y), Q, 3)
        assert set(found.for_values.ravel()) == {None}


class TestSelectedColumns:
    def test_their_values_are_known(self, table):
        X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
        steps = StandardScaler(), SelectKBest(k=2), StandardScaler(), SML(n_neighbors=3)
        model = make_pipeline(*steps).fit(X, y)
        found = plml.explain(model, Q, 3)
        kept = X.columns[model[1].get_support()]
        assert list(found.feature_names) == list(kept)
        for i in range(len(Q)):
            assert found.for_values[i].tolist() == X.iloc[found.cases_for[i]][kept].tolist()

    def test_half_a_category_is_unknown(self, table):
        X, y, Q = table
        steps = encoder(), SelectKBest(k=3), SML(n_neighbors=3)
        model = make_pipeline(*steps).set_params(selectkbest__score_func=_middle).fit(X, y)
        found = plml.explain(model, Q, 3)
        place = list(found.feature_names).index("colour")
        assert set(found.for_values[:, place]) == {None}
        assert set(found.queries[:, place]) == {"deep", "pale"}

    def test_behind_a_step_that_forgets(self, table):
        X, y, Q = table
        model = make_pipeline(encoder(), Normalizer(), SML(n_neighbors=3)).fit(X, y)
        found = plml.explain(model, Q, 3)
        assert set(found.for_values.ravel()) == {None}


def _middle(X, y):
    """Scores by which the last three but one are chosen."""
    return np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])


def test_a_slice_of_names(table):
    X, y, Q = table
    chosen = make_column_transformer((StandardScaler(), slice("alcohol", "ash")))
    found = plml.explain(make_pipeline(chosen, SML(n_neighbors=3)).fit(X, y), Q, 3)
    assert list(found.feature_names) == ["alcohol", "malic_acid", "ash"]


@pytest.mark.parametrize("explained", [plml.explain, plml.counterfactual])
def test_a_column_that_is_not_there_is_named_in_one_line(table, explained):
    X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
    for model in SML(n_neighbors=3), make_pipeline(StandardScaler(), SML(n_neighbors=3)):
        with pytest.raises(ValueError, match="X lacks the column 'hue' that the model was fitted"):
            explained(model.fit(X, y), Q[:1].rename(columns={"hue": "Hue"}))


def test_an_encoder_of_categories_is_not_affine(table):
    """Of numbers that are no categories it makes a constant; the training rows show that it is."""
    X, y, _ = table
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    steps = make_column_transformer(
        (make_pipeline(StandardScaler(), PCA(2)), NUMBERS),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), codes), ["colour"]),
    )
    found = plml.explain(make_pipeline(steps, SML(n_neighbors=3)).fit(X, y))
    assert list(found.feature_names) == ["colour", "pca0", "pca1"]
    assert set(found.queries[:, 0]) == {"deep", "pale"}
    np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)


def test_a_category_of_which_nothing_is_left(table):
    X, y, Q = table
    steps = make_column_transformer(
        (StandardScaler(), NUMBERS), (OneHotEncoder(drop="first"), ["colour"])
    )
    same = X.assign(colour="deep")
    found = plml.explain(make_pipeline(steps, SML()).fit(same, y), Q.assign(colour="deep"))
    assert set(found.feature_names) == set(NUMBERS)


def test_one_row_does_not_make_a_step_affine(table):
    X, y, Q = (part[NUMBERS[:2]] if hasattr(part, "columns") else part for part in table)
    model = make_pipeline(PolynomialFeatures(2), StandardScaler(), SML(n_neighbors=3)).fit(X, y)
    one, all_of_them = plml.explain(model, Q[:1]), plml.explain(model, Q)
    assert list(one.feature_names) == list(all_of_them.feature_names)
    np.testing.assert_allclose(one.contrasts[0], all_of_them.contrasts[0])
    assert list(plml.explain(model).feature_names) == list(one.feature_names)


class TestGivenCases:
    def test_their_columns_may_come_in_any_order(self, table):
        X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
        model = make_pipeline(StandardScaler(), Normalizer(), SML(n_neighbors=3)).fit(X, y)
        turned = X[NUMBERS[::-1]].assign(more=1)
        found = plml.explain(model, Q, 3, cases=turned)
        assert found.for_values.tolist() == plml.explain(model, Q, 3, cases=X).for_values.tolist()

    @pytest.mark.parametrize("explained", [plml.explain, plml.counterfactual])
    @pytest.mark.parametrize(
        ("cases", "message"),
        [
            (lambda X: X[:5], "cases must be the table .* 89 rows and 4 columns; .* (5, 4)"),
            (lambda X: X[NUMBERS[:2]], "cases lacks the column 'flavanoids'"),
            (lambda X: X.to_numpy()[:, :3], "89 rows and 4 columns; its shape is (89, 3)"),
            (lambda X: 5, "its shape is ()"),
        ],
    )
    def test_another_table_is_refused(self, table, explained, cases, message):
        X, y, Q = (part[NUMBERS] if hasattr(part, "columns") else part for part in table)
        model = make_pipeline(StandardScaler(), SML(n_neighbors=3)).fit(X, y)
        with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
            explained(model, Q[:1], cases=cases(X))


class TestColumnsThatMayChange:
    def test_categories_stay_categories(self, table):
        X, y, Q = (
            part[["colour"]].astype("category") if hasattr(part, "columns") else part
            for part in table
        )
        model = AutoPLML(n_bases=3, random_state=0).fit(X, y)
        change = plml.counterfactual(model, Q[:1])
        assert change.row["colour"].dtype == Q["colour"].dtype

    def test_places_are_those_of_the_table(self, table):
        X, y, Q = (part[NUMBERS].to_numpy() if hasattr(part, "columns") else part for part in table)
        steps = StandardScaler(), SelectKBest(_last_two, k=2), SML(n_neighbors=3)
        model = make_pipeline(*steps).fit(X, y)
        for cases in None, X:
            change = plml.counterfactual(model, Q[:1], cases=cases)
            assert model.predict(change.row)[0] == change.changed_prediction
            assert set(change.changes) <= {"x2", "x3"}
            (changed,) = np.flatnonzero(change.row[0] != Q[0]) if len(change.changes) == 1 else (2,)
            assert plml.counterfactual(model, Q[:1], [int(changed)], cases=cases) is not None
        with pytest.raises(ValueError, match="there is no column 0; there are x2, x3"):
            plml.counterfactual(model, Q[:1], [0])

    def test_bad_questions(self, table):
        X, y, Q = table
        model = make_pipeline(encoder(), SML(n_neighbors=3)).fit(X, y)
        for columns, message in (
            (["ash"], "the model makes no use of the column 'ash'"),
            (5.5, "there is no column 5.5"),
            ([True], "there is no column True"),
        ):
            with pytest.raises(ValueError, match=message):
                plml.counterfactual(model, Q[:1], columns)
        with pytest.raises(ValueError, match="target must be one of the classes"):
            plml.counterfactual(model, Q[:1], target=["barbera"])
        mixed = make_pipeline(PolynomialFeatures(2), SML(n_neighbors=3)).fit(X[NUMBERS], y)
        with pytest.raises(ValueError, match="a step of this pipeline mixes columns"):
            plml.counterfactual(mixed, Q[NUMBERS][:1], cases=X[NUMBERS])


def _last_two(X, y):
    return np.arange(4.0)


def test_a_time_belongs_to_the_minute_that_has_begun():
    days = np.array([18262.0 + (23 * 3600 + 59 * 60 + 40) / 86400.0])
    assert date_texts(days, with_time=True).tolist() == ["2020-01-01 23:59"]
