"""Explanations against plain loops: votes, nearest cases for and against, splits, importance."""

import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import plml
from every_estimator import ESTIMATORS
from plml import DANN, GLML, LMNN, LMNNMM, PLML, SML, AutoPLML, BoostMetric
from plml.inspection.contrasts import clear_means, column_contrasts, deletion_groups
from plml.inspection.explaining import CaseBase
from plml.inspection.explanation import Ballot
from plml.inspection.explanation_text import vote_text
from plml.metric.feature_split import bilinear_parts, column_parts, likeness_parts

MODELS = {
    "PLML": PLML(n_bases=3, n_neighbors=7, random_state=0),
    "linear": PLML(n_bases=3, n_neighbors=15, vote="linear", random_state=0),
    "two-sided, class": PLML(
        n_bases=3, n_neighbors=5, case_metrics="class", prior="identity", random_state=0
    ),
    "two-sided, local": PLML(
        n_bases=3, n_neighbors=5, case_metrics="local", prior="identity", random_state=0
    ),
    "SML": SML(n_neighbors=5, vote="distance"),
    "LMNN": LMNN(n_neighbors=3),
    "LMNNMM": LMNNMM(n_neighbors=3),
    "BoostMetric": BoostMetric(n_neighbors=3),
    "DANN": DANN(n_neighbors=5),
    "GLML": GLML(n_neighbors=3),
}


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return X[::2], np.array(["barolo", "grignolino", "barbera"])[y[::2]], X[1::4]


@pytest.fixture(scope="module", params=list(MODELS))
def fitted(request, wine):
    return MODELS[request.param].fit(*wine[:2])


def squared_to_all(model, x):
    """From one query to every training row, by the definition of ``pair_distance``."""
    cases, _ = model.training_cases()
    pairs = np.stack([np.repeat(x[None], len(cases), axis=0), cases], axis=1)
    if isinstance(model, LMNNMM):  # the metric is that of the case
        pairs = pairs[:, ::-1]
    return model.pair_distance(pairs, squared=True)


class TestSplits:
    def test_they_add_up(self, fitted, wine):
        found = fitted.explain(wine[2], 6)
        for split in (found.likeness, found.contributions, found.parts("bilinear")):
            np.testing.assert_allclose(split.sum(axis=2), found.squared_distances, rtol=1e-6)
        assert found.likeness.min() >= 0.0
        np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)
        with pytest.raises(ValueError, match="split must be one of likeness, bilinear"):
            found.parts("shapley")

    def test_the_contrast_against_a_loop(self, fitted, wine):
        _, y, Q = wine
        found = fitted.explain(Q[:12])
        np.testing.assert_array_equal(found.predictions, fitted.predict(Q[:12]))
        for i, x in enumerate(Q[:12]):
            squared = squared_to_all(fitted, x)
            assert found.predictions[i] != found.rivals[i]
            sides = []
            for label, row in (
                (found.predictions[i], found.cases_for[i]),
                (found.rivals[i], found.cases_against[i]),
            ):
                mine = np.flatnonzero(y == label)
                assert row == mine[squared[mine].argmin()]
                sides.append(squared[row])
            assert found.margins[i] == pytest.approx(sides[1] - sides[0], abs=1e-9)

    def test_the_contrast_of_two_sided_metrics_by_feature(self, wine):
        X, y, Q = wine
        model = MODELS["two-sided, class"].fit(X, y)
        found = model.explain(Q[:8])
        W = model.local_weights(Q[:8])
        for i, x in enumerate(Q[:8]):
            parts = np.zeros(13)
            for row, sign in ((found.cases_against[i], 1.0), (found.cases_for[i], -1.0)):
                metric = sum(w * M for w, M in zip(W[i], model.basis_metrics_, strict=True))
                metric = metric + model.case_metrics_[list(model.classes_).index(y[row])]
                delta = x - X[row]
                for f in range(13):
                    parts[f] += sign * delta[f] * sum(metric[f, g] * delta[g] for g in range(13))
            np.testing.assert_allclose(found.contrasts[i], parts, rtol=1e-6, atol=1e-9)

    def test_splits_do_not_depend_on_units(self, rng):
        A, D = rng.normal(size=(2, 1, 4, 4)), rng.normal(size=(2, 3, 4))
        M, units = A @ np.swapaxes(A, -1, -2), np.array([1e-3, 1.0, 7.0, 1e4])
        for split in (bilinear_parts, likeness_parts):
            scaled = split(D * units, M / np.outer(units, units))
            np.testing.assert_allclose(scaled, split(D, M), rtol=1e-8)

    def test_a_row_at_distance_zero(self, wine):
        X, y, _ = wine
        model = SML(n_neighbors=3).fit(X, y)
        found = model.explain(X[:1])
        assert found.squared_distances[0, 0] == 0.0
        assert "nothing sets them apart" in found.text()
        assert not found.likeness[0, 0].any()


