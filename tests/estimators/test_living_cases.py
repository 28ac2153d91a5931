"""Cases that are added vote as if they had always been there, and the metric stays as it is."""

import threading

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from living import LIVING
from plml import DANN, GLML, LMNN, LMNNMM, PLML, SML, AutoPLML, KernelSVM, load, save
from plml.ops.topk import InnerProductIndex

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
#: Those whose predictions are votes of neighbours under a metric at the query.
VOTING = [name for name in LIVING if name not in ("LMNN-energy", "PLML-approximate")]
K = 3


@pytest.fixture(params=["whole space", "span", "float32"])
def data(request, rng):
    """Rows to learn from, cases to add, queries: (X, y) each."""
    X, y = load_iris(return_X_y=True)
    X = X + 0.1 * rng.normal(size=X.shape)
    if request.param == "span":
        X = X @ rng.normal(size=(4, 6)) + 3.0
    if request.param == "float32":
        X = X.astype(np.float32)
    parts = np.split(rng.permutation(len(X)), [80, 115])
    return [(X[part], y[part]) for part in parts]


@pytest.fixture
def plain(rng):
    X, y = load_iris(return_X_y=True)
    X = X + 0.1 * rng.normal(size=X.shape)
    parts = np.split(rng.permutation(len(X)), [80, 115])
    return [(X[part], y[part]) for part in parts]


def metrics_by_definition(model, learned, X, Q, codes):
    """(q, n, d, d) metrics between queries and cases, from what was learned from some rows."""
    if isinstance(model, DANN):
        everything = DANN(n_local=model.n_local_).fit(X, codes)
        return everything.get_mahalanobis_matrix(Q)[:, None]
    if isinstance(model, LMNNMM):
        return model.basis_metrics_[model.metric_of_][None].astype(float)
    if isinstance(model, GLML):
        return model.get_mahalanobis_matrix(Q)[:, None]
    nearest = [np.argmin(((learned.astype(float) - q) ** 2).sum(axis=1)) for q in Q.astype(float)]
    given = getattr(model, "query_weights", "nearest") == "nearest"
    weights = model.weights_[nearest] if given else model.local_weights(Q)
    if type(model).__name__ == "CBLML":
        weights = np.eye(len(model.anchors_))[
            [np.argmin(((model.anchors_ - q) ** 2).sum(axis=1)) for q in Q]
        ]
    at_query = np.einsum("qm,mde->qde", weights.astype(float), model.basis_metrics_)[:, None]
    if getattr(model, "case_metrics", None) is None:
        return at_query
    V = np.eye(codes.max() + 1)[codes] if model.case_metrics == "class" else model.local_weights()
    return at_query + np.einsum("nm,mde->nde", V, model.case_metrics_)[None]


def squared_by_definition(model, learned, X, Q, codes):
    differences = Q.astype(float)[:, None] - X.astype(float)
    M = metrics_by_definition(model, learned, X, Q, codes)
    M = np.broadcast_to(M, (*differences.shape[:2], *M.shape[2:]))
    return np.einsum("qnd,qnde,qne->qn", differences, M, differences)


def same_answers(model, other, Q):
    # Weights of several cases at once and one by one agree to the tolerance of their solver, and
    # energies of rows about another center to rounding.
    inexact = getattr(model, "case_metrics", None) == "local"
    inexact |= getattr(model, "decision", "") == "energy"
    rtol = 1e-7 if inexact else 0.0
    for points in (Q, None):
        (d, found), (d_other, found_other) = (m.kneighbors(points, K) for m in (model, other))
        np.testing.assert_array_equal(found, found_other)
        np.testing.assert_allclose(d, d_other, rtol=rtol)
    np.testing.assert_allclose(model.predict_proba(Q), other.predict_proba(Q), rtol=rtol)


def made_anew(model):
    """The same model with a metric that is built from the arrays."""
    fresh = object.__new__(type(model))
    fresh.__dict__ = {**vars(model), "_made_metric": None}
    return fresh


