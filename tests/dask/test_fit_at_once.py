"""A fit on Dask collections and its queries with every task done at once, without a cluster."""

import pickle

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from client_at_once import ClientAtOnce
from plml import PLML
from plml.dask import cluster, collect, fit, fitting, training_shards
from plml.dask.reading import read_table
from recorder import Recorder

PARAMETERS = {"n_bases": 3, "regularization": 50.0, "tol": 1e-3, "random_state": 0}


@pytest.fixture
def at_once(monkeypatch):
    """A client of no cluster, which every fit takes for the current one."""
    client = ClientAtOnce()
    monkeypatch.setattr(cluster, "as_completed", iter)
    monkeypatch.setattr(fitting, "connected", lambda n_jobs: client)
    monkeypatch.setattr(training_shards, "default_client", lambda: client)
    return client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 4))
    return X, np.array(["no", "yes"])[(X[:, 0] + X[:, 1] ** 2 > 0.6).astype(int)]


def blocks(X, y, rows=60):
    return da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)


def computed(*lazy):
    return [each.compute(scheduler="sync") for each in lazy]


@pytest.mark.parametrize("query_weights", ["nearest", "optimize"])
def test_the_fit_and_the_answers_of_one_machine(at_once, data, query_weights):
    X, y = data
    here = PLML(**PARAMETERS, query_weights=query_weights).fit(X, y)
    there = fit(PLML(**PARAMETERS, query_weights=query_weights), *blocks(X, y), n_shards=3)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-3)
    assert there.weights_n_iter_ == here.weights_n_iter_
    assert there.neighbor_recall_ == {"graph": 1.0, "targets": 1.0, "impostors": 1.0}
    assert there.search_recall_ == 1.0
    assert len(there._training.shards) == 3
    assert there.weights_.chunks == ((60, 60, 40), (3,))
    np.testing.assert_allclose(*computed(there.weights_), here.weights_, atol=1e-12)
    np.testing.assert_allclose(there.anchors_, here.anchors_)

    Q = np.random.default_rng(1).normal(size=(30, 4))
    in_blocks = da.from_array(Q, chunks=(13, -1))
    now = [there.predict(Q), there.predict_proba(Q), *there.kneighbors(Q, 5)]
    now.append(there.local_weights(Q))
    later = [there.predict(in_blocks), there.predict_proba(in_blocks)]
    later += [*there.kneighbors(in_blocks, 5), there.local_weights(in_blocks)]
    assert {each.chunks[0] for each in later} == {(13, 13, 4)}
    assert [each.shape[1:] for each in later] == [(), (2,), (5,), (5,), (3,)]
    later = computed(*later)

    model = collect(there)
    expected = [model.predict(Q), model.predict_proba(Q), *model.kneighbors(Q, 5)]
    expected.append(model.local_weights(Q))
    for answers in (now, later):
        np.testing.assert_array_equal(answers[0], expected[0])
        np.testing.assert_array_equal(answers[3], expected[3])
        for found, wanted in zip(answers[1:], expected[1:], strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_queries_in_many_blocks_on_this_machine(at_once, data, monkeypatch):
    from plml.dask import sharded_metric

    monkeypatch.setattr(sharded_metric, "_QUERY_ROWS", 7)
    X, y = data
    there = fit(PLML(**PARAMETERS), *blocks(X, y), n_shards=9)
    distances, rows = there.kneighbors(X[:30], 2)
    predicted, weights = there.predict(X[:30]), there.local_weights(X[:30])
    np.testing.assert_array_equal(rows[:, 0], np.arange(30))
    np.testing.assert_allclose(distances[:, 0], 0.0, atol=1e-12)
    np.testing.assert_array_equal(predicted, y[:30])
    model = collect(there)
    np.testing.assert_array_equal(rows, model.kneighbors(X[:30], 2)[1])
    np.testing.assert_allclose(weights, model.local_weights(X[:30]), atol=1e-12)


@pytest.mark.parametrize("n_landmarks", [None, 70])
def test_stages_in_their_order(at_once, data, n_landmarks):
    X, y = data
    fit(PLML(**PARAMETERS), *blocks(X, y), n_landmarks=n_landmarks).predict(X[:2])
    names = [options["key"].split("-") for _, _, options in at_once.submitted]
    order = dict.fromkeys("-".join(name[: 1 + (name[0] == "stage")]) for name in names)
    landmarks = [] if n_landmarks is None else ["landmarks"]
    expected = ["read", "shards", "unit", "neighbors", *landmarks, "anchors"]
    assert list(order) == [*expected, "stage-weights", "stage-metrics", "queries"]


def test_callbacks_stop_both_stages(at_once, data):
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    recorder = Recorder(stop_after=2)
    model = PLML(**PARAMETERS | {"tol": 1e-9}).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="a callback stopped it"):
        model.fit(*blocks(*data))
    assert {where for where, _ in recorder.seen} == {"stage 1, weights", "stage 2, metrics"}
    assert not model.converged_
    assert model.n_iter_ <= 2


