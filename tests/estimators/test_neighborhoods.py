"""What users of scikit-learn's neighbours and of metric-learn look for."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import DBSCAN
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from every_estimator import ESTIMATORS
from plml import DANN, GLML, LMNN, PLML, SML
from plml.estimators._neighborhoods import within_radius

WITH_NEIGHBORS = [name for name in ESTIMATORS if name != "KernelSVM"]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)  # without its ties
    return X[::2], y[::2], X[1::2]


@pytest.fixture(scope="module", params=WITH_NEIGHBORS)
def fitted(request, iris):
    return ESTIMATORS[request.param]().fit(*iris[:2])


@pytest.fixture(scope="module")
def euclidean(iris):
    """A model of ours with the Euclidean metric, and scikit-learn's."""
    X, y, _ = iris
    return GLML(metric_shrinkage=1.0).fit(X, y), NearestNeighbors(n_neighbors=3).fit(X)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("mode", ["connectivity", "distance"])
def test_graphs_are_those_of_scikit_learn(euclidean, iris, mode, given):
    ours, theirs = euclidean
    Q = iris[2] if given else None
    for found, expected in (
        (ours.kneighbors_graph(Q, 3, mode), theirs.kneighbors_graph(Q, 3, mode)),
        (
            ours.radius_neighbors_graph(Q, 0.4, mode),
            theirs.radius_neighbors_graph(Q, 0.4, mode),
        ),
    ):
        assert sparse.issparse(found)
        assert found.format == expected.format == "csr"
        assert found.shape == expected.shape
        if mode == "distance":
            np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-9)
        else:
            assert abs(found - expected).sum() == 0


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("sort_results", [True, False])
def test_radius_neighbors_are_those_of_scikit_learn(euclidean, iris, given, sort_results):
    ours, theirs = euclidean
    Q = iris[2] if given else None
    found = ours.radius_neighbors(Q, 0.5, sort_results=sort_results)
    expected = theirs.radius_neighbors(Q, 0.5, sort_results=sort_results)
    for mine, truth in zip(*(part[0] for part in (found, expected)), strict=True):
        np.testing.assert_allclose(np.sort(mine), np.sort(truth), atol=1e-9)
        if sort_results:
            assert (np.diff(mine) >= 0).all()
    for mine, truth in zip(*(part[1] for part in (found, expected)), strict=True):
        np.testing.assert_array_equal(np.sort(mine), np.sort(truth))
    assert found[0].dtype == found[1].dtype == object
    alone = ours.radius_neighbors(Q, 0.5, return_distance=False, sort_results=sort_results)
    for mine, truth in zip(alone, found[1], strict=True):
        np.testing.assert_array_equal(mine, truth)


@pytest.mark.parametrize("radius", [0.0, 0.7, 1e9])
def test_every_neighbor_within_the_radius_and_no_other(fitted, iris, radius):
    X, _, Q = iris
    all_of_them = fitted.kneighbors(Q, len(X))
    found = fitted.radius_neighbors(Q, radius, sort_results=True)
    for row, (distances, indices) in enumerate(zip(*found, strict=True)):
        inside = all_of_them[0][row] <= radius
        np.testing.assert_array_equal(indices, all_of_them[1][row][inside])
        np.testing.assert_allclose(distances, all_of_them[0][row][inside])


def test_the_graph_of_the_neighbors(fitted, iris):
    X, _, Q = iris
    distances, indices = fitted.kneighbors(Q, 4)
    graph = fitted.kneighbors_graph(Q, 4, mode="distance")
    np.testing.assert_allclose(graph.toarray()[np.arange(len(Q))[:, None], indices], distances)
    assert graph.shape == (len(Q), len(X))
    own = fitted.kneighbors_graph(mode="connectivity")
    assert own.diagonal().sum() == 0


def test_graphs_feed_scikit_learn(iris):
    """A precomputed graph of ours clusters and classifies."""
    X, y, Q = iris
    model = SML().fit(X, y)
    graph = model.radius_neighbors_graph(radius=2.0, mode="distance")
    assert len(set(DBSCAN(eps=1.0, metric="precomputed").fit_predict(graph))) >= 2
    by_metric = KNeighborsClassifier(1, metric=model.get_metric(), algorithm="brute").fit(X, y)
    np.testing.assert_array_equal(by_metric.predict(Q), model.predict(Q))


