"""Selection by any scorer: against fits of one setting at a time."""

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    get_scorer,
    log_loss,
    make_scorer,
    recall_score,
)
from sklearn.model_selection import StratifiedKFold

from plml import PLML, PLMLCV, AutoPLML
from plml.estimators._calibration import calibration
from plml.estimators._committee import eligible, seats, seats_by_score
from plml.estimators._scoring import Scoring, Voters, scorer_of, takes_weights

pytestmark = [pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]
QUICK = {"metrics": ("prior", "one"), "regularizations": (0.1,), "random_state": 0}


@pytest.fixture
def uneven(blobs, rng):
    """One class is rare, and the classes overlap."""
    X, y = blobs
    keep = np.flatnonzero((y != 2) | (np.arange(len(y)) % 3 == 0))
    X = X[keep] + 0.8 * rng.normal(size=(len(keep), 4))
    return X, np.array(["a", "b", "c"])[y[keep]], rng.uniform(0.2, 3.0, len(keep))


def first_feature(model, X, y):
    """A scorer that looks at its X: the share that is right among every second row."""
    return np.mean(model.predict(X[::2]) == y[::2])


@pytest.mark.parametrize(
    "scoring",
    [
        "balanced_accuracy",
        "neg_log_loss",
        "roc_auc_ovr",
        "f1_macro",
        make_scorer(recall_score, labels=["c"], average="macro"),
        first_feature,
    ],
    ids=["balanced", "log-loss", "roc", "f1", "recall-of-c", "function"],
)
@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_fits_of_one_setting(scoring, weighted, uneven):
    X, y, v = uneven
    v = v if weighted else np.ones(len(y))
    cv = StratifiedKFold(3)
    shared = {"n_bases": 3, "random_state": 0, "rescale": False, "tol": 1e-6, "max_iter": 5000}
    model = PLMLCV(
        **shared,
        cv=cv,
        n_neighbors=(1, 7),
        vote=("uniform", "distance"),
        regularizations=(1.0, 10.0),
        selection_tol=1e-6,
        scoring=scoring,
        weigh_votes=weighted,
    )
    model.fit(X, y, sample_weight=v if weighted else None)
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    results = model.cv_results_
    for s, params in enumerate(results["params"]):
        by_hand = []
        for train, test in cv.split(X, y):
            alone = PLML(**shared, **params, weigh_votes=weighted)
            alone.fit(X[train], y[train], sample_weight=v[train] if weighted else None)
            options = {"sample_weight": v[test]} if weighted and scoring != first_feature else {}
            by_hand.append(scorer(alone, X[test], y[test], **options))
        found = [results[f"split{i}_test_score"][s] for i in range(3)]
        # Equal sums of votes, added in another order, are ties or not by their last digit.
        rtol = 1e-2 if scoring == "roc_auc_ovr" else 1e-3
        np.testing.assert_allclose(found, by_hand, rtol=rtol, atol=1e-7)
    assert model.best_score_ == results["mean_test_score"].max()
    assert model.score(X, y) == pytest.approx(scorer(model, X, y))


def test_accuracy_by_its_name_is_the_default(uneven):
    X, y, v = uneven
    shared = {"n_bases": 3, "random_state": 0, "n_neighbors": (1, 5), "vote": ("uniform", "linear")}
    for weights in (None, v):
        named = PLMLCV(**shared, scoring="accuracy").fit(X, y, sample_weight=weights)
        plain = PLMLCV(**shared).fit(X, y, sample_weight=weights)
        scores = [one.cv_results_["mean_test_score"] for one in (named, plain)]
        np.testing.assert_allclose(*scores, rtol=1e-12)
        assert named.best_params_ == plain.best_params_


def test_a_scorer_may_ask_for_the_score(uneven):
    """Which is accuracy then, while settings are compared and afterwards."""
    X, y, _ = uneven
    how = {"n_bases": 3, "random_state": 0, "n_neighbors": (1, 5)}
    asking = PLMLCV(**how, scoring=lambda model, X, y: model.score(X, y)).fit(X, y)
    plain = PLMLCV(**how).fit(X, y)
    assert asking.best_score_ == pytest.approx(plain.best_score_)
    assert asking.score(X, y) == plain.score(X, y)
    assert asking.scoring is not None


def test_auto_selects_and_seats_by_the_scorer(uneven):
    X, y, v = uneven
    model = AutoPLML(**QUICK, scoring="balanced_accuracy").fit(X, y, sample_weight=v)
    plain = AutoPLML(**QUICK).fit(X, y, sample_weight=v)
    assert model.best_score_ == pytest.approx(model.cv_results_["mean_test_score"].max())
    assert model.baselines_["largest class"] == pytest.approx(1 / 3)
    assert plain.baselines_["largest class"] > 0.35
    assert "balanced_accuracy in cross-validation" in model.summary()
    scored = balanced_accuracy_score(y, model.predict(X), sample_weight=v)
    assert model.score(X, y, sample_weight=v) == pytest.approx(scored)
    both = [one.cv_results_["mean_test_brier"] for one in (model, plain)]
    np.testing.assert_allclose(*both)


