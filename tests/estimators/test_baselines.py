"""The paper's baselines as estimators."""

import pickle
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import judge
from plml import CBLML, DANN, GLML, LMNN, LMNNMM, PLML, SML, BoostMetric, KernelSVM
from plml.backend.progress import observed
from plml.baselines import kernel_machines
from plml.baselines.generative import bias_matrices, fit_gaussians, generative_metrics
from plml.estimators.glml import METRIC_SHRINKAGES
from plml.ops import topk

NEIGHBORS = [
    SML(),
    CBLML(n_bases=3, random_state=0),
    LMNN(),
    LMNNMM(),
    LMNNMM(n_metrics=4, random_state=0),
    BoostMetric(),
    GLML(),
    DANN(n_local=30),
]
GLOBAL = [SML(), LMNN(), LMNN(solver="factored", n_components=2), BoostMetric()]


@pytest.fixture(params=NEIGHBORS, ids=lambda model: repr(model))
def fitted(request, blobs):
    X, y = blobs
    return request.param.fit(X, np.array(["a", "b", "c"])[y])


def naive_neighbors(model, X, q, metric, k, leave_out=None):
    candidates = [j for j in range(len(X)) if j != leave_out]
    d2 = []
    for j in candidates:
        M = model.basis_metrics_[model.metric_of_[j]] if isinstance(model, LMNNMM) else metric
        d2.append(float((q - X[j]) @ M @ (q - X[j])))
    order = np.lexsort((candidates, d2))[:k]
    return np.array(candidates)[order], np.sqrt(np.array(d2)[order])


def test_kneighbors_by_the_definition(fitted, blobs, rng):
    X, _ = blobs
    Q = rng.normal(size=(12, 4))
    distances, indices = fitted.kneighbors(Q, 3)
    for q, metric, found, d in zip(
        Q, fitted.get_mahalanobis_matrix(Q), indices, distances, strict=True
    ):
        expected, expected_d = naive_neighbors(fitted, X, q, metric, 3)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(d, expected_d, rtol=1e-7, atol=1e-9)
    training = fitted.get_mahalanobis_matrix()
    assert training.shape == (75, 4, 4)
    indices = fitted.kneighbors(n_neighbors=2, return_distance=False)
    for i in range(0, 75, 9):
        expected, _ = naive_neighbors(fitted, X, X[i], training[i], 2, leave_out=i)
        np.testing.assert_array_equal(indices[i], expected)


def test_predictions_and_pairs(fitted, blobs, rng):
    X, y = blobs
    labels = np.array(["a", "b", "c"])[y]
    assert fitted.score(X, labels) == 1.0  # a training point is its own nearest neighbour
    Q, Z = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    metrics = fitted.get_mahalanobis_matrix(Q)
    expected = [(q - z) @ M @ (q - z) for q, z, M in zip(Q, Z, metrics, strict=True)]
    found = fitted.pair_distance(np.stack([Q, Z], axis=1), squared=True)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert np.linalg.eigvalsh(metrics).min() >= -1e-8


@pytest.mark.parametrize("model", GLOBAL, ids=repr)
def test_global_metrics_transform(model, blobs, rng):
    X, y = blobs
    model.fit(X, y)
    np.testing.assert_allclose(
        model.components_.T @ model.components_, model.basis_metrics_[0], atol=1e-9
    )
    Q = rng.normal(size=(6, 4))
    mapped = np.linalg.norm(model.transform(Q) - model.transform(X[:6]), axis=1)
    np.testing.assert_allclose(
        mapped, model.pair_distance(np.stack([Q, X[:6]], axis=1)), rtol=1e-6, atol=1e-9
    )


def test_queries_in_blocks_change_nothing(blobs, rng, monkeypatch):
    X, y = blobs
    Q = rng.normal(size=(9, 4))
    for model in (GLML(), DANN(n_local=30), KernelSVM(), LMNN(decision="energy")):
        expected = model.fit(X, y).predict_proba(Q)
        monkeypatch.setattr(topk, "_BLOCK_ELEMENTS", 50)
        np.testing.assert_allclose(model.predict_proba(Q), expected, rtol=1e-9)
        monkeypatch.undo()


