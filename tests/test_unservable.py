"""What cannot be served is refused alike, in one line with the cure, by every method of all."""

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.io import mmwrite
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from command import run
from every_estimator import ESTIMATORS
from plml import AutoPLML, counterfactual, explain
from plml.explorer import explore
from plml.preprocessing import TableEncoder

pytestmark = pytest.mark.filterwarnings("ignore")
X, Y = load_iris(return_X_y=True)
X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)
MODELS = {
    **ESTIMATORS,
    "AutoPLML": lambda **p: AutoPLML(
        metrics=("one",), priors=("identity",), n_members=1, **{"random_state": 0, **p}
    ),
}


def dask_array(rows):
    return pytest.importorskip("dask.array").from_array(rows, chunks=50)


def dask_frame(rows):
    frame = pytest.importorskip("dask.dataframe")
    return frame.from_pandas(pd.DataFrame(rows, columns=list("abcd")), npartitions=2)


#: name: (how the table is given, what the message says of the cause, and of the cure)
UNSERVABLE = {
    "sparse matrix": (sparse.csr_matrix, "X is a sparse matrix", r"X\.toarray\(\)"),
    "sparse array": (sparse.coo_array, "X is a sparse matrix", r"X\.toarray\(\)"),
    "sparse frame": (
        lambda rows: pd.DataFrame(rows, columns=list("abcd")).astype(pd.SparseDtype(float, 0.0)),
        "column 'a' of X is sparse",
        r"X\.sparse\.to_dense\(\)",
    ),
    "masked": (lambda rows: np.ma.masked_less(rows, 1.0), "masked array", "fill them"),
    "complex": (lambda rows: rows + 1j, "Complex data not supported", "real and imaginary parts"),
    "complex lists": (lambda rows: (rows + 1j).tolist(), "Complex data", "imaginary parts"),
    "complex frame": (
        lambda rows: pd.DataFrame(rows, columns=list("abcd")).assign(c=1j),
        "column 'c' of X holds complex numbers",
        "imaginary parts",
    ),
    "equal names": (
        lambda rows: pd.DataFrame(rows, columns=list("abca")),
        "Expected unique column names, got 'a' twice",
        "its own name",
    ),
    "three dimensions": (
        lambda rows: rows[:, :, None],
        "array with dim 3",
        r"reshape it to \(\d+, 4\)",
    ),
    "one dimension": (lambda rows: rows[:, 0], "dimension", r"\[X\]|a table of one row"),
    "a number": (lambda rows: 3.0, "Expected 2D array, got float", "one row per point"),
    "unequal rows": (
        lambda rows: [*rows.tolist(), [1.0]],
        r"row \d+ has 1 values, row 0 has 4",
        "give all rows one value per feature",
    ),
}
#: Not where a Dask collection is answered block by block, or learned from.
DASK = {
    "Dask array": (dask_array, r"Dask|X\.compute\(\)", r"X\.compute\(\)"),
    "Dask frame": (dask_frame, r"Dask|X\.compute\(\)", r"X\.compute\(\)"),
}
QUESTIONS = [
    "predict",
    "predict_proba",
    "decision_function",
    "score",
    "kneighbors",
    "kneighbors_graph",
    "radius_neighbors",
    "local_weights",
    "query_vectors",
    "get_mahalanobis_matrix",
    "transform",
    "explain",
    "local_importance",
]
ANSWERED_BY_BLOCKS = ("predict", "predict_proba", "kneighbors", "local_weights", "score")


@pytest.fixture(scope="module")
def fitted():
    return {name: make().fit(X[::2], Y[::2]) for name, make in MODELS.items()}


def refused(call, cause, cure):
    with pytest.raises(ValueError, match=cause) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(cure, message), message


@pytest.mark.parametrize("form", UNSERVABLE)
@pytest.mark.parametrize("name", MODELS)
def test_everywhere_alike(fitted, name, form, tmp_path):
    give, cause, cure = UNSERVABLE[form]
    model, table = fitted[name], give(X[:60])
    refused(lambda: MODELS[name]().fit(give(X), Y), cause, cure)
    for question in [q for q in QUESTIONS if hasattr(model, q)]:
        more = (Y[:60],) if question == "score" else ()
        refused(partial(getattr(model, question), table, *more), cause, cure)
    if name != "KernelSVM":
        refused(lambda: model.add_cases(table, Y[:60]), cause, cure)
        refused(lambda: explain(model, table), cause, cure)
        refused(lambda: counterfactual(model, table), cause, cure)
        if form != "one dimension":  # of which every row is a table of its own to a page
            pytest.importorskip("bokeh")
            refused(lambda: explore(model, table, html=tmp_path / "page.html"), cause, cure)