def test_seats_by_score_are_greedy(rng):
    codes = rng.integers(3, size=40)
    shares = rng.dirichlet(np.ones(3), size=(12, 40)).astype(np.float32)
    shares[3] = 0.5 * shares[3] + 0.5 * np.eye(3)[codes]
    metric_of = np.arange(12) % 4
    scoring = Scoring("neg_log_loss", np.arange(3), 0.01)

    def score(votes):
        return scoring.scores(votes, codes)

    taken = seats_by_score(shares, metric_of, 2, score)
    assert taken.sum() == 10
    chosen: list[int] = []
    for _ in range(10):
        used = {metric_of[s] for s in chosen}
        able = [s for s in range(12) if len(used) < 2 or metric_of[s] in used]
        losses = [
            log_loss(codes, 0.99 * shares[[*chosen, s]].mean(axis=0, dtype=float) + 0.01 / 3)
            for s in able
        ]
        chosen.append(able[int(np.argmin(losses))])
    np.testing.assert_array_equal(taken, np.bincount(chosen, minlength=12))


def test_weights_of_held_out_rows_are_as_many_rows(rng):
    codes, counts = rng.integers(3, size=30), rng.integers(1, 5, size=30)
    shares = rng.dirichlet(np.ones(3), size=(20, 30))
    more = np.repeat(np.arange(30), counts)
    metric_of, v = np.arange(20) % 5, counts.astype(float)
    np.testing.assert_array_equal(
        seats(shares, codes, metric_of, 2, v), seats(shares[:, more], codes[more], metric_of, 2)
    )
    np.testing.assert_allclose(
        calibration(shares[0], codes, v), calibration(shares[0][more], codes[more]), rtol=1e-4
    )
    for scoring in (None, "accuracy", "balanced_accuracy", "neg_log_loss"):
        one = Scoring(scoring, np.arange(3))
        repeated = one.scores(shares[:, more], codes[more])
        np.testing.assert_allclose(one.scores(shares, codes, v), repeated)
    ones = np.ones(30)
    np.testing.assert_array_equal(eligible(shares, codes, ones), eligible(shares, codes))
    heavy = np.where(shares[7].argmax(axis=1) == codes, 50.0, 0.01)
    assert 7 in eligible(shares, codes, heavy)
    assert len(eligible(shares, codes, heavy)) < 20


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        ("accurate", "scoring='accurate' is no scorer"),
        (accuracy_score, "is no scorer; give a name"),
        ("roc_auc", "scoring='roc_auc' cannot score votes for 3 classes: multi_class"),
        (lambda model, X, y: float("nan"), "is not a number on"),
        (lambda model, X, y: model.coef_, "has no attribute 'coef_'"),
    ],
    ids=["name", "metric", "two classes", "nan", "no attribute"],
)
@pytest.mark.parametrize("estimator", [PLMLCV, AutoPLML])
def test_scorers_that_cannot_score_are_refused_before_the_work(estimator, scoring, message, blobs):
    with pytest.raises(ValueError, match=message) as caught:
        estimator(scoring=scoring).fit(*blobs)
    assert "\n" not in str(caught.value)


def test_a_fold_without_a_class_is_said(blobs):
    X, y = blobs
    X, y = X[y < 2], y[y < 2]
    splits = [(np.arange(5, 50), np.arange(5)), (np.arange(45), np.arange(45, 50))]
    with pytest.raises(ValueError, match="'roc_auc' is not a number on 5 held-out rows of 1 of"):
        PLMLCV(scoring="roc_auc", cv=splits).fit(X, y)


def test_scorers_that_take_no_weights_get_none(uneven):
    X, y, v = uneven
    assert not takes_weights(first_feature)
    assert takes_weights(scorer_of("roc_auc"))
    unweighted = make_scorer(lambda truth, found: np.mean(truth == found))
    assert not takes_weights(unweighted)
    model = PLMLCV(n_bases=3, random_state=0, scoring=unweighted).fit(X, y, sample_weight=v)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        model.score(X, y, sample_weight=v)


def test_a_stand_in_keeps_the_order_of_its_shares(rng):
    shares = rng.dirichlet(np.ones(3), size=8)
    voters = Voters(shares, np.array(["a", "b", "c"]), 0.1)
    rows = np.array([[5], [2]])
    np.testing.assert_allclose(voters.predict_proba(rows), 0.9 * shares[[5, 2]] + 0.1 / 3)
    np.testing.assert_array_equal(voters.predict(rows), voters.classes_[shares[[5, 2]].argmax(1)])
