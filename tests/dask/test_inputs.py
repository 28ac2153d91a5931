"""Tables and queries as users have them: repeated rows, empty blocks, gaps, other clusters."""

import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, default_client

from plml import PLML
from plml.dask import collect, fit
from plml.dask.cluster import Cluster
from plml.dask.reading import read_table
from plml.dask.sharded_stages import ShardedStages
from plml.dask.shards import make_shards, sampled_rows
from plml.dask.sums import stacked
from plml.solvers.problem import NO_CHECKPOINT

QUICK = {"n_bases": 2, "regularization": 50.0, "tol": 0.1, "random_state": 0}
NAMES = list("abcd")


def frame(n=240, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.standard_normal((n, 4)), columns=NAMES)
    table["label"] = np.where(table["a"] + table["b"] > 0, "up", "down")
    return table


@pytest.fixture(scope="module")
def model(client):
    table = frame()
    return PLML(**QUICK).fit(dd.from_pandas(table[NAMES], npartitions=3), table["label"])


@pytest.mark.parametrize("search", ["exact", "approximate"])
@pytest.mark.parametrize("seed", [3, 4])
def test_rows_that_repeat(client, search, seed):
    """More cells than there are different rows."""
    Z = np.random.default_rng(seed).integers(0, 2, (600, 4)).astype(float)
    y = (Z.sum(axis=1) > 2).astype(int)
    fitted = PLML(**QUICK, neighbor_search=search)
    fit(fitted, da.from_array(Z, chunks=(300, -1)), y, n_shards=4)
    assert fitted.score(Z, y) > 0.9


class TestQueries:
    @pytest.mark.parametrize("where", ["cluster", "here"])
    def test_blocks_without_rows(self, client, where):
        table = frame()
        fitted = PLML(**QUICK).fit(dd.from_pandas(table[NAMES], npartitions=3), table["label"])
        if where == "here":
            collect(fitted)
        queries = dd.from_pandas(table[NAMES], npartitions=4)
        some = queries[queries["a"] > 1e9], queries.loc[:99]
        for chosen, n_rows in zip(some, (0, 100), strict=True):
            expected = table[NAMES].iloc[:n_rows]
            answers = dask.compute(
                fitted.predict(chosen),
                fitted.predict_proba(chosen),
                fitted.local_weights(chosen),
                *fitted.kneighbors(chosen, 3),
            )
            assert [len(answer) for answer in answers] == [n_rows] * 5
            assert answers[1].shape == (n_rows, 2)
            if n_rows:
                np.testing.assert_array_equal(answers[0], fitted.predict(expected))

    @pytest.mark.parametrize("k", [0, 2.5, "a"])
    def test_a_number_of_neighbors_that_makes_no_sense(self, model, k):
        with pytest.raises(ValueError, match="n_neighbors must be a positive integer"):
            model.kneighbors(frame()[NAMES], k)

    def test_a_single_row_of_numbers(self, model):
        with pytest.raises(ValueError, match="two dimensions"):
            model.predict(da.ones(4))

    def test_errors_speak_of_the_estimator(self, model):
        wrong = dd.from_pandas(frame()[NAMES].rename(columns={"a": "z"}), npartitions=2)
        with pytest.raises(ValueError, match="feature names") as error:
            model.predict(wrong).compute()
        assert "_Columns" not in str(error.value)

    def test_names_of_tasks_speak_of_the_estimator(self, model):
        lazy = model.predict(dd.from_pandas(frame()[NAMES], npartitions=2))
        names = {key.split("-")[0] for key in lazy.dask if isinstance(key, str)}
        assert "_checked" in names
        assert "PLML" in names
        assert not [name for name in names if "columns" in name.lower()]

    @pytest.mark.parametrize("method", ["predict", "kneighbors"])
    def test_warnings_speak_of_the_estimator(self, method):
        """One for queries without names, as on one machine, and none for queries with names."""
        table = frame()
        fitted = PLML(**QUICK).fit(table[NAMES], table["label"])
        lazy = dd.from_pandas(table[NAMES], npartitions=2)
        for queries, expected in (
            (lazy, set()),
            (
                lazy.to_dask_array(lengths=True),
                {"X does not have valid feature names, but PLML was fitted with feature names"},
            ),
        ):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                dask.compute(getattr(fitted, method)(queries), scheduler="sync")
            assert {str(warning.message) for warning in seen} == expected


def test_flat_metrics_in_small_units(client):
    """Where the metric sees nothing, the Euclidean order decides, whatever the units."""
    rng = np.random.default_rng(0)
    X, y = 1e-9 * rng.normal(size=(300, 4)), rng.integers(0, 2, size=300)
    parts = da.from_array(X, chunks=(75, -1)), da.from_array(y, chunks=75)
    model = fit(PLML(n_bases=2, random_state=0, tol=1e-1), *parts, n_shards=4)
    assert len(model._training.shards) == 4
    model.basis_metrics_ = np.zeros_like(model.basis_metrics_)
    found = model.kneighbors(X[:30] + 1e-10, 3, return_distance=False)
    distances = np.linalg.norm(X[None] - (X[:30] + 1e-10)[:, None], axis=2)
    np.testing.assert_array_equal(found, np.argsort(distances, axis=1)[:, :3])


