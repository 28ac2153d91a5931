import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import judge
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import curvature, graph_laplacian, local_scales, similarity_graph
from plml.stages.neighbors import euclidean_neighbors


@pytest.mark.parametrize(("n", "k"), [(40, 6), (40, 2), (40, 9), (5, 6), (2, 6)])
def test_graph_against_a_naive_loop(rng, n, k):
    X = rng.normal(size=(n, 3))
    S = similarity_graph(*euclidean_neighbors(X, max(k, 7)), k)
    np.testing.assert_allclose(S.toarray(), judge.similarity(X, k), atol=1e-14)


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_duplicated_rows_keep_the_graph_finite(seed, copies):
    X = np.repeat(np.random.default_rng(seed).normal(size=(6, 2)), copies, axis=0)
    S = similarity_graph(*euclidean_neighbors(X, 7), 6)
    assert np.isfinite(S.data).all()
    assert (S.data > 0).all()
    assert (S.data <= 1).all()
    np.testing.assert_allclose(S.toarray(), judge.similarity(X, 6), atol=1e-14)


def test_laplacian_is_the_quadratic_form_of_differences(rng):
    X = rng.normal(size=(30, 3))
    S = similarity_graph(*euclidean_neighbors(X, 7), 6)
    L = graph_laplacian(S)
    w = rng.normal(size=30)
    dense = S.toarray()
    expected = 0.5 * sum(dense[i, j] * (w[i] - w[j]) ** 2 for i in range(30) for j in range(30))
    assert w @ (L @ w) == pytest.approx(expected)
    np.testing.assert_allclose(L @ np.ones(30), 0, atol=1e-12)


def test_the_curvature_majorises_the_laplacian(rng):
    L = graph_laplacian(similarity_graph(*euclidean_neighbors(rng.normal(size=(30, 3)), 7), 6))
    assert np.linalg.eigvalsh(np.diag(curvature(L)) - L.toarray()).min() >= -1e-12
    alone = sparse.diags_array([1.0, 2.0, 3.0]).tocsr()
    np.testing.assert_array_equal(curvature(alone), [1.0, 2.0, 3.0])


def test_scale_is_the_seventh_neighbor_or_the_last():
    squared = np.arange(1.0, 11.0)[None] ** 2
    assert local_scales(squared)[0] == 7
    assert local_scales(squared[:, :4])[0] == 4


def test_anchors_are_cluster_means(rng):
    X = rng.normal(size=(60, 3))
    anchors = kmeans_anchors(X, 5, 0)
    assert anchors.centers.shape == (5, 3)
    for b in range(5):
        np.testing.assert_allclose(anchors.centers[b], X[anchors.labels == b].mean(axis=0))


@pytest.mark.filterwarnings("error")
def test_fewer_distinct_rows_than_anchors(rng):
    X = np.repeat(rng.normal(size=(3, 2)), 4, axis=0)
    anchors = kmeans_anchors(X, 8, 0)
    assert anchors.centers.shape == (3, 2)
    assert sorted(np.unique(anchors.labels)) == [0, 1, 2]
    assert kmeans_anchors(X[:2], 8, 0).centers.shape == (1, 2)
