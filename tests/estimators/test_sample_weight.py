"""Weights of rows and of classes, for every estimator."""

import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import judge
import plml
from every_estimator import ESTIMATORS
from plml import CBLML, GLML, PLML, PLMLCV, SML, AutoPLML, KernelSVM
from plml.metric.votes import RIDGE
from plml.ops.projections import psd_factor

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
QUICK = {"metrics": ("one",), "priors": ("within",), "random_state": 0, "regularizations": (0.1,)}
EVERY = {**ESTIMATORS, "AutoPLML": lambda **p: AutoPLML(**QUICK | p)}


@pytest.fixture
def weighted(blobs, rng):
    X, y = blobs
    return X, y, rng.choice([0.0, 0.5, 1.0, 3.0], size=len(y))


@pytest.mark.parametrize("name", EVERY)
def test_a_row_of_weight_zero_is_not_there(name, weighted):
    X, y, v = weighted
    there = v > 0
    model, without = EVERY[name](), EVERY[name]()
    model.fit(X, y, sample_weight=v)
    without.fit(X[there], y[there], sample_weight=v[there])
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), without.predict(X))
    np.testing.assert_array_equal(model.kept_rows_, np.flatnonzero(there))
    if hasattr(model, "kneighbors"):
        np.testing.assert_array_equal(model.kneighbors(X, 3), without.kneighbors(X, 3))
        np.testing.assert_array_equal(model.training_names(), np.flatnonzero(there))


@pytest.mark.parametrize("name", EVERY)
def test_weights_of_one_are_no_weights(name, blobs):
    X, y = blobs
    plain = EVERY[name]().fit(X, y)
    ones = EVERY[name](class_weight="balanced").fit(X, y, sample_weight=[1] * len(y))
    np.testing.assert_array_equal(ones.predict_proba(X), plain.predict_proba(X))
    assert not hasattr(plain, "kept_rows_")


@pytest.mark.parametrize("name", EVERY)
def test_class_weights_are_weights_of_their_rows(name, blobs, rng):
    X, y = blobs
    keep = np.flatnonzero((y != 1) | (np.arange(len(y)) % 3 == 0))
    X, labels, v = X[keep], np.array(["a", "b", "c"])[y[keep]], rng.uniform(0.5, 2.0, len(keep))
    of_class = {"a": 2.0, "c": 0.25}
    by_class = EVERY[name](class_weight=of_class).fit(X, labels, sample_weight=v)
    factors = np.array([of_class.get(label, 1.0) for label in labels])
    by_row = EVERY[name]().fit(X, labels, sample_weight=v * factors)
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    balanced = EVERY[name](class_weight="balanced").fit(X, labels, sample_weight=v)
    totals = {c: v[labels == c].sum() for c in "abc"}
    factors = np.array([v.sum() / (3 * totals[label]) for label in labels])
    same = EVERY[name]().fit(X, labels, sample_weight=v * factors)
    np.testing.assert_allclose(balanced.predict_proba(X), same.predict_proba(X), atol=1e-6)


def in_copies(rng, n_copies=8):
    """Few places, many rows in each: more rows change no neighbourhood."""
    y = np.arange(12) % 2
    X = rng.normal(size=(12, 3)) + 1.5 * np.eye(2, 3)[y]
    counts = rng.integers(1, 4, size=12)
    each = np.repeat(np.arange(12), n_copies)
    more = np.repeat(np.arange(12), n_copies * counts)
    return (X[each], y[each], counts[each].astype(float)), (X[more], y[more])


