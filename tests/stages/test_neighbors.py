"""The three lists of neighbours, from one pass over the distances."""

import numpy as np
import pytest

from plml import PLML, PLMLCV, SML, AutoPLML
from plml.backend.arrays import on_host, to_device
from plml.ops import topk
from plml.ops.distances import euclidean_pairs
from plml.stages import neighbors
from plml.stages.neighbors import ExactNeighbors, class_members, euclidean_neighbors
from plml.stages.run import Run


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    if request.param == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    return request.param


@pytest.fixture
def searched(monkeypatch):
    """The sizes of all searches so far: (queries, rows)."""
    sizes, search = [], topk.largest_inner_products

    def counted(queries, vectors, k):
        sizes.append((len(queries), len(vectors)))
        return search(queries, vectors, k)

    monkeypatch.setattr(topk, "largest_inner_products", counted)
    return sizes


def distances_in(searched):
    return sum(queries * rows for queries, rows in searched)


def by_definition(d2, allowed, k):
    """The k nearest of the allowed ones, equals by index, -1 where there are too few."""
    d2 = np.where(allowed, d2, np.inf)
    columns = np.broadcast_to(np.arange(len(d2)), d2.shape)
    order = np.lexsort((columns, d2), axis=1)
    there = np.take_along_axis(allowed, order, axis=1)
    found = np.where(there, order, -1)[:, :k]
    return np.pad(found, ((0, 0), (0, k - found.shape[1])), constant_values=-1)


TABLES = {
    "ties": lambda rng: (rng.integers(0, 3, size=(150, 3)) * 1.0, rng.integers(0, 4, size=150)),
    "duplicates": lambda rng: (np.repeat(rng.normal(size=(12, 4)), 12, 0), np.arange(144) % 5),
    "tiny classes": lambda rng: (rng.normal(size=(90, 3)), np.r_[[0], [1] * 2, [2] * 87]),
    "no others": lambda rng: (rng.normal(size=(30, 3)), np.zeros(30, dtype=int)),
    "rows of their own": lambda rng: (rng.normal(size=(40, 3)), np.arange(40)[::-1].copy()),
    "many classes": lambda rng: (rng.normal(size=(700, 5)), rng.integers(0, 250, size=700)),
    "few rows": lambda rng: (rng.normal(size=(6, 2)), np.array([1, 0, 1, 0, 0, 1])),
    "two rows": lambda rng: (rng.normal(size=(2, 2)), np.array([0, 1])),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TABLES)