@pytest.mark.parametrize("name", VOTING)
def test_votes_are_those_of_a_naive_model_that_holds_the_cases(data, name):
    (X, y), (X_new, y_new), (Q, _) = data
    model = LIVING[name](n_neighbors=K).fit(X, y)
    model.predict(Q[:1])
    model.add_cases(X_new, y_new)
    everything, codes = np.vstack([X, X_new]), np.concatenate([y, y_new])
    squared = squared_by_definition(model, X, everything, Q, codes)
    expected = np.argsort(squared, axis=1, kind="stable")[:, :K]
    distances, found = model.kneighbors(Q)
    np.testing.assert_array_equal(found, expected)
    near = np.take_along_axis(squared, expected, axis=1)
    rtol = 1e-4 if X.dtype == np.float32 else 1e-7
    np.testing.assert_allclose(distances, np.sqrt(near), rtol=rtol)
    assert (found >= len(X)).any()  # some of them vote
    shares = np.stack([np.bincount(row, minlength=3) / K for row in codes[expected]])
    np.testing.assert_allclose(model.predict_proba(Q), shares)
    np.testing.assert_array_equal(model.predict(Q), shares.argmax(axis=1))


@pytest.mark.parametrize("name", LIVING)
def test_indexes_that_grew_and_shrank_answer_bit_for_bit_as_new_ones(data, name):
    (X, y), (X_new, y_new), (Q, _) = data
    model = LIVING[name](n_neighbors=K).fit(X, y)
    model.predict(Q[:1])
    for start in range(0, len(X_new), 10):
        model.add_cases(X_new[start : start + 10], y_new[start : start + 10])
    if name != "PLML-approximate":  # whose graph depends on the order of its making
        same_answers(model, made_anew(model), Q)
    model.forget_cases([3, 17, len(X), len(X) + 9])
    same_answers(model, made_anew(model), Q)
    model.add_cases(X_new[:5], y_new[:5])
    if name != "PLML-approximate":
        same_answers(model, made_anew(model), Q)
    assert len(model.training_cases()[0]) == len(X) + len(X_new) + 1


@pytest.mark.parametrize("name", LIVING)
def test_answers_depend_neither_on_order_nor_on_history(plain, name):
    (X, y), (X_new, y_new), (Q, _) = plain
    fitted = LIVING[name](n_neighbors=K).fit(X, y)
    before = fitted.predict_proba(Q)
    fitted.add_cases(X_new, y_new).forget_cases(np.arange(len(X), len(X) + len(X_new)))
    np.testing.assert_allclose(fitted.predict_proba(Q), before, atol=1e-9)
    if name == "PLML-approximate":
        return
    one = LIVING[name](n_neighbors=K).fit(X, y).add_cases(X_new, y_new).forget_cases([1, 4])
    two = LIVING[name](n_neighbors=K).fit(X, y).forget_cases([1, 4])
    for x, label in zip(X_new, y_new, strict=True):
        two.add_cases(x[None], [label])
    same_answers(one, two, Q)
    if hasattr(one, "local_weights"):
        np.testing.assert_allclose(one.local_weights(), two.local_weights(), atol=1e-12)


@pytest.mark.parametrize("name", [n for n in LIVING if n not in ("DANN", "LMNN-energy")])
def test_an_added_case_changes_no_distance(plain, name):
    (X, y), (X_new, y_new), (Q, _) = plain
    model = LIVING[name]().fit(X, y)
    pairs = np.stack([Q, Q[::-1]], axis=1)
    before = model.pair_distance(pairs), model.get_mahalanobis_matrix(Q)
    model.add_cases(X_new, y_new)
    np.testing.assert_array_equal(model.pair_distance(pairs), before[0])
    np.testing.assert_array_equal(model.get_mahalanobis_matrix(Q), before[1])