@pytest.mark.parametrize(
    "model",
    [
        PLML(n_bases=3, random_state=0, tol=1e-8, max_iter=5000),
        PLML(n_bases=3, random_state=0, tol=1e-8, max_iter=5000, case_metrics="class", pull=0.3,
             query_weights="optimize", prior="within"),
        SML(tol=1e-8, prior="identity"),
        CBLML(n_bases=3, random_state=0, tol=1e-8),
        GLML(metric_shrinkage=0.3),
        KernelSVM(kernels=["gaussian"], Cs=[1.0], max_iter=-1),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_a_weight_is_as_many_rows_where_the_neighbourhoods_are_the_same(model, rng):
    (X, y, v), repeated = in_copies(rng)
    model, again = clone(model).fit(X, y, sample_weight=v), clone(model).fit(*repeated)
    plain, Q = clone(model).fit(X, y), rng.normal(size=(20, 3))
    if isinstance(model, KernelSVM):
        assert model.width_ == pytest.approx(again.width_)
        assert model.scale_ == pytest.approx(again.scale_)
        found = [one.decision_function(Q) for one in (model, again, plain)]
        atol = 0.01
    else:
        found = [one.get_mahalanobis_matrix(Q) for one in (model, again, plain)]
        atol = 1e-4 * np.abs(found[0]).max()
    np.testing.assert_allclose(found[0], found[1], atol=atol)
    assert np.abs(found[0] - found[2]).max() > 5 * atol


@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_the_certificates_are_those_of_the_weighted_problems(solver, weighted):
    X, y, v = weighted
    X, y, v = X[v > 0], y[v > 0], v[v > 0]
    X = X - X.mean(axis=0)
    model = PLML(n_bases=3, random_state=0, rescale=False, solver=solver, tol=1e-3)
    model.fit(X, y, sample_weight=v)
    assert model.converged_
    judged = judge.metrics_primal(
        X, y, model.weights_, model.basis_metrics_, 1.0, 1.0, sample_weight=v
    )
    assert model.objective_ == pytest.approx(judged, rel=1e-8)
    tight = clone(model).set_params(tol=1e-7, solver="auto", max_iter=20_000)
    tight.fit(X, y, sample_weight=v)
    S, U = judge.similarity(X, 6), model.anchors_
    loose, best = (
        judge.weights_primal(X, U, one.weights_, S, 1.0, 100.0, v) for one in (model, tight)
    )
    assert loose - best <= model.weights_gap_ * loose + 1e-9
    assert best <= loose * (1 + 1e-9)


def test_the_unit_is_weighted(weighted):
    X, y, v = weighted
    model = SML().fit(X, y, sample_weight=v)
    mean = np.average(X, axis=0, weights=v)
    square = np.average(np.sum((X - mean) ** 2, axis=1), weights=v)
    assert model.scale_ == pytest.approx(square**0.5)


@pytest.mark.parametrize("vote", ["uniform", "distance", "linear"])
def test_votes_are_multiplied_with_weights(vote, weighted, rng):
    X, y, v = weighted
    X, y, v = X[v > 0], y[v > 0], v[v > 0]
    Q = rng.normal(size=(15, 4)) + 1.0
    model = SML(n_neighbors=9, vote=vote, weigh_votes=True).fit(X, y, sample_weight=v)
    distances, nearest = model.kneighbors(Q)
    found, M = model.predict_proba(Q), model.get_mahalanobis_matrix(Q)[0]
    for i in range(len(Q)):
        counts, classes = v[nearest[i]], np.eye(3)[y[nearest[i]]]
        if vote == "linear":
            Z = (X[nearest[i]] - Q[i]) @ psd_factor(M).T
            alpha = RIDGE * np.average(np.sum(Z**2, axis=1), weights=counts)
            fitted = Ridge(alpha=alpha, tol=1e-12).fit(Z, classes, sample_weight=counts)
            expected = np.maximum(fitted.predict(np.zeros((1, Z.shape[1])))[0], 0.0)
        else:
            expected = counts / (distances[i] if vote == "distance" else 1.0) @ classes
        np.testing.assert_allclose(found[i], expected / expected.sum(), atol=1e-7)
    told = model.explain(Q)
    np.testing.assert_allclose(told.probabilities, found, atol=1e-12)
    texts = [told.text(i) for i in range(len(Q)) if len(set(y[nearest[i]])) > 1]
    assert texts
    assert all("their weights" in text for text in texts)
    if vote != "linear":
        of_classes = np.einsum("qk,qkc->qc", told.votes, np.eye(3)[y[nearest]])
        np.testing.assert_allclose(of_classes, found, atol=1e-12)
    one_vote = clone(model).set_params(weigh_votes=False).fit(X, y, sample_weight=v)
    assert np.abs(one_vote.predict_proba(Q) - found).max() > 0.05
    assert all("weights" not in one_vote.explain(Q).text(i) for i in range(len(Q)))


def test_votes_of_a_case_metric_and_of_two_sided_ones_are_weighted(weighted):
    X, y, v = weighted
    for model in (PLML(n_bases=3, case_metrics="class", random_state=0), plml.LMNNMM(), GLML()):
        both = [
            clone(model).set_params(n_neighbors=9, vote="linear", weigh_votes=w)
            .fit(X, y, sample_weight=v).predict_proba(X + 0.3)
            for w in (True, False)
        ]  # fmt: skip
        np.testing.assert_allclose(both[0].sum(axis=1), 1.0)
        assert np.abs(both[0] - both[1]).max() > 0.01


def test_a_committee_votes_with_weights(weighted):
    X, y, v = weighted
    model = AutoPLML(**QUICK | {"metrics": ("prior", "one")}, weigh_votes=True)
    model.fit(X, y, sample_weight=v)
    shares = np.zeros((len(X), 3))
    for one, pairs in model.committee():
        assert one.weigh_votes
        for weight, (k, how) in pairs:
            alone = clone(one).set_params(n_neighbors=k, vote=how)
            alone.__dict__ = {**vars(one), "n_neighbors": k, "vote": how}
            shares += weight * alone.predict_proba(model.encoder_.transform(X))
    told = model.explain(X)
    np.testing.assert_allclose(sum(b.weight * b.shares for b in told.ballots), shares, atol=1e-9)
    np.testing.assert_array_equal(told.probabilities.argmax(1), model.predict_proba(X).argmax(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: -v, r"sample_weight is -1 in row 0; a weight must be zero, or between"),
        (lambda v: np.where(np.arange(len(v)) == 7, np.nan, v), "sample_weight is nan in row 7"),
        (lambda v: v * np.inf, "sample_weight is inf in row 0"),
        (lambda v: v * 1e-13, "sample_weight is 1e-13 in row 0"),
        (
            lambda v: v * 1e13,
            r"is 1e\+13 in row 0; a weight must be zero, or between 1e-12 and 1e\+12",
        ),
        (lambda v: [[1.0], *v[1:]], "sample_weight is ragged; give one number per row"),
        (lambda v: v[:-1], r"shape \(74,\), and X has 75 rows"),
        (lambda v: v[:, None], r"shape \(75, 1\), and X has 75 rows"),
        (lambda v: 1.0, r"shape \(\), and X has 75 rows"),
        (lambda v: 0.0 * v, "sample_weight is zero in every row"),
        (lambda v: np.where(np.arange(len(v)) < 25, 0.0, v), "every row of class 0 has"),
        (lambda v: ["much"] * len(v), "not numbers"),
        (lambda v: np.ma.masked_array(v, np.arange(len(v)) == 2), "masked"),
    ],
)
@pytest.mark.parametrize("name", ["PLML", "KernelSVM", "AutoPLML", "GLML"])
def test_weights_that_are_none_are_refused_in_a_line(name, change, message, blobs):
    X, y = blobs
    with pytest.raises(ValueError, match=message) as caught:
        EVERY[name]().fit(X, y, sample_weight=change(np.ones(len(y))))
    assert "\n" not in str(caught.value)


def test_weights_whose_product_is_out_of_range_are_refused(blobs):
    X, y = blobs
    for large in (1e7, 1e-7):
        with pytest.raises(ValueError, match=r"sample_weight times class_weight is 1e"):
            SML(class_weight={0: large}).fit(X, y, sample_weight=np.full(len(y), large))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_weights_at_the_ends_of_their_range(name, single, blobs):
    X, y = blobs
    X = X.astype(np.float32) if single else X
    few = {"max_iter": 50, "weigh_votes": True}
    few = {key: few[key] for key in few.keys() & EVERY[name]().get_params()}
    for weights in (1e12, 1e-12, np.where(np.arange(len(y)) % 9 == 3, 1e12, 1e-12)):
        model = EVERY[name](**few).fit(X, y, sample_weight=np.ones(len(y)) * weights)
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({5: 1.0}, r"class_weight names 5, which is not a class of y; the classes are 0, 1, 2"),
        ({0: 0.0}, "class_weight of class 0 is 0.0"),
        ({0: -1}, "class_weight of class 0 is -1"),
        ({0: np.nan}, "class_weight of class 0 is nan"),
        ({0: "much"}, "class_weight of class 0 is 'much'"),
        ("even", "class_weight"),
    ],
)
@pytest.mark.parametrize("name", ["SML", "KernelSVM", "AutoPLML"])
def test_class_weights_that_are_none_are_refused_in_a_line(name, class_weight, message, blobs):
    with pytest.raises(ValueError, match=message) as caught:
        EVERY[name](class_weight=class_weight).fit(*blobs)
    assert "\n" not in str(caught.value)


