"""The same stages and estimators on NumPy and PyTorch, in both precisions."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize, scale

from backend_devices import DEVICES
from plml import CBLML, LMNN, LMNNMM, PLML, PLMLCV, SML
from plml.backend.arrays import (
    check_device,
    fetch,
    largest_of_rows,
    lost_in_products,
    on_host,
    segment_sum,
    to_device,
)
from plml.backend.sparse import entries_of, sparse_product
from plml.ops.grouped import GroupedPairs
from plml.ops.pairs import PairOperator
from plml.ops.projections import EXACTLY, project_psd, project_psd_by_sign, project_simplex
from plml.ops.span import round_center
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import curvature, laplacian_of_neighbors
from plml.stages.metrics import learn_metrics
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors
from plml.stages.search import LocalMetricIndex
from plml.stages.triplets import neighbor_triplets

NO_TORCH = """import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, NoTorch())
"""


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = normalize(scale(X))
    return X[:900], y[:900], X[900:1300], y[900:1300]


def test_neighbors_are_the_same(rng, device, dtype):
    X = rng.normal(size=(300, 7)).astype(dtype)
    X[10:30] = X[10]  # more ties than candidates
    expected = euclidean_neighbors(X.astype(np.float64), 5)
    found = euclidean_neighbors(to_device(X, device), 5)
    np.testing.assert_array_equal(on_host(found[1]), expected[1])
    np.testing.assert_allclose(on_host(found[0]), expected[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [3, 9])
def test_laplacians_are_the_same(rng, device, weighted, k):
    X = rng.normal(size=(200, 3))
    X[10:30] = X[10]  # no scale of their own, and edges of zero
    counts = rng.integers(1, 4, len(X)).astype(float) if weighted else None
    squared, nearest = euclidean_neighbors(X, max(k, 7))
    expected = laplacian_of_neighbors(squared, nearest, k, X, counts)
    found = laplacian_of_neighbors(squared, nearest, k, to_device(X, device), counts)
    dense = np.zeros(expected.shape)
    rows, columns, values = (on_host(part) for part in entries_of(found))
    dense[rows, columns] = values
    np.testing.assert_allclose(dense, expected.toarray(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(on_host(curvature(found)), 2.0 * expected.diagonal(), rtol=1e-12)
    W = to_device(X, device)
    for some in (slice(None), slice(50, 120)):
        product = sparse_product(found, W, 2.5, some)(W)
        np.testing.assert_allclose(on_host(product), 2.5 * (expected @ X)[some], atol=1e-10)


def test_the_round_center_is_the_same(rng, device, dtype):
    X = (rng.normal(size=(300, 4)) * [1, 1e-3, 1e4, 0] + [0, 5, -1e6, 2]).astype(dtype)
    expected = round_center(X)
    np.testing.assert_array_equal(round_center(to_device(X, device)), expected)
    assert expected[3] == 2
    spread = np.maximum(X.astype(np.float64).std(axis=0), 1e-300)
    assert (np.abs(expected - X.mean(axis=0, dtype=np.float64)) <= spread / 8).all()


@pytest.mark.parametrize("d", [33, 40])
def test_certificates_by_sign_are_those_by_eigenvalues(rng, device, d):
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0]
    values = np.concatenate([[5.0, 1e-3, 1e-9, -1e-9, -2.0], rng.normal(size=d - 5)])
    S = np.stack([(vectors * values) @ vectors.T, -np.eye(d), np.zeros((d, d))])
    found = on_host(project_psd_by_sign(to_device(S, device), EXACTLY))
    np.testing.assert_allclose(found, project_psd(S), atol=1e-13)
    assert np.linalg.eigvalsh(found).min() >= -1e-13
    assert not found[1:].any()


def test_local_metric_neighbors_are_the_same(rng, device, dtype):
    X, Q = (rng.normal(size=(n, 5)).astype(dtype) for n in (200, 40))
    A = rng.normal(size=(3, 5, 5)).astype(dtype)
    M = A @ A.transpose(0, 2, 1)
    M[2] = 0
    W = np.eye(3)[rng.integers(3, size=40)].astype(dtype)  # some queries without a metric
    expected = LocalMetricIndex(X.astype(float), M.astype(float)).search(Q, W.astype(float), 4)
    placed = [to_device(array, device) for array in (X, M, Q, W)]
    found = LocalMetricIndex(*placed[:2]).search(placed[2], placed[3], 4)
    np.testing.assert_array_equal(on_host(found[1]), expected[1])


@pytest.mark.parametrize("columns", [50, 3000, 3007])
def test_largest_of_rows(rng, device, columns):
    scores = rng.normal(size=(20, columns))
    expected = np.argsort(-scores, axis=1)[:, :6]
    found = largest_of_rows(to_device(scores, device), 6)
    np.testing.assert_array_equal(on_host(found), expected)


def test_fetch_brings_numbers_and_arrays_in_their_order(rng, device):
    A = rng.normal(size=(3, 4))
    placed = to_device(A, device)
    number, array, plain = fetch(placed[1, 2], placed, 7.0)
    assert isinstance(number, float)
    assert (number, plain) == (A[1, 2], 7.0)
    np.testing.assert_array_equal(array, A)


@pytest.mark.parametrize("d", [5, 45])
def test_pair_operator_is_the_same(rng, device, dtype, d):
    X = rng.normal(size=(80, d)).astype(dtype)
    W = rng.dirichlet(np.ones(3), size=80).astype(dtype)
    pairs = rng.integers(80, size=(200, 2))
    A = rng.normal(size=(3, d, d))
    M, s = A @ A.transpose(0, 2, 1), rng.normal(size=200)
    expected = PairOperator(X.astype(float), W.astype(float), pairs)
    operator = PairOperator(to_device(X, device), to_device(W, device), pairs)
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    for found, exact in (
        (operator.distances(to_device(M, device)), expected.distances(M)),
        (operator.scatter(to_device(s, device)), expected.scatter(s)),
    ):
        found = on_host(found)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, exact, atol=tolerance * np.abs(exact).max())


def test_grouped_pairs_are_the_same(rng, device, dtype):
    X = rng.normal(size=(80, 6)).astype(dtype)
    groups, pairs = rng.integers(4, size=80), rng.integers(80, size=(200, 2))
    A, B = rng.normal(size=(2, 4, 6, 6))
    M, s = A @ A.transpose(0, 2, 1), rng.normal(size=200)
    expected = GroupedPairs(X.astype(float), groups, 4, pairs).in_coordinates(B)
    operator = GroupedPairs(to_device(X, device), groups, 4, pairs)
    operator = operator.in_coordinates(to_device(B, device))
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    for found, exact in (
        (operator.distances(to_device(M, device)), expected.distances(M)),
        (operator.scatter(to_device(s, device)), expected.scatter(s)),
    ):
        found = on_host(found)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, exact, atol=tolerance * np.abs(exact).max())


def test_projections_are_the_same(rng, device, dtype):
    for shape, spread in (((50, 6), 1.0), ((3, 1), 1.0), ((2000, 20), 0.1), ((70, 33), 100.0)):
        V = (spread * rng.normal(size=shape)).astype(dtype)
        found = on_host(project_simplex(to_device(V, device)))
        np.testing.assert_allclose(found, project_simplex(V.astype(float)), atol=1e-5 * spread)
    S = rng.normal(size=(3, 40, 40))
    S = S + S.transpose(0, 2, 1)
    np.testing.assert_allclose(
        on_host(project_psd(to_device(S, device))), project_psd(S), atol=1e-9
    )


def test_the_sign_iteration_is_the_projection(rng, device):
    # Eigenvalues of both signs over eight orders of magnitude, and a zero matrix.
    values = rng.choice([-1.0, 1.0], size=(4, 50)) * 10.0 ** rng.uniform(-8, 0, size=(4, 50))
    axes = np.linalg.qr(rng.normal(size=(4, 50, 50)))[0]
    S = (axes * values[:, None, :]) @ axes.transpose(0, 2, 1)
    S[3] = 0.0
    found = on_host(project_psd_by_sign(to_device(S, device)))
    np.testing.assert_allclose(found, project_psd(S), atol=1e-6)
    assert not found[3].any()


def test_segment_sums(rng, device):
    values, segments = rng.normal(size=40), rng.integers(6, size=40)
    found = segment_sum(to_device(values, device), to_device(segments, device), 6)
    expected = [values[segments == segment].sum() for segment in range(6)]
    np.testing.assert_allclose(on_host(found), expected)


def test_anchors_are_those_of_scikit_learn(rng, device):
    X = np.concatenate([rng.normal(size=(60, 3)) + 4 * shift for shift in np.eye(3)])
    expected = KMeans(5, random_state=3).fit(X)
    found = kmeans_anchors(to_device(X, device), 5, 3)
    np.testing.assert_allclose(on_host(found.centers), expected.cluster_centers_, atol=1e-9)
    np.testing.assert_array_equal(found.labels, expected.labels_)


def test_fewer_anchors_where_rows_repeat(device):
    X = np.repeat(np.eye(3), 5, axis=0)
    assert len(kmeans_anchors(to_device(X, device), 8, 0).centers) == 3


def test_stage_2_reaches_the_same_objective(digits, device, dtype):
    X, y, _, _ = digits
    X = X.astype(dtype)
    W = np.random.default_rng(0).dirichlet(np.full(4, 0.2), size=len(X)).astype(dtype)
    triplets = neighbor_triplets(ExactNeighbors(X, y), 3, 3)
    options = {"solver": "auto", "max_iter": 1000}
    exact = learn_metrics(X.astype(float), W.astype(float), triplets, 1.0, 1.0, tol=1e-6, **options)
    placed = to_device(X, device), to_device(W, device)
    found = learn_metrics(*placed, triplets, 1.0, 1.0, tol=1e-4, **options)
    assert found.converged
    assert found.objective == pytest.approx(exact.objective, rel=1e-4)
    assert found.objective >= exact.objective * (1 - 1e-6)


@pytest.mark.parametrize(
    "model",
    [
        PLML(n_bases=6, random_state=0),
        PLML(n_bases=6, random_state=0, query_weights="optimize"),
        PLML(n_bases=6, random_state=0, solver="fista", tol=1e-2),
        PLMLCV(n_bases=4, random_state=0, regularizations=(1.0, 10.0)),
        PLML(n_bases=4, case_metrics="class", prior="identity", vote="distance", random_state=0),
        PLML(n_bases=4, case_metrics="local", prior="within", random_state=0),
        SML(),
        CBLML(n_bases=4, random_state=0),
        LMNN(solver="factored"),
        LMNN(tol=0.05),
        pytest.param(LMNNMM(), marks=pytest.mark.slow),
    ],
    ids=[
        "PLML",
        "PLML-optimize",
        "PLML-fista",
        "PLMLCV",
        "PLML-class",
        "PLML-local",
        "SML",
        "CBLML",
        "LMNN",
        "LMNN-convex",
        "LMNNMM",
    ],
)
def test_estimators_agree_with_numpy(digits, device, model):
    X, y, X_test, _ = digits
    expected = model.set_params(device="cpu").fit(X, y).predict(X_test)
    objective = model.objective_
    model.set_params(device=device).fit(X, y)
    tolerance = max(2 * model.tol, 0.02)
    assert model.objective_ == pytest.approx(objective, rel=tolerance)
    assert isinstance(model.basis_metrics_, np.ndarray)
    found = model.predict(X_test)
    assert isinstance(found, np.ndarray)
    assert np.mean(found == expected) >= 0.99
    distances, indices = model.kneighbors()
    assert (np.diff(distances, axis=1) >= 0).all()
    assert not (indices == np.arange(len(X))[:, None]).any()


@pytest.mark.parametrize(
    "model",
    [
        PLML(n_bases=4, prior="within", n_neighbors=5, query_weights="optimize", random_state=0),
        PLML(n_bases=4, case_metrics="class", vote="linear", n_neighbors=9, random_state=0),
        PLMLCV(n_bases=3, random_state=0, regularizations=(1.0,), scoring="balanced_accuracy"),
        LMNN(solver="factored"),
        LMNN(tol=0.05),
    ],
    ids=["optimize", "linear", "PLMLCV", "LMNN-factored", "LMNN-convex"],
)
@pytest.mark.filterwarnings("ignore:rows of sample_weight zero")
def test_weighted_estimators_agree_with_numpy(digits, device, model):
    X, y, X_test, _ = digits
    v = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], size=len(y))
    weighted = {"class_weight": "balanced", "weigh_votes": True}
    here, there = (clone(model).set_params(**weighted, device=d) for d in ("cpu", device))
    here.fit(X, y, sample_weight=v)
    there.fit(X, y, sample_weight=v)
    tolerance = max(2 * model.tol, 0.02)
    assert there.objective_ == pytest.approx(here.objective_, rel=tolerance)
    assert np.mean(here.predict(X_test) == there.predict(X_test)) >= 0.98
    placed = to_device(X, device), to_device(v, device)
    again = clone(there).fit(placed[0], y, sample_weight=placed[1])
    np.testing.assert_allclose(again.basis_metrics_, there.basis_metrics_, rtol=1e-6, atol=1e-9)


def test_a_model_moves_between_devices(digits, device):
    X, y, X_test, _ = digits
    model = PLML(n_bases=5, random_state=0, device=device).fit(X, y)
    expected = model.predict(X_test)
    state = pickle.dumps(model)
    elsewhere = pickle.loads(state).set_params(device="cpu")
    np.testing.assert_array_equal(elsewhere.predict(X_test), expected)
    back = pickle.loads(pickle.dumps(elsewhere)).set_params(device=device)
    np.testing.assert_array_equal(back.predict(X_test), expected)


def test_a_model_fitted_on_a_gpu_predicts_without_one(digits, tmp_path):
    X, y, X_test, _ = digits
    model = PLML(n_bases=5, random_state=0).fit(X, y)
    expected = model.predict(X_test)
    model.device = "cuda"  # as if it came from a machine that has one
    (tmp_path / "model").write_bytes(pickle.dumps(model))
    np.save(tmp_path / "X.npy", X_test)
    script = (
        NO_TORCH + "import pickle, numpy as np\n"
        f"model = pickle.load(open({str(tmp_path / 'model')!r}, 'rb'))\n"
        f"print(*model.predict(np.load({str(tmp_path / 'X.npy')!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(label) for label in expected]


def test_an_iteration_waits_for_the_gpu_only_to_decide(digits):
    """Stage 2 asks the device for numbers once a look and once a trial, and for nothing else."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    X, y, _, _ = digits
    placed = to_device(X.astype(np.float32), "cuda")
    triplets = neighbor_triplets(ExactNeighbors(X, y), 3, 3)
    weights = to_device(np.ones((len(X), 1), dtype=np.float32), "cuda")

    def waits(max_iter):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                found = learn_metrics(
                    placed, weights, triplets, 1.0, 1.0, solver="auto", tol=1e-12, max_iter=max_iter
                )
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(warning.message) for warning in seen), found.n_iter

    (few, short), (many, long) = waits(10), waits(40)
    assert long - short >= 20
    assert many - few <= 2 * (long - short)


