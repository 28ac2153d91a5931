import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score

from plml import PLML, PLMLCV
from plml.estimators import _cross_validation as folds
from processes import left_when_killed, start, until_at_work, workers_of

SMALL = {"n_bases": 4, "random_state": 0}


class TestPLMLCV:
    def test_selects_what_a_plain_loop_selects(self, blobs):
        X, y = blobs
        values = (0.3, 3.0, 100.0)
        model = PLMLCV(**SMALL, regularizations=values, cv=3, selection_tol=1e-4).fit(X, y)
        expected = [
            cross_val_score(PLML(**SMALL, regularization=v, tol=1e-4), X, y, cv=3).mean()
            for v in values
        ]
        found = dict(
            zip(
                model.cv_results_["param_regularization"],
                model.cv_results_["mean_test_score"],
                strict=True,
            )
        )
        assert [found[v] for v in values] == pytest.approx(expected, abs=0.03)
        best = max(found.values())
        assert model.best_score_ == best
        assert model.best_regularization_ == max(v for v in values if found[v] == best)

    def test_refits_at_the_best_value(self, blobs):
        X, y = blobs
        model = PLMLCV(**SMALL).fit(X, y)
        plain = PLML(**SMALL, regularization=model.best_regularization_).fit(X, y)
        np.testing.assert_array_equal(model.basis_metrics_, plain.basis_metrics_)
        np.testing.assert_array_equal(model.predict(X), plain.predict(X))
        results = model.cv_results_
        np.testing.assert_array_equal(
            results["param_regularization"], [100.0, 10.0, 1.0, 0.1, 0.01]
        )
        scores = np.stack([results["split0_test_score"], results["split1_test_score"]])
        np.testing.assert_allclose(results["mean_test_score"], scores.mean(axis=0))
        np.testing.assert_allclose(results["std_test_score"], scores.std(axis=0))
        assert results["rank_test_score"][results["mean_test_score"].argmax()] == 1
        assert results["split0_dual_gap"].max() <= model.selection_tol

    def test_equal_scores_have_equal_ranks(self):
        """The best has rank one, and equals share the better one of theirs."""
        values = np.array([8.0, 4.0, 2.0, 1.0])
        scores = np.array([[0.5, 0.75, 0.25, 0.75], [0.75, 0.75, 1.0, 1.0]])
        gaps = np.arange(8.0).reshape(2, 4)
        params = [{"regularization": value} for value in values]
        results = folds._as_results(params, list(zip(scores, 1.0 - scores, gaps, strict=True)))
        assert results["params"] is params
        np.testing.assert_array_equal(results["param_regularization"], values)
        np.testing.assert_allclose(results["mean_test_score"], [0.625, 0.75, 0.625, 0.875])
        np.testing.assert_allclose(results["std_test_score"], [0.125, 0.0, 0.375, 0.125])
        assert results["rank_test_score"].tolist() == [3, 2, 3, 1]
        np.testing.assert_array_equal(results["split1_dual_gap"], gaps[1])
        np.testing.assert_array_equal(results["split0_test_score"], scores[0])
        np.testing.assert_allclose(results["mean_test_brier"], [0.375, 0.25, 0.375, 0.125])

    def test_folds_in_parallel_change_nothing(self, blobs):
        X, y = blobs
        one = PLMLCV(**SMALL).fit(X, y)
        two = PLMLCV(**SMALL, n_jobs=2).fit(X, y)
        assert one.best_regularization_ == two.best_regularization_
        np.testing.assert_allclose(
            one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
        )

    def test_an_unclosed_fold_is_named(self, blobs):
        with pytest.warns(ConvergenceWarning, match=r"in cross-validation, regularization=0\.001"):
            PLMLCV(**SMALL, regularizations=(1e-3,), max_iter=15, tol=0.99).fit(*blobs)

    @pytest.mark.parametrize(
        "cv", [[], [(np.array([0]), np.arange(1, 75))], [(np.arange(75), np.array([], int))]]
    )
    def test_bad_splits_are_named(self, blobs, cv):
        with pytest.raises(ValueError, match=r"cv gives \d folds"):
            PLMLCV(**SMALL, cv=cv).fit(*blobs)
        with pytest.raises(ValueError, match="n_neighbors=50"):
            PLMLCV(**SMALL, n_neighbors=50).fit(*blobs)

    @pytest.mark.parametrize("values", [(), (1.0, -1.0), (np.nan,), ("1",), [[1.0], [2.0]]])
    def test_bad_grids_are_named(self, blobs, values):
        with pytest.raises(ValueError, match="regularizations must be"):
            PLMLCV(**SMALL, regularizations=values).fit(*blobs)