def test_rows_left_out_are_said_and_named(weighted):
    X, y, v = weighted
    with pytest.warns(UserWarning, match="kept_rows_ says where they were"):
        model = SML(n_neighbors=3).fit(X, y, sample_weight=v)
    with pytest.warns(UserWarning, match="kept_rows_"):
        AutoPLML(**QUICK).fit(X, y, sample_weight=v)
    np.testing.assert_array_equal(model.training_cases()[0], X[model.kept_rows_])
    names = [f"case {i}" for i in range(len(X))]
    framed = SML().fit(pd.DataFrame(X, names), y, sample_weight=v)
    assert list(framed.training_names()) == [names[i] for i in model.kept_rows_]
    assert SML().fit(X, y, sample_weight=v + 1).training_names() is None


def test_rows_of_weight_zero_need_be_no_numbers(weighted):
    X, y, v = weighted
    dirty = np.where(v[:, None] == 0.0, np.nan, X)
    for model in (SML(), AutoPLML(**QUICK), KernelSVM()):
        found = clone(model).fit(dirty, y, sample_weight=v).predict_proba(X)
        np.testing.assert_array_equal(found, model.fit(X, y, sample_weight=v).predict_proba(X))


@pytest.mark.parametrize("kind", [list, pd.Series, np.float32, "frame"])
def test_weights_and_rows_in_other_containers(kind, weighted):
    X, y, v = weighted
    expected = SML().fit(X, y, sample_weight=v).basis_metrics_
    given = v.astype(np.float32) if kind is np.float32 else v
    table, labels = X, y
    if kind == "frame":
        table, labels = pd.DataFrame(X, columns=list("abcd")), pd.Series(y, np.arange(len(y))[::-1])
    elif kind is not np.float32:
        given, table = kind(v), X.tolist()
    found = SML().fit(table, labels, sample_weight=given)
    np.testing.assert_array_equal(found.basis_metrics_, expected)


