import numpy as np
import pytest
from sklearn.datasets import load_wine

import plml
from plml import tables
from plml.evaluation import cross_evaluate, evaluate


@pytest.fixture(scope="module")
def wine():
    """With a category of its own, and names as labels."""
    data = load_wine(as_frame=True)
    table = data.data.copy()
    table["cellar"] = np.where(np.arange(len(table)) % 3 == 0, "north", "south")
    table["grape"] = np.array(["barolo", "grignolino", "barbera"])[data.target]
    return table.sample(frac=1.0, random_state=0).reset_index(drop=True)


def test_a_saved_model_predicts_the_same(wine, tmp_path):
    train, test = wine[:120], wine[120:]
    options = {"regularization": 1.0, "n_bases": 4, "random_state": 0}
    fitted = tables.fit(train, "grape", "train.csv", **options)
    fitted.save(tmp_path / "model.skops")
    tables.write_table(test, tmp_path / "test.csv")
    model = tables.load(tmp_path / "model.skops")
    table = tables.read_table(tmp_path / "test.csv")[0]
    rows = model.prepared(table, "test.csv")
    direct = model.pipeline.predict(model.columns.tidy(table, "test.csv"))
    np.testing.assert_array_equal(model.classifier.predict(rows), direct)
    assert "cellar_north" in list(rows.columns)
    np.testing.assert_array_equal(direct, fitted.classifier.predict(rows))
    assert np.mean(direct == model.labels(table, "test.csv")) > 0.9


def test_an_explanation_is_in_the_columns_and_units_of_the_table(wine):
    train, test = wine[:120], wine[120:]
    model = tables.fit(train, "grape", "train.csv", regularization=1.0, n_bases=4, random_state=0)
    found = model.explain(test[:1], "test.csv", 2)
    parts = found.to_frame()
    assert set(parts["feature"]) == set(wine.columns) - {"grape"}
    for split in ("likeness", "contribution"):
        np.testing.assert_allclose(parts.groupby("rank")[split].sum(), found.squared_distances[0])
    for case in parts.itertuples():
        assert case.neighbor_value == train.iloc[case.training_row][case.feature]
        assert case.value == test.iloc[0][case.feature]
    change = model.counterfactual(test[:1], "test.csv")
    assert change is None or change.changed_prediction != found.predictions[0]


def test_a_loaded_model_says_what_it_is_and_what_it_is_worth(wine, tmp_path):
    fitted = tables.fit(wine, "grape", "wine.csv", regularization=1.0, n_bases=4, random_state=0)
    fitted.save(tmp_path / "model.skops")
    model = tables.load(tmp_path / "model.skops")
    assert repr(model) == "<PLML for 'grape': 178 cases, 14 columns, 3 classes>"
    assert model.dual_gap_ == model.classifier.dual_gap_ <= 1e-3
    first, regularization, certificate = model.summary().splitlines()
    assert first == "178 cases, 14 columns as 15 features, 3 classes"
    assert regularization == "regularization 1"
    assert certificate.startswith("certificate: the objective could be lower by at most 0.")
    with pytest.raises(ValueError, match=r"model\.skops is a model, not a table"):
        tables.read_table(tmp_path / "model.skops")


def test_a_table_needs_no_name(wine):
    model = tables.fit(wine[::2], "grape", regularization=1.0, n_bases=2, random_state=0)
    new = wine[1::2]
    np.testing.assert_array_equal(model.labels(new), new["grape"])
    assert "89 rows of the table" in repr(model.evaluate(new))
    assert len(model.explain(new[:2])) == len(model.prepared(new[:2])) == 2
    with pytest.raises(ValueError, match="the table lacks the columns 'hue'"):
        model.counterfactual(new[:1].drop(columns="hue"))


def test_truth_values_are_the_same_classes_in_every_file(wine, tmp_path):
    """Parquet has them, and CSV has their words."""
    table = wine.assign(grape=wine["grape"] == "barolo")
    found = {}
    for name in ("wine.parquet", "wine.csv"):
        tables.write_table(table, tmp_path / name)
        found[name] = tables.read_table(tmp_path / name)[0]
    options = {"regularization": 1.0, "n_bases": 2, "random_state": 0}
    models = [tables.fit(one, "grape", **options) for one in found.values()]
    for model in models:
        for one in found.values():
            np.testing.assert_array_equal(model.labels(one).astype(str), table["grape"].astype(str))
            assert set(model.labels(one)) == set(model.classifier.classes_)
    assert models[0].classifier.classes_.dtype == bool
    assert models[0].labels(found["wine.csv"].replace({"True": "TRUE"})).sum() == 59
    with pytest.raises(ValueError, match="holds 'maybe' in row 0; the model knows 'False', 'True'"):
        models[0].labels(found["wine.csv"].assign(grape="maybe"))


def test_functions_for_estimators_say_what_to_ask_of_the_model_of_a_table(wine):
    model = tables.fit(wine[::2], "grape", regularization=1.0, n_bases=2, random_state=0)
    new = wine[1::2]
    for ask in (plml.explain, plml.counterfactual):
        with pytest.raises(ValueError, match=r"explains itself: model\.explain\(table\)"):
            ask(model, new[:1])
    for ask in (evaluate, cross_evaluate, plml.staleness):
        with pytest.raises(ValueError, match=r"give model\.classifier and model\.prepared"):
            ask(model, new, new["grape"])
    found = plml.staleness(model.classifier, model.prepared(new), model.labels(new))
    assert found.n_rows == len(new)