def test_scores_and_metrics_are_the_distances(fitted, iris):
    X, _, Q = iris
    pairs = np.stack([Q[:10], X[:10]], axis=1)
    distances = fitted.pair_distance(pairs)
    np.testing.assert_array_equal(fitted.pair_score(pairs), -distances)
    metric = fitted.get_metric()
    assert [metric(*pair) for pair in pairs] == pytest.approx(distances)
    assert metric(*pairs[0], squared=True) == pytest.approx(distances[0] ** 2)
    assert metric(X[0], X[0]) == 0.0


def test_a_global_metric_is_a_metric(iris):
    """metric-learn's expectations: symmetry, triangles, and the map that gives the distance."""
    X, y, _ = iris
    for model in (SML().fit(X, y), LMNN().fit(X, y)):
        metric = model.get_metric()
        for a, b, c in X[:30].reshape(10, 3, -1):
            assert metric(a, b) == pytest.approx(metric(b, a))
            assert metric(a, c) <= metric(a, b) + metric(b, c) + 1e-9
            mapped = model.transform(np.stack([a, b]))
            assert metric(a, b) == pytest.approx(np.linalg.norm(mapped[0] - mapped[1]))
        L = model.components_
        np.testing.assert_allclose(L.T @ L, model.get_mahalanobis_matrix(X[:1])[0], atol=1e-8)
        assert L.shape[1] == X.shape[1]


def test_a_function_of_the_metric_outlives_a_refit(iris):
    X, y, _ = iris
    model = PLML(n_bases=3, random_state=0).fit(X, y)
    metric = model.get_metric()
    before = metric(X[0], X[50])
    model.fit(1000.0 * X, y)
    assert metric(X[0], X[50]) == before


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m, X: m.radius_neighbors(X, -1.0), "radius"),
        (lambda m, X: m.radius_neighbors(X, "far"), "radius"),
        (lambda m, X: m.radius_neighbors(X, float("nan")), "radius"),
        (lambda m, X: m.kneighbors_graph(X, 3, mode="weights"), "mode"),
        (lambda m, X: m.radius_neighbors_graph(X, 1.0, mode="weights"), "mode"),
        (lambda m, X: m.kneighbors_graph(X, 10_000), "more than the"),
        (lambda m, X: m.get_metric()(X[0], X[:2]), "one dimension"),
        (lambda m, X: m.get_metric()(X[0][:2], X[1][:2]), "features"),
    ],
)
def test_bad_questions_are_refused_by_name(iris, ask, words):
    model = DANN().fit(*iris[:2])
    with pytest.raises(ValueError, match=words):
        ask(model, iris[2])


def test_before_a_fit():
    for ask in ("kneighbors_graph", "radius_neighbors", "radius_neighbors_graph", "get_metric"):
        with pytest.raises(NotFittedError):
            getattr(SML(), ask)()


@pytest.mark.parametrize("nearest_first", [True, False])
def test_a_radius_is_searched_in_growing_looks(nearest_first):
    """Query i has its neighbours at distances (i + 1) (1, 2, ..., 300); each look asks for more."""
    order = np.random.default_rng(0).permutation(300)
    looks = []

    def search(rows, k):
        looks.append((rows.tolist(), k))
        squared = np.square(np.outer(rows + 1, np.arange(1.0, k + 1)))
        return squared, np.tile(order[:k], (len(rows), 1))

    distances, numbers = within_radius(search, 3, 300, 30.0, nearest_first)
    assert looks == [([0, 1, 2], 16), ([0], 64)]
    for i, n_near in enumerate((30, 15, 10)):
        expected = np.arange(n_near) if nearest_first else np.argsort(order[:n_near])
        np.testing.assert_allclose(distances[i], (i + 1) * (1.0 + expected))
        np.testing.assert_array_equal(numbers[i], order[:n_near][expected])
    everything, _ = within_radius(search, 1, 300, np.inf, nearest_first)
    assert len(everything[0]) == 300
    assert [k for _, k in looks[2:]] == [16, 64, 256, 300]


@pytest.mark.parametrize(("excess", "n_near"), [(0.0, 3), (5e-13, 3), (2e-12, 0), (-2e-12, 3)])
def test_a_distance_is_within_a_radius_up_to_its_rounding(excess, n_near):
    def search(rows, k):
        return np.full((1, 3), (2.0 * (1.0 + excess)) ** 2), np.arange(3)[None]

    assert len(within_radius(search, 1, 3, 2.0, True)[1][0]) == n_near
