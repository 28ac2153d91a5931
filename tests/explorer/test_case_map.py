"""Who is on the map, and where."""

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

from plml import DANN, LMNNMM, PLML, SML
from plml.explorer.case_map import (
    ShownCases,
    affinities,
    choose,
    layout,
    neighbor_lists,
    places_among,
)


class TestChoice:
    def test_every_class_and_every_error_is_kept(self, rng):
        codes = np.r_[np.zeros(5000, int), np.ones(300, int), np.full(3, 2)]
        wrong = rng.random(len(codes)) < 0.1
        chosen = choose(codes, wrong, 1000, 0)
        assert len(chosen.rows) == 1000
        assert set(np.flatnonzero(wrong)) <= set(chosen.rows)
        assert np.bincount(codes[chosen.rows])[2] == 3
        assert (np.diff(chosen.rows) > 0).all()
        assert chosen.in_words("training") == (
            f"1,000 of 5,303 training cases, with every class and all {wrong.sum()} errors"
        )

    def test_errors_that_are_too_many_are_said_to_be(self, rng):
        codes = rng.integers(4, size=2000)
        wrong = rng.random(2000) < 0.5
        chosen = choose(codes, wrong, 300, 0)
        assert len(chosen.rows) == 300
        assert set(codes[chosen.rows]) == {0, 1, 2, 3}
        shown = int(wrong[chosen.rows].sum())
        assert 280 <= shown < wrong.sum()
        assert f"{shown} of {wrong.sum():,} errors" in chosen.in_words("new")

    def test_all_are_shown_where_there_is_room(self):
        chosen = choose(np.array([0, 1, 1]), np.array([False, True, False]), 10, 0)
        assert chosen.rows.tolist() == [0, 1, 2]
        assert chosen.in_words("new") == "3 new cases"

    def test_the_same_seed_chooses_the_same(self, rng):
        codes, wrong = rng.integers(3, size=500), rng.random(500) < 0.1
        first, again, other = (choose(codes, wrong, 100, seed).rows for seed in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 4
    return rng.normal(size=(300, 6)) + 3.0 * np.eye(4, 6)[y], y


def metric_table(model, X):
    """(n, n) distances under the metrics at the first points, one pair after the other."""
    return np.stack([model.pair_distance(np.stack([np.broadcast_to(x, X.shape), X], 1)) for x in X])


@pytest.mark.parametrize(
    "model",
    [
        SML(regularization=1.0),
        PLML(n_bases=4, random_state=0),
        PLML(n_bases=4, random_state=0, case_metrics="class"),
        DANN(),
    ],
    ids=["one", "local", "two-sided", "own"],
)
def test_distances_are_those_of_the_metric(model, groups):
    X, y = groups[0][:60], groups[1][:60]
    model.fit(X[:40], y[:40])
    shown = ShownCases(model._metric, np.arange(5, 35))
    expected = metric_table(model, X)
    found = shown.squared_distances(X[40:])
    np.testing.assert_allclose(found**0.5, expected[40:, 5:35], rtol=1e-4, atol=1e-5)


def test_neighbour_lists_are_those_of_kneighbors(groups):
    X, y = groups
    model = PLML(n_bases=4, random_state=0).fit(X, y)
    squared, nearest = neighbor_lists(ShownCases(model._metric, np.arange(len(X))))
    distances, expected = model.kneighbors(n_neighbors=nearest.shape[1])
    np.testing.assert_allclose(np.sort(squared, axis=1) ** 0.5, distances, rtol=1e-3, atol=1e-4)
    same = [len(set(a) & set(b)) for a, b in zip(nearest, expected, strict=True)]
    assert np.mean(same) > 0.99 * nearest.shape[1]


def test_affinities_are_symmetric_and_sum_to_one(groups):
    X, y = groups
    shown = ShownCases(SML(regularization=1.0).fit(X, y)._metric, np.arange(len(X)))
    P = affinities(*neighbor_lists(shown))
    assert P.sum() == pytest.approx(1.0)
    assert abs(P - P.T).max() < 1e-15
    assert P.diagonal().max() == 0.0


@pytest.mark.parametrize(
    "model",
    [SML(regularization=1.0), PLML(n_bases=4, random_state=0), LMNNMM(random_state=0)],
    ids=["one", "local", "cases"],
)
def test_the_map_keeps_neighbours(model, groups):
    X, y = groups
    model.fit(X, y)
    shown = ShownCases(model._metric, np.arange(len(X)))
    places = layout(shown, 0)
    table = shown.squared_distances(None) ** 0.5
    table = (table + table.T) / 2.0
    np.fill_diagonal(table, 0.0)
    kept = trustworthiness(table, places, n_neighbors=10, metric="precomputed")
    chance = np.random.default_rng(0).normal(size=places.shape)
    assert kept > 0.88
    assert trustworthiness(table, chance, n_neighbors=10, metric="precomputed") < 0.6
    np.testing.assert_array_equal(layout(shown, 0), places)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_few_points_and_equal_ones(n):
    X = np.repeat([[0.0, 1.0], [1.0, 0.0]], n, axis=0)
    model = SML(regularization=1.0).fit(X, np.repeat([0, 1], n))
    places = layout(ShownCases(model._metric, np.arange(n)), 0)
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


def test_a_new_case_lies_among_its_neighbours(rng):
    places = rng.normal(size=(30, 2))
    squared = np.full((2, 30), 100.0)
    squared[0, 7] = 0.0
    squared[1, [3, 4]] = 1e-9
    found = places_among(squared, places)
    np.testing.assert_allclose(found[0], places[7], atol=1e-4)
    np.testing.assert_allclose(found[1], places[[3, 4]].mean(axis=0), atol=1e-4)