class TestVote:
    def test_shares_are_those_of_the_model(self, fitted, wine):
        found = fitted.explain(wine[2])
        np.testing.assert_allclose(found.probabilities, fitted.predict_proba(wine[2]), atol=1e-12)
        (ballot,) = found.ballots
        assert (ballot.counts.sum(axis=1) == ballot.n_neighbors).all()
        if ballot.n_neighbors == found.neighbors.shape[1] and ballot.how != "linear":
            for c, label in enumerate(found.classes):
                mine = np.where(found.labels == label, found.votes, 0.0).sum(axis=1)
                np.testing.assert_allclose(mine, ballot.shares[:, c], atol=1e-9)

    def test_it_is_said_in_numbers(self):
        X = np.array([[0.0], [1.0], [2.0], [3.0], [10.0], [11.0]])
        y = np.array(["a", "a", "b", "b", "b", "a"])
        model = SML(n_neighbors=3, prior="identity", regularization=1e6).fit(X, y)
        assert "2 of 3 neighbours are a, 1 b" in model.explain([[0.4]]).text()
        model.set_params(n_neighbors=4)
        assert (
            "2 of 4 neighbours are a, 2 b; a tie between a and b" in model.explain([[0.4]]).text()
        )
        model.set_params(vote="distance")
        told = model.explain([[0.4]])
        share = told.probabilities[0, 0]
        assert f"weighed by their nearness, a has {share:.0%}, b {1 - share:.0%}" in told.text()
        model.set_params(n_neighbors=1)
        assert "1 of 1 neighbour is a" in model.explain([[0.4]]).text()

    def test_numbers_of_neighbours_and_of_classes_are_kept_apart(self):
        counts, shares = np.array([[3, 1, 2]]), np.array([[0.5, 0.2, 0.3]])
        told = vote_text(Ballot(1.0, 6, "distance", counts, shares), np.array([0, 1, 12]), 0)
        assert told == (
            "3 of 6 neighbours are 0, 2 are 12, 1 is 1; weighed by their nearness, 0 has 50%, "
            "12 has 30%, 1 has 20%"
        )

    def test_a_weighed_vote_tells_the_shares_of_all_classes(self):
        counts, shares = np.array([[64, 35, 22]]), np.array([[0.24, 0.39, 0.37]])
        ballot = Ballot(1.0, 121, "linear", counts, shares)
        assert vote_text(ballot, np.array(["pass", "minor", "fail"]), 0) == (
            "64 of 121 neighbours are pass, 35 minor, 22 fail; weighed by the trend among them, "
            "minor has 39%, fail 37%, pass 24%"
        )
        six = Ballot(1.0, 21, "linear", np.arange(6, 0, -1)[None], np.full((1, 6), 1 / 6))
        assert "a has 17%, b 17%, c 17%, d 17%, e 17%, ...;" in vote_text(
            six, np.array([*"abcdef"]), 0
        )

    def test_the_energy_rule_counts_no_votes(self, wine):
        X, y, Q = wine
        model = LMNN(decision="energy").fit(X, y)
        found = model.explain(Q)
        np.testing.assert_array_equal(found.predictions, model.predict(Q))
        np.testing.assert_allclose(found.probabilities, model.predict_proba(Q))
        assert "energies give" in found.text()

    def test_training_rows_are_left_out_of_their_own_vote(self, wine):
        X, y, _ = wine
        model = SML(n_neighbors=3).fit(X, y)
        found = model.explain()
        assert (found.neighbors != np.arange(len(X))[:, None]).all()
        assert (found.cases_for != np.arange(len(X))).all()
        for i in range(len(X)):
            squared = squared_to_all(model, X[i])
            squared[i] = np.inf
            near = np.argsort(squared)[:3]
            labels, counts = np.unique(y[near], return_counts=True)
            assert found.predictions[i] == labels[counts.argmax()]

    def test_a_margin_may_be_against_the_vote(self):
        X = np.array([[0.0], [1.0], [1.1], [1.2], [9.0], [9.1]])
        y = np.array(["b", "a", "a", "a", "b", "b"])
        model = SML(n_neighbors=3, prior="identity", regularization=1e6).fit(X, y)
        found = model.explain([[0.4]])
        assert found.predictions[0] == "a"
        assert found.margins[0] < 0.0
        assert "the nearest b is nearer than the nearest a: the vote decides" in found.text()