@pytest.mark.parametrize("as_masks", [False, True])
@pytest.mark.parametrize("name", ["PLMLCV", "GLML", "KernelSVM", "AutoPLML"])
def test_folds_that_are_given_speak_of_the_rows_that_are_given(name, as_masks, weighted):
    X, y, v = weighted
    there = np.flatnonzero(v)
    splits = list(StratifiedKFold(3).split(X, y))
    if as_masks:
        splits = [tuple(np.isin(np.arange(len(y)), p) for p in split) for split in splits]
    model = EVERY[name](cv=splits).fit(X, y, sample_weight=v)
    rows = [tuple(np.arange(len(y))[p] for p in split) for split in splits]
    left = [tuple(np.flatnonzero(np.isin(there, p)) for p in split) for split in rows]
    without = EVERY[name](cv=left).fit(X[there], y[there], sample_weight=v[there])
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    scores = [one.cv_results_["mean_test_score"] for one in (model, without)]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize(
    "model",
    [
        SML(),
        PLML(n_bases=3, random_state=0),
        PLMLCV(n_bases=3, regularizations=[1.0], random_state=0),
        plml.LMNN(),
        KernelSVM(Cs=[1.0]),
        AutoPLML(**QUICK),
    ],
    ids=lambda model: type(model).__name__,
)
def test_weights_are_routed(model, weighted, tmp_path):
    X, y, v = weighted
    X = X * [1.0, 5.0, 0.2, 1.0]
    with sklearn.config_context(enable_metadata_routing=True):
        model = clone(model).set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, model)
        search = GridSearchCV(pipeline, {}, cv=2).fit(X, y, sample_weight=v)
        scores = cross_validate(pipeline, X, y, params={"sample_weight": v}, cv=2)["test_score"]
        assert search.best_score_ == pytest.approx(scores.mean())
    rows = scaler.fit(X, sample_weight=v).transform(X)
    direct = clone(model).fit(rows, y, sample_weight=v)
    routed = search.best_estimator_
    np.testing.assert_allclose(routed.predict_proba(X), direct.predict_proba(rows))
    expected = np.average(direct.predict(rows) == y, weights=v)
    assert routed.score(X, y, sample_weight=v) == pytest.approx(expected)
    by_hand = []
    for train, test in StratifiedKFold(2).split(X, y):
        of_train = StandardScaler().fit(X[train], sample_weight=v[train])
        fitted = clone(model).fit(of_train.transform(X[train]), y[train], sample_weight=v[train])
        by_hand.append(fitted.score(of_train.transform(X[test]), y[test], sample_weight=v[test]))
    np.testing.assert_allclose(scores, by_hand)
    plml.save(routed[-1], tmp_path / "model.skops")  # with its requests
    loaded = plml.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict_proba(rows), routed[-1].predict_proba(rows))
    assert routed[-1].get_metadata_routing().fit.requests["sample_weight"] is True