class TestCBLML:
    def test_weights_are_the_clusters(self, blobs, rng):
        X, y = blobs
        model = CBLML(n_bases=4, rescale=False, random_state=0).fit(X, y)
        assert set(np.unique(model.weights_)) == {0.0, 1.0}
        for i in range(0, 75, 10):
            nearest = judge.nearest(model.anchors_, X[i], list(range(4)), 1)[0]
            assert model.weights_[i, nearest] == 1.0
        np.testing.assert_array_equal(model.local_weights(X), model.weights_)
        judged = judge.metrics_primal(X, y, model.weights_, model.basis_metrics_, 1.0, 1.0)
        assert model.objective_ == pytest.approx(judged, rel=1e-9)
        assert model.dual_gap_ <= model.tol

    def test_fewer_clusters_than_asked_for(self, blobs):
        X, y = blobs
        with pytest.warns(UserWarning, match="n_bases=90"):
            model = CBLML(n_bases=90, random_state=0).fit(X, y)
        assert len(model.anchors_) == 75


class TestLMNN:
    def test_objective_is_the_papers(self, blobs):
        X, y = blobs
        model = LMNN(push=0.3).fit(X, y)
        M = model.basis_metrics_[0]
        targets, _ = judge.triplet_lists(X, y, 3, 1)
        value = 0.0
        for i in range(len(X)):
            for j in targets[i]:
                near = (X[i] - X[j]) @ M @ (X[i] - X[j])
                value += 0.7 * near
                for k in np.flatnonzero(y != y[i]):
                    value += 0.3 * max(0.0, 1 + near - (X[i] - X[k]) @ M @ (X[i] - X[k]))
        assert model.objective_ == pytest.approx(value, rel=1e-8)
        assert model.dual_gap_ <= model.tol

    def test_unclosed_gap_is_named(self, blobs):
        with pytest.warns(ConvergenceWarning, match="LMNN stopped at a relative gap"):
            LMNN(tol=1e-9, max_iter=40).fit(*blobs)

    @pytest.mark.parametrize(
        ("model", "options"),
        [
            (LMNN, {"solver": "factored"}),
            (LMNN, {"n_components": 3}),
            (LMNN, {"validation_fraction": 0.3, "random_state": 0}),
            (LMNNMM, {"solver": "factored"}),
            (LMNNMM, {"n_components": 3}),
            (LMNNMM, {"validation_fraction": 0.3, "random_state": 0}),
        ],
    )
    def test_without_a_certificate_the_gap_is_not_a_number(self, blobs, model, options):
        """And ``converged_`` speaks of the solver's own rule."""
        fitted = model(**options).fit(*blobs)
        assert np.isnan(fitted.dual_gap_)
        assert fitted.converged_
        with pytest.warns(ConvergenceWarning, match=rf"{model.__name__} stopped at max_iter=1 "):
            cut = model(**{**options, "max_iter": 1}).fit(*blobs)
        assert np.isnan(cut.dual_gap_)
        assert not cut.converged_

    @pytest.mark.parametrize("model", [LMNN(), LMNNMM(), LMNNMM(solver="convex")], ids=repr)
    def test_with_a_certificate_converged_is_a_closed_gap(self, blobs, model):
        fitted = model.fit(*blobs)
        assert fitted.dual_gap_ <= fitted.tol
        assert fitted.converged_
        with pytest.warns(ConvergenceWarning, match=r"stopped at a relative gap of .*tol=1e-09"):
            cut = clone(model).set_params(tol=1e-9, max_iter=40).fit(*blobs)
        assert cut.dual_gap_ > 1e-9
        assert not cut.converged_

    def test_the_default_has_no_certificate_where_targets_leave_out_a_direction(self, blobs):
        X, y = blobs
        constant = X.copy()
        constant[y == 1, 2] = 0.0  # a feature without variation in one class
        few = np.concatenate([np.flatnonzero(y != 1), np.flatnonzero(y == 1)[:4]])
        nowhere = np.column_stack([X, np.ones(len(X)), X[:, 0]])  # nobody differs there
        assert LMNNMM().fit(nowhere, y).dual_gap_ <= 1e-2
        for left_out in ((constant, y), (X[few], y[few])):
            fitted = LMNNMM().fit(*left_out)
            assert np.isnan(fitted.dual_gap_)
            assert fitted.converged_

    @pytest.mark.parametrize("model", [LMNN, LMNNMM])
    def test_validation_stops_early_and_reports_what_it_returns(self, blobs, model):
        X, y = blobs
        stopped = model(validation_fraction=0.3, random_state=0).fit(X, y)
        train, held_out = stopped._hold_out(y)
        nearest = []
        for i in held_out:
            expected, _ = naive_neighbors(
                stopped if model is LMNNMM else None,
                X,
                X[i],
                stopped.basis_metrics_[0],
                75,
            )
            nearest.append(next(j for j in expected if j in set(train)))
        error = np.mean(y[nearest] != y[held_out])
        assert stopped.validation_error_ == pytest.approx(error)
        to_the_end = model().fit(X, y)
        assert stopped.objective_ > to_the_end.objective_
        again = model(validation_fraction=0.3, random_state=0).fit(X, y)
        np.testing.assert_array_equal(stopped.basis_metrics_, again.basis_metrics_)

    def test_a_class_of_one_does_not_keep_a_fit_from_stopping_early(self, blobs):
        X, y = blobs
        labels = np.where(np.arange(len(y)) == 0, 9, y)
        with pytest.warns(UserWarning, match="classes with one member"):
            model = LMNN(validation_fraction=0.3, random_state=0).fit(X, labels)
        assert 0.0 <= model.validation_error_ < 0.5
        assert model.classes_.tolist() == [0, 1, 2, 9]

    @pytest.mark.parametrize("model", [LMNN, LMNNMM])
    def test_the_energy_rule_knows_no_units(self, blobs, model):
        X, y = blobs
        model = model(decision="energy")
        shares = model.fit(X, y).predict_proba(X[:20] + 0.2)
        in_other_units = model.fit(8.0 * X, y).predict_proba(8.0 * (X[:20] + 0.2))
        np.testing.assert_allclose(in_other_units, shares, rtol=1e-6)
        assert shares.min() < 0.4
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)

    @pytest.mark.parametrize("model", [LMNN, LMNNMM])
    def test_energy_rule(self, blobs, model):
        X, y = blobs
        fitted = model(decision="energy").fit(X[::2], y[::2])
        shares = fitted.predict_proba(X[1::2])
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        np.testing.assert_array_equal(shares.argmax(axis=1), fitted.predict(X[1::2]))
        assert fitted.score(X[1::2], y[1::2]) > 0.6

    def test_a_limited_rank_is_the_factored_problem(self, blobs):
        limited = LMNN(n_components=2).fit(*blobs)
        assert limited.components_.shape == (2, 4)
        assert np.isnan(limited.dual_gap_)

    def test_options_that_exclude_each_other(self, blobs):
        with pytest.raises(ValueError, match="one metric per class"):
            LMNNMM(n_metrics=2, decision="energy").fit(*blobs)

    @pytest.mark.filterwarnings("error::RuntimeWarning")
    @pytest.mark.filterwarnings("ignore::UserWarning")
    @pytest.mark.parametrize("model", [LMNN(), LMNNMM(), LMNNMM(solver="convex")], ids=repr)
    def test_a_vanishing_objective_ends_the_fit(self, rng, model):
        duplicates = np.repeat(rng.normal(size=(10, 3)), 4, axis=0), np.repeat([0, 1], 20)
        y = np.arange(60) % 2
        labelled = np.column_stack([y, rng.normal(size=(60, 3))]).astype(np.float32), y
        corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 0, 1, 1])
        for X, y in (duplicates, labelled, corners):
            fitted = model.fit(X, y)
            assert 0 <= fitted.objective_ <= 1e-5
            assert fitted.n_iter_ < 200
            assert fitted.score(X, y) == 1.0
        constant = model.fit(np.ones((20, 3)), np.arange(20) % 2)
        assert np.isfinite(constant.basis_metrics_).all()

    @pytest.mark.parametrize("scale", [1e-60, 1e-3, 1e5, 1e60])
    @pytest.mark.parametrize("model", [LMNN(), BoostMetric(trace_weight=1e-150)], ids=repr)
    def test_units_of_the_features_do_not_matter(self, blobs, model, scale):
        X, y = blobs
        plain = model.fit(X, y).objective_
        assert model.fit(X * scale, y).objective_ == pytest.approx(plain, rel=1e-2)
        assert model.basis_metrics_.any()

    @pytest.mark.parametrize(("fraction", "n"), [(0.01, 6), (0.9, 6), (0.3, 4)])
    def test_a_validation_part_too_small_is_named(self, blobs, fraction, n):
        X, _ = blobs
        with pytest.raises(ValueError, match=f"validation_fraction={fraction} leaves too few"):
            LMNN(validation_fraction=fraction).fit(X[:n], np.arange(n) % 2)

    def test_more_clusters_than_rows(self, blobs):
        with pytest.warns(UserWarning, match="n_metrics=100"):
            model = LMNNMM(n_metrics=100, random_state=0).fit(*blobs)
        assert model.metric_of_.max() == 74
        model.decision = "energy"
        with pytest.raises(ValueError, match="one metric per class"):
            model.predict(blobs[0])


