"""AutoPLML: what it selects, says and keeps."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import plml
from backend_devices import DEVICES
from plml import PLML, SML, AutoPLML
from plml.estimators import _cross_validation as folds
from plml.estimators._calibration import calibrated, calibration
from plml.estimators._committee import N_SEATS, eligible, seats
from plml.estimators.auto_plml import METRICS, PRIORS
from plml.stages import one_machine
from plml.stages import weights as weights_stage

FEW = {"n_bases": 3, "n_neighbors": (1, 5, 9), "random_state": 0}


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return X[::2], np.array(["red", "rose", "white"])[y[::2]], X[1::2]


@pytest.fixture(scope="module")
def fitted(wine):
    X, y, _ = wine
    return AutoPLML(**FEW).fit(X, y)


class TestSelection:
    def test_every_kind_is_a_candidate(self, fitted):
        results = fitted.cv_results_
        assert set(results["param_metrics"]) == set(METRICS)
        assert set(results["param_prior"]) == set(PRIORS)
        assert set(results["param_vote"]) == {"uniform", "distance", "linear"}
        assert set(results["param_pull"]) == {1.0}
        lengths = {len(value) for value in results.values()}
        assert lengths == {len(results["params"])}

    def test_the_best_is_the_most_accurate(self, fitted):
        results, best = fitted.cv_results_, fitted.best_params_
        assert fitted.best_score_ == results["mean_test_score"].max()
        number = results["params"].index(best)
        assert results["rank_test_score"][number] == 1
        equals = results["mean_test_score"] == fitted.best_score_
        assert results["mean_test_brier"][number] == results["mean_test_brier"][equals].min()

    def test_local_metrics_have_the_prior_that_is_best_for_one(self, fitted):
        results = fitted.cv_results_
        single = np.isin(results["param_metrics"], ["prior", "one"])
        order = np.lexsort((results["mean_test_brier"], -results["mean_test_score"], ~single))
        first = results["params"][order[0]]
        for params in results["params"]:
            if params["metrics"] in ("local", "two-sided"):
                assert params["prior"] == first["prior"]

    def test_euclidean_neighbours_are_scikit_learns(self, wine):
        """An independent cross-validation on the same folds has the same accuracies."""
        X, y, _ = wine
        rows = StandardScaler().fit_transform(X)
        cv = list(StratifiedKFold(3, shuffle=True, random_state=1).split(rows, y))
        options = {"metrics": ("prior",), "priors": ("identity",), "vote": ("uniform", "distance")}
        model = AutoPLML(cv=cv, n_neighbors=(1, 5, 13), **options).fit(X, y)
        results = model.cv_results_
        for params, score in zip(results["params"], results["mean_test_score"], strict=True):
            peer = KNeighborsClassifier(params["n_neighbors"], weights=params["vote"])
            assert score == pytest.approx(cross_val_score(peer, rows, y, cv=cv).mean())

    def test_scores_are_those_of_fits(self, fitted, wine):
        """Every kind of metrics, against estimators fitted to the same folds one by one."""
        X, y, _ = wine
        Z, codes = fitted.encoder_.transform(X), np.searchsorted(fitted.classes_, y)
        cv = StratifiedKFold(3, shuffle=True, random_state=0)
        model = AutoPLML(cv=cv, **FEW | {"pulls": (0.1,), "selection_tol": 1e-6}).fit(X, y)
        results, seen = model.cv_results_, set()
        seed = int(np.random.RandomState(0).randint(2**31, size=3)[2])
        for number in np.argsort(-results["mean_test_score"]):
            params = results["params"][number]
            if params["metrics"] in seen:
                continue
            seen.add(params["metrics"])
            scores = []
            for train, test in cv.split(Z, codes):
                alone = model._estimator(params, seed, codes[train])
                alone.set_params(tol=1e-6).fit(Z[train], y[train])
                scores.append(alone.score(Z[test], y[test]))
            difference = abs(results["mean_test_score"][number] - np.mean(scores))
            assert difference <= 1.0 / len(y)  # one row of doubt
        assert seen == set(METRICS)

    @pytest.mark.parametrize("n_members", [1, 5])
    def test_what_folds_share_is_computed_once(self, wine, monkeypatch, n_members):
        X, y, _ = wine
        calls = []
        learn = folds.learn_metrics_of
        monkeypatch.setattr(folds, "learn_metrics_of", lambda *a: calls.append(a) or learn(*a))
        AutoPLML(cv=2, pulls=(0.1, 1.0), n_members=n_members, **FEW).fit(X, y)
        # Per fold 2 priors, 2 x 2 x 2 of one metric, 2 x 2 local ones; a single one votes again.
        assert len(calls) == 2 * (2 + 8 + 4 + (n_members == 1))

    def test_noise_is_left_to_the_largest_class(self, rng):
        X, y = rng.normal(size=(120, 4)), rng.permutation(np.repeat([0, 1], [96, 24]))
        model = AutoPLML(**FEW).fit(X, y)
        assert model.baselines_["largest class"] == pytest.approx(0.8)
        assert model.best_score_ >= 0.75

    def test_a_part_of_many_rows(self):
        X, y = make_moons(600, noise=0.2, random_state=0)
        model = AutoPLML(**FEW, max_selection_samples=150).fit(X, y)
        assert model.n_selection_samples_ == 150
        assert len(model.members_) == len(model.models_) == 1  # one fit to all rows
        assert len(model.model_.training_cases()[0]) == 600
        assert sum(model.cv_results_["split0_test_score"] > 0.8) > 0

    def test_a_class_of_one_is_selected_on(self, wine):
        X, y, _ = wine
        X, y = np.concatenate([X, X[:1] + 50.0]), np.append(y, "orange")
        with pytest.warns(UserWarning, match="classes with one member .* 'orange'") as told:
            model = AutoPLML(**FEW, max_selection_samples=40).fit(X, y)
        assert {warning.filename for warning in told} == {__file__}
        sizes = np.unique(y, return_counts=True)[1]
        expected = [min(size, max(2, int(40 / len(y) * size))) for size in sizes]
        assert model.n_selection_samples_ == sum(expected)
        assert "orange" in model.classes_

    def test_one_row_more_than_are_selected_on(self, wine):
        X, y, _ = wine
        model = AutoPLML(**FEW, max_selection_samples=len(y) - 1).fit(X, y)
        assert len(y) - 4 <= model.n_selection_samples_ < len(y)

    def test_folds_by_their_rows_need_all_rows(self, wine):
        X, y, _ = wine
        cv = list(StratifiedKFold(3).split(X, y))
        with pytest.raises(ValueError, match="max_selection_samples=50 are selected on"):
            AutoPLML(**FEW, cv=cv, max_selection_samples=50).fit(X, y)
        splitter = StratifiedKFold(2)
        assert AutoPLML(**FEW, cv=splitter, max_selection_samples=50).fit(X, y).best_score_ > 0.5

    def test_no_setting_that_all_folds_kept(self, wine, monkeypatch):
        """Then the best one is alone."""
        X, y, _ = wine
        nothing = np.empty(0, dtype=int), np.empty((0, len(y), 3), dtype=np.float32)
        monkeypatch.setattr(folds.ComparedSettings, "votes_in_all_folds", lambda self: nothing)
        model = AutoPLML(**FEW).fit(X, y)
        assert model.members_ == [{**model.best_params_, "weight": 1.0, "model": 0}]

    @pytest.mark.parametrize("device", DEVICES[1:])
    def test_on_every_device(self, wine, fitted, device):
        X, y, Q = wine
        model = AutoPLML(**FEW, device=device).fit(X, y)
        scores = (one.cv_results_["mean_test_score"] for one in (model, fitted))
        assert np.mean(np.abs(np.subtract(*scores)) <= 1.0 / len(y)) > 0.95
        np.testing.assert_allclose(model.predict_proba(Q), fitted.predict_proba(Q), atol=0.2)

    def test_the_seed_reproduces(self, wine):
        X, y, Q = wine
        one, other = (AutoPLML(**FEW).fit(X, y) for _ in range(2))
        np.testing.assert_array_equal(one.predict_proba(Q), other.predict_proba(Q))
        assert one.best_params_ == other.best_params_

    @pytest.mark.parametrize("parts", [{"metrics": ("two-sided",)}, {"metrics": ("local", "one")}])
    def test_some_kinds_alone(self, wine, parts):
        X, y, Q = wine
        model = AutoPLML(**FEW | parts).fit(X, y)
        assert set(model.cv_results_["param_metrics"]) == set(parts["metrics"])
        assert model.predict(Q).shape == (len(Q),)

    def test_folds_in_parallel_change_nothing(self, wine, fitted):
        X, y, _ = wine
        two = AutoPLML(**FEW, n_jobs=2).fit(X, y)
        np.testing.assert_allclose(
            two.cv_results_["mean_test_score"], fitted.cv_results_["mean_test_score"]
        )

    def test_a_number_of_neighbours_for_the_linear_vote(self, wine):
        X, y, Q = wine
        model = AutoPLML(n_neighbors=12, vote="linear", n_bases=3, random_state=0).fit(X, y)
        assert {member["vote"] for member in model.members_} == {"linear"}
        assert model.kneighbors(Q, return_distance=False).shape[1] == 12


class TestMembers:
    def test_a_single_one_is_the_best_setting(self, wine):
        X, y, Q = wine
        single = AutoPLML(**FEW, n_members=1).fit(X, y)
        best, model = single.best_params_, single.model_
        assert single.members_ == [{**best, "weight": 1.0, "model": 0}]
        assert isinstance(model, SML if best["metrics"] in ("prior", "one") else PLML)
        assert model.regularization == pytest.approx(best["regularization"] * 9 * len(y))
        assert model.dual_gap_ <= single.tol
        same = clone(model).fit(single.encoder_.transform(X), y)
        Z = single.encoder_.transform(Q)
        np.testing.assert_array_equal(same.predict(Z), single.predict(Q))
        shares = same.predict_proba(Z)
        np.testing.assert_allclose(
            single.predict_proba(Q), calibrated(shares, *single.calibration_)
        )

    def test_votes_are_averaged_by_weight(self, fitted, wine):
        """The probabilities from estimators of their own, one per member."""
        X, y, Q = wine
        rows, queries = (fitted.encoder_.transform(part) for part in (X, Q))
        shares = np.zeros((len(Q), 3))
        for member in fitted.members_:
            model = clone(fitted.models_[member["model"]])
            model.set_params(n_neighbors=member["n_neighbors"], vote=member["vote"])
            shares += member["weight"] * model.fit(rows, y).predict_proba(queries)
        np.testing.assert_allclose(
            fitted.predict_proba(Q), calibrated(shares, *fitted.calibration_), atol=1e-9
        )

    def test_they_are_settings_with_a_certificate(self, fitted):
        assert sum(member["weight"] for member in fitted.members_) == pytest.approx(1.0)
        assert 1 <= len(fitted.models_) <= fitted.n_members
        known = fitted.cv_results_["params"]
        for member in fitted.members_:
            setting = {k: v for k, v in member.items() if k not in ("weight", "model")}
            assert setting in known
        numbers = [member["model"] for member in fitted.members_]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(len(fitted.models_)))
        assert all(model.dual_gap_ <= fitted.tol for model in fitted.models_)
        assert fitted.dual_gap_ == max(model.dual_gap_ for model in fitted.models_)

    def test_what_members_share_is_computed_once(self, wine, monkeypatch):
        X, y, _ = wine
        solved = []
        solve = weights_stage.learn_weights
        monkeypatch.setattr(
            one_machine, "learn_weights", lambda *a, **k: solved.append(1) or solve(*a, **k)
        )
        kinds = {"metrics": ("local", "two-sided"), "n_members": 4}
        model = AutoPLML(cv=2, **FEW | kinds).fit(X, y)
        assert len(model.models_) > 1
        runs = [member.weights_ for member in model.models_]
        for weights in runs[1:]:
            np.testing.assert_array_equal(weights, runs[0])
        assert len(solved) == 2 + len(model.models_)  # asked for; solved once

    def test_seats_by_trying_everyone(self, rng):
        """Against a loop that computes every Brier score from its definition."""
        codes = rng.integers(3, size=40)
        votes = rng.dirichlet(np.ones(3), size=(7, 40)).astype(np.float32)
        metric_of = np.array([0, 0, 1, 1, 2, 3, 3])
        for most in (1, 2, 7):
            taken, chosen = seats(votes, codes, metric_of, most), []
            for _ in range(N_SEATS):
                allowed = range(7)
                if len(set(metric_of[chosen])) >= most:
                    allowed = np.flatnonzero(np.isin(metric_of, metric_of[chosen]))
                scores = [
                    np.sum((votes[[*chosen, j]].mean(axis=0) - np.eye(3)[codes]) ** 2)
                    for j in allowed
                ]
                chosen.append(int(np.array(allowed)[np.argmin(scores)]))
            np.testing.assert_array_equal(taken, np.bincount(chosen, minlength=7))

    def test_settings_that_are_clearly_worse_have_no_seat(self, rng):
        """Against the paired differences of their hits, one by one."""
        codes = rng.integers(3, size=200)
        rates = (0.95, 0.95, 0.94, 0.93, 0.9, 0.5)
        said = [np.where(rng.random(200) < rate, codes, (codes + 1) % 3) for rate in rates]
        votes = np.eye(3, dtype=np.float32)[said]
        hits = [np.asarray(one == codes, dtype=float) for one in said]
        best = max(hits, key=np.mean)
        expected = []
        for number, hit in enumerate(hits):
            lost = best - hit
            if lost.mean() <= 1.5 * lost.std() / 200**0.5:
                expected.append(number)
        assert 0 < len(expected) < len(rates)
        assert eligible(votes, codes).tolist() == expected

    def test_numbers_of_neighbours_of_the_linear_vote(self, wine):
        X, y, _ = wine
        kinds = {"metrics": ("prior",), "priors": ("identity",)}
        results = AutoPLML(**kinds, **FEW, linear_neighbors=(4, 7, 1000)).fit(X, y).cv_results_
        tried = {(p["vote"], p["n_neighbors"]) for p in results["params"]}
        few = [("uniform", k) for k in (1, 5, 9)] + [("distance", k) for k in (1, 5, 9)]
        assert tried == {*few, ("linear", 4), ("linear", 7)}


class TestModel:
    def test_probabilities(self, fitted, wine):
        _, _, Q = wine
        P = fitted.predict_proba(Q)
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
        assert P.min() > 0.0
        np.testing.assert_array_equal(fitted.classes_[P.argmax(axis=1)], fitted.predict(Q))

    def test_neighbours_vectors_and_explanations(self, fitted, wine):
        X, y, Q = wine
        distances, found = fitted.kneighbors(Q, 4)
        Z = fitted.encoder_.transform(Q)
        np.testing.assert_array_equal(found, fitted.model_.kneighbors(Z, 4)[1])
        products = fitted.query_vectors(Q) @ fitted.index_vectors().T
        np.testing.assert_array_equal(products.argmax(axis=1), found[:, 0])
        told = fitted.explain(Q, 4)
        np.testing.assert_allclose(told.queries.astype(float), Q)
        np.testing.assert_allclose(told.neighbor_values.astype(float), X[found])
        np.testing.assert_allclose(told.contributions.sum(axis=2), distances**2, atol=1e-9)
        np.testing.assert_array_equal(told.predictions, fitted.predict(Q))
        assert fitted.explain(n_neighbors=2).predictions.shape == (len(X),)
        rows, codes = fitted.training_cases()
        np.testing.assert_allclose(rows, X)
        np.testing.assert_array_equal(fitted.classes_[codes], y)

    def test_stored_cases_have_their_gaps(self, wine, tmp_path):
        X, y, _ = wine
        table = pd.DataFrame(X[:, :4], columns=list("abcd"), index=[f"w{i}" for i in range(len(X))])
        table = table.mask(np.random.default_rng(0).random(table.shape) < 0.2)
        table["e"] = np.where(table["a"] > 13, "high", None)
        model = AutoPLML(**FEW).fit(table, y)
        plml.save(model, tmp_path / "model.skops")
        for one in (model, plml.load(tmp_path / "model.skops")):
            told = one.explain(table.iloc[:5], 3)
            stored = table.iloc[told.neighbors.ravel()]
            values = told.neighbor_values.reshape(-1, 5)
            np.testing.assert_allclose(values[:, :4].astype(float), stored[list("abcd")])
            np.testing.assert_array_equal(values[:, 4], stored["e"].fillna("(missing)"))
            assert told.query_names.tolist() == ["w0", "w1", "w2", "w3", "w4"]
            names = told.to_frame()["training_name"].unique()
            assert set(names) == {f"w{row}" for row in told.neighbors.ravel()}

    def test_summary_says_what_was_done(self, fitted):
        text = fitted.summary()
        for part in (
            f"selected: {len(fitted.members_)} votes with {len(fitted.models_)} metric",
            "(the best setting of each kind, so optimistic)",
            "certificate: the objective",
            "largest class",
            "Euclidean neighbours",
            "one metric",
        ):
            assert part in text
        assert f"{fitted.best_score_:.2%}" in text

    def test_saved_and_loaded(self, fitted, wine, tmp_path):
        _, _, Q = wine
        plml.save(fitted, tmp_path / "model.skops")
        loaded = plml.load(tmp_path / "model.skops")
        np.testing.assert_array_equal(loaded.predict_proba(Q), fitted.predict_proba(Q))
        assert loaded.best_params_ == fitted.best_params_

    def test_a_checkpoint_goes_on(self, wine, tmp_path, monkeypatch):
        X, y, Q = wine
        path = tmp_path / "fit.checkpoint"
        expected = AutoPLML(**FEW).fit(X, y).predict_proba(Q)
        scores = folds._fold_scores
        done = []

        def interrupted(*arguments):
            if len(done) == 4:
                raise KeyboardInterrupt
            done.append(1)
            return scores(*arguments)

        monkeypatch.setattr(folds, "_fold_scores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            AutoPLML(**FEW).fit(X, y, checkpoint=plml.Checkpoint(path, every=0.0))
        monkeypatch.setattr(folds, "_fold_scores", lambda *a: done.append(1) or scores(*a))
        model = AutoPLML(**FEW).fit(X, y, checkpoint=plml.Checkpoint(path, every=0.0))
        assert len(done) == 6
        np.testing.assert_allclose(model.predict_proba(Q), expected)

    def test_a_failed_fit_leaves_the_model_as_it_was(self, wine):
        X, y, Q = wine
        model = AutoPLML(**FEW).fit(X, y)
        before = model.predict(Q)
        with pytest.raises(ValueError, match="one class only"):
            model.fit(X, np.zeros(len(y)))
        np.testing.assert_array_equal(model.predict(Q), before)


class TestTables:
    @pytest.fixture
    def table(self, rng):
        n = 120
        colour = rng.choice(["red", "green", "blue"], size=n)
        size = rng.normal(size=n)
        y = np.where(colour == "red", "a", np.where(size > 0, "b", "c"))
        frame = pd.DataFrame(
            {"size": size, "noise": rng.normal(size=n), "colour": colour, "old": size > 1}
        )
        frame.loc[::11, "size"] = np.nan
        frame.loc[::13, "colour"] = None
        return frame, y

    def test_categories_and_missing_values(self, table):
        X, y = table
        model = AutoPLML(**FEW).fit(X[:80], y[:80])
        assert model.encoder_.categories_ == ["colour", "old"]
        assert model.score(X[80:], y[80:]) > 0.7
        assert model.feature_names_in_.tolist() == list(X.columns)
        assert "2 of categories" in model.summary()

    def test_a_category_that_was_never_seen(self, table):
        X, y = table
        model = AutoPLML(**FEW).fit(X, y)
        new = X[:3].assign(colour="violet")
        assert set(model.predict(new)) <= set(y)

    def test_columns_in_another_order_are_refused(self, table):
        X, y = table
        model = AutoPLML(**FEW).fit(X, y)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X[X.columns[::-1]])

    @pytest.mark.parametrize(
        ("column", "match"),
        [
            ([f"name {i}" for i in range(120)], "column 'when' has 120 different values"),
        ],
    )
    def test_columns_that_cannot_be_used(self, table, column, match):
        X, y = table
        with pytest.raises(ValueError, match=match):
            AutoPLML(**FEW).fit(X.assign(when=column), y)

    @pytest.mark.parametrize("missing", ["median", "indicator", "neighbors"])
    def test_empty_columns_change_nothing(self, table, missing):
        """A fold of a cross-validation may know nothing of a column that is full elsewhere."""
        X, y = table
        filled = X.assign(number=3.5, when=pd.Timestamp("2026-03-01"), who="me")
        empty = filled.assign(number=np.nan, when=pd.NaT, who=None)
        plain = AutoPLML(**FEW, missing=missing).fit(X, y)
        with pytest.warns(UserWarning, match="empty columns of X are not used: 'number', 'when'"):
            model = AutoPLML(**FEW, missing=missing).fit(empty, y)
        for new in (empty, filled):
            found = model.predict_proba(new)
            np.testing.assert_allclose(found, plain.predict_proba(X), atol=1e-9)
            told = model.explain(new[:3])
            np.testing.assert_allclose(told.likeness.sum(axis=2), told.squared_distances, atol=1e-9)
        assert model.explain(empty[:3]).importance[:, -3:].max() == 0.0
        model.forget_cases([0, 5])
        np.testing.assert_array_equal(model.predict(empty), plain.forget_cases([0, 5]).predict(X))

    @pytest.mark.parametrize("missing", ["median", "indicator", "neighbors"])
    def test_an_empty_column_of_an_array_changes_nothing(self, wine, missing):
        X, y, Q = wine
        nothing = np.full((len(X), 1), np.nan)
        plain = AutoPLML(**FEW, missing=missing).fit(X, y)
        with pytest.warns(UserWarning, match="empty columns of X are not used: '13'"):
            model = AutoPLML(**FEW, missing=missing).fit(np.hstack([X, nothing]), y)
        for last in (np.nan, 7.0):
            found = model.predict_proba(np.column_stack([Q, np.full(len(Q), last)]))
            np.testing.assert_allclose(found, plain.predict_proba(Q), atol=1e-9)

    def test_numbers_whose_squares_overflow(self, wine):
        X, y, _ = wine
        with pytest.raises(ValueError, match=r"column 0 of X reaches .* too large"):
            AutoPLML(**FEW).fit(X * 1e200, y)

    def test_missing_numbers_in_an_array(self, wine):
        X, y, Q = wine
        X = X.copy()
        X[::7, 0] = np.nan
        model = AutoPLML(**FEW).fit(X, y)
        assert model.encoder_.n_missing_ == len(X[::7])
        assert model.predict(Q).shape == (len(Q),)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"metrics": ()}, "metrics must be some of prior, one, local, two-sided"),
        ({"priors": ("flat",)}, "priors must be some of identity, within"),
        ({"regularizations": (-1.0,)}, "regularizations must be"),
        ({"pulls": (-1.0,)}, "pulls must be"),
        ({"pulls": ()}, "pulls must be"),
        ({"vote": ("loud",)}, "vote must be one of"),
        ({"n_neighbors": (0,)}, "n_neighbors"),
        ({"cv": 1}, "n_splits"),
        ({"neighbor_search": "fast"}, "neighbor_search"),
        ({"search_backend": "fast"}, "search_backend"),
        ({"device": "toaster"}, "device"),
    ],
)
def test_parameters_that_have_no_meaning(parameters, match):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=match):
        AutoPLML(**parameters).fit(X, y)


class TestCalibration:
    def test_the_order_of_the_classes_stays(self, rng):
        shares = rng.dirichlet(np.ones(4), size=50)
        P = calibrated(shares, 0.3, 2.0, 0.01)
        np.testing.assert_array_equal(np.argsort(shares, axis=1), np.argsort(P, axis=1))

    def test_votes_of_one_neighbour_become_its_accuracy(self, rng):
        """Of a vote that is right in three of four cases, the probability is three quarters."""
        codes = rng.integers(2, size=4000)
        right = np.arange(4000) % 4 > 0
        shares = np.eye(2)[np.where(right, codes, 1 - codes)]
        P = calibrated(shares, *calibration(shares, codes))
        np.testing.assert_allclose(P.max(axis=1), 0.75, atol=0.005)

    def test_overconfident_shares_are_drawn_to_the_truth(self, rng):
        p = rng.uniform(0.05, 0.95, size=5000)
        codes = (rng.uniform(size=5000) < p).astype(int)
        truth = np.column_stack([1 - p, p])
        sharp = truth**3 / (truth**3).sum(axis=1, keepdims=True)
        P = calibrated(sharp, *calibration(sharp, codes))
        assert np.abs(P - truth).mean() < 0.3 * np.abs(sharp - truth).mean()


def test_gaps_are_the_largest_of_all_metrics_that_vote(rng):
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + 2.0 * np.eye(3, 4)[y]
    model = AutoPLML(metrics=("local",), n_bases=3, random_state=0).fit(X, y)
    assert model.dual_gap_ == max(one.dual_gap_ for one in model.models_)
    assert model.weights_gap_ == max(one.weights_gap_ for one in model.models_) > 0.0
    assert AutoPLML(metrics=("one",), random_state=0).fit(X, y).weights_gap_ == 0.0
