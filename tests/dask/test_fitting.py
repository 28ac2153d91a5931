"""A fit on Dask collections is the fit of one machine; its queries are answered from shards."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import plml
from plml import PLML, PLMLCV
from plml.dask import collect, fit
from recorder import Recorder

PARAMETERS = {"n_bases": 5, "regularization": 3.0, "rescale": False, "random_state": 0}
TOL = 1e-4


def blocks(X, y, rows=300):
    return da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)


@pytest.fixture(scope="module")
def both(client, digits):
    X, y, _, _ = digits
    here = PLML(**PARAMETERS, tol=TOL).fit(X, y)
    there = fit(PLML(**PARAMETERS, tol=TOL), *blocks(X, y), n_shards=3)
    return here, there


class TestSameFit:
    def test_objective_and_certificates(self, both):
        here, there = both
        assert there.objective_ == pytest.approx(here.objective_, rel=TOL)
        assert there.dual_gap_ <= TOL
        assert there.weights_gap_ <= TOL
        assert there.converged_
        assert there.neighbor_recall_ == {"graph": 1.0, "targets": 1.0, "impostors": 1.0}

    def test_anchors_weights_and_iterations_of_stage_1(self, both):
        here, there = both
        np.testing.assert_allclose(there.anchors_, here.anchors_, atol=1e-10)
        assert there.weights_n_iter_ == here.weights_n_iter_
        weights = there.weights_
        assert isinstance(weights, da.Array)
        assert weights.chunks[0] == (300, 300, 300, 100)
        np.testing.assert_allclose(weights.compute(), here.weights_, atol=1e-5)

    def test_the_gap_of_stage_2_is_that_of_the_judge(self, both, digits):
        """The single-machine problem, in float64, at the matrices that came from the cluster."""
        from plml.ops.pairs import PairOperator
        from plml.stages.metrics import MetricsDual
        from plml.stages.neighbors import ExactNeighbors
        from plml.stages.triplets import neighbor_triplets

        _, there = both
        X, y, _, _ = digits
        triplets = neighbor_triplets(ExactNeighbors(X, y), 3, 3)
        pairs = PairOperator(X - X.mean(axis=0), there.weights_.compute(), triplets.pairs)
        dual = MetricsDual(pairs, triplets, there.regularization, there.pull)
        assert float(dual.primal(there.basis_metrics_)) == pytest.approx(there.objective_, rel=1e-9)

    def test_queries(self, both, digits):
        here, there = both
        _, _, Q, _ = digits
        predictions = there.predict(Q)
        assert np.mean(predictions == here.predict(Q)) >= 0.998
        lazy = there.predict(da.from_array(Q, chunks=(200, -1)))
        assert isinstance(lazy, da.Array)
        assert lazy.chunks == ((200, 200, 200, 197),)
        np.testing.assert_array_equal(lazy.compute(), predictions)
        shares = there.predict_proba(Q)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        np.testing.assert_array_equal(there.classes_[shares.argmax(axis=1)], predictions)
        np.testing.assert_allclose(there.local_weights(Q), here.local_weights(Q), atol=1e-5)
        assert there.get_mahalanobis_matrix(Q[:2]).shape == (2, 64, 64)
        assert there.score(Q, here.predict(Q)) >= 0.998

    def test_neighbors_are_those_of_the_collected_model(self, both, digits):
        _, there = both
        X, y, Q, _ = digits
        distances, indices = there.kneighbors(Q, 5)
        again = fit(PLML(**PARAMETERS, tol=1e-2), *blocks(X, y), n_shards=2)
        remote = again.kneighbors(Q, 5)
        assert indices.shape == distances.shape == (len(Q), 5)
        local = collect(again).kneighbors(Q, 5)
        np.testing.assert_array_equal(remote[1], local[1])
        np.testing.assert_allclose(remote[0], local[0], rtol=1e-9)
        assert again.explain(Q[:2]).neighbors.shape == (2, 1)
        assert collect(again) is again  # nothing left to do

    @pytest.mark.parametrize("query_weights", ["nearest", "optimize"])
    def test_answers_from_many_shards(self, client, digits, query_weights):
        """Which are merged a few at a time."""
        X, y, Q, _ = digits
        model = PLML(**PARAMETERS, tol=1e-1, query_weights=query_weights)
        fit(model, *blocks(X, y), n_shards=20)
        assert len(model._training.shards) == 20
        remote = model.kneighbors(Q[:60], 9), model.predict(Q), model.local_weights(Q[:60])
        collect(model)
        for there, here in zip(remote[0], model.kneighbors(Q[:60], 9), strict=True):
            np.testing.assert_allclose(there, here, rtol=1e-5)
        np.testing.assert_array_equal(remote[1], model.predict(Q))
        np.testing.assert_allclose(remote[2], model.local_weights(Q[:60]), atol=1e-4)

    def test_weights_by_equation_4(self, client, digits):
        X, y, Q, _ = digits
        model = PLML(**PARAMETERS, tol=1e-2, query_weights="optimize").fit(*blocks(X, y))
        remote = model.local_weights(Q[:50])
        np.testing.assert_allclose(remote, collect(model).local_weights(Q[:50]), atol=1e-4)


def test_the_distributed_graph(client, digits):
    X, y, Q, labels = digits
    here = PLML(**PARAMETERS).fit(X, y)
    model = PLML(**PARAMETERS, neighbor_search="approximate")
    there = fit(model, *blocks(X, y), n_shards=4)
    assert set(there.neighbor_recall_) == {"graph", "targets", "impostors"}
    assert all(0.9 <= share <= 1.0 for share in there.neighbor_recall_.values())
    assert min(there.neighbor_recall_.values()) < 1.0
    assert abs(there.score(Q, labels) - here.score(Q, labels)) <= 0.01


class TestTables:
    @pytest.fixture
    def table(self, digits):
        X, y, _, _ = digits
        frame = pd.DataFrame(X[:600].astype(np.float32), columns=[f"p{i}" for i in range(64)])
        frame["digit"] = np.array([f"digit {label}" for label in y[:600]], dtype=object)
        return frame

    def test_parquet(self, client, table, tmp_path):
        """Wide columns and a narrow one are cut into blocks of their own by Dask."""
        for number in range(4):
            part = table.iloc[150 * number : 150 * (number + 1)]
            part.to_parquet(tmp_path / f"{number}.parquet")
        frame = dd.read_parquet(tmp_path)
        columns = [name for name in table.columns if name != "digit"]
        model = PLML(**PARAMETERS, tol=1e-3).fit(frame[columns], frame["digit"])
        assert list(model.feature_names_in_) == columns
        assert model.basis_metrics_.dtype == np.float32
        truth = PLML(**PARAMETERS, tol=1e-3).fit(table[columns], table["digit"])
        assert model.objective_ == pytest.approx(truth.objective_, rel=1e-3)
        predictions = model.predict(frame[columns]).compute()
        assert np.mean(predictions == truth.predict(table[columns])) >= 0.99
        assert (model.predict(table[columns]) == predictions).all()
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[columns[::-1]]).compute()

    def test_labels_on_this_machine(self, client, table):
        X = da.from_array(table.iloc[:, :64].to_numpy(), chunks=(200, 32))
        model = PLML(**PARAMETERS, tol=1e-2).fit(X, table["digit"].to_numpy())
        assert model.classes_[3] == "digit 3"


class TestModel:
    def test_training_data_elsewhere(self, both, tmp_path):
        _, there = both
        for use in (there.explain, there.index_vectors, lambda: there.kneighbors(None, 1)):
            with pytest.raises(ValueError, match=r"plml\.dask\.collect"):
                use()
        with pytest.raises(ValueError, match=r"plml\.dask\.collect"):
            plml.save(there, tmp_path / "model.skops")

    def test_a_later_fit_on_this_machine(self, client, digits):
        X, y, Q, _ = digits
        model = PLML(**PARAMETERS, tol=1e-2).fit(*blocks(X[:400], y[:400]))
        model.fit(X, y)
        truth = PLML(**PARAMETERS, tol=1e-2).fit(X, y)
        np.testing.assert_array_equal(model.predict(Q), truth.predict(Q))
        assert isinstance(model.weights_, np.ndarray)

    def test_queries_in_blocks_of_a_model_on_this_machine(self, both, digits):
        here, _ = both
        _, _, Q, _ = digits
        chunks = da.from_array(Q, chunks=(150, -1))
        np.testing.assert_array_equal(here.predict(chunks).compute(), here.predict(Q))
        for mine, theirs in zip(
            dask.compute(*here.kneighbors(chunks, 3)), here.kneighbors(Q, 3), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)
        np.testing.assert_allclose(here.predict_proba(chunks).compute(), here.predict_proba(Q))
        np.testing.assert_allclose(here.local_weights(chunks).compute(), here.local_weights(Q))

    @pytest.mark.parametrize("direct", [True, False])
    def test_callbacks(self, client, digits, direct):
        pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
        X, y, _, _ = digits
        seen = Recorder()
        model = PLML(**PARAMETERS, tol=1e-1).set_callbacks(seen)
        fit(model, *blocks(X, y)) if direct else model.fit(*blocks(X, y))
        assert {where for where, _ in seen.seen} == {"stage 1, weights", "stage 2, metrics"}
        assert seen.begun[:2] == ["setup", "fit"]
        assert seen.ended[-2:] == ["fit", "teardown"]
        assert seen.ended.count("teardown") == 1
        assert not hasattr(model, "_callback_fit_ctx")

    def test_progress(self, client, digits, capsys):
        X, y, _, _ = digits
        PLML(**PARAMETERS, tol=1e-1, verbose=1).fit(*blocks(X, y))
        shown = capsys.readouterr().err
        assert "stage 1, weights: iteration" in shown
        assert "stage 2, metrics: iteration" in shown
        assert "gap" in shown

    def test_stages_have_names_on_the_dashboard(self, client, digits):
        def counts(dask_scheduler):
            return {
                (name, count)
                for name, prefix in dask_scheduler.task_prefixes.items()
                for count in [sum(prefix.state_counts.values())]
            }

        X, y, _, _ = digits
        before = client.run_on_scheduler(counts)
        fit(PLML(**PARAMETERS, tol=1e-1), *blocks(X, y), n_landmarks=300)
        prefixes = {name for name, _ in client.run_on_scheduler(counts) - before}
        for stage in (
            "read",
            "anchors",
            "shards",
            "neighbors",
            "landmarks",
            "stage-weights",
            "stage-metrics",
        ):
            assert any(name.startswith(f"{stage}-") for name in prefixes), stage


class TestBadInput:
    def refused(self, X, y, match, **parameters):
        with pytest.raises(ValueError, match=match):
            PLML(**{**PARAMETERS, **parameters}).fit(X, y)

    def test_data(self, client, digits):
        X, y, _, _ = digits
        dX, dy = blocks(X, y)
        bad = X.copy()
        bad[314, 7] = np.nan
        self.refused(blocks(bad, y)[0], dy, r"NaN in feature 7, row 14;.*in block 1")
        self.refused(dX, dy[:500], "y has 500 labels; X has 1000 rows")
        self.refused(dX, y[:500], r"y has shape \(500,\); X has 1000 rows")
        self.refused(dX, None, "y is None")
        self.refused(dX, da.zeros_like(dy), "one class only")
        self.refused(dX, da.arange(1000, chunks=300), "single member")
        self.refused(dX, da.where(dy > 4, np.nan, dy), "y contains NaN")
        self.refused(da.from_array(X[0], chunks=30), dy, "X must have")
        names = [f"p{i}" for i in range(64)]
        frame = dd.from_pandas(pd.DataFrame(bad, columns=names), npartitions=2)
        self.refused(frame, y, "feature 'p7'")

    def test_parameters(self, client, digits):
        X, y, _, _ = digits
        dX, dy = blocks(X, y)
        self.refused(dX, dy, "solver='fista' is for one machine", solver="fista")
        self.refused(dX, dy, "device='cuda' is for one machine", device="cuda")
        self.refused(dX, dy, "n_neighbors=2000 is more than", n_neighbors=2000)
        with pytest.raises(ValueError, match="checkpoint is for a fit on one machine"):
            PLML().fit(dX, dy, checkpoint="state")
        with pytest.raises(ValueError, match="PLMLCV learns on one machine"):
            PLMLCV().fit(dX, dy)

    def test_queries(self, both, digits):
        _, there = both
        _, _, Q, _ = digits
        with pytest.raises(ValueError, match="64 features"):
            there.predict(da.from_array(Q[:, :3], chunks=(100, -1)))
        with pytest.raises(ValueError, match="n_neighbors=5000 is more"):
            there.kneighbors(Q, 5000)
        with pytest.raises(ValueError, match="NaN"):
            there.predict(np.where(Q > 0.9, np.nan, Q))
        with pytest.raises(ValueError, match="NaN"):
            there.predict(da.from_array(np.where(Q > 0.9, np.nan, Q), chunks=(100, -1))).compute()


def test_units_are_those_of_one_machine(client, digits):
    """``rescale`` on a cluster changes the parameters, on one machine the rows."""
    X, y, Q, _ = digits
    options = {"n_bases": 5, "random_state": 0, "tol": 1e-4, "neighbor_search": "exact"}
    here = PLML(**options).fit(50.0 * X, y)
    there = PLML(**options).fit(*blocks(50.0 * X, y))
    assert there.scale_ == pytest.approx(here.scale_)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-3)
    assert np.mean(there.predict(50.0 * Q) == here.predict(50.0 * Q)) >= 0.99
    optimised = {"query_weights": "optimize"}
    weights = [model.set_params(**optimised).local_weights(50.0 * Q) for model in (here, there)]
    np.testing.assert_allclose(*weights, atol=0.02)
