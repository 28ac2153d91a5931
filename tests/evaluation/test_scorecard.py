import json

import numpy as np
import pytest
from sklearn import metrics

from plml.evaluation import Scorecard
from plml.evaluation.evaluation_pictures import accuracy_figure, curves_figure
from plml.evaluation.evaluation_report import report
from plml.evaluation.rivals import LARGEST

CLASSES = np.array(["no", "yes"])


def constant(labels, share):
    return np.tile([1 - share, share], (len(labels), 1))


@pytest.fixture
def uneven():
    """6 of 364, and a model that finds none of them but gives 6 false alarms."""
    labels = np.repeat(["no", "yes"], [358, 6])
    learned = constant(labels, 0.1)
    learned[:6] = [0.2, 0.8]
    knn = constant(labels, 0.05)
    shares = {"learned metric": learned, "tuned kNN": knn, LARGEST: constant(labels, 6 / 364)}
    return Scorecard(labels, CLASSES, shares, "of test.csv", "yes")


@pytest.fixture
def drawn(rng):
    labels = rng.choice(CLASSES, size=400, p=[0.7, 0.3])
    signal = (labels == "yes")[:, None]
    shares = {}
    for name, strength in (("mine", 2.0), ("theirs", 0.5)):
        score = 1 / (1 + np.exp(-strength * (2 * signal - 1) - rng.normal(size=(400, 1))))
        shares[name] = np.hstack([1 - score, score])
    return Scorecard(labels, CLASSES, shares, positive="yes")


def test_figures_are_those_of_scikit_learn(drawn):
    truth = drawn.labels == "yes"
    for name, shares in drawn.shares.items():
        found, predicted = drawn.figures[name], CLASSES[shares.argmax(axis=1)]
        assert found.accuracy == metrics.accuracy_score(drawn.labels, predicted)
        expected = metrics.balanced_accuracy_score(drawn.labels, predicted)
        assert found.balanced_accuracy == pytest.approx(expected)
        assert found.log_loss == pytest.approx(metrics.log_loss(drawn.labels, shares))
        assert found.precision == metrics.precision_score(truth, predicted == "yes")
        assert found.recall == metrics.recall_score(truth, predicted == "yes")
        assert found.roc_auc == pytest.approx(metrics.roc_auc_score(truth, shares[:, 1]))
        expected = metrics.average_precision_score(truth, shares[:, 1])
        assert found.average_precision == pytest.approx(expected)
        assert found.low < found.accuracy < found.high
    names, matrix = drawn.confusion
    predicted = drawn.predictions["mine"]
    for i, true in enumerate(names):
        for j, said in enumerate(names):
            assert matrix[i, j] == np.sum((drawn.labels == true) & (predicted == said))


def test_wilsons_interval(uneven):
    found = uneven.figures[LARGEST]
    n, z, p = 364, 1.959964, 358 / 364
    center = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    width = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (found.low, found.high) == pytest.approx((center - width, center + width), abs=1e-6)


def test_a_model_below_the_largest_class_is_not_called_good(uneven):
    assert f"{uneven.figures['learned metric'].accuracy:.1%}" == "96.7%"
    text = repr(uneven)
    assert "not better than no model at all: always answering 'no' is right on 98.4%" in text
    assert "on 96.7%; by balanced accuracy it is 50.0% against 49.2%" in text
    assert "364 rows of test.csv, 6 of them 'yes'" in text
    assert "The learned metric does harm" in text  # 6 fewer than kNN, p = 1/32


def test_the_largest_class_may_be_another_one_in_another_fold():
    """As in folds of classes of the same size: no class is said to be the answer for all rows."""
    labels = np.repeat(["no", "yes"], 50)
    worst = np.where(labels[:, None] == CLASSES, 0.4, 0.6)
    card = Scorecard(labels, CLASSES, {"mine": worst, LARGEST: worst}, folds=np.arange(100) % 2)
    assert card.largest is None
    assert f"\n{LARGEST} " in repr(card)
    assert "always answering the largest class of each fold is right on 0.0%" in repr(card)
    one = Scorecard(labels, CLASSES, {"mine": worst, LARGEST: np.tile([0.9, 0.1], (100, 1))})
    assert one.largest == "no"
    assert "\nalways 'no' " in repr(one)


def test_the_verdict_follows_the_test():
    labels = np.repeat(["no", "yes"], 50)
    right = np.where(labels[:, None] == CLASSES, 0.9, 0.1)

    def verdict(n_wrong_here, n_wrong_there):
        shares = {"mine": right.copy(), "theirs": right.copy()}
        shares["mine"][:n_wrong_here] = shares["mine"][:n_wrong_here, ::-1]
        shares["theirs"][99 - n_wrong_there : 99] = shares["theirs"][99 - n_wrong_there : 99, ::-1]
        return Scorecard(labels, CLASSES, shares).verdict

    assert "The mine helps: it gets 6 more of the 100 rows right than theirs, +6.0" in verdict(0, 6)
    assert "more than chance" in verdict(0, 6)
    assert "does harm: it gets 7 fewer" in verdict(8, 1)
    assert "do not show that the mine helps: it gets 5 more" in verdict(0, 5)  # p = 1/16
    assert "may be chance" in verdict(0, 5)
    assert "gets as many of the 100 rows right as theirs (95% interval -" in verdict(2, 2)
    assert "chance" not in verdict(2, 2)