def test_boosting_says_whether_it_reached_the_optimum(blobs):
    reached = BoostMetric(trace_weight=0.1).fit(*blobs)
    assert reached.excess_ <= reached.tol
    assert reached.converged_
    cut = BoostMetric(trace_weight=0.1, max_iter=1).fit(*blobs)
    assert cut.excess_ > cut.tol
    assert not cut.converged_


def test_boosting_says_when_it_learned_nothing(blobs):
    X, y = blobs
    with pytest.warns(UserWarning, match="learned metric is zero"):
        BoostMetric(trace_weight=1e6).fit(X, y)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_dann_where_all_neighbors_are_equally_far():
    corners = DANN().fit(np.eye(8), [0, 1] * 4)
    assert set(corners.predict(np.zeros((1, 8)))) <= {0, 1}
    assert (corners.kneighbors(return_distance=False)[:, 0] != np.arange(8)).all()
    flat = DANN().fit(np.ones((20, 3)), [0, 1] * 10)
    np.testing.assert_array_equal(flat.predict(np.ones((2, 3))), [0, 0])
    far = DANN().fit(np.eye(8), [0, 1] * 4).predict(np.full((1, 8), 1e30))
    assert set(far) <= {0, 1}


class TestKernelSVM:
    def test_is_one_against_all_svc(self, blobs):
        X, y = blobs
        model = KernelSVM(kernels=["gaussian"], Cs=[10.0]).fit(X, y)
        pairs = [np.linalg.norm(a - b) for i, a in enumerate(X) for b in X[:i]]
        assert model.width_ == pytest.approx(np.mean(pairs))
        reference = OneVsRestClassifier(SVC(C=10.0, gamma=0.5 / model.width_**2)).fit(X, y)
        np.testing.assert_allclose(
            model.decision_function(X), reference.decision_function(X), atol=1e-2
        )

    def test_kernels_are_what_they_say(self, blobs):
        X, y = blobs
        for degree in (2, 3, 4):
            model = KernelSVM(kernels=[f"poly{degree}"], Cs=[1.0]).fit(X, y)
            gamma = 1 / np.mean(np.sum(X**2, axis=1))
            svc = SVC(kernel="poly", degree=degree, gamma=gamma, coef0=1.0)
            reference = OneVsRestClassifier(svc).fit(X, y)
            np.testing.assert_allclose(
                model.decision_function(X), reference.decision_function(X), atol=1e-2
            )

    def test_selects_the_best_candidate(self, blobs):
        X, y = blobs
        model = KernelSVM(random_state=0).fit(X, y)
        scores = model.cv_results_["mean_test_score"]
        assert len(scores) == 20
        assert model.best_score_ == scores.max()
        assert model.best_params_ == model.cv_results_["params"][int(scores.argmax())]

    def test_without_a_shared_gram_matrix(self, blobs, monkeypatch):
        X, y = blobs
        shared = KernelSVM().fit(X, y)
        monkeypatch.setattr(kernel_machines, "_GRAM_BYTES", 0)
        alone = KernelSVM(n_jobs=2).fit(X, y)
        assert shared.best_params_ == alone.best_params_
        np.testing.assert_allclose(
            shared.decision_function(X), alone.decision_function(X), atol=1e-2
        )

    def test_repeated_candidates_are_tried_once(self, blobs):
        model = KernelSVM(kernels=["linear", "linear"], Cs=[1.0, 1.0]).fit(*blobs)
        assert len(model.cv_results_["params"]) == 1

    def test_large_values_are_named_and_the_model_stays_small(self, blobs):
        X, y = blobs
        with pytest.raises(ValueError, match="too large to compute with"):
            KernelSVM().fit(X * 1e160, y)
        model = KernelSVM(kernels=["linear"], Cs=[1.0]).fit(np.tile(X, (8, 1)), np.tile(y, 8))
        assert len(pickle.dumps(model)) < 100_000  # its Gram matrix has 2.9 MB

    def test_a_subsample_is_drawn_by_the_random_state(self, rng):
        """Labels are noise, so every subsample has scores of its own."""
        X, y = rng.normal(size=(120, 3)), rng.integers(0, 2, size=120)

        def scores(seed):
            model = KernelSVM(max_selection_samples=30, random_state=seed, kernels=("gaussian",))
            return model.fit(X, y).cv_results_["mean_test_score"].tolist()

        assert scores(1) == scores(1)
        assert len({tuple(scores(seed)) for seed in range(4)}) > 1

    def test_decisions_are_those_of_the_rows_one_by_one(self, blobs):
        X, y = blobs
        model = KernelSVM().fit(X, y)
        together = model.decision_function(X)
        alone = np.concatenate([model.decision_function(row[None]) for row in X])
        np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-12)

    def test_subsample_keeps_every_class(self, blobs):
        _, y = blobs
        rows = KernelSVM(max_selection_samples=12, random_state=0)._selection_rows(y)
        assert len(rows) == 12
        assert set(np.bincount(y[rows])) == {4}

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"kernels": ["sigmoid"]}, "kernels must be some of"),
            ({"kernels": []}, "kernels must be some of"),
            ({"Cs": [0.0]}, "Cs must be"),
            ({"Cs": []}, "Cs must be"),
            ({"Cs": ["1"]}, "Cs must be"),
            (
                {"cv": [(np.arange(30), np.arange(30, 75))], "max_selection_samples": 20},
                "max_selection_samples needs an integer cv",
            ),
        ],
    )
    def test_bad_grids_are_named(self, blobs, parameters, message):
        with pytest.raises(ValueError, match=message):
            KernelSVM(**parameters).fit(*blobs)