def test_weights_of_added_cases_solve_stage_1_for_each_alone(plain):
    """min_w ||x - U'w||^2 + locality <w, G> + smoothness sum_j S_xj ||w - W_j||^2 over the simplex:
    no corner is downhill.
    """
    (X, y), (X_new, y_new), _ = plain
    model = PLML(n_bases=4, smoothness=3.0, tol=1e-6, max_iter=5000, random_state=0, rescale=False)
    model.fit(X, y).add_cases(X_new, y_new)
    weights, U = model.local_weights(), model.anchors_
    np.testing.assert_array_equal(weights[: len(X)], model.weights_)
    for x, w in zip(X_new, weights[len(X) :], strict=True):
        squared = ((X - x) ** 2).sum(axis=1)
        near = np.argsort(squared)[:7]
        scales = [np.sqrt(np.sort(((X - X[j]) ** 2).sum(axis=1))[7]) for j in near]
        S = np.exp(-squared[near] / (np.sqrt(squared[near][6]) * np.array(scales)))[:6]
        G = ((x - U) ** 2).sum(axis=1)
        gradient = 2 * (w @ U - x) @ U.T + G
        gradient += 2 * 3.0 * (S[:, None] * (w - model.weights_[near[:6]])).sum(axis=0)
        value = ((x - w @ U) ** 2).sum() + w @ G
        assert w @ gradient - gradient.min() <= 1e-4 * value
        np.testing.assert_allclose(w.sum(), 1.0)


def test_nothing_is_built_again(plain, monkeypatch):
    (X, y), (X_new, y_new), (Q, _) = plain
    models = [SML().fit(X, y), LMNNMM().fit(X, y), PLML(n_bases=3, random_state=0).fit(X, y)]
    for model in models:
        model.kneighbors(Q)
    monkeypatch.setattr(InnerProductIndex, "__init__", None)
    for model in models:
        model.add_cases(X_new, y_new).forget_cases([100]).kneighbors(Q)
    monkeypatch.undo()
    # Scales of the graph are found again, in an index of their own.
    monkeypatch.setattr("plml.stages.search.InnerProductIndex", None)
    monkeypatch.setattr("plml.stages.own_metric_search.InnerProductIndex", None)
    monkeypatch.setattr("plml.metric.basis_metric.EuclideanIndex", None)
    for model in models:
        model.forget_cases([0]).kneighbors(Q)


@pytest.mark.parametrize("name", LIVING)
def test_everything_else_follows(plain, name, tmp_path):
    (X, y), (X_new, y_new), (Q, _) = plain
    model = LIVING[name](n_neighbors=K).fit(X, y).add_cases(X_new, y_new).forget_cases([2, 90])
    expected = np.delete(np.vstack([X, X_new]), [2, 90], axis=0)
    rows, codes = model.training_cases()
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(codes, np.delete(np.concatenate([y, y_new]), [2, 90]))
    told = model.explain(Q[:4])
    if name != "LMNN-energy":
        found = model.kneighbors(Q[:4], return_distance=False)
        np.testing.assert_array_equal(told.neighbors, found)
    np.testing.assert_array_equal(told.neighbor_values, expected[told.neighbors])
    assert len(model.explain().predictions) == len(expected)
    assert model.average_importance().shape == (4,)
    if hasattr(model, "index_vectors"):
        assert len(model.index_vectors()) == len(expected)
        assert len(model.local_weights()) == len(expected)
        inner = model.query_vectors(Q) @ model.index_vectors().T
        exact = made_anew(model).set_params(search_backend="exact") if "approx" in name else model
        np.testing.assert_array_equal(
            np.argsort(-inner, axis=1)[:, :K], exact.kneighbors(Q, return_distance=False)
        )
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    same_answers(again, model, Q)
    same_answers(again.add_cases(X_new[:3], y_new[:3]), model.add_cases(X_new[:3], y_new[:3]), Q)


@pytest.mark.parametrize("name", [n for n in LIVING if n != "PLML-approximate"])
def test_vectors_of_old_cases_stay_when_others_come_and_go(plain, name):
    """So that an index outside can be added to and deleted from."""
    (X, y), (X_new, y_new), (Q, _) = plain
    model = LIVING[name]().fit(X, y)
    if not hasattr(model, "index_vectors"):
        return
    before, asked = model.index_vectors(), model.query_vectors(Q)
    model.add_cases(X_new, y_new)
    np.testing.assert_allclose(model.index_vectors()[: len(X)], before, atol=1e-10)
    np.testing.assert_allclose(model.query_vectors(Q), asked, atol=1e-10)
    rows = np.arange(len(X), len(X) + len(X_new))
    added = model.index_vectors(rows)
    np.testing.assert_allclose(added, model.index_vectors()[rows], atol=1e-10)
    model.forget_cases([5, 6])
    expected = np.delete(np.vstack([before, added]), [5, 6], axis=0)
    if name != "PLML-local":  # an added case may have been near a forgotten one
        np.testing.assert_allclose(model.index_vectors(), expected, atol=1e-10)