def test_anchors_of_a_sample_of_rows_in_turn(client, monkeypatch):
    """Classes that take turns: every other row would be of one class."""
    monkeypatch.setattr("plml.dask.sharded_stages.MOST_CLUSTERED", 200)
    X = np.arange(400.0)[:, None] % 2 + np.linspace(0, 0.01, 400)[:, None]
    cluster = Cluster(client)
    table = read_table(cluster, da.from_array(X, chunks=(80, -1)), np.arange(400) % 2)
    stages = ShardedStages(
        cluster,
        table,
        make_shards(cluster, table, 3, seed=0),
        exact=True,
        n_targets=3,
        n_impostors=3,
        n_landmarks=400,
        seed=0,
    )
    parts, sizes = stages.shards.parts, stages.shards.sizes
    chosen = stacked(client.gather(sampled_rows(cluster, parts, sizes, 200, seed=0)))
    np.testing.assert_array_equal(X[chosen.rows], chosen.X)
    sample = chosen.X[:, 0]
    assert len(sample) == 200
    assert set(sample) < set(X[:, 0])
    assert len(set(sample)) == 200
    assert 70 < (sample > 0.5).sum() < 130
    anchors = stages.anchors(2, 0, NO_CHECKPOINT)
    np.testing.assert_allclose(np.sort(anchors[:, 0]), [0.005, 1.005], atol=0.002)


def test_temporary_arrays_are_as_small_as_asked_for(client):
    from plml.backend.arrays import _BYTES_PER_ELEMENT, share_of_memory

    x = np.zeros(3)
    usual = client.gather(Cluster(client).submit(share_of_memory, x, 2**30))
    small = client.gather(Cluster(client, working_memory=1).submit(share_of_memory, x, 2**30))
    assert small == 2**20 / _BYTES_PER_ELEMENT < usual


def test_a_cluster_that_adapts_to_its_work(client):
    table = frame()
    with (
        LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster),
    ):
        cluster.adapt(minimum=0, maximum=1, interval="100 ms")
        fitted = PLML(**QUICK).fit(dd.from_pandas(table[NAMES], npartitions=2), table["label"])
        assert fitted.score(table[NAMES], table["label"]) > 0.5


class TestRefusals:
    def refused(self, X, y, message):
        with pytest.raises(ValueError, match=message):
            PLML(**QUICK).fit(X, y)

    def test_text(self, client):
        table = frame().assign(d="birch tree")
        parts = dd.from_pandas(table, npartitions=3)
        self.refused(parts[NAMES], parts["label"], "feature 'd' holds 'birch tree'")

    def test_a_missing_integer(self, client):
        table = frame()
        table["d"] = pd.array([1] * 200 + [None] + [2] * 39, dtype="Int64")
        parts = dd.from_pandas(table, npartitions=3)
        self.refused(parts[NAMES], parts["label"], r"'d'.*NaN|NaN.*'d'")

    def test_missing_labels(self, client):
        table = frame()
        X = dd.from_pandas(table[NAMES], npartitions=3)
        labels = table["label"].astype(object)
        labels.iloc[150] = None
        self.refused(X, dd.from_pandas(labels, npartitions=3), "Input y contains NaN")
        self.refused(X, labels.to_numpy(), "Input y contains NaN")

    @pytest.mark.parametrize("chunks", [80, 60])
    def test_masked_labels(self, client, chunks):
        table = frame()
        X = da.from_array(table[NAMES].to_numpy(), chunks=(80, -1))
        y = np.ma.masked_array((table["label"] == "up").to_numpy(), table["a"] > 1.0)
        for labels in (y, da.from_array(y, chunks=chunks)):
            self.refused(X, labels, "y is a masked array, and masked entries are missing labels")

    def test_complex_numbers(self, client):
        X = da.from_array(frame()[NAMES].to_numpy() + 1j, chunks=(80, -1))
        self.refused(X, frame()["label"], "Complex data not supported")

    def test_data_on_this_machine(self):
        with pytest.raises(ValueError, match="X is of type ndarray; give a Dask array"):
            fit(PLML(**QUICK), np.zeros((4, 2)), [0, 1, 0, 1])

    @pytest.mark.parametrize("number", [0, 2.5, True])
    def test_a_number_of_shards_that_makes_no_sense(self, client, number):
        table = frame()
        X = dd.from_pandas(table[NAMES], npartitions=3)
        with pytest.raises(ValueError, match="n_shards must be an integer of at least 1"):
            fit(PLML(**QUICK), X, table["label"], n_shards=number)


def test_more_shards_than_make_sense(client):
    table = frame()
    fitted = PLML(**QUICK)
    fit(fitted, dd.from_pandas(table[NAMES], npartitions=3), table["label"], n_shards=10**6)
    assert len(fitted._training.shards) <= 8


def test_other_clusters(client):
    """A model answers through the cluster that it was fitted on, or says that it is gone."""
    table = frame()
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as own,
    ):
        X = dd.from_pandas(table[NAMES], npartitions=3)
        fitted = PLML(**QUICK).fit(X, table["label"])
        truth = fitted.predict(table[NAMES])
        with client.as_current():
            assert default_client() is client
            np.testing.assert_array_equal(fitted.predict(table[NAMES]), truth)
            with pytest.raises(RuntimeError, match="cluster of another client"):
                fitted.predict(X)
        assert default_client() is own
    for use in (lambda: fitted.predict(table[NAMES]), lambda: collect(fitted)):
        with pytest.raises(RuntimeError, match="is gone; fit it again"):
            use()