@pytest.mark.parametrize(
    ("model", "parameter"),
    [
        (LMNN(push=1.0), "push"),
        (LMNN(decision="coin"), "decision"),
        (LMNNMM(n_metrics=0), "n_metrics"),
        (LMNNMM(validation_fraction=1.5), "validation_fraction"),
        (BoostMetric(trace_weight=0.0), "trace_weight"),
        (BoostMetric(update="sometimes"), "update"),
        (GLML(shrinkage=0.0), "shrinkage"),
        (DANN(epsilon=-1.0), "epsilon"),
        (DANN(n_local=1), "n_local"),
        (CBLML(n_bases=0), "n_bases"),
        (KernelSVM(max_selection_samples=2), "max_selection_samples"),
    ],
    ids=repr,
)
def test_bad_parameters_are_named(blobs, model, parameter):
    with pytest.raises(ValueError, match=f"'{parameter}'"):
        model.fit(*blobs)


@pytest.mark.parametrize("model", [*NEIGHBORS, KernelSVM()], ids=repr)
def test_one_class_is_refused(blobs, model):
    with pytest.raises(ValueError, match=r"one class only .*'x'"):
        model.fit(blobs[0], np.repeat("x", 75))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "model", "at_least"),
    [
        ("pendigits", LMNN(), 0.9743),
        ("optdigits", LMNN(), 0.9655),
        ("pendigits", BoostMetric(), 0.9743),
        ("optdigits", BoostMetric(), 0.9661),
        ("pendigits", SML(regularization=10.0), 0.9743),
        ("optdigits", SML(regularization=1.0), 0.9622),
    ],
    ids=repr,
)
@pytest.mark.slow
def test_learns_something_real(paper_split, name, model, at_least):
    """At least Euclidean 1-NN (97.43, 95.94), and within a point of the paper's figure."""
    X_train, y_train, X_test, y_test = paper_split(name)
    assert model.fit(X_train, y_train).score(X_test, y_test) >= at_least - 5e-5