def test_single_precision_stays(at_once, data):
    X, y = data
    model = PLML(**PARAMETERS).fit(*blocks(X.astype(np.float32), y))
    (weights,) = computed(model.weights_)
    arrays = [weights, model.basis_metrics_, collect(model).weights_, model.anchors_]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


class TestTables:
    def test_what_is_known_of_all_rows(self, at_once, data):
        X, y = data
        table = read_table(cluster.Cluster(at_once), *blocks(X, y))
        assert table.sizes == [60, 60, 40]
        assert (table.n_rows, table.n_features) == X.shape
        assert table.dtype == np.float64
        assert table.names is None
        assert table.classes.tolist() == ["no", "yes"]
        assert table.class_sizes.tolist() == [np.sum(y == "no"), np.sum(y == "yes")]
        np.testing.assert_allclose(table.mean, X.mean(axis=0))
        assert table.largest == pytest.approx(np.abs(X - X.mean(axis=0)).max())
        np.testing.assert_array_equal(np.concatenate([block.X for block in table.blocks]), X)
        codes = np.concatenate([block.codes for block in table.blocks])
        np.testing.assert_array_equal(table.classes[codes], y)

    def test_a_frame_has_names(self, at_once, data):
        X, y = data
        frame = pd.DataFrame(X, columns=list("abcd"))
        table = read_table(cluster.Cluster(at_once), dd.from_pandas(frame, npartitions=2), list(y))
        assert list(table.names) == list("abcd")
        np.testing.assert_allclose(table.mean, X.mean(axis=0))

    @pytest.mark.parametrize(("factor", "dtype"), [(1.0, np.float32), (1e18, np.float64)])
    def test_single_precision_where_its_range_is_enough(self, at_once, data, factor, dtype):
        X, y = data
        large = (factor * X).astype(np.float32)
        table = read_table(cluster.Cluster(at_once), *blocks(large, y))
        assert table.dtype == dtype
        assert {block.X.dtype for block in table.blocks} == {np.dtype(dtype)}

    def test_labels_in_other_blocks(self, at_once, data):
        X, y = data
        collections = da.from_array(X, chunks=(60, -1)), da.from_array(y, chunks=70)
        table = read_table(cluster.Cluster(at_once), *collections)
        codes = np.concatenate([block.codes for block in table.blocks])
        np.testing.assert_array_equal(table.classes[codes], y)
        assert table.sizes == [60, 60, 40]

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (lambda y: None, "PLML requires y to be passed, but the target y is None"),
            (lambda y: y[:-1], r"y has shape \(159,\); X has 160 rows"),
            (lambda y: y[:, None], r"y has shape \(160, 1\); X has 160 rows"),
            (lambda y: da.from_array(y[:-1]), "y has 159 labels; X has 160 rows"),
            (lambda y: da.from_array(y[:, None]), "y must have one dimension, got 2"),
            (lambda y: np.zeros(160), "one class only"),
            (lambda y: np.ma.masked_equal(np.arange(160) % 3, 2), "y is a masked array"),
            (lambda y: da.from_array(np.full(160, np.nan)), r"contains NaN \(in block 0\)"),
        ],
    )
    def test_labels_that_do_not_fit(self, at_once, data, labels, message):
        X, y = data
        with pytest.raises(ValueError, match=message):
            read_table(cluster.Cluster(at_once), da.from_array(X, chunks=(60, -1)), labels(y))

    def test_a_single_row(self, at_once):
        one = da.from_array(np.zeros((1, 2)), chunks=(1, -1)), [0]
        with pytest.raises(ValueError, match="fewer") as error:
            read_table(cluster.Cluster(at_once), *one)
        message = "Found fewer than two samples, where at least 2 are required"
        assert str(error.value) == message

    def test_entries_too_near_to_square(self, at_once, data):
        X, y = data
        near = (1e-30 * X).astype(np.float32)
        with pytest.raises(ValueError, match="too little to compute with"):
            read_table(cluster.Cluster(at_once), *blocks(near, y))
        read_table(cluster.Cluster(at_once), *blocks(near.astype(np.float64), y))

    def test_entries_too_large_to_square(self, at_once, data):
        X, y = data
        with pytest.raises(ValueError, match="too large"):
            read_table(cluster.Cluster(at_once), *blocks(1e200 * X, y))