class TestTensors:
    """Tensors in, tensors out, where they were: on the processor and, where there is one, a GPU."""

    @pytest.fixture(params=DEVICES[1:])
    def tensor(self, request):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        place = "cpu" if request.param == "torch" else request.param
        return lambda values, **how: torch.tensor(values, device=place, **how)

    @pytest.fixture(params=["cpu", "own"])
    def model(self, request, tensor):
        """Told to work on the processor, and told to work where the tensors are."""
        on_gpu = tensor([0.0]).is_cuda
        device = "cpu" if request.param == "cpu" else "cuda" if on_gpu else "torch"
        return PLML(n_bases=5, random_state=0, device=device)

    def test_results_follow_their_input(self, digits, tensor, model):
        X, y, X_test, _ = digits
        labels = PLML(n_bases=5, random_state=0).fit(X, y).predict(X_test)
        model.fit(tensor(X), tensor(y))
        queries = tensor(X_test)
        assert np.mean(on_host(model.predict(queries)) == labels) >= 0.99
        methods = ("predict", "predict_proba", "local_weights", "query_vectors")
        for method in (*methods, "get_mahalanobis_matrix"):
            found, on_numpy = (getattr(model, method)(x[:50]) for x in (queries, X_test))
            assert found.device == queries.device, method
            assert isinstance(on_numpy, np.ndarray), method
            np.testing.assert_allclose(on_host(found), on_numpy, rtol=1e-9, atol=1e-9)
        distances, indices = model.kneighbors(queries, 2)
        assert distances.device == indices.device == queries.device
        np.testing.assert_array_equal(on_host(indices), model.kneighbors(X_test, 2)[1])
        np.testing.assert_array_equal(
            model.explain(queries[:3]).neighbors, model.explain(X_test[:3]).neighbors
        )

    def test_queries_on_a_gpu_are_not_copied_to_the_host(self, digits, tensor, model, monkeypatch):
        X, y, X_test, _ = digits
        queries = tensor(X_test)
        if not queries.is_cuda:
            pytest.skip("these tensors are on the host")
        model.fit(X, y).predict(queries)
        monkeypatch.setattr(model, "_validate_on_host", None)
        assert model.predict(queries).is_cuda

    def test_transformed_where_they_are(self, digits, tensor):
        X, y, X_test, _ = digits
        model = SML().fit(X, y)
        found = model.transform(tensor(X_test))
        np.testing.assert_allclose(on_host(found), model.transform(X_test), atol=1e-12)

    def test_the_order_of_the_memory_does_not_matter(self, digits, tensor, model):
        X, y, X_test, _ = digits
        rows, queries = tensor(X), tensor(X_test)
        expected = clone(model).fit(rows, y)
        found = clone(model).fit(rows.T.contiguous().T, y)
        assert found.objective_ == pytest.approx(expected.objective_, rel=1e-3)
        agree = found.predict(queries.T.contiguous().T) == expected.predict(queries)
        assert on_host(agree).mean() >= 0.99

    def test_labels_that_are_not_numbers(self, digits, tensor, model):
        X, y, X_test, _ = digits
        names = np.array([f"digit {label}" for label in y])
        found = model.fit(tensor(X), names).predict(tensor(X_test))
        assert isinstance(found, np.ndarray)
        assert set(found) <= set(names)

    @pytest.mark.parametrize("change", ["nan", "huge", "narrow", "flat", "empty"])
    def test_bad_tensors_are_refused(self, digits, tensor, model, change):
        X, y, X_test, _ = digits
        model.fit(X, y)
        bad = X_test.copy()
        bad[3, 2] = {"nan": np.nan, "huge": 1e300}.get(change, 0.0)
        bad = {"narrow": bad[:, :-1], "flat": bad[0], "empty": bad[:0]}.get(change, bad)
        with pytest.raises(ValueError) as on_host_error:
            model.predict(bad)
        with pytest.raises(ValueError) as error:
            model.predict(tensor(bad))
        assert str(error.value).split(".")[0] == str(on_host_error.value).split(".")[0]

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "bool"])
    def test_other_dtypes(self, digits, tensor, model, dtype):
        import torch

        X, y, X_test, _ = digits
        queries = tensor(2 * X_test).to(getattr(torch, dtype))
        model.fit(X, y)
        expected = model.predict(on_host(queries.to(torch.float64)))
        assert np.mean(on_host(model.predict(queries)) == expected) >= 0.99

    def test_half_precision_and_gradients_around_do_not_matter(self, digits, tensor, model):
        import torch

        X, y, X_test, _ = digits
        expected = model.fit(tensor(X), y).kneighbors(tensor(X_test), 5, return_distance=False)
        queries = tensor(X_test, requires_grad=True)
        with torch.autocast(queries.device.type, dtype=torch.bfloat16):
            model.fit(tensor(X), y)
            found = model.kneighbors(queries, 5, return_distance=False)
        assert not found.requires_grad
        np.testing.assert_array_equal(on_host(found), on_host(expected))

    def test_neighbors_stay_exact_with_shorter_products(self, rng, tensor):
        import torch

        X = rng.normal(size=(3000, 64)).astype(np.float32)
        expected = euclidean_neighbors(X.astype(np.float64), 5)
        placed = tensor(X)
        matmul = (torch.backends.cuda if placed.is_cuda else torch.backends.mkldnn).matmul
        if not hasattr(matmul, "fp32_precision"):
            pytest.skip("this PyTorch has no such setting")
        matmul.fp32_precision = "tf32"
        try:
            assert lost_in_products(placed) == 2.0**-11
            found = euclidean_neighbors(placed, 5)
        finally:
            matmul.fp32_precision = "ieee"
        assert lost_in_products(placed) == 0.0
        np.testing.assert_array_equal(on_host(found[1]), expected[1])


def test_without_torch_one_line_says_what_to_install():
    script = (
        NO_TORCH + "from plml import PLML\n"
        "try: PLML(device='cuda').fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1
    assert 'pip install ".[gpu]"' in done.stdout


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:99", ""])
def test_unknown_devices(device):
    with pytest.raises(ValueError, match=r"device|PyTorch"):
        check_device(device)
