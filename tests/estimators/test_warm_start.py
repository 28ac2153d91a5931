"""A warm refit: fewer evaluations, the same certificates, judged by loops that share no code."""

import os
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.preprocessing import normalize, scale

from judge import local_distance, metrics_primal, similarity, weights_primal
from plml import CBLML, PLML, PLMLCV, SML, Checkpoint, load, save
from plml.estimators._warm_start import duals_of
from plml.ops.span import inside
from plml.solvers.problem import Monitor
from plml.stages import one_machine
from plml.stages.anchors import kept_anchors
from plml.stages.earlier import same_rows
from plml_study import datasets

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KINDS = {
    "PLML": lambda **p: PLML(**{"n_bases": 5, "random_state": 0} | p),
    "PLML-class": lambda **p: PLML(
        **{"n_bases": 3, "random_state": 0, "case_metrics": "class", "prior": "identity"} | p
    ),
    "SML": SML,
    "CBLML": lambda **p: CBLML(**{"n_bases": 4, "random_state": 0} | p),
}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return normalize(scale(X)), y


def warmed(kind, X, y, **parameters):
    return KINDS[kind](warm_start=True, **parameters).fit(X, y)


def evaluations(model):
    return getattr(model, "weights_n_iter_", 0) + model.n_iter_


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_again_take_one_evaluation(kind, digits):
    X, y = digits[0][:600], digits[1][:600]
    model = warmed(kind, X, y)
    before = model.basis_metrics_, model.weights_, model.objective_
    order = np.random.default_rng(0).permutation(600)
    model.fit(X[order], y[order])
    assert evaluations(model) == 1
    np.testing.assert_allclose(model.weights_, before[1][order], atol=1e-9)
    np.testing.assert_allclose(model.basis_metrics_, before[0], rtol=1e-6, atol=1e-6)
    assert model.objective_ == pytest.approx(before[2], rel=1e-9)


@pytest.mark.parametrize("rows", ["new", "gone", "both", "twice"])
@pytest.mark.parametrize("kind", KINDS)
def test_warm_ends_where_cold_does_and_sooner(kind, rows, digits, monkeypatch):
    """The anchors of the warm fit are the old ones, so its cold twin is given these."""
    X, y = digits[0][:900], digits[1][:900]
    model = warmed(kind, X[:850], y[:850])
    old_anchors = getattr(model, "anchors_", None)
    chosen = {
        "new": np.arange(900),
        "gone": np.arange(50, 850),
        "both": np.random.default_rng(1).permutation(np.arange(30, 900)),
        "twice": np.concatenate([np.arange(850), np.arange(40), np.arange(40)]),
    }[rows]
    model.fit(X[chosen], y[chosen])
    cold = KINDS[kind]()
    if old_anchors is not None:
        np.testing.assert_allclose(model.anchors_, old_anchors, rtol=1e-6, atol=1e-9)
        given = inside(old_anchors, model._span) / model.scale_
        monkeypatch.setattr(one_machine, "kmeans_anchors", lambda X, *_: kept_anchors(X, given))
    cold.fit(X[chosen], y[chosen])
    assert model.converged_
    assert cold.converged_
    assert evaluations(model) < evaluations(cold)
    assert abs(model.objective_ - cold.objective_) <= 3e-3 * cold.objective_


def test_both_certificates_are_those_of_the_problem_that_was_solved():
    """Primal values by loops; the duality gap says how far the value of a tight fit can be."""
    X, y = load_iris(return_X_y=True)
    X = X[::2] + 1e-3 * np.random.default_rng(0).normal(size=(75, 4))
    y = y[::2]
    model = warmed("PLML", X[5:], y[5:], rescale=False, smoothness=10.0)
    model.fit(X[:72], y[:72])
    X, y = X[:72], y[:72]
    value = metrics_primal(X, y, model.weights_, model.basis_metrics_, 1.0, 1.0)
    assert model.objective_ == pytest.approx(value, rel=1e-6)
    tight = clone(model).set_params(tol=1e-8, max_iter=20_000)
    tight.__dict__ |= {k: v for k, v in vars(model).items() if k not in tight.get_params()}
    tight.fit(X, y)
    np.testing.assert_array_equal(tight.anchors_, model.anchors_)
    S = similarity(X, 6)
    loose, best = (
        weights_primal(X, fit.anchors_, fit.weights_, S, 1.0, 10.0) for fit in (model, tight)
    )
    assert best <= loose * (1 + 1e-9)
    assert loose - best <= (model.weights_gap_ + 1e-9) * loose
    assert local_distance(X[0], X[1], model.weights_[0], model.basis_metrics_) >= 0