@pytest.mark.parametrize("form", DASK)
@pytest.mark.parametrize("name", MODELS)
def test_collections_are_refused_where_they_are_not_answered(fitted, name, form):
    give, cause, cure = DASK[form]
    model, table = fitted[name], give(X[:60])
    if not name.startswith("PLML") or name == "PLMLCV":
        refused(lambda: MODELS[name]().fit(give(X), Y), cause, cure)
    by_blocks = () if name in ("AutoPLML", "KernelSVM") else ANSWERED_BY_BLOCKS
    for question in [q for q in QUESTIONS if hasattr(model, q) and q not in by_blocks]:
        more = (Y[:60],) if question == "score" else ()
        refused(partial(getattr(model, question), table, *more), cause, cure)
    if name != "KernelSVM":
        refused(lambda: model.add_cases(table, Y[:60]), cause, cure)


PAIRS = np.stack([X[:4], X[4:8]], axis=1)


@pytest.mark.parametrize(
    ("pairs", "cause"),
    [
        (sparse.csr_matrix(X), "pairs is a sparse matrix.*give pairs.toarray"),
        (PAIRS + 1j, "Complex data not supported: pairs"),
        (np.ma.masked_less(PAIRS, 1.0), "pairs is a masked array"),
        (X, "pairs must have shape"),
    ],
)
@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n != "KernelSVM"])
def test_pairs(fitted, name, pairs, cause):
    for question in ("pair_distance", "pair_score"):
        refused(partial(getattr(fitted[name], question), pairs), cause, "pairs")


@pytest.mark.parametrize("name", [n for n in MODELS if n != "KernelSVM"])
def test_labels(fitted, name):
    labels = sparse.csr_matrix(Y[:, None])
    refused(lambda: MODELS[name]().fit(X, labels), "y is a sparse matrix", r"y\.toarray")
    refused(lambda: fitted[name].add_cases(X, labels), "y is a sparse matrix", r"y\.toarray")


def test_the_encoder_of_tables():
    for give, cause, cure in [*UNSERVABLE.values(), *DASK.values()]:
        refused(lambda give=give: TableEncoder().fit(give(X)), cause, cure)
        refused(lambda give=give: TableEncoder().fit(X).transform(give(X)), cause, cure)


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.mtx", "a.svmlight"])
def test_files_of_matrices(tmp_path, name, capsys):
    matrix = sparse.random_array((20, 4), density=0.5, format="csr")
    path = tmp_path / name
    if name == "a.npz":
        sparse.save_npz(path, matrix)
    elif name == "a.npy":
        np.save(path, matrix.toarray())
    elif name == "a.mtx":
        mmwrite(path, matrix)
    else:
        path.write_text("1 1:0.5 3:0.25\n0 2:0.5 3:0.25\n" * 10)
    assert run("fit", path, "--target", "y") == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "a table with names is needed" in said
    assert "as CSV or Parquet" in said


@pytest.mark.parametrize("name", ["SML", "KernelSVM", "AutoPLML"])
def test_dates_where_the_model_knows_numbers(fitted, name):
    days = np.full((30, 4), np.datetime64("2024-01-31"))
    for table in (days, days - days):
        refused(lambda table=table: MODELS[name]().fit(table, Y[:30]), "dates or durations", "days")
        refused(lambda table=table: fitted[name].predict(table), "dates or durations", "days")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(b=pd.Timestamp("2024-01-31"))
    refused(lambda: fitted[name].predict(frame), "'b' holds dates", "numbers")


@pytest.mark.parametrize("value", [pd.Period("2024-01"), pd.Interval(0, 1), 1j, [1.0]])
def test_objects_that_are_no_numbers_are_named(fitted, value):
    frame = pd.DataFrame(X[:30], columns=list("abcd"))
    frame["c"] = pd.Series([value] * 30, dtype=object)
    for call in (lambda: MODELS["SML"]().fit(frame, Y[:30]), lambda: fitted["SML"].predict(frame)):
        with pytest.raises((TypeError, ValueError), match=r"feature .c. holds .*drop the column"):
            call()


def test_infinity_in_a_table(fitted):
    table = np.where(X > 7.0, np.inf, X)
    row, column = np.argwhere(table == np.inf)[0]
    for name in ("SML", "AutoPLML"):
        refused(
            lambda name=name: fitted[name].predict(table),
            f"contains infinity in feature {column}, row {row}",
            "drop the row",
        )


