"""What a result may not depend on, and what it says where arithmetic ends."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize, scale

from plml import CBLML, DANN, GLML, LMNN, PLML, SML, BoostMetric, KernelSVM


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = normalize(scale(X))
    return X[:900], y[:900], X[900:]


@pytest.mark.parametrize("model", [PLML(n_bases=4, random_state=0), SML(), LMNN(), BoostMetric()])
def test_units_are_what_standardisation_says(model, rng):
    """Metres or millimetres: behind a StandardScaler, no label changes."""
    X, y = load_wine(return_X_y=True)
    units = 10.0 ** rng.integers(-6, 7, size=X.shape[1])
    predicted = [
        make_pipeline(StandardScaler(), model).fit(X[::2] * u, y[::2]).predict(X[1::2] * u)
        for u in (1.0, units)
    ]
    np.testing.assert_array_equal(*predicted)


def test_the_order_of_rows(digits):
    """k-means draws its start from the rows in their order, as with another ``random_state``."""
    X, y, X_test = digits
    order = np.random.default_rng(0).permutation(len(X))
    found = [
        PLML(n_bases=4, tol=1e-4, random_state=0).fit(X[rows], y[rows]).predict(X_test)
        for rows in (np.arange(len(X)), order)
    ]
    assert np.mean(found[0] == found[1]) >= 0.97


def test_the_order_of_rows_without_anchors(digits):
    X, y, X_test = digits
    order = np.random.default_rng(0).permutation(len(X))
    models = [SML(tol=1e-5).fit(X[rows], y[rows]) for rows in (np.arange(len(X)), order)]
    assert models[0].objective_ == pytest.approx(models[1].objective_, rel=2e-5)
    assert np.mean(models[0].predict(X_test) == models[1].predict(X_test)) >= 0.998


@pytest.mark.parametrize("n_jobs", [2, 4])
@pytest.mark.parametrize(
    "model", [PLML(n_bases=4, random_state=0), SML(), LMNN(), GLML(), DANN(), BoostMetric()]
)
@pytest.mark.slow
def test_the_number_of_threads(digits, model, n_jobs):
    X, y, X_test = digits
    one = model.set_params(n_jobs=1).fit(X, y).predict_proba(X_test[:300])
    several = model.set_params(n_jobs=n_jobs).fit(X, y).predict_proba(X_test[:300])
    assert np.mean((one == several).all(axis=1)) >= 0.99


@pytest.mark.parametrize(
    "model", [PLML(n_bases=3, random_state=0), SML(), LMNN(), CBLML(n_bases=3, random_state=0)]
)
@pytest.mark.parametrize("condition", [1e6, 1e12])
@pytest.mark.slow
def test_ill_conditioned_data_is_certified_or_says_so(model, condition, rng):
    y = np.arange(200) % 3
    X = rng.normal(size=(200, 8)) + 2.0 * np.eye(3, 8)[y]
    X = X * np.logspace(0, -np.log10(condition), 8) @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    assert np.linalg.cond(X) > 0.3 * condition
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, y)
    gaps = [getattr(model, name, 0.0) for name in ("dual_gap_", "weights_gap_")]
    warned = any(issubclass(w.category, ConvergenceWarning) for w in said)
    assert warned or max(gaps) <= model.tol
    assert np.isfinite(model.basis_metrics_).all()
    assert (
        np.linalg.eigvalsh(model.basis_metrics_) >= -1e-8 * np.abs(model.basis_metrics_).max()
    ).all()
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    "model",
    [PLML(n_bases=3, random_state=0), SML(), CBLML(n_bases=3, random_state=0), DANN(), GLML()],
)
def test_duplicates_and_ties_are_decided_the_same_way_every_time(model):
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3)
    X = np.repeat(grid, 3, axis=0)  # every point three times, all distances tied
    y = (X.sum(axis=1) > 4).astype(int)
    first = model.fit(X, y).kneighbors(grid + 0.5, 5)
    again = model.fit(X, y).kneighbors(grid + 0.5, 5)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    distances, indices = model.kneighbors(X[:60], 6)
    tied = np.diff(distances, axis=1) == 0
    farther = np.diff(np.linalg.norm(X[indices] - X[:60, None], axis=2), axis=1)
    assert (farther[tied] > -1e-12).all()  # the Euclidean order first,
    tied &= np.abs(farther) < 1e-12
    assert (np.diff(indices, axis=1)[tied] > 0).all()  # then the lower index


#: Numbers that have broken things elsewhere.
NASTY = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 1e-320, 1e-160, 1e-8, 1e8, 1e70, 1e160, 1e308, np.inf, np.nan]
)
FUZZED = {
    "PLML": lambda: PLML(n_bases=2, random_state=0, max_iter=30),
    "PLML-optimize": lambda: PLML(n_bases=2, random_state=0, max_iter=30, query_weights="optimize"),
    "SML": lambda: SML(max_iter=30),
    "CBLML": lambda: CBLML(n_bases=2, random_state=0, max_iter=30),
    "LMNN": lambda: LMNN(max_iter=20),
    "BoostMetric": lambda: BoostMetric(max_iter=20),
    "GLML": lambda: GLML(),
    "DANN": lambda: DANN(),
    "KernelSVM": lambda: KernelSVM(Cs=(1.0,), max_iter=1000),
}


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_any_numbers_are_answered_or_refused(name, data):
    """Whatever the array: a class for every query, or an error that says why."""
    shape = data.draw(st.tuples(st.integers(0, 12), st.integers(0, 4)))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.bool_]))
    elements = st.one_of(NASTY, st.floats(-100, 100)) if np.dtype(dtype).kind == "f" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflow in making float16 of 1e308
        wide = hnp.arrays(np.float64, shape, elements=elements) if elements else None
        X = data.draw(wide).astype(dtype) if wide else data.draw(hnp.arrays(dtype, shape))
        y = data.draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, 2)))
        model = FUZZED[name]()
        try:
            model.fit(X, y)
        except (ValueError, TypeError) as refusal:
            text = str(refusal)
        else:
            shares = model.predict_proba(X)
            assert np.isfinite(shares).all()
            assert set(model.predict(X)) <= set(y)
            return
    assert text
    assert "broadcast" not in text  # a refusal, not an accident
    assert "singular" not in text.lower()