def test_only_one_class_in_the_rows():
    labels = np.array(["no"] * 4)
    card = Scorecard(labels, CLASSES, {"mine": constant(labels, 0.2)}, positive="yes")
    found = card.figures["mine"]
    assert (found.precision, found.recall, found.roc_auc) == (None, None, None)
    assert " - " in repr(card)
    assert "All rows are of class 'no'" in card.verdict
    with pytest.raises(ValueError, match="give rows of both classes"):
        curves_figure(card)
    assert "Positive class" not in report(card)
    assert "<th>yes</th><td>-</td><td>-</td><td>-</td><td>0</td>" in report(card)


def test_rankings_are_compared_within_folds(rng):
    """A naive loop over pairs; one answer for all rows of a fold ranks nothing, and has 1/2."""
    folds = np.repeat([0, 1, 2], 20)
    labels = np.where(rng.random(60) < np.repeat([0.2, 0.4, 0.6], 20), "yes", "no")
    score = rng.random(60) + folds
    constant = 0.1 + 0.2 * folds
    shares = {name: np.column_stack([1 - s, s]) for name, s in (("a", score), ("b", constant))}
    card = Scorecard(labels, CLASSES, shares, positive="yes", folds=folds)
    pairs = [
        score[i] > score[j]
        for i in np.flatnonzero(labels == "yes")
        for j in np.flatnonzero(labels == "no")
        if folds[i] == folds[j]
    ]
    assert card.figures["a"].roc_auc == pytest.approx(np.mean(pairs))
    assert card.figures["b"].roc_auc == 0.5
    assert card.figures["b"].average_precision == pytest.approx(
        sum(np.sum(labels[folds == f] == "yes") ** 2 / 20 for f in range(3))
        / np.sum(labels == "yes")
    )


def test_known_rows_are_counted_in_the_title():
    labels = np.array(["no", "yes", "no"])
    card = Scorecard(labels, CLASSES, {"mine": constant(labels, 0.2)}, n_known=1)
    assert repr(card).startswith("3 rows; 1 is the same as a case of the model\n")
    assert "most of the rows" not in card.verdict


def test_what_is_sure_has_no_loss():
    card = Scorecard(CLASSES, CLASSES, {"mine": np.eye(2)})
    assert f"{card.figures['mine'].log_loss:.3f}" == "0.000"


def test_a_class_that_the_model_does_not_know_counts_as_wrong():
    labels = np.array(["no", "maybe"])
    card = Scorecard(labels, CLASSES, {"mine": constant(labels, 0.2)})
    assert card.figures["mine"].accuracy == 0.5
    assert card.figures["mine"].log_loss == pytest.approx(
        -(np.log(0.8) + np.log(np.finfo(float).eps)) / 2
    )
    assert card.confusion[0].tolist() == ["maybe", "no", "yes"]


def test_bad_input_is_named():
    labels, shares = np.array(["no"]), {"mine": np.array([[0.5, 0.5]])}
    with pytest.raises(ValueError, match="no class 'x'; the classes are 'no', 'yes'"):
        Scorecard(labels, CLASSES, shares, positive="x")
    with pytest.raises(ValueError, match="one of two, and there are 3 classes"):
        Scorecard(labels, np.array(list("abc")), {"mine": np.ones((1, 3))}, positive="a")
    with pytest.raises(ValueError, match=r"shares of mine must be \(1, 2\), got \(1, 3\)"):
        Scorecard(labels, CLASSES, {"mine": np.ones((1, 3))})
    with pytest.raises(ValueError, match="no row to evaluate"):
        Scorecard(labels[:0], CLASSES, {"mine": np.ones((0, 2))})


def test_the_dictionary_is_ready_for_json(uneven):
    found = json.loads(json.dumps(uneven.to_dict()))
    assert found["figures"]["learned metric"]["recall"] == 0
    assert found["figures"]["tuned kNN"]["precision"] is None
    assert found["compared"]["tuned kNN"]["p_value"] == pytest.approx(1 / 32)
    assert found["compared"]["tuned kNN"]["gain"] == pytest.approx(-6 / 364)
    assert np.sum(found["confusion"]) == 364


def test_the_report_needs_no_network_and_escapes(uneven):
    bad = Scorecard(
        np.array(["<b>", "x"]), np.array(["<b>", "x"]), {"mine": np.eye(2)}, "of <i>", "x"
    )
    page = report(bad, "<script>")
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    page = report(uneven, "model.skops on test.csv")
    assert "http" not in page
    assert page.count("data:image/png;base64,") == 2
    assert "98.4%" in page
    assert "<th>yes</th><td>0.0%</td><td>0.0%</td><td>0.0%</td><td>6</td>" in page
    assert "<table>" in uneven._repr_html_()
    assert "not better than no model" in page


def test_curves_end_where_they_must(drawn):
    figure = curves_figure(drawn)
    roc, precision_recall = figure.axes
    lines = [line for line in roc.get_lines() if "mine" in str(line.get_label())]
    x, y = lines[0].get_data()
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    area = np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)
    assert area == pytest.approx(drawn.figures["mine"].roc_auc)
    assert len(precision_recall.get_lines()) == 3  # two methods, and chance
    assert len(accuracy_figure(drawn).axes[0].get_yticklabels()) == 2