class TestRefusals:
    def test_more_neighbors_than_rows(self, at_once, data):
        X, y = data
        with pytest.raises(ValueError, match="n_neighbors=200 is more than the 160 training rows"):
            PLML(**PARAMETERS, n_neighbors=200).fit(*blocks(X, y))

    def test_queries(self, at_once, data):
        X, y = data
        model = PLML(**PARAMETERS).fit(*blocks(X, y))
        with pytest.raises(ValueError, match="n_neighbors=161 is more than the 160"):
            model.kneighbors(da.from_array(X), 161)
        with pytest.raises(ValueError, match="X has 3 features, but PLML is expecting 4 features"):
            model.predict(da.from_array(X[:, :3]))

    def test_a_model_on_a_cluster_is_not_saved(self, at_once, data):
        model = PLML(**PARAMETERS).fit(*blocks(*data))
        with pytest.raises(ValueError, match="saved") as error:
            pickle.dumps(model)
        assert str(error.value) == (
            "the training data of this model is on a Dask cluster; before it is saved or copied, "
            "bring it here with plml.dask.collect(model)"
        )
        again = pickle.loads(pickle.dumps(collect(model)))
        np.testing.assert_array_equal(again.predict(data[0]), model.predict(data[0]))

    def test_a_checkpoint_is_for_one_machine(self, at_once, data, tmp_path):
        with pytest.raises(ValueError, match="a checkpoint is for a fit on one machine"):
            PLML(**PARAMETERS).fit(*blocks(*data), checkpoint=tmp_path / "fit.npz")

    @pytest.mark.parametrize(
        ("name", "value", "instead"),
        [
            ("solver", "fista", "auto"),
            ("device", "cuda", "cpu"),
            ("search_backend", "approximate", "exact"),
        ],
    )
    def test_what_only_one_machine_can_do(self, at_once, data, name, value, instead):
        message = f"{name}={value!r} is for one machine; on a Dask cluster use {name}={instead!r}"
        with pytest.raises(ValueError, match=message):
            PLML(**PARAMETERS, **{name: value}).fit(*blocks(*data))

    def test_another_client(self, at_once, data, monkeypatch):
        X, y = data
        model = PLML(**PARAMETERS).fit(*blocks(X, y))
        monkeypatch.setattr(training_shards, "default_client", lambda: None)
        with pytest.raises(RuntimeError) as error:
            model.predict(da.from_array(X))
        assert str(error.value) == (
            "the training data of this model is on the cluster of another client; make it the "
            "current one (client.as_current()) where you compute this"
        )
