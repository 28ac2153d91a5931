"""Models and pages for the tests of the explorer."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from plml import SML, AutoPLML, tables
from plml.explorer.page_data import page_data
from plml.explorer.subject import subject_of

#: Texts that a careless page would run.
EVIL_CLASS = "<script>window.hacked = 1</script>"
EVIL_COLUMN = "<img src=x onerror='window.hacked=2'>"


@pytest.fixture(scope="session")
def wine():
    """Wine in random order: 130 rows to learn from, 48 new ones."""
    data = load_wine(as_frame=True)
    order = np.random.default_rng(0).permutation(len(data.data))
    X, y = data.data.iloc[order].reset_index(drop=True), data.target.to_numpy()[order]
    return X.iloc[:130], y[:130], X.iloc[130:].reset_index(drop=True), y[130:]


@pytest.fixture(scope="session")
def metric_model(wine):
    """One metric, five neighbours; the columns as they are."""
    X, y, _, _ = wine
    return SML(n_neighbors=5, regularization=1.0).fit(X, y)


@pytest.fixture(scope="session")
def mixed(wine):
    """Wine with a category and with names for classes, one of them evil; a target column."""
    X, y, new, y_new = wine
    names = np.array(["barolo", EVIL_CLASS, "barbera"])

    def table(X, y):
        frame = X[["alcohol", "flavanoids", "hue", "proline", "magnesium"]].copy()
        frame[EVIL_COLUMN] = np.where(frame["hue"] > 0.9, "north & <b>", "south")
        frame["grape"] = names[y]
        return frame

    return table(X, y), table(new, y_new)


@pytest.fixture(scope="session")
def saved_model(mixed):
    """As ``plml fit`` makes it."""
    return tables.fit(
        mixed[0], "grape", "wine", regularization=1.0, n_bases=4, n_neighbors=5, random_state=0
    )


@pytest.fixture(scope="session")
def auto_model(mixed):
    """A committee that encodes the table itself."""
    table = mixed[0]
    return AutoPLML(n_bases=3, random_state=0).fit(table.drop(columns="grape"), table["grape"])


@pytest.fixture(scope="session")
def files(mixed, saved_model, tmp_path_factory):
    """A model and new cases on disk."""
    folder = tmp_path_factory.mktemp("explorer")
    saved_model.save(folder / "model.skops")
    mixed[1].to_csv(folder / "cases.csv", index=False)
    assert list(pd.read_csv(folder / "cases.csv").columns) == list(mixed[1].columns)
    return folder


@pytest.fixture(scope="session")
def wine_data(metric_model, wine):
    return page_data(subject_of(metric_model), wine[2], wine[3])


@pytest.fixture(scope="session")
def mixed_data(saved_model, mixed):
    labels = saved_model.labels(mixed[1], "wine")
    return page_data(subject_of(saved_model), mixed[1], labels)