def test_a_checkpoint_knows_the_weights(weighted, tmp_path):
    X, y, v = weighted
    path = tmp_path / "fit.npz"
    first = SML().fit(X, y, sample_weight=v, checkpoint=path)
    again = SML().fit(X, y, sample_weight=v, checkpoint=path)
    np.testing.assert_array_equal(first.basis_metrics_, again.basis_metrics_)
    kept = v > 0
    SML().fit(X[kept], y[kept], sample_weight=v[kept], checkpoint=path)  # the same fit
    for other in (v + 1.0, np.where(v > 0, 2.0 * v, 0.0)):
        with pytest.raises(ValueError, match="belongs to a fit with other data"):
            SML().fit(X, y, sample_weight=other, checkpoint=path)
    with pytest.raises(ValueError, match="belongs to a fit with"):
        SML(class_weight={0: 2.0}).fit(X, y, sample_weight=v, checkpoint=path)
    auto = tmp_path / "auto.npz"
    AutoPLML(**QUICK).fit(X, y, sample_weight=v, checkpoint=auto)
    with pytest.raises(ValueError, match="other data"):
        AutoPLML(**QUICK).fit(X, y, sample_weight=2.0 * v, checkpoint=auto)


@pytest.mark.parametrize("name", ["PLML-optimize", "LMNN-energy", "DANN", "KernelSVM", "AutoPLML"])
def test_a_model_file_keeps_the_weights(name, weighted, tmp_path, rng):
    X, y, v = weighted
    votes = {} if name == "KernelSVM" else {"weigh_votes": True}
    model = EVERY[name](**votes, class_weight={0: 2.0, 1: 0.5}).fit(X, y, sample_weight=v)
    plml.save(model, tmp_path / "model.skops")
    Q, loaded = rng.normal(size=(30, 4)), plml.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict_proba(Q), model.predict_proba(Q))
    assert loaded.class_weight == {0: 2.0, 1: 0.5}


def test_models_of_before_there_were_weights_answer(blobs):
    X, y = blobs
    model = PLML(n_bases=3, query_weights="optimize", random_state=0).fit(X, y)
    expected, old = model.predict_proba(X), deepcopy(model)
    for name in ("_fit_weights", "class_weight", "weigh_votes"):
        del old.__dict__[name]
    old.__dict__.pop("_made_metric", None)
    np.testing.assert_array_equal(old.predict_proba(X), expected)


def test_a_fit_without_weights_forgets_those_of_before(weighted):
    X, y, v = weighted
    model = SML(n_neighbors=5, weigh_votes=True).fit(X, y, sample_weight=v)
    model.fit(X, y)
    plain = SML(n_neighbors=5, weigh_votes=True).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert not hasattr(model, "kept_rows_")


def test_new_points_are_drawn_to_heavy_neighbours(weighted, rng):
    """The rule for new points sees the weights in ``predict`` as in the folds."""
    X, y, v = weighted
    model = PLML(n_bases=4, random_state=0, query_weights="optimize", smoothness=3.0)
    model.fit(X, y, sample_weight=np.where(v == 0, 0.01, v))
    Q = rng.normal(size=(20, 4))
    before = model.local_weights(Q)
    light = deepcopy(model)
    light.__dict__.pop("_made_metric", None)
    light._fit_weights = None
    assert np.abs(light.local_weights(Q) - before).max() > 1e-3


def test_dask_collections_are_told_that_weights_are_for_one_machine(blobs):
    da = pytest.importorskip("dask.array")
    X, y = (da.from_array(part, chunks=25) for part in blobs)
    with pytest.raises(ValueError, match="sample_weight is for rows on one machine"):
        PLML().fit(X, y, sample_weight=np.ones(75))
    with pytest.raises(ValueError, match="class_weight='balanced' is for one machine"):
        PLML(class_weight="balanced").fit(X, y)


def test_an_unknown_keyword_is_still_refused(blobs):
    with warnings.catch_warnings(), pytest.raises(TypeError, match="'weights'"):
        SML().fit(*blobs, weights=np.ones(75))
