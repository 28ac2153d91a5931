import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from plml import CBLML, PLML, SML
from plml.preprocessing import MeanNormScaler


@pytest.fixture(scope="module")
def wine():
    data = load_wine(as_frame=True)
    X = StandardScaler().set_output(transform="pandas").fit_transform(data.data)
    X = MeanNormScaler().set_output(transform="pandas").fit_transform(X)
    return X.iloc[::2], data.target[::2], X.iloc[1::2]


@pytest.fixture(scope="module", params=[PLML, SML, CBLML])
def model(request, wine):
    parameters = {} if request.param is SML else {"n_bases": 3, "random_state": 0}
    return request.param(n_neighbors=3, **parameters).fit(*wine[:2])


def test_contributions_add_up_to_the_squared_local_distance(model, wine):
    found = model.explain(wine[2], 5)
    assert found.contributions.shape == (89, 5, 13)
    np.testing.assert_allclose(found.contributions.sum(axis=2), found.squared_distances, rtol=1e-6)
    pairs = np.stack([found.queries[:, None] + 0 * found.neighbor_values, found.neighbor_values], 2)
    expected = model.pair_distance(pairs.reshape(-1, 2, 13), squared=True).reshape(89, 5)
    np.testing.assert_allclose(found.squared_distances, expected, rtol=1e-6)


def test_contributions_add_up_in_single_precision(wine):
    single = [part.to_numpy(dtype=np.float32) for part in (wine[0], wine[2])]
    found = PLML(n_bases=3, random_state=0).fit(single[0], wine[1]).explain(single[1], 5)
    np.testing.assert_allclose(found.contributions.sum(axis=2), found.squared_distances, rtol=1e-6)


def test_neighbors_and_predictions_are_those_of_the_model(model, wine):
    found = model.explain(wine[2], 5)
    distances, neighbors = model.kneighbors(wine[2], 5)
    np.testing.assert_array_equal(found.neighbors, neighbors)
    np.testing.assert_allclose(np.sqrt(found.squared_distances), distances)
    np.testing.assert_array_equal(found.predictions, model.predict(wine[2]))
    np.testing.assert_array_equal(found.labels, wine[1].to_numpy()[neighbors])
    fewer = model.explain(wine[2], 1)  # than vote
    np.testing.assert_array_equal(fewer.predictions, found.predictions)
    of_training = model.explain()
    assert (of_training.neighbors != np.arange(89)[:, None]).all()


def test_frames_are_tidy_and_keep_the_names(model, wine):
    found = model.explain(wine[2].iloc[:4], 2)
    frame = found.to_frame()
    assert len(frame) == 4 * 2 * 13
    assert list(frame["feature"].iloc[:13]) == list(wine[0].columns)
    for split in ("likeness", "contribution"):
        sums = frame.groupby(["query", "rank"])[split].sum().to_numpy().reshape(4, 2)
        np.testing.assert_allclose(sums, found.squared_distances, rtol=1e-6)
    contrast = found.contrast_frame()
    sums = contrast.groupby("query")["contrast"].sum()
    np.testing.assert_allclose(sums, contrast.groupby("query")["margin"].first(), rtol=1e-6)
    sizes = contrast["contrast"].abs().to_numpy().reshape(4, 13)
    assert (np.diff(sizes, axis=1) <= 0).all()
    row = frame[(frame["query"] == 3) & (frame["rank"] == 2) & (frame["feature"] == "ash")].iloc[0]
    assert row["value"] == wine[2]["ash"].iloc[3]
    assert row["neighbor_value"] == wine[0]["ash"].iloc[found.neighbors[3, 1]]
    importance = found.importance_frame()
    assert len(importance) == 4 * 13
    expected = importance["importance"] / importance["global_importance"]
    expected[importance["global_importance"] == 0] = np.nan
    pd.testing.assert_series_equal(importance["ratio"], expected, check_names=False)


def test_directions_are_the_leading_eigenvectors(model, wine):
    found = model.explain(wine[2].iloc[:3])
    frame = found.directions_frame(2)
    assert len(frame) == 3 * 2 * 13
    first = frame[(frame["query"] == 1) & (frame["direction"] == 1)]
    v, value = first["loading"].to_numpy(), first["eigenvalue"].iloc[0]
    np.testing.assert_allclose(found.metrics[1] @ v, value * v, atol=1e-8 * value)
    assert value == pytest.approx(np.linalg.eigvalsh(found.metrics[1])[-1])
    assert v[np.abs(v).argmax()] > 0
    with pytest.raises(ValueError, match="n_directions must be between 1 and 13"):
        found.directions_frame(14)


def test_features_without_names_are_numbered(wine):
    model = PLML(n_bases=2, random_state=0).fit(wine[0].to_numpy(), wine[1])
    assert list(model.explain(wine[2].to_numpy()[:1]).feature_names[:2]) == ["x0", "x1"]