FIT = """
import sys, time, warnings
from sklearn.datasets import load_digits
from plml import PLMLCV
warnings.simplefilter("ignore")
X, y = load_digits(return_X_y=True)
PLMLCV(n_bases=4, random_state=0, n_jobs=2, selection_tol=float(sys.argv[1])).fit(X / 16.0, y)
print("done", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed below /proc")
@pytest.mark.parametrize("moment", ["at work", "idle"])
def test_workers_end_with_a_parent_that_was_killed(moment):
    """joblib keeps its workers for minutes after the last task."""
    tol = "1e-12" if moment == "at work" else "0.5"
    process = start([sys.executable, "-c", FIT, tol], stdout=subprocess.PIPE, text=True)
    assert len(workers_of(process, 2)) >= 2
    if moment == "at work":
        until_at_work(process, 2)
    else:
        assert process.stdout.readline() == "done\n"
    left = left_when_killed(process)
    process.stdout.close()
    assert not left


class TestSeveral:
    """Neighbours, votes and numbers of bases are selected along with the regularization."""

    GRID: ClassVar = {"n_neighbors": (1, 5, 9), "vote": ("uniform", "distance"), "n_bases": (2, 4)}

    @pytest.fixture(scope="class")
    def selected(self):
        X, y = load_iris(return_X_y=True)
        X, y = X[:, :2], y  # hard enough for scores to differ
        splits = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
        model = PLMLCV(
            regularizations=(0.1, 10.0), cv=splits, selection_tol=1e-3, random_state=0, **self.GRID
        )
        return model.fit(X, y), X, y, splits

    def test_scores_are_those_of_fits(self, selected):
        model, X, y, splits = selected
        results = model.cv_results_
        assert len(results["params"]) == 2 * 3 * 2 * 2
        assert set(results["params"][0]) == {"regularization", "n_bases", "n_neighbors", "vote"}
        for setting, score in list(
            zip(results["params"], results["split1_test_score"], strict=True)
        )[::5]:
            train, test = splits[1]
            fitted = PLML(random_state=0, **setting).fit(X[train], y[train])
            assert fitted.score(X[test], y[test]) == pytest.approx(score, abs=0.021)

    def test_the_best_is_fitted_and_asked(self, selected):
        model, X, y, _ = selected
        best = model.best_params_
        assert best == model.cv_results_["params"][model.cv_results_["mean_test_score"].argmax()]
        assert len(model.basis_metrics_) == best["n_bases"]
        assert model.kneighbors(X)[0].shape == (150, best["n_neighbors"])
        same = PLML(random_state=0, **best).fit(X, y)
        np.testing.assert_array_equal(model.predict(X + 0.01), same.predict(X + 0.01))

    def test_one_search_serves_all_neighbours_and_votes(self, monkeypatch):
        X, y = load_iris(return_X_y=True)
        calls = []
        learn = folds.learn_metrics_of
        monkeypatch.setattr(folds, "learn_metrics_of", lambda *a: calls.append(1) or learn(*a))
        options = {"regularizations": (0.1, 1.0), "cv": 2, "random_state": 0}
        PLMLCV(n_neighbors=(1, 3, 5), vote=("uniform", "distance"), n_bases=3, **options).fit(X, y)
        assert len(calls) == 4

    @pytest.mark.parametrize(
        ("parameters", "match"),
        [
            ({"n_neighbors": ()}, "n_neighbors must be a count or a non-empty sequence"),
            ({"n_neighbors": (1, 0)}, "n_neighbors"),
            ({"n_bases": (2, 2.5)}, "n_bases"),
            ({"vote": ("uniform", "loud")}, "vote must be one of uniform, distance, linear, or"),
        ],
    )
    def test_values_that_are_none(self, parameters, match):
        X, y = load_iris(return_X_y=True)
        with pytest.raises(ValueError, match=match):
            PLMLCV(**parameters).fit(X, y)