class TestImportance:
    def test_noise_last_copies_share_the_label_first(self, rng):
        X, y = load_breast_cancer(return_X_y=True)
        X = StandardScaler().fit_transform(X[:, [7, 20, 27, 1]])
        noise, label = rng.normal(size=len(X)), 2.0 * y - 1.0
        model = SML(n_neighbors=5).fit(np.column_stack([X, noise]), y)
        importance = model.average_importance()
        assert importance[4] == importance.min() == 0.0
        assert importance.sum() == pytest.approx(1.0)
        copies = SML(n_neighbors=5).fit(np.column_stack([X, X[:, 0], noise]), y)
        shared = copies.average_importance()
        assert shared[0] == pytest.approx(shared[4], rel=0.02)
        leaking = SML(n_neighbors=5).fit(np.column_stack([X, noise, label]), y)
        assert leaking.average_importance().argmax() == 5
        told = leaking.explain(np.column_stack([X, noise, label])[:50])
        assert (told.contrasts.argmax(axis=1) == 5).mean() > 0.95

    def test_against_a_loop(self, rng):
        X = rng.normal(size=(40, 3))
        y = (X[:, 0] > 0).astype(int)
        model = SML(n_neighbors=3).fit(X, y)
        M, groups = model.basis_metrics_[0], deletion_groups(40)

        def mean_without(group):
            found = []
            for i in np.flatnonzero(groups != group):
                contrasts = np.zeros(3)
                for f in range(3):
                    delta = X[i] - X
                    delta[:, f] = 0.0
                    without = np.einsum("nd,de,ne->n", delta, M, delta)
                    order = [j for j in np.argsort(without) if j != i and groups[j] != group]
                    others = [j for j in order if y[j] != y[i]][:5]
                    mine = [j for j in order if y[j] == y[i]][:5]
                    for sign, rows in ((1.0, others), (-1.0, mine)):
                        contrasts[f] += sign * np.mean(M[f, f] * (X[i, f] - X[rows, f]) ** 2)
                found.append(contrasts)
            return np.mean(found, axis=0)

        mean = mean_without(None)
        parts = np.array([mean_without(group) for group in range(10)])
        error = np.sqrt(9 / 10 * ((parts - parts.mean(axis=0)) ** 2).sum(axis=0))
        assert mean[0] > 2 * error[0]
        mean = np.where(mean > 2 * error, mean, 0.0)
        np.testing.assert_allclose(model.average_importance(), mean / mean.sum(), rtol=1e-6)

    def test_a_metric_that_stretches_a_class_does_not_make_noise_count(self):
        rng = np.random.default_rng(2)
        codes = (rng.random(400) < 0.2).astype(int)
        X = rng.normal(size=(400, 2))
        X[:, 0] += codes

        class Stretched:
            """The second column, of noise, counts four times where the case is of class 1."""

            def __init__(self):
                self.X = X

            def between(self, Q, own, cases):
                stretch = np.where(codes[cases] == 1, 4.0, 1.0)
                M = np.tile(np.eye(2), (*cases.shape, 1, 1))
                M[:, :, 1, 1] = stretch
                return M

        rows, groups = np.arange(400), deletion_groups(400)
        found = column_contrasts(Stretched(), rows, rows, codes, np.arange(2), groups)
        signal, noise = clear_means(found, groups)
        assert signal > 0.0
        assert noise == 0.0

    @pytest.mark.parametrize("name", ["PLML", "two-sided, class", "LMNNMM", "DANN"])
    def test_the_distance_without_a_column(self, name, rng):
        columns = np.array([0, 1, 1, 2, 1])
        X = rng.normal(size=(60, 5))
        y = (X[:, 0] > 0).astype(int)
        model = MODELS[name].fit(X, y)
        cases, own = rng.integers(0, 60, size=(7, 4)), np.arange(7)
        D = X[own, None] - X[cases]
        M = model.case_base().metric.between(X[own], own, cases)
        alone, without = column_parts(D, M, columns)
        M = np.broadcast_to(M, (7, 4, 5, 5))
        for column in range(3):
            inside = columns == column
            kept, lost = np.where(inside, D, 0.0), np.where(inside, 0.0, D)
            for parts, delta in ((alone, kept), (without, lost)):
                expected = np.einsum("qkd,qkde,qke->qk", delta, M, delta)
                np.testing.assert_allclose(parts[:, :, column], expected, atol=1e-9)

    def test_a_category_of_noise_is_one_column_and_counts_nothing(self, rng):
        X, y = load_wine(return_X_y=True, as_frame=True)
        X = X[["proline", "flavanoids", "hue"]].assign(noise=rng.choice(list("abcdef"), len(X)))
        for model in (
            AutoPLML(random_state=0),
            make_pipeline(
                make_column_transformer(
                    (OneHotEncoder(sparse_output=False), ["noise"]), remainder=StandardScaler()
                ),
                PLML(n_bases=2, prior="identity", random_state=0),
            ),
        ):
            found = plml.explain(model.fit(X, y), X[:2]).importance_frame().set_index("feature")
            average = found["global_importance"].to_dict()
            assert min(average, key=average.get) == "noise"
            assert average["noise"] < 0.02
            assert sum(average.values()) == pytest.approx(2.0 / 2)

    def test_local_importance_differs_where_the_classes_do(self, rng):
        X = rng.normal(size=(300, 3))
        X[:150, 0] -= 8.0
        y = np.where(X[:, 0] < -4, X[:, 1] > 0, X[:, 2] > 0).astype(int)
        model = PLML(n_bases=2, prior="identity", random_state=0).fit(X, y)
        left, right = model.local_importance([[-8.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        assert left.argmax() == 1
        assert right.argmax() == 2

    def test_changing_the_first_column_of_the_contrast_costs_most(self, rng):
        X, y = load_breast_cancer(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        model = PLML(n_bases=3, n_neighbors=5, random_state=0).fit(X[:400], y[:400])
        Q = X[400:480]
        found, rows = model.explain(Q), np.arange(80)
        first = found.contrasts.argmax(axis=1)
        other = (first + rng.integers(1, 30, size=80)) % 30

        def margins(rows_):
            pairs = [
                np.stack([rows_, X[cases]], axis=1)
                for cases in (found.cases_against, found.cases_for)
            ]
            against, near = (model.pair_distance(pair, squared=True) for pair in pairs)
            return against - near

        lost = []
        for columns in (first, other):
            changed = Q.copy()
            changed[rows, columns] = X[found.cases_against, columns]
            lost.append(found.margins - margins(changed))
        assert lost[0].mean() > 3.0 * max(lost[1].mean(), 0.0)
        assert np.mean(lost[0] > lost[1]) > 0.8


class TestShown:
    def test_indexing_and_iteration(self, wine):
        X, y, Q = wine
        found = SML(n_neighbors=3).fit(X, y).explain(Q[:6])
        assert len(found) == len(list(found)) == 6
        assert found[2].text() == found.text(2)
        assert found[-1].text() == found.text(5)
        assert len(found[1:3]) == 2
        np.testing.assert_array_equal(found[[0, 4]].predictions, found.predictions[[0, 4]])
        with pytest.raises(IndexError):
            found[6]
        with pytest.raises(IndexError, match="query 6 of 6"):
            found.text(6)
        assert repr(found).startswith("<Explanation of 6 predictions: ")
        assert len(repr(found[0])) < 60

    def test_long_names_of_classes_do_not_touch(self, wine):
        X, y, Q = wine
        names = np.array([f"{label} of the long names" for label in y])
        found = SML(n_neighbors=3).fit(X, names).explain(Q[:1])
        assert len(re.findall(r" \([^()]+…\)", found.text())) == 2
        assert ")(" not in found.text()

    def test_it_says_how_many_are_not_shown(self, wine):
        X, y, Q = wine
        found = SML(n_neighbors=3).fit(X, y).explain(Q[:12])
        assert str(found).endswith("... and 2 more; explanation[i] is that of one row")
        assert "... and 9 more" in found._repr_html_()
        assert " more;" not in str(found[:10]) + found[:3]._repr_html_()

    def test_as_a_dictionary_for_json(self, wine):
        X, y, Q = wine
        found = SML(n_neighbors=3).fit(X, y).explain(Q[:2])
        one = json.loads(json.dumps(found.to_dict()))[1]
        assert one["prediction"] == found.predictions[1]
        assert sum(one["contrast"]["parts"].values()) == pytest.approx(one["contrast"]["margin"])
        assert [case["training_row"] for case in one["neighbors"]] == found.neighbors[1].tolist()

    def test_html_shows_names_as_text(self):
        X = pd.DataFrame({"<b>size</b>": [0.0, 1.0, 5.0, 6.0], "x": [1.0, 0.0, 1.0, 0.5]})
        y = np.array(["<script>a</script>", "<script>a</script>", "b", "b"])
        shown = SML().fit(X, y).explain(X[:1])._repr_html_()
        assert "<script>" not in shown
        assert "<b>size" not in shown
        assert "&lt;script&gt;a" in shown


class TestAutoPLML:
    @pytest.fixture(scope="module")
    @staticmethod
    def table():
        table = load_wine(as_frame=True).frame
        colours = ["pale", "red", "deep"]
        table["colour"] = pd.cut(table.pop("color_intensity"), [0, 4, 6, 20], labels=colours)
        table["proline"] = table["proline"].astype(int)
        table.loc[::9, "alcohol"] = None
        return table.drop(columns="target"), table["target"].map({0: "a", 1: "b", 2: "c"})

    @pytest.fixture(scope="module")
    @staticmethod
    def auto(table):
        X, y = table
        return AutoPLML(n_bases=3, random_state=0).fit(X[::2], y[::2])

    def test_all_members_vote(self, auto, table):
        Q = table[0][1::2]
        found = auto.explain(Q)
        np.testing.assert_array_equal(found.predictions, auto.predict(Q))
        np.testing.assert_allclose(found.probabilities, auto.predict_proba(Q))
        assert sum(ballot.weight for ballot in found.ballots) == pytest.approx(1.0)
        assert len(found.ballots) == len(auto.members_)
        shares = sum(ballot.weight * ballot.shares for ballot in found.ballots)
        np.testing.assert_array_equal(auto.classes_[shares.argmax(axis=1)], found.predictions)

    def test_in_the_columns_and_values_of_the_table(self, auto, table):
        X, Q = table[0][::2], table[0][1::2]
        found = auto.explain(Q, 4)
        assert list(found.feature_names) == list(X.columns)
        np.testing.assert_allclose(found.likeness.sum(axis=2), found.squared_distances, rtol=1e-6)
        np.testing.assert_allclose(found.contrasts.sum(axis=1), found.margins, rtol=1e-6, atol=1e-9)
        for i in range(len(Q)):
            for f, name in enumerate(found.feature_names):
                stored = X.iloc[found.cases_for[i]][name]
                if not pd.isna(stored):
                    assert found.for_values[i, f] == stored
                here = Q.iloc[i][name]
                assert found.queries[i, f] == here or pd.isna(here)
        told = found.text(0)
        assert "e-" not in told.split("Nearest cases")[0].split("here")[1].split("squared")[0]

    def test_the_training_rows(self, auto, table):
        found = auto.explain()
        assert len(found) == len(table[0][::2])
        assert np.mean(found.predictions == table[1][::2]) > 0.8
        assert auto.average_importance().shape == (13,)
        np.testing.assert_allclose(auto.local_importance(table[0][:3]).sum(axis=1), 1.0)


class TestImportancesWhenAskedFor:
    """Importances take longer than all the rest: they wait until somebody asks."""

    @pytest.fixture
    def counted(self, monkeypatch):
        calls = []
        real = CaseBase.average_importance
        monkeypatch.setattr(
            CaseBase, "average_importance", lambda base: calls.append(1) or real(base)
        )
        return calls

    def test_once_and_only_when_asked(self, rng, counted):
        X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
        X[:, 1] += 3.0 * y
        model = SML(n_neighbors=3).fit(X, y)
        found = model.explain(X[:4])
        print(found, found.to_frame(), found.contrast_frame(), found._repr_html_())
        assert not counted
        np.testing.assert_array_equal(found.global_importance, model.average_importance())
        del counted[:]
        assert [part.global_importance.argmax() for part in found] == [1, 1, 1, 1]
        assert not counted  # the parts know what the whole found out
        np.testing.assert_array_equal(found[2].importance, model.local_importance(X[[2]]))

    def test_saved_without_the_training_rows(self, rng):
        X, y = rng.normal(size=(4000, 5)), np.arange(4000) % 2
        X[:, 1] += 3.0 * y
        found = SML(n_neighbors=3).fit(X, y).explain(X[:2])
        saved = pickle.dumps(found)
        assert len(saved) < X.nbytes / 4
        again = pickle.loads(saved)
        np.testing.assert_array_equal(again.importance, found.importance)
        np.testing.assert_array_equal(again[1].global_importance, found.global_importance)


class TestCasesOfAClass:
    """The nearest case of a class, however far it is."""

    @pytest.mark.parametrize("name", ["SML", "PLML", "LMNNMM", "DANN", "GLML"])
    @pytest.mark.parametrize("own", [False, True])
    def test_beyond_the_neighbours_that_are_looked_at_first(self, name, own, rng):
        X = rng.normal(size=(150, 3))
        X[100:] += 9.0
        y = np.repeat(["near", "far", "farther"], [100, 30, 20])
        X[130:] += 5.0
        model = ESTIMATORS[name](n_neighbors=2).fit(X, y)
        found = model.explain() if own else model.explain(X[:6] + 0.01)
        points = X if own else X[:6] + 0.01
        distances, rows = model.kneighbors(n_neighbors=149)  # each row without itself
        left_out = np.full((150, 150), np.inf)
        np.put_along_axis(left_out, rows, distances**2, axis=1)
        for i, x in enumerate(points[:6]):
            squared = left_out[i] if own else squared_to_all(model, x)
            for case, label, at in (
                (found.cases_for[i], found.predictions[i], found.for_squared[i]),
                (found.cases_against[i], found.rivals[i], found.against_squared[i]),
            ):
                members = [j for j in np.flatnonzero(y == label) if not (own and j == i)]
                best = members[int(squared[members].argmin())]
                assert squared[case] == pytest.approx(squared[best], rel=1e-6, abs=1e-9)
                assert at == pytest.approx(squared[best], rel=1e-6, abs=1e-9)
            others = np.flatnonzero(y != found.predictions[i])
            assert found.rivals[i] == y[others[squared[others].argmin()]]

    @pytest.mark.parametrize("name", ["SML", "DANN"])
    def test_the_only_case_of_a_class(self, name, rng):
        X = np.concatenate([rng.normal(size=(12, 2)), [[9.0, 9.0]]])
        y = np.array([*["many"] * 12, "one"])
        model = ESTIMATORS[name](n_neighbors=1).fit(X, y)
        found = model.explain()
        assert (found.predictions[12], found.rivals[12]) == ("many", "one")
        assert found.cases_against[12] == -1
        assert not found.contrasts[12].any()
        for text in (str(found[12]), found[12]._repr_html_()):
            assert "there is no other case of one to compare with" in text
        json.loads(json.dumps(found.to_dict(), allow_nan=False))
        found[12].plot()