def test_stages_are_those_that_were_planned(blobs):
    """So the bar of a fit names each one and ends at its end."""
    for model, expected in (
        (BoostMetric(max_iter=3), ["triplets", "BoostMetric"]),
        (LMNN(max_iter=3, solver="factored"), ["neighbours", "LMNN"]),
        (PLML(n_bases=2), ["neighbours", "anchors", "stage 1, weights", "triplets"]),
    ):
        seen = []

        @contextmanager
        def watch(name, seen=seen):
            seen.append(name)
            yield

        with observed(watch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(*blobs)
        assert seen[: len(expected)] == expected


class TestGLML:
    def test_means_and_precisions_are_in_the_coordinates_of_the_data(self, rng):
        """Also where a column is the sum of two others, and the fit is in their span."""
        X, y = rng.normal(size=(80, 2)), np.arange(80) % 2
        X[y == 1] += [1.0, 2.0]
        redundant = np.column_stack([X, X.sum(axis=1)])
        model = GLML(metric_shrinkage=0.5).fit(redundant, y)
        for c in range(2):
            np.testing.assert_allclose(model.means_[c], redundant[y == c].mean(axis=0))
        assert model.precisions_.shape == (2, 3, 3)
        across = np.array([1.0, 1.0, -1.0])
        np.testing.assert_allclose(model.precisions_ @ across, 0.0, atol=1e-9)
        assert model.metric_shrinkage_ == 0.5

    def test_how_far_the_metric_is_shrunk_is_selected_on_held_out_rows(self, rng):
        """Many features without information: the published metric is blind, a shrunk one is not."""
        y = np.arange(240) % 3
        X = np.hstack([4.0 * np.eye(3)[y], np.zeros((240, 60))]) + rng.normal(size=(240, 63))
        model = GLML(random_state=0).fit(X[:120], y[:120])
        scores = model.cv_results_["mean_test_score"]
        assert model.metric_shrinkage_ == METRIC_SHRINKAGES[scores.argmax()]
        assert scores.max() > scores[0] + 0.1
        published = GLML(metric_shrinkage=0.0).fit(X[:120], y[:120])
        assert not hasattr(published, "cv_results_")
        assert model.score(X[120:], y[120:]) > published.score(X[120:], y[120:]) + 0.1

    def test_the_ends_are_the_published_metric_and_the_euclidean_one(self, blobs, rng):
        X, y = blobs
        Q = rng.normal(size=(30, 4))
        euclidean = KNeighborsClassifier(1).fit(X, y)
        flat = GLML(metric_shrinkage=1.0).fit(X, y)
        np.testing.assert_array_equal(flat.predict(Q), euclidean.predict(Q))
        model = GLML(metric_shrinkage=0.0).fit(X, y)
        gaussians = fit_gaussians(X, np.unique(y, return_inverse=True)[1], len(set(y)), 0.5)
        np.testing.assert_allclose(
            model.get_mahalanobis_matrix(Q), generative_metrics(bias_matrices(gaussians, Q))
        )

    def test_scores_are_shares_of_the_rows_that_were_tested(self, rng):
        """Ten of the forty rows that each of two folds leaves out."""
        X, y = rng.normal(size=(80, 3)), rng.integers(0, 2, size=80)
        for n_samples, n_tested in ((20, 20), (1000, 80)):
            model = GLML(max_selection_samples=n_samples, random_state=0).fit(X, y)
            right = n_tested * model.cv_results_["mean_test_score"]
            np.testing.assert_allclose(right, np.round(right), atol=1e-9)
            assert 0 < right.max() < n_tested
        assert np.ptp(right) > 0

    def test_few_selection_samples_are_enough_to_run(self, blobs):
        X, y = blobs
        model = GLML(max_selection_samples=1, random_state=0).fit(X, y)
        assert model.metric_shrinkage_ in METRIC_SHRINKAGES
