import numpy as np
import pytest

from plml import PLML
from plml.stages import approximate as stage
from plml.stages.approximate import APPROXIMATE_FROM, ApproximateNeighbors, neighbors_of
from plml.stages.neighbors import ExactNeighbors

pytest.importorskip("faiss")


@pytest.fixture
def clouds(rng):
    centers = 4.0 * rng.normal(size=(40, 6))
    X = centers[rng.integers(40, size=4000)] + rng.normal(size=(4000, 6))
    return X, rng.integers(3, size=4000)


def share(found, truth):
    return np.mean([np.isin(t, f).mean() for f, t in zip(found, truth, strict=True)])


def test_most_neighbors_are_found_and_their_distances_are_exact(clouds):
    X, y = clouds
    _, truth = ExactNeighbors(X, y).graph(5)
    approximate = ApproximateNeighbors(X, y)
    squared, found = approximate.graph(5)
    reached = share(found, truth)
    assert reached >= 0.9
    assert abs(reached - approximate.recall["graph"]) < 0.05  # measured on a sample
    assert not (found == np.arange(len(X))[:, None]).any()
    expected = ((X[:, None] - X[found]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared, expected, rtol=1e-12)


def test_neighbors_among_some_rows(clouds):
    X, y = clouds
    approximate = ApproximateNeighbors(X, y)
    for purpose in ("targets", "impostors"):
        found = getattr(approximate, purpose)(3)
        truth = getattr(ExactNeighbors(X, y), purpose)(3)
        assert ((y[found] == y[:, None]) == (purpose == "targets")).all()
        assert not (found == np.arange(len(X))[:, None]).any()
        assert share(found, truth) >= 0.9
        assert abs(share(found, truth) - approximate.recall[purpose]) < 0.05


def test_the_recall_is_what_makes_it_look_further(clouds, monkeypatch):
    X, y = clouds
    monkeypatch.setattr(stage, "_CELLS_AT_FIRST", 1)
    monkeypatch.setattr(stage, "TARGET_RECALL", 0.0)
    low = ApproximateNeighbors(X, y)
    low.graph(5)
    monkeypatch.setattr(stage, "TARGET_RECALL", 0.99)
    high = ApproximateNeighbors(X, y)
    high.graph(5)
    assert low.recall["graph"] < 0.9 < 0.99 <= high.recall["graph"]


def test_cells_with_too_few_are_made_up_for(rng):
    X = rng.normal(size=(60, 3))
    y = np.zeros(60, dtype=int)
    squared, found = ApproximateNeighbors(X, y).graph(50)
    expected = ExactNeighbors(X, y).graph(50)
    assert found.shape == (60, 50)
    assert (found >= 0).all()
    assert all(len(set(row)) == 50 for row in found.tolist())
    np.testing.assert_allclose(squared[:, 0], expected[0][:, 0])


def test_more_neighbors_than_rows(rng):
    X = rng.normal(size=(5, 2))
    y = np.array([1, 1, 0, 1, 1])
    assert ApproximateNeighbors(X, y).graph(7)[1].shape == (5, 4)
    targets = ApproximateNeighbors(X, y).targets(4)
    assert (targets[2] == -1).all()
    assert (targets[0] == -1).sum() == 1
    impostors = ApproximateNeighbors(X, y).impostors(4)
    assert sorted(impostors[2]) == [0, 1, 3, 4]
    assert impostors[0].tolist() == [2, -1, -1, -1]


def test_the_size_decides(monkeypatch, rng):
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    assert isinstance(neighbors_of(X, y, "auto"), ExactNeighbors)
    assert isinstance(neighbors_of(X, y, "approximate"), ApproximateNeighbors)
    monkeypatch.setattr("plml.stages.approximate.APPROXIMATE_FROM", 30)
    assert isinstance(neighbors_of(X, y, "auto"), ApproximateNeighbors)
    assert isinstance(neighbors_of(X, y, "exact"), ExactNeighbors)
    many = np.arange(30) * 4 % 120
    assert isinstance(neighbors_of(X, many, "auto"), ExactNeighbors)  # too many classes
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
        neighbors_of(torch.zeros(5, 2), np.arange(5) % 2, "approximate")