@pytest.mark.parametrize("ask", ["index_vectors", "training_metrics", "training_values"])
def test_cases_are_asked_for_by_their_numbers(plain, ask):
    (X, y), _, _ = plain
    table = AutoPLML(random_state=0, metrics=("one",), n_members=1)
    model = (table if ask == "training_values" else PLML(n_bases=3, random_state=0)).fit(X, y)
    question = getattr(model, ask)
    everything = question(np.arange(80)).astype(float)
    for some in ([7, 3, 3], (7, 3), range(5), np.arange(80) == 9):
        found = question(some).astype(float)
        np.testing.assert_allclose(found, everything[np.asarray(some)], rtol=1e-12)
    for wrong, message in [
        ([3, -1], "there is no case -1; the cases are numbered from 0 to 79"),
        ([80], "there is no case 80; the cases are numbered from 0 to 79"),
        ([1.5], "rows must be numbers of cases from 0 to 79, or a mask of 80; got float64"),
        ([True, False], "or a mask of 80; got bool of shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            question(wrong)


@pytest.mark.parametrize("name", LIVING)
def test_new_classes(plain, name):
    (X, y), _, (Q, _) = plain
    y = np.array(["setosa", "versicolor", "virginica"])[y]
    model = LIVING[name](n_neighbors=K).fit(X, y)
    far = np.full((K, 4), 40.0) + np.arange(K)[:, None]
    with pytest.raises(ValueError, match="'tulip'; fit again to learn them, or take them as cases"):
        model.add_cases(far, ["tulip"] * K)
    before = model.predict(Q)
    model.add_cases(far, ["tulip"] * K, new_classes="allow")
    assert list(model.classes_) == ["setosa", "tulip", "versicolor", "virginica"]
    np.testing.assert_array_equal(model.predict(Q), before)
    if name != "LMNN-energy":
        assert list(model.predict(far + 0.1)) == ["tulip"] * K
    assert model.predict_proba(Q).shape == (len(Q), 4)
    model.add_cases(Q[:2], ["tulip", "setosa"])  # known by now
    model.forget_cases([0, 1])
    same_answers(model, made_anew(model), Q)
    assert model.explain(Q[:2]).probabilities.shape == (2, 4)
    with pytest.raises(ValueError, match="class 'tulip' would have no case left"):
        model.forget_cases(model.training_cases()[1] == 1)


def test_the_metric_of_a_new_class_is_the_mean_of_the_others(plain):
    (X, y), (X_new, _), _ = plain
    for model, metrics in [
        (LIVING["LMNNMM"](), "basis_metrics_"),
        (LIVING["PLML-class"](), "case_metrics_"),
    ]:
        model.fit(X, 2 * y)
        learned = getattr(model, metrics)
        model.add_cases(X_new[:1], [1], new_classes="allow")
        expected = [learned[0], learned.mean(axis=0), learned[1], learned[2]]
        np.testing.assert_allclose(getattr(model, metrics), expected)


ADDED_WRONGLY = {
    "features": (lambda X, y: (X[:, 1:], y), "3 features"),
    "labels": (lambda X, y: (X, y[1:]), "X has 35 rows and y has 34 labels"),
    "missing label": (lambda X, y: (X, np.where(y == 0, np.nan, y)), "missing labels"),
    "texts": (lambda X, y: (X, y.astype(str)), "y holds texts, and the classes of the model are"),
    "NaN": (lambda X, y: (np.where(X > 6, np.nan, X), y), "NaN in feature 0"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "unknown": (lambda X, y: (X, y + 1), "'3'; fit again"),
    "way": (lambda X, y: (X, y, "perhaps"), 'new_classes must be "refuse" or "allow"'),
}
FORGOTTEN_WRONGLY = {
    "beyond": ([3, 80], "there is no case 80; the cases are numbered from 0 to 79"),
    "negative": ([-1], "there is no case -1"),
    "twice": ([3, 5, 3], "case 3 is named more than once"),
    "floats": ([1.5], "indices must be numbers of cases from 0 to 79, or a mask of 80"),
    "short mask": ([True, False], "a mask of 80"),
    "texts": (["a"], "indices must be numbers"),
    "everything": (list(range(80)), "would have no case left"),
}


@pytest.mark.parametrize("name", ["PLML", "LMNNMM", "DANN", "GLML"])
def test_an_error_leaves_the_model_as_it_was(plain, name):
    (X, y), (X_new, y_new), (Q, _) = plain
    model = LIVING[name](n_neighbors=K).fit(X, y)
    before, state = model.predict_proba(Q), dict(vars(model))
    for change, message in ADDED_WRONGLY.values():
        with pytest.raises(ValueError, match=message):
            model.add_cases(*change(X_new, y_new))
    for indices, message in FORGOTTEN_WRONGLY.values():
        with pytest.raises(ValueError, match=message):
            model.forget_cases(indices)
    assert {k: id(v) for k, v in vars(model).items()} == {k: id(v) for k, v in state.items()}
    np.testing.assert_array_equal(model.predict_proba(Q), before)


def test_what_must_stay(plain):
    (X, y), (X_new, y_new), _ = plain
    model = SML(n_neighbors=100).fit(np.vstack([X, X_new]), np.concatenate([y, y_new]))
    with pytest.raises(ValueError, match="n_neighbors=100 is more than the 99 cases"):
        model.forget_cases(np.arange(16))
    model = SML().fit(X, y).add_cases(X_new, y_new)
    with pytest.raises(ValueError, match="none of the 80 rows that were learned from would be"):
        model.forget_cases(np.arange(80))
    model.forget_cases(np.arange(1, 80))
    assert model.n_learned == len(model.weights_) == 1
    assert model.forget_cases([]).predict(X).shape == (80,)
    with pytest.raises(NotFittedError):
        SML().add_cases(X, y)
    with pytest.raises(ValueError, match="KernelSVM has no neighbours"):
        KernelSVM(Cs=(1.0,)).fit(X, y).add_cases(X_new, y_new)
    with pytest.raises(ValueError, match="KernelSVM has no neighbours"):
        KernelSVM(Cs=(1.0,)).fit(X, y).forget_cases([0])


def test_names_of_rows_come_and_go(plain):
    (X, y), (X_new, y_new), _ = plain
    index = [f"case {i}" for i in range(len(X))]
    model = SML().fit(pd.DataFrame(X, columns=list("abcd"), index=index), y)
    model.add_cases(pd.DataFrame(X_new[:2], columns=list("abcd"), index=["p", "q"]), y_new[:2])
    model.forget_cases([0])
    assert list(model.training_names()) == [*index[1:], "p", "q"]
    with pytest.raises(ValueError, match="feature names"):
        model.add_cases(pd.DataFrame(X_new, columns=list("bacd")), y_new)
    unnamed = SML().fit(X, y)
    assert unnamed.add_cases(X_new, y_new).training_names() is None
    unnamed.add_cases(pd.DataFrame(X_new[:1], index=["z"]).to_numpy(), y_new[:1])
    frame = pd.DataFrame(X_new[:1], columns=list("abcd"), index=[7])
    named = SML().fit(pd.DataFrame(X, columns=list("abcd")), y).add_cases(frame, y_new[:1])
    assert list(named.training_names()) == [*range(len(X)), 7]


def test_a_fit_begins_anew(plain):
    (X, y), (X_new, y_new), (Q, _) = plain
    model = SML().fit(X, y).add_cases(X_new, y_new + 1, new_classes="allow").forget_cases([0])
    model.fit(X, y)
    assert model.n_learned == len(model.training_cases()[0]) == len(X)
    same_answers(model, SML().fit(X, y), Q)


def test_threads_that_add_and_ask_at_the_same_time(plain):
    """No case is lost, and every answer is that of one case base."""
    (X, y), (X_new, y_new), (Q, _) = plain
    model = LIVING["PLML"](n_neighbors=K).fit(X, y)
    model.predict(Q)
    errors, done = [], threading.Event()

    def ask():
        while not done.is_set():
            try:
                rows, codes = model.training_cases()
                assert len(rows) == len(codes)
                assert model.kneighbors(Q, return_distance=False).max() < len(X) + len(X_new)
                np.testing.assert_allclose(model.predict_proba(Q).sum(axis=1), 1.0)
            except Exception as error:
                errors.append(error)
                return

    def add(part):
        for i in part:
            model.add_cases(X_new[[i]], y_new[[i]])

    asking = [threading.Thread(target=ask) for _ in range(2)]
    adding = [threading.Thread(target=add, args=(range(i, 30, 3),)) for i in range(3)]
    for thread in asking + adding:
        thread.start()
    for thread in adding:
        thread.join()
    done.set()
    for thread in asking:
        thread.join()
    assert not errors
    assert len(model.training_cases()[0]) == len(X) + 30
    found = {row.tobytes() for row in model.training_cases()[0]}
    assert found == {row.tobytes() for row in np.vstack([X, X_new[:30]])}
    same_answers(model, made_anew(model), Q)


def test_an_energy_is_that_of_all_cases(plain):
    """The rule of Weinberger and Saul over the cases of now, as of a model that was given them."""
    (X, y), (X_new, y_new), (Q, _) = plain
    model = LMNN(decision="energy", solver="factored").fit(X, y).add_cases(X_new, y_new)
    model.forget_cases([4])
    other = LMNN(decision="energy", solver="factored", max_iter=1).fit(
        np.delete(np.vstack([X, X_new]), 4, axis=0), np.delete(np.concatenate([y, y_new]), 4)
    )
    other.basis_metrics_, other._unit = model.basis_metrics_, model._unit
    np.testing.assert_allclose(model.predict_proba(Q), other.predict_proba(Q), atol=1e-9)


@pytest.mark.parametrize("name", ["PLML", "PLML-local", "PLML-class", "SML", "CBLML"])
def test_indexes_on_a_device_follow(plain, name):
    pytest.importorskip("torch")
    (X, y), (X_new, y_new), (Q, _) = plain
    models = [LIVING[name](n_neighbors=K).fit(X, y) for _ in range(2)]
    models[0].set_params(device="torch")
    for model in models:
        model.predict(Q)
        model.add_cases(X_new, y_new).forget_cases([3, 90])
    same_answers(models[0], made_anew(models[0]), Q)
    for one, two in zip(*(model.kneighbors(Q, K) for model in models), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def test_the_explorer_follows(plain):
    from plml.explorer.subject import subject_of

    (X, y), (X_new, y_new), (Q, _) = plain
    model = LIVING["PLML"](n_neighbors=K).fit(X, y).add_cases(X_new, y_new).forget_cases([0, 80])
    subject = subject_of(model)
    assert subject.n_training == len(X) + len(X_new) - 2
    np.testing.assert_allclose(subject.votes(Q).probabilities, model.predict_proba(Q))
    told = subject.explain_training(np.array([len(X)]))
    np.testing.assert_array_equal(told.predictions, model.explain().predictions[[len(X)]])


def test_data_on_a_cluster_is_brought_here_first(plain):
    da = pytest.importorskip("dask.array")
    (X, y), (X_new, y_new), _ = plain
    model = LIVING["SML"]().fit(X, y)
    with pytest.raises(ValueError, match=r"one machine; give X.compute\(\)"):
        model.add_cases(da.from_array(X_new), y_new)
    model._training = None  # as of a fit on a cluster
    for change in (lambda: model.add_cases(X_new, y_new), lambda: model.forget_cases([0])):
        with pytest.raises(ValueError, match=r"plml.dask.collect\(model\)"):
            change()