def test_after_five_percent_new_rows_half_of_the_evaluations(digits):
    X, y = digits
    model = warmed("PLML", X[:1710], y[:1710], n_bases=20)
    model.fit(X, y)
    cold = KINDS["PLML"](n_bases=20).fit(X, y)
    assert model.converged_
    assert 2 * evaluations(model) <= evaluations(cold)
    assert np.mean(model.predict(X + 1e-3) == cold.predict(X + 1e-3)) > 0.99


@pytest.mark.slow
@pytest.mark.skipif("PLML_DATA" not in os.environ, reason="needs the original data files")
def test_after_five_percent_new_rows_a_third_of_the_evaluations_on_optdigits():
    data = datasets.load("optdigits")
    X, y = normalize(scale(data.X)), data.y
    model = PLML(random_state=0, warm_start=True).fit(X[:5352], y[:5352]).fit(X, y)
    cold = PLML(random_state=0).fit(X, y)
    assert model.converged_
    assert 3 * model.weights_n_iter_ <= cold.weights_n_iter_
    assert 3 * evaluations(model) <= evaluations(cold)


CHANGES = {
    "n_bases": {"n_bases": 7},
    "regularization": {"regularization": 10.0},
    "case_metrics": {"case_metrics": "class"},
    "prior": {"prior": "identity"},
    "targets": {"n_targets": 2, "n_impostors": 4},
    "rescale": {"rescale": False},
    "solver": {"solver": "fista", "tol": 1e-1},
    "smoothness": {"smoothness": 1.0},
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_parameters_use_what_still_fits(change, digits):
    X, y = digits[0][:400], digits[1][:400]
    model = warmed("PLML", X[:380], y[:380]).set_params(**CHANGES[change])
    model.fit(X, y)
    assert model.converged_
    assert len(model.anchors_) == model.n_bases
    fresh = clone(model).fit(X, y)
    assert model.objective_ == pytest.approx(fresh.objective_, rel=0.2)


def test_other_rows_features_and_classes(digits):
    X, y = digits[0][:400], digits[1][:400]
    model = warmed("PLML", X, y)
    iris = load_iris(return_X_y=True)
    fresh = warmed("PLML", *iris)
    model.fit(*iris)  # other features: cold
    np.testing.assert_array_equal(model.weights_, fresh.weights_)
    np.testing.assert_array_equal(model.basis_metrics_, fresh.basis_metrics_)
    fewer = y < 9
    for kind in KINDS:  # a class that comes, and one that goes
        model = warmed(kind, X[fewer], y[fewer]).fit(X, y)
        assert model.converged_
        assert set(model.predict(X)) == set(range(10))
        assert model.fit(X[fewer], y[fewer]).converged_
    other = digits[0][900:1300], digits[1][900:1300]
    model = warmed("PLML", X, y).fit(*other)  # no row is known: the anchors are found again
    np.testing.assert_array_equal(model.weights_, warmed("PLML", *other).weights_)


def test_float32_and_units_may_change(digits):
    X, y = digits[0][:400], digits[1][:400]
    model = warmed("PLML", X.astype(np.float32), y)
    assert evaluations(model.fit(X.astype(np.float32).astype(float), y)) < 20
    model.fit(1000.0 * X, y)
    assert model.converged_


def test_nothing_is_kept_without_it_and_clone_drops_it(digits):
    X, y = digits[0][:300], digits[1][:300]
    plain, warm = KINDS["PLML"]().fit(X, y), warmed("PLML", X, y)
    assert set(vars(warm)) - set(vars(plain)) == {"_dual_rows", "_duals"}
    np.testing.assert_array_equal(plain.basis_metrics_, warm.basis_metrics_)
    assert warm._dual_rows.nbytes + warm._duals.nbytes == 20 * len(warm._duals) == 20 * 9 * 300
    again = clone(warm).fit(X[:250], y[:250])
    np.testing.assert_array_equal(again.weights_, warmed("PLML", X[:250], y[:250]).weights_)
    later = plain.set_params(warm_start=True).fit(X[5:], y[5:])  # without duals, by the margins
    assert later.converged_


def test_the_selected_setting_starts_warm(digits):
    X, y = digits[0][:500], digits[1][:500]
    how = {"n_bases": 4, "regularizations": (0.1, 1.0), "random_state": 0}
    model = PLMLCV(warm_start=True, **how).fit(X[:480], y[:480])
    cold = PLMLCV(**how).fit(X, y)
    assert 3 * evaluations(model.fit(X, y)) < 2 * evaluations(cold)


def test_model_files_hold_it(digits, tmp_path):
    pytest.importorskip("skops")
    X, y = digits[0][:400], digits[1][:400]
    model = warmed("PLML", X[:380], y[:380])
    save(model, tmp_path / "model.skops")
    read = load(tmp_path / "model.skops")
    read.fit(X, y), model.fit(X, y)
    np.testing.assert_array_equal(read.basis_metrics_, model.basis_metrics_)
    assert evaluations(read) == evaluations(model)


def test_a_refit_that_fails_leaves_the_model_as_it_was(digits, monkeypatch):
    X, y = digits[0][:400], digits[1][:400]
    model = warmed("PLML", X[:380], y[:380])
    state = dict(vars(model))
    monkeypatch.setattr(Monitor, "done", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert vars(model) == state


@pytest.mark.parametrize("after", [2, 9])
def test_a_refit_that_was_cut_short_goes_on(after, digits, tmp_path, monkeypatch):
    X, y = digits[0][:800], digits[1][:800]
    model, whole = (warmed("PLML", X[:740], y[:740]) for _ in range(2))
    whole.fit(X, y)
    seen, done = [], Monitor.done

    def stop(self, *arguments):
        seen.append(1)
        if len(seen) == after:
            raise KeyboardInterrupt
        return done(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Monitor, "done", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, checkpoint=Checkpoint(tmp_path / "c", every=0))
    # Whoever resumes need not have the old model: its start is in the file.
    resumed = clone(model).fit(X, y, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(resumed.weights_, whole.weights_)
    np.testing.assert_array_equal(resumed.basis_metrics_, whole.basis_metrics_)
    assert evaluations(resumed) == evaluations(whole)


def test_rows_are_known_by_value_and_class():
    old = np.array([[0.0, 1.0], [2.0, 3.0], [2.0, 3.0], [-0.0, 5.0]])
    new = np.array([[2.0, 3.0], [9.0, 9.0], [2.0, 3.0], [0.0, 5.0], [2.0, 3.0], [0.0, 1.0]])
    found = same_rows(new, np.array(list("aaabba")), old, np.array(list("aaab")))
    np.testing.assert_array_equal(found, [1, -1, 2, 3, -1, 0])


def test_duals_of_a_part_of_the_rows(digits):
    X, y = digits[0][:200], digits[1][:200]
    model = warmed("SML", X, y)
    kept = np.arange(200)[::-1][:150]
    rows, values = duals_of(model._dual_rows, model._duals, kept)
    known = {tuple(r): v for r, v in zip(model._dual_rows.tolist(), model._duals, strict=True)}
    assert len(values) == sum(set(r) <= set(kept.tolist()) for r in known)
    assert all(known[tuple(kept[r])] == v for r, v in zip(rows, values, strict=True))


def test_torch_starts_warm_as_well(digits):
    torch = pytest.importorskip("torch")
    X, y = digits[0][:600], digits[1][:600]
    from plml.stages.one_machine import OneMachine
    from plml.stages.pipeline import Settings, SmoothWeighting, learn
    from plml.stages.run import Run

    model = warmed("PLML", X[:570], y[:570])
    earlier = model._earlier(KINDS["PLML"]().fit(X, y), Run().checkpoint).inside(None, 1.0)
    found = [
        learn(OneMachine(rows, y, earlier=earlier), SmoothWeighting(n_bases=5), Settings(), Run())
        for rows in (X, torch.from_numpy(X))
    ]
    here, there = found
    assert there.metrics.gap <= 1e-3
    assert there.weights.gap <= 1e-3
    np.testing.assert_allclose(there.weights.weights.numpy(), here.weights.weights, atol=1e-3)
    assert there.metrics.objective == pytest.approx(here.metrics.objective, rel=2e-3)


def test_no_warning_comes_from_the_start(digits):
    X, y = digits[0][:300], digits[1][:300]
    model = warmed("PLML", X[:290], y[:290])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)


def test_cases_after_the_learned_rows_are_new_rows(digits):
    X, y = digits[0][:330], digits[1][:330]
    model, grown = (warmed("PLML", X[:300], y[:300]) for _ in range(2))
    grown._fit_X, grown._fit_codes = X[:320].copy(), y[:320].copy()  # twenty were added
    for one in (model, grown):
        one.fit(X, y)
    np.testing.assert_array_equal(model.basis_metrics_, grown.basis_metrics_)
