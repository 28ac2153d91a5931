import numpy as np
import pytest

from plml import PLML
from plml.ops import inverted
from plml.stages.neighbors import (
    APPROXIMATE_FROM,
    ApproximateNeighbors,
    ExactNeighbors,
    neighbors_of,
)

pytest.importorskip("faiss")


@pytest.fixture
def clouds(rng):
    centers = 4.0 * rng.normal(size=(40, 6))
    X = centers[rng.integers(40, size=4000)] + rng.normal(size=(4000, 6))
    return X, rng.integers(3, size=4000)


def share(found, truth):
    return np.mean([np.isin(t, f).mean() for f, t in zip(found, truth, strict=True)])


def test_most_neighbors_are_found_and_their_distances_are_exact(clouds):
    X, _ = clouds
    _, truth = ExactNeighbors(X).find("graph", 5)
    neighbors = ApproximateNeighbors(X)
    squared, found = neighbors.find("graph", 5)
    reached = share(found, truth)
    assert reached >= 0.9
    assert abs(reached - neighbors.recall["graph"]) < 0.05  # measured on a sample
    assert not (found == np.arange(len(X))[:, None]).any()
    expected = ((X[:, None] - X[found]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared, expected, rtol=1e-12)


def test_neighbors_among_some_rows(clouds):
    X, y = clouds
    members, others = np.flatnonzero(y == 0), np.flatnonzero(y != 0)
    neighbors = ApproximateNeighbors(X)
    for purpose, among in {"targets": members, "impostors": others}.items():
        _, found = neighbors.find(purpose, 3, members, among)
        _, truth = ExactNeighbors(X).find(purpose, 3, members, among)
        assert np.isin(found, among).all()
        assert not (found == members[:, None]).any()
        assert share(found, truth) >= 0.9


def test_the_recall_is_what_makes_it_look_further(clouds, monkeypatch):
    X, _ = clouds
    monkeypatch.setattr(inverted, "_CELLS_AT_FIRST", 1)
    monkeypatch.setattr(inverted, "TARGET_RECALL", 0.0)
    low = ApproximateNeighbors(X)
    low.find("graph", 5)
    monkeypatch.setattr(inverted, "TARGET_RECALL", 0.99)
    high = ApproximateNeighbors(X)
    high.find("graph", 5)
    assert low.recall["graph"] < 0.9 < 0.99 <= high.recall["graph"]


def test_cells_with_too_few_are_made_up_for(rng):
    X = rng.normal(size=(60, 3))
    squared, found = ApproximateNeighbors(X).find("graph", 50)
    expected = ExactNeighbors(X).find("graph", 50)
    assert found.shape == (60, 50)
    assert (found >= 0).all()
    assert all(len(set(row)) == 50 for row in found.tolist())
    np.testing.assert_allclose(squared[:, 0], expected[0][:, 0])


def test_more_neighbors_than_rows(rng):
    X = rng.normal(size=(5, 2))
    assert ApproximateNeighbors(X).find("targets", 7)[1].shape == (5, 4)
    alone = np.array([2])
    assert ApproximateNeighbors(X).find("targets", 3, alone, alone)[1].shape == (1, 0)


def test_the_size_decides(monkeypatch, rng):
    X = rng.normal(size=(30, 2))
    assert isinstance(neighbors_of(X, "auto"), ExactNeighbors)
    assert isinstance(neighbors_of(X, "approximate"), ApproximateNeighbors)
    monkeypatch.setattr("plml.stages.neighbors.APPROXIMATE_FROM", 30)
    assert isinstance(neighbors_of(X, "auto"), ApproximateNeighbors)
    assert isinstance(neighbors_of(X, "exact"), ExactNeighbors)
    assert APPROXIMATE_FROM > 30


def test_a_fit_with_approximate_neighbors_says_what_it_found(clouds):
    X, y = clouds
    X, y = X[:1500] / np.linalg.norm(X[:1500], axis=1)[:, None], (X[:1500, 0] > 0).astype(int)
    exact = PLML(n_bases=4, random_state=0, neighbor_search="exact").fit(X, y)
    model = PLML(n_bases=4, random_state=0, neighbor_search="approximate").fit(X, y)
    assert exact.neighbor_recall_ == {"graph": 1.0, "targets": 1.0, "impostors": 1.0}
    assert set(model.neighbor_recall_) == set(exact.neighbor_recall_)
    assert all(0.9 < recall <= 1.0 for recall in model.neighbor_recall_.values())
    assert np.mean(model.predict(X) == exact.predict(X)) > 0.98


def test_approximate_neighbors_need_the_processor(rng):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match='neighbor_search="approximate" needs faiss-cpu'):
        neighbors_of(torch.zeros(5, 2), "approximate")