def test_lazy_frames(fitted):
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame(X, schema=list("abcd")).lazy()
    for name in ("SML", "AutoPLML"):
        refused(lambda name=name: MODELS[name]().fit(lazy, Y), "LazyFrame", r"X\.collect\(\)")
        refused(lambda name=name: fitted[name].explain(lazy), "LazyFrame", r"X\.collect\(\)")


@pytest.mark.parametrize("form", ["polars", "pyarrow"])
def test_frames_of_others_are_answered_as_those_of_pandas(form):
    """A number with gaps, a category and a date: fits, explanations, staleness."""
    other = pytest.importorskip(form)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"]).mask(X[:, :2] < 2.7)
    frame["kind"] = np.where(X[:, 2] > 4.0, "long", "short")
    frame["day"] = pd.Timestamp("2024-01-31") + pd.to_timedelta((100 * X[:, 3]).astype(int), "D")
    give = other.from_pandas if form == "polars" else other.Table.from_pandas
    here, there = frame[::2].reset_index(drop=True), frame[1::2].reset_index(drop=True)
    ours = MODELS["AutoPLML"](random_state=0).fit(here, Y[::2])
    theirs = MODELS["AutoPLML"](random_state=0).fit(give(here), Y[::2])
    assert theirs.fill_scores_ == ours.fill_scores_
    np.testing.assert_array_equal(theirs.predict_proba(give(there)), ours.predict_proba(there))
    told = theirs.explain(give(there))
    np.testing.assert_array_equal(told.neighbors, ours.explain(there).neighbors)
    found = theirs.staleness(give(there), Y[1::2])
    assert found.accuracies == ours.staleness(there, Y[1::2]).accuracies
    told = explain(theirs, give(there), cases=give(here))
    expected = explain(ours, there, cases=here)
    assert told.text(3) == expected.text(3)
    change = counterfactual(theirs, give(there[:1]), cases=give(here))
    assert str(change) == str(counterfactual(ours, there[:1], cases=here))


@pytest.mark.parametrize("form", ["polars", "pyarrow"])
def test_frames_of_others_in_a_pipeline_and_in_the_explorer(form, tmp_path):
    other = pytest.importorskip(form)
    pytest.importorskip("bokeh")
    give = other.from_pandas if form == "polars" else other.Table.from_pandas
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), MODELS["SML"]()).fit(give(frame), Y)
    rows = give(frame[70:73].reset_index(drop=True))
    assert explain(model, rows).feature_names.tolist() == list("abcd")
    change = counterfactual(model, rows[:1] if form == "polars" else rows.slice(0, 1))
    assert model.predict(change.row)[0] == change.changed_prediction
    page = explore(model, rows, html=tmp_path / "page.html")
    assert page.data.facts["n_new"] == 3


def test_missing_numbers_of_pandas_are_explained(fitted):
    frame = pd.DataFrame(X[:9].round(), columns=list("abcd")).astype("Int64")
    frame.iloc[2, 1] = pd.NA
    told = fitted["AutoPLML"].explain(frame)
    assert "missing" in told.text(2)


def test_tensors_of_all_kinds(fitted):
    """With a gradient, of half precision and complex ones; staleness takes them as well."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(X[1::2])
    for name in ("SML", "AutoPLML"):
        model = fitted[name]
        expected = model.predict_proba(X[1::2])
        found = model.predict_proba(tensor.clone().requires_grad_())
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
        assert len(model.predict(tensor.bfloat16())) == len(tensor)
        refused(lambda model=model: model.predict(tensor + 0j), "Complex data", "imaginary parts")
        refused(
            lambda model=model: model.staleness(tensor.to_sparse(), Y[1::2]), "sparse", "to_dense"
        )
        stale = model.staleness(tensor.clone().requires_grad_(), Y[1::2])
        assert stale.accuracies == model.staleness(X[1::2], Y[1::2]).accuracies


def test_staleness_of_numbers_that_are_texts(fitted):
    stale = fitted["SML"].staleness(X[1::2].astype(str), Y[1::2])
    assert stale.accuracies == fitted["SML"].staleness(X[1::2], Y[1::2]).accuracies


def test_sparse_tensors(fitted):
    torch = pytest.importorskip("torch")
    for tensor in (torch.tensor(X).to_sparse(), torch.tensor(X).to_sparse_csr()):
        refused(lambda tensor=tensor: fitted["SML"].predict(tensor), "sparse tensor", "to_dense")