def test_the_lists_are_those_of_the_definition(rng, device, dtype, name):
    X, y = TABLES[name](rng)
    X = X.astype(dtype)
    wide = X.astype(np.float64)
    d2 = ((wide[:, None] - wide) ** 2).sum(axis=2)
    same, itself = y[:, None] == y, np.eye(len(y), dtype=bool)
    found = ExactNeighbors(to_device(X, device), y)
    squared, nearest = found.graph(7)
    expected = by_definition(d2, ~itself, min(7, len(y) - 1))
    np.testing.assert_array_equal(nearest, expected)
    np.testing.assert_allclose(squared, np.take_along_axis(d2, expected, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(found.targets(3), by_definition(d2, same & ~itself, 3))
    np.testing.assert_array_equal(found.impostors(3), by_definition(d2, ~same, 3))


@pytest.mark.parametrize("at_once", [1, 40])
@pytest.mark.parametrize("name", TABLES)
def test_the_lists_do_not_depend_on_how_many_classes_are_worked_on_together(
    rng, monkeypatch, name, at_once
):
    X, y = TABLES[name](rng)
    together = ExactNeighbors(X, y)
    expected = together.targets(3), together.impostors(3)
    monkeypatch.setattr(neighbors, "_ROWS_AT_ONCE", at_once)
    apart = ExactNeighbors(X, y)
    np.testing.assert_array_equal(apart.targets(3), expected[0])
    np.testing.assert_array_equal(apart.impostors(3), expected[1])


@pytest.mark.parametrize("kind", ["far from zero", "rotated ties", "tight classes", "heavy tails"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_lists_are_those_of_separate_searches(rng, device, dtype, kind):
    """Also where rounding decides: what counts as equal is judged as in a search of its own."""
    y = rng.integers(0, 3, size=300)
    X = rng.integers(0, 3, size=(300, 5)) * 1.0
    if kind == "far from zero":
        X = 1e6 + 1e-6 * rng.normal(size=(300, 5)) + y[:, None] % 2
    elif kind == "rotated ties":
        X = X @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    elif kind == "tight classes":
        X = 1e-6 * rng.normal(size=(300, 5)) + 30.0 * y[:, None]
    else:
        X = rng.standard_cauchy(size=(300, 5))
    X = X.astype(dtype)
    placed = [to_device(part, device) for part in (X, *(X[y == c] for c in range(3)))]
    found = ExactNeighbors(placed[0], y)
    for ours, alone in zip(found.graph(7), euclidean_neighbors(placed[0], 7), strict=True):
        np.testing.assert_array_equal(ours, on_host(alone))
    targets, impostors = found.targets(3), found.impostors(3)
    for members, rows in zip(class_members(y), placed[1:], strict=True):
        others = np.setdiff1d(np.arange(len(y)), members)
        alone = members[on_host(euclidean_neighbors(rows, 3)[1])]
        np.testing.assert_array_equal(targets[members], alone)
        alone = others[on_host(euclidean_neighbors(to_device(X[others], device), 3, rows)[1])]
        if (kind, dtype) == ("tight classes", "float32"):
            # Coarse coordinates far away: a chain of distances, each within rounding of the next.
            ours, theirs = (
                euclidean_pairs(X[members], X, part) for part in (impostors[members], alone)
            )
            np.testing.assert_allclose(ours, theirs, rtol=1e-14)
        else:
            np.testing.assert_array_equal(impostors[members], alone)


class TestOnePass:
    @pytest.fixture
    def table(self, rng):
        return rng.normal(size=(400, 6)), rng.integers(0, 5, size=400)

    @pytest.mark.parametrize("graph_first", [True, False])
    def test_all_lists_need_every_distance_once(self, table, searched, graph_first):
        found = ExactNeighbors(*table)
        if graph_first:
            found.graph(7)
        found.targets(3), found.impostors(3)
        found.graph(7)
        assert distances_in(searched) == 400**2
        found.graph(7), found.targets(3), found.impostors(3)  # kept
        assert distances_in(searched) == 400**2

    def test_targets_alone_need_the_distances_within_the_classes(self, table, searched):
        ExactNeighbors(*table).targets(3)
        assert distances_in(searched) == np.sum(np.bincount(table[1]) ** 2)

    def test_longer_lists_that_come_later_are_searched_for(self, table):
        X, y = table
        short_first = ExactNeighbors(X, y)
        short_first.impostors(3), short_first.targets(3), short_first.graph(7)
        for purpose in ("impostors", "targets"):
            found = getattr(short_first, purpose)(30)
            np.testing.assert_array_equal(found, getattr(ExactNeighbors(X, y), purpose)(30))
        np.testing.assert_array_equal(short_first.graph(30)[1], euclidean_neighbors(X, 30)[1])

    def test_what_the_pass_found_goes_when_all_lists_are_there(self, table):
        found = ExactNeighbors(*table)
        found.graph(7), found.targets(3)
        assert found._sweep is not None
        found.impostors(3)
        assert found._sweep is None


@pytest.fixture
def sweeps(monkeypatch):
    """The numbers of rows of all passes so far."""
    sizes = []

    class Counted(neighbors.ClassSweep):
        def __init__(self, X, groups):
            sizes.append(len(X))
            super().__init__(X, groups)

    monkeypatch.setattr(neighbors, "ClassSweep", Counted)
    return sizes


def test_a_fold_takes_one_pass_whatever_the_number_of_bases(rng, sweeps):
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + 2.0 * np.eye(3, 4)[y]
    PLMLCV(n_bases=(2, 3, 4), regularizations=(1.0,), random_state=0).fit(X, y)
    assert sweeps == [60, 60, 120]


def test_a_selection_takes_one_pass_per_fold_and_one_for_its_members(rng, sweeps):
    """Single metrics come first in the folds, and may come first among the members."""
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + 2.0 * np.eye(3, 4)[y]
    model = AutoPLML(random_state=0)
    members = [{"model": 0, "metrics": "one"}, {"model": 1, "metrics": "two-sided"}]
    rest = {"prior": "identity", "pull": 1.0, "regularization": 0.1, "n_neighbors": 1}
    members = [{**member, **rest, "vote": "uniform", "weight": 0.5} for member in members]
    model.fit(X, y)
    assert sweeps[:3] == [80, 80, 80]
    assert sweeps[3:] in ([120], [])
    sweeps.clear()
    model.members_ = members
    first, second = model._fit_members(X, y, None, 0, Run())
    assert (type(first), type(second)) == (SML, PLML)
    assert sweeps == [120]
