"""The catalogue of bad input: for every estimator, the right answer or one clear refusal.

A refusal is a ``ValueError`` or ``TypeError`` that names the cause, raised before the work starts
and leaving the estimator unfitted.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import scale

from plml import (
    CBLML,
    DANN,
    GLML,
    LMNN,
    LMNNMM,
    PLML,
    PLMLCV,
    SML,
    BoostMetric,
    KernelSVM,
)

ESTIMATORS = {
    "PLML": lambda **p: PLML(**{"n_bases": 3, "random_state": 0, **p}),
    "PLMLCV": lambda **p: PLMLCV(
        **{"n_bases": 3, "random_state": 0, "regularizations": (0.1, 1.0), **p}
    ),
    "SML": lambda **p: SML(**p),
    "CBLML": lambda **p: CBLML(**{"n_bases": 3, "random_state": 0, **p}),
    "LMNN": lambda **p: LMNN(**p),
    "LMNNMM": lambda **p: LMNNMM(**{"tol": 1e-2, **p}),
    "BoostMetric": lambda **p: BoostMetric(**p),
    "GLML": lambda **p: GLML(**p),
    "DANN": lambda **p: DANN(**p),
    "KernelSVM": lambda **p: KernelSVM(**{"Cs": (1.0,), "cv": 2, **p}),
}


def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X)[::2], y[::2]


#: New points, so that a nearest neighbour is never the point itself.
QUERIES = scale(load_iris(return_X_y=True)[0])[1::2]


def with_value(value, dtype=float):
    def change(X, y):
        X = X.astype(dtype)
        X[7, 2] = value
        return X, y

    return change


def frame(**columns):
    def change(X, y):
        table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
        for name, value in columns.items():
            table[name] = value(len(X)) if callable(value) else value
        return table, y

    return change


def labels(change):
    return lambda X, y: (X, change(y))


DATES = pd.date_range("2026-01-01", periods=75)
#: name: (how the data is changed, what the message says)
REFUSED = {
    "NaN": (with_value(np.nan), r"NaN in feature 2, row 7; fill it"),
    "infinity": (with_value(np.inf), r"infinity in feature 2, row 7"),
    "minus infinity": (with_value(-np.inf), r"infinity in feature 2, row 7"),
    "NaN in a named column": (frame(c=np.nan), r"NaN in feature 'c', row 0 \(75 such"),
    "huge": (with_value(1e300), r"feature 2 reaches 1e\+300, too large"),
    "tiny": (lambda X, y: (X * 1e-300, y), r"spreads over more than .*standardise"),
    "text": (frame(b="red"), r"feature 'b' holds 'red'.*encode it"),
    "text in an array": (with_value("x", object), r"feature 2 holds 'x'.*encode it"),
    "array of texts": (lambda X, y: (np.full(X.shape, "a"), y), r"holds 'a'"),
    "dates": (frame(d=DATES), r"feature 'd' holds dates"),
    "dates without names": (
        lambda X, y: (pd.DataFrame({0: DATES, 1: DATES}), y),
        "feature 0 holds dates",
    ),
    "masked": (lambda X, y: (np.ma.masked_less(X, 0.0), y), "masked array"),
    "array of dates": (lambda X, y: (X.astype("datetime64[s]"), y), "X holds dates"),
    "durations": (frame(d=DATES - DATES[0]), r"feature 'd' holds dates or durations"),
    "complex": (lambda X, y: (X + 1j, y), "Complex data not supported"),
    "sparse": (lambda X, y: (sparse.csr_array(X), y), r"[Ss]parse"),
    "one dimension": (lambda X, y: (X[:, 0], y), "Expected 2D array"),
    "three dimensions": (lambda X, y: (X[:, :, None], y), "dim 3"),
    "a number": (lambda X, y: (3.0, y), "Expected 2D array"),
    "nothing": (lambda X, y: (None, y), r"(?i)none|array|NoneType"),
    "a ragged list": (lambda X, y: ([[1.0, 2.0], [3.0]] * 20, [0, 1] * 20), r"inhomogeneous|array"),
    "a dictionary inside": (with_value({"a": 1}, object), r"(?i)dict|number"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "no columns": (lambda X, y: (X[:, :0], y), "0 feature"),
    "one row": (lambda X, y: (X[:1], y[:1]), "minimum of 2|n_samples"),
    "fewer labels": (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    "no labels": (labels(lambda y: None), r"requires y|y cannot be None"),
    "NaN label": (
        labels(lambda y: np.where(np.arange(len(y)) == 7, np.nan, y)),
        "contains NaN: missing labels, the first in row 7; drop these rows",
    ),
    "infinite label": (labels(lambda y: np.where(y == 0, np.inf, y)), "infinity"),
    "missing text label": (
        labels(lambda y: np.array(["a", None, "b"], object)[y]),
        r"NoneType|contains NaN|missing",
    ),
    "missing label in a list": (
        labels(lambda y: [None, *(f"kind {label}" for label in y[1:])]),
        "contains NaN: missing labels, the first in row 0; drop these rows",
    ),
    "missing date for a label": (
        labels(lambda y: np.array(["2020-01-01", "2021-01-01", "NaT"], "datetime64[D]")[y]),
        "contains NaN: missing labels, the first in row",
    ),
    "masked labels": (
        labels(lambda y: np.ma.masked_equal(y, 0)),
        "y is a masked array, and masked entries are missing labels; drop these rows",
    ),
    "continuous labels": (labels(lambda y: y + 0.5 * np.arange(len(y))), "continuous|Unknown"),
    "two outputs": (labels(lambda y: np.column_stack([y, y])), r"1d array|multioutput|1d"),
    "one class": (labels(lambda y: np.zeros_like(y)), r"one class"),
    "labels of texts and numbers": (
        labels(lambda y: np.array(["a", 1, "b"], object)[y]),
        r"not supported between|[Mm]ix of|uniformly",
    ),
}


def test_the_catalogue_is_large_enough():
    cases = len(ESTIMATORS) * (len(REFUSED) + len(ANSWERED)) + len(WRONG_PARAMETERS)
    assert cases >= 150


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_refused_with_the_cause(name, case):
    change, message = REFUSED[case]
    model = ESTIMATORS[name]()
    X, y = change(*iris())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy and scikit-learn comment on some of these
        with pytest.raises((ValueError, TypeError), match=message):
            model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(iris()[0])


@pytest.mark.parametrize("name", ["PLML", "SML", "LMNN", "DANN"])
def test_classes_of_one_are_refused_or_left_out(name):
    X, y = iris()
    model = ESTIMATORS[name]()
    if name == "DANN":  # learns nothing from pairs
        model.fit(X, np.arange(len(y)))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"single member.*give at least one class two"):
            model.fit(X, np.arange(len(y)))
    y[0] = 7
    with pytest.warns(UserWarning, match="classes with one member.*7"):
        model.fit(X, y)


def memory_mapped(X, y, folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r"), y


def read_only(X, y, _):
    X, y = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    return X, y


def negative_strides(X, y, _):
    return X[::-1].copy()[::-1], y[::-1].copy()[::-1]


#: Other forms of the same data: predictions agree with those for plain float64.
ANSWERED = {
    "Fortran order": lambda X, y, _: (np.asfortranarray(X), y),
    "negative strides": negative_strides,
    "strided": lambda X, y, _: (np.repeat(X, 2, axis=1)[:, ::2], np.repeat(y, 2)[::2]),
    "read-only": read_only,
    "memory-mapped": memory_mapped,
    "float32": lambda X, y, _: (X.astype(np.float32), y),
    "lists": lambda X, y, _: (X.tolist(), y.tolist()),
    "frame": lambda X, y, _: (pd.DataFrame(X, columns=list("abcd")), pd.Series(y)),
    "numbers in objects": lambda X, y, _: (X.astype(object), y),
    "big endian": lambda X, y, _: (X.astype(">f8"), y.astype(">i8")),
    "text labels": lambda X, y, _: (X, np.array(["x", "y", "z"])[y]),
    "boolean-like labels": lambda X, y, _: (X, y.astype(np.uint8)),
    "masks that hide nothing": lambda X, y, _: (np.ma.masked_array(X), np.ma.masked_array(y)),
}


@pytest.fixture(scope="module")
def plain():
    """Fitted models and their answers, one a name."""
    found = {}

    def fitted(name):
        if name not in found:
            X, y = iris()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = ESTIMATORS[name]().fit(X, y).predict(QUERIES)
        return found[name]

    return fitted


@pytest.mark.parametrize("form", ANSWERED)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_other_forms_of_the_same_data(plain, name, form, tmp_path):
    X, y = iris()
    changed, changed_labels = ANSWERED[form](X.copy(), y.copy(), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ESTIMATORS[name]().fit(changed, changed_labels)
    (tmp_path / "queries").mkdir()
    queries = ANSWERED[form](QUERIES.copy(), y.copy(), tmp_path / "queries")[0]
    codes = np.searchsorted(model.classes_, model.predict(queries))
    assert np.mean(codes == plain(name)) >= 0.98  # sums in another order may turn a near tie


@pytest.mark.parametrize("name", ESTIMATORS)
def test_half_precision_and_integers_are_computed_in_full(name):
    X, y = iris()
    for dtype in (np.float16, np.int8):
        coarse = (10 * X).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ESTIMATORS[name](**fast(name)).fit(coarse, y)
            expected = ESTIMATORS[name](**fast(name)).fit(coarse.astype(np.float64), y)
        queries = (10 * QUERIES).astype(dtype)
        agree = found.predict(queries) == expected.predict(queries.astype(np.float64))
        assert agree.mean() >= 0.97


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("unit", [1e7, 1e30, 1e38])
def test_single_precision_that_is_too_narrow_is_widened_without_a_word_of_overflow(name, unit):
    X, y = iris()
    narrow = (unit * X).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        found = ESTIMATORS[name](**fast(name)).fit(narrow, y)
        expected = ESTIMATORS[name](**fast(name)).fit(narrow.astype(np.float64), y)
        queries = (unit * QUERIES).astype(np.float32)
        agree = found.predict(queries) == expected.predict(queries.astype(np.float64))
    assert agree.all()


def fast(name):
    return {"max_iter": 50} if name in ("PLML", "PLMLCV", "SML", "CBLML") else {}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kind", ["constant", "all equal", "one feature", "wide", "mixed scales"])
def test_degenerate_data_is_answered(name, kind, rng):
    """Something that can be computed is, with finite numbers and every query answered."""
    X, y = iris()
    if kind == "constant":
        X[:, 1] = 3.0
    elif kind == "all equal":
        X[:] = 1.0
    elif kind == "one feature":
        X = X[:, 2:3]
    elif kind == "wide":
        X = np.hstack([X, 0.01 * rng.normal(size=(len(X), 100))])
    else:
        X = X * [1e-6, 1.0, 1e3, 1e6]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ESTIMATORS[name](**fast(name)).fit(X, y)
    shares = model.predict_proba(X)
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    if kind in ("constant", "wide"):
        assert np.mean(model.predict(X) == y) > 0.9


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("narrow", "features"),
        ("NaN", "NaN in feature 1, row 0"),
        ("infinity", "infinity in feature 1, row 0"),
        ("huge", "too large"),
        ("one dimension", "Expected 2D array"),
        ("no rows", "0 sample"),
        ("text", "holds 'x'"),
        ("sparse", r"[Ss]parse"),
    ],
)
def test_bad_queries(fitted, name, case, message):
    X, _ = iris()
    queries = X[:3].copy()
    if case in ("NaN", "infinity", "huge"):
        queries[0, 1] = {"NaN": np.nan, "infinity": np.inf, "huge": 1e300}[case]
    queries = {
        "narrow": queries[:, :-1],
        "one dimension": queries[0],
        "no rows": queries[:0],
        "text": np.where(np.eye(3, 4) > 0, "x", queries.astype(object)),
        "sparse": sparse.csr_array(queries),
    }.get(case, queries)
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(name).predict(queries)


@pytest.fixture(scope="module")
def fitted():
    found = {}

    def model(name):
        if name not in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = ESTIMATORS[name]().fit(*iris())
        return found[name]

    return model


WRONG_PARAMETERS = [
    ("PLML", {"n_bases": 0}),
    ("PLML", {"n_bases": 2.5}),
    ("PLML", {"n_bases": "many"}),
    ("PLML", {"regularization": 0.0}),
    ("PLML", {"regularization": -1.0}),
    ("PLML", {"regularization": np.nan}),
    ("PLML", {"regularization": np.inf}),
    ("PLML", {"regularization": "1"}),
    ("PLML", {"pull": -0.1}),
    ("PLML", {"locality": -1}),
    ("PLML", {"smoothness": np.nan}),
    ("PLML", {"n_targets": 0}),
    ("PLML", {"n_impostors": -3}),
    ("PLML", {"n_graph_neighbors": 0}),
    ("PLML", {"n_neighbors": 0}),
    ("PLML", {"n_neighbors": 1.0}),
    ("PLML", {"n_neighbors": 10**6}),
    ("PLML", {"query_weights": "best"}),
    ("PLML", {"tol": 0.0}),
    ("PLML", {"tol": -1e-3}),
    ("PLML", {"max_iter": 0}),
    ("PLML", {"max_iter": None}),
    ("PLML", {"solver": "magic"}),
    ("PLML", {"device": "abacus"}),
    ("PLML", {"neighbor_search": "guess"}),
    ("PLML", {"search_backend": "guess"}),
    ("PLML", {"working_memory": 0}),
    ("PLML", {"random_state": "zero"}),
    ("PLML", {"n_jobs": 1.5}),
    ("PLMLCV", {"regularizations": ()}),
    ("PLMLCV", {"regularizations": (1.0, -1.0)}),
    ("PLMLCV", {"regularizations": "1"}),
    ("PLMLCV", {"cv": 1}),
    ("SML", {"regularization": -1.0}),
    ("SML", {"n_targets": "three"}),
    ("CBLML", {"n_bases": -1}),
    ("LMNN", {"n_targets": 0}),
    ("LMNN", {"solver": "magic"}),
    ("LMNN", {"decision": "coin"}),
    ("LMNN", {"n_components": 0}),
    ("LMNN", {"validation_fraction": 1.5}),
    ("LMNNMM", {"n_metrics": 0}),
    ("BoostMetric", {"n_targets": 0}),
    ("GLML", {"shrinkage": 0.0}),
    ("GLML", {"shrinkage": 2.0}),
    ("DANN", {"epsilon": -1.0}),
    ("KernelSVM", {"Cs": ()}),
    ("KernelSVM", {"Cs": (-1.0,)}),
]


@pytest.mark.parametrize(
    ("name", "parameters"), WRONG_PARAMETERS, ids=[f"{n}-{p}" for n, p in WRONG_PARAMETERS]
)
def test_wrong_parameters_are_named(name, parameters):
    (parameter,) = parameters
    with pytest.raises((ValueError, TypeError), match=parameter):
        ESTIMATORS[name](**parameters).fit(*iris())


@pytest.mark.parametrize("name", ["PLML", "SML", "CBLML", "LMNN", "LMNNMM", "GLML", "DANN"])
def test_numpy_integers_and_booleans_are_integers(name):
    X, y = iris()
    model = ESTIMATORS[name]()
    integers = [
        parameter
        for parameter in ("n_neighbors", "n_targets", "n_impostors", "n_graph_neighbors", "n_bases")
        if parameter in model.get_params()
    ]
    expected = ESTIMATORS[name](**dict.fromkeys(integers, 2)).fit(X, y).predict_proba(QUERIES)
    numpy = ESTIMATORS[name](**dict.fromkeys(integers, np.int64(2)))
    np.testing.assert_array_equal(numpy.fit(X, y).predict_proba(QUERIES), expected)
    assert len(ESTIMATORS[name](n_neighbors=True).fit(X, y).predict(QUERIES)) == 75


def test_an_offset_does_not_change_a_kernel_of_differences():
    X, y = iris()
    near = ESTIMATORS["KernelSVM"](kernels=("gaussian",)).fit(X, y).predict(QUERIES)
    far = ESTIMATORS["KernelSVM"](kernels=("gaussian",)).fit(X + 1e8, y).predict(QUERIES + 1e8)
    assert np.mean(near == far) >= 0.97


@pytest.mark.parametrize("name", ESTIMATORS)
def test_weights_that_are_not_numbers_are_refused_by_name(name):
    X, y = iris()
    with pytest.raises(ValueError, match="sample_weight is nan in row 0"):
        ESTIMATORS[name]().fit(X, y, sample_weight=np.full(len(y), np.nan))


def test_fewer_rows_than_bases_is_answered_and_said():
    X, y = iris()
    with pytest.warns(UserWarning, match="n_bases=50 anchors were asked for; the 20"):
        PLML(n_bases=50, random_state=0).fit(X[15:35], y[15:35])
