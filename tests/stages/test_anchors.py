import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus

from plml.backend.arrays import on_host, to_device
from plml.stages import anchors
from plml.stages.anchors import kmeans_anchors

pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def X(rng):
    centers = 4.0 * rng.normal(size=(6, 3))
    return centers[rng.integers(6, size=200)] + rng.normal(size=(200, 3))


@pytest.mark.parametrize("seed", range(4))
def test_the_start_is_that_of_scikit_learn(X, seed):
    rng = np.random.RandomState(seed)
    found = on_host(anchors._spread_out(to_device(X, "torch"), 7, rng, None))
    expected, _ = kmeans_plusplus(X, 7, random_state=seed)
    np.testing.assert_allclose(found, expected)


def test_one_cluster_is_the_mean(X):
    found = kmeans_anchors(to_device(X, "torch"), 1, 0)
    np.testing.assert_allclose(on_host(found.centers)[0], X.mean(axis=0))
    assert (found.labels == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_lloyd_is_that_of_scikit_learn(X, seed):
    start, _ = kmeans_plusplus(X, 5, random_state=seed)
    centers, labels, n_iter = anchors._lloyd(to_device(X, "torch"), to_device(start, "torch"), None)
    expected = KMeans(5, init=start, n_init=1, algorithm="lloyd").fit(X)
    np.testing.assert_allclose(on_host(centers), expected.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(labels, expected.labels_)
    assert n_iter == expected.n_iter_


def test_single_precision_is_summed_in_double(X):
    far = (X + 1e4).astype(np.float32)
    found = kmeans_anchors(to_device(far, "torch"), 5, 0)
    expected = KMeans(5, random_state=0).fit(far.astype(np.float64))
    assert on_host(found.centers).dtype == np.float32
    np.testing.assert_allclose(on_host(found.centers), expected.cluster_centers_, rtol=1e-6)


def test_a_cluster_that_loses_its_points_stays_where_it_is():
    X = to_device(np.array([[0.0], [1.0], [10.0], [11.0]]), "torch")
    start = to_device(np.array([[0.0], [10.0], [100.0]]), "torch")
    centers, labels, _ = anchors._lloyd(X, start, None)
    np.testing.assert_allclose(on_host(centers), [[0.5], [10.5], [100.0]])
    assert labels.tolist() == [0, 0, 1, 1]


def test_the_iteration_is_cut_at_its_limit(X, monkeypatch):
    monkeypatch.setattr(anchors, "MAX_ITER", 2)
    start = to_device(X[:6], "torch")
    assert anchors._lloyd(to_device(X, "torch"), start, None)[2] == 2


def test_distances_to_centers(rng):
    X, U = rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    found = on_host(anchors.squared_distances_to(to_device(X, "torch"), to_device(U, "torch")))
    assert found.dtype == np.float64
    X, U = X.astype(float), U.astype(float)
    np.testing.assert_allclose(found, ((X[:, None] - U) ** 2).sum(axis=2), atol=1e-12)
    same = to_device(np.full((3, 2), 0.1), "torch")
    assert (on_host(anchors.squared_distances_to(same, same)) >= 0.0).all()
