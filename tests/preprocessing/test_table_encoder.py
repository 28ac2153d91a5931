"""Tables as numbers: every kind of column, missing entries, and the way back."""

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from plml.preprocessing import MeanNormScaler, TableEncoder


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0, 8.0],
            "colour": ["red", None, "blue", "red"],
            "count": pd.array([1, 2, None, 4], dtype="Int64"),
            "old": [True, False, True, True],
        }
    )


def test_numbers_are_standardised_after_the_gaps_are_filled(table):
    rows = TableEncoder().fit(table).transform(table)
    filled = np.array([[1.0, 1.0], [3.0, 2.0], [3.0, 2.0], [8.0, 4.0]])  # medians
    np.testing.assert_allclose(rows[:, :2], StandardScaler().fit_transform(filled))


def test_categories_are_zeros_and_ones(table):
    encoder = TableEncoder().fit(table)
    rows, names = encoder.transform(table), encoder.get_feature_names_out().tolist()
    assert names[2:] == ["colour_(missing)", "colour_blue", "colour_red", "old_False", "old_True"]
    expected = [[0, 0, 1, 0, 1], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 1]]
    np.testing.assert_array_equal(rows[:, 2:], expected)
    assert (encoder.categories_, encoder.n_missing_) == (["colour", "old"], 2)  # of numbers
    assert encoder.summary_lines() == [
        "columns: 2 of numbers, 2 of categories, 2 missing entries filled in, 1 missing category "
        "kept as '(missing)'"
    ]


def test_a_new_category_is_none_of_the_known_ones(table):
    encoder = TableEncoder().fit(table)
    rows = encoder.transform(table.assign(colour="violet"))
    np.testing.assert_array_equal(rows[:, 2:5], 0.0)


@pytest.mark.parametrize("standardize", [True, False])
def test_numbers_come_back(table, standardize):
    encoder = TableEncoder(standardize=standardize).fit(table)
    back = encoder.in_units_of_the_table(encoder.transform(table))
    np.testing.assert_allclose(back[:, 0], [1.0, 3.0, 3.0, 8.0])
    np.testing.assert_allclose(back[:, 1], [1.0, 2.0, 2.0, 4.0])
    if not standardize:
        np.testing.assert_array_equal(encoder.transform(table), back)


@pytest.mark.parametrize("make", [np.array, list, pd.DataFrame, lambda X: X.astype(object)])
def test_numbers_in_any_dress(rng, make):
    X = rng.normal(size=(9, 3))
    given = make(X.tolist()) if make is list else make(X)
    np.testing.assert_allclose(
        TableEncoder().fit(given).transform(given), StandardScaler().fit_transform(X)
    )


def test_an_array_of_words():
    X = np.array([["red", 1], ["blue", 2], ["red", 3]], dtype=object)
    encoder = TableEncoder().fit(X)
    assert encoder.categories_ == ["0"]
    assert encoder.transform(X).shape == (3, 3)


def test_categories_alone():
    table = pd.DataFrame({"colour": ["red", "blue", "red"]})
    encoder = TableEncoder().fit(table)
    rows = encoder.transform(table)
    np.testing.assert_array_equal(rows, [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(encoder.in_units_of_the_table(rows), rows)


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.array([[1.0, 1e150], [0.0, 2.0]]), r"column 1 of X reaches 1e\+150, too large"),
        (np.array([[1.0, np.inf], [0.0, 2.0]]), "infinity"),
    ],
)
def test_columns_that_are_refused(X, match):
    with pytest.raises(ValueError, match=match):
        TableEncoder().fit(X)


@pytest.mark.parametrize("missing", ["median", "indicator"])
@pytest.mark.parametrize("as_array", [False, True])
def test_a_weight_is_as_many_rows(missing, as_array, rng):
    table = pd.DataFrame(rng.normal(size=(30, 3)), columns=list("abc"))
    table.iloc[::4, 0] = np.nan
    table.iloc[5, 2] = np.nan
    counts = rng.integers(0, 4, size=30)
    if as_array:
        table = table.to_numpy()
        more = np.repeat(table, counts, axis=0)
    else:
        table["kind"] = np.where(np.arange(30) % 3 == 0, "one", "other")
        more = table.loc[np.repeat(table.index, counts)]
    weighted = TableEncoder(missing=missing).fit(table, sample_weight=counts)
    repeated = TableEncoder(missing=missing).fit(more)
    np.testing.assert_allclose(weighted.transform(table), repeated.transform(table), atol=1e-12)
    plain = TableEncoder(missing=missing).fit(table)
    assert np.abs(weighted.transform(table) - plain.transform(table)).max() > 1e-3


def test_weights_without_numbers_or_with_neighbours_to_fill_from(rng):
    words = pd.DataFrame({"kind": ["one", "other"] * 5})
    weights = rng.uniform(size=10)
    np.testing.assert_array_equal(
        TableEncoder().fit(words, sample_weight=weights).transform(words),
        TableEncoder().fit(words).transform(words),
    )
    X = rng.normal(size=(10, 3))
    X[3, 1] = np.nan
    encoder = TableEncoder(missing="neighbors").fit(X, sample_weight=weights)
    scaler = StandardScaler().fit(X, sample_weight=weights)
    known = ~np.isnan(X)
    np.testing.assert_allclose(encoder.transform(X)[known], scaler.transform(X)[known])
    assert np.isfinite(encoder.transform(X)).all()


def test_the_scale_of_all_features_is_weighted(rng):
    X, counts = rng.normal(size=(20, 3)), rng.integers(0, 4, size=20)
    weighted = MeanNormScaler().fit(X, sample_weight=counts)
    assert weighted.scale_ == pytest.approx(MeanNormScaler().fit(np.repeat(X, counts, 0)).scale_)
