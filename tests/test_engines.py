"""The local metric served by real engines: the neighbours of ``kneighbors``, from plain vectors."""

import copy
import os

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize, scale

from plml import PLML
from plml.serving import EuclideanReduction, rerank

K = 5


#: Metrics at the cases as well.
TWO_SIDED = {"case_metrics": "class", "prior": "identity", "pull": 0.1, "regularization": 100.0}


@pytest.fixture(
    scope="module",
    params=[{}, pytest.param(TWO_SIDED, marks=pytest.mark.slow)],
    ids=["one-sided", "two-sided"],
)
def served(paper_split, request):
    """Optdigits, all 1,797 queries; the embedded digits where the original files are not there."""
    if os.environ.get("PLML_DATA"):
        X, y, Q, _ = paper_split("optdigits")
    else:
        X, y = load_digits(return_X_y=True)
        X = normalize(scale(X))
        X, y, Q = X[:1200], y[:1200], X[1200:]
    model = PLML(**request.param, random_state=0, tol=1e-5, max_iter=5000).fit(X, y)
    distances, neighbors = model.kneighbors(Q, K)
    index, queries = (v.astype(np.float32) for v in (model.index_vectors(), model.query_vectors(Q)))
    return model, Q, index, queries, distances, neighbors


#: Candidates that an exact engine is asked for beyond those wanted.
SPARE = 3


def same_neighbors(found, served):
    """All neighbours of all queries, once the engine's candidates are ranked in float64.

    As they come they may differ where float32 cannot tell two inner products apart, and only there.
    """
    model, Q, vectors, queries, _, neighbors = served
    found = np.asarray(found)
    assert found.shape == (len(Q), K + SPARE)
    exact = model.index_vectors(), model.query_vectors(Q)
    np.testing.assert_array_equal(rerank(exact[1], exact[0], found, K), neighbors)
    different = np.argwhere(found[:, :K] != neighbors)
    assert len(different) < 0.001 * neighbors.size
    longest = np.linalg.norm(vectors, axis=1).max()
    for query, rank in different:
        scores = exact[0][[found[query, rank], neighbors[query, rank]]] @ exact[1][query]
        rounding = (vectors.shape[1] + 3) * 2.0**-24 * np.linalg.norm(queries[query]) * longest
        assert abs(scores[0] - scores[1]) <= 2 * rounding


@pytest.fixture
def living(served):
    """The model after cases came and went, queries, new cases and their vectors, what is gone."""
    model, Q, vectors, _, _, _ = served
    n = len(vectors)
    live = copy.deepcopy(model).add_cases(Q[:200], model.predict(Q[:200]))
    added = np.arange(n, n + 200)
    new = live.index_vectors(added).astype(np.float32)
    gone = np.array([3, 50, n + 7])
    return live.forget_cases(gone), Q[200:], added, new, gone


def same_neighbors_live(search, living):
    """Of an engine with which cases were inserted and deleted: every neighbour of the model."""
    model, Q, added, _, gone = living
    numbers = np.delete(np.arange(added[-1] + 1), gone)
    found = np.asarray(search(model.query_vectors(Q).astype(np.float32)))
    assert not np.isin(found, gone).any()
    places = np.searchsorted(numbers, found)
    exact = rerank(model.query_vectors(Q), model.index_vectors(), places, K)
    truth = model.kneighbors(Q, K, return_distance=False)
    np.testing.assert_array_equal(exact, truth)
    assert np.isin(numbers[truth], added).any()


def recall(found, served):
    truth = served[-1]
    return np.mean((truth[:, :, None] == np.asarray(found)[:, None, :]).any(axis=2))


class TestFaiss:
    @pytest.fixture(autouse=True)
    def faiss(self):
        self.faiss = pytest.importorskip("faiss")

    def test_flat_is_exact(self, served):
        index = self.faiss.IndexFlatIP(served[2].shape[1])
        index.add(served[2])
        same_neighbors(index.search(served[3], K + SPARE)[1], served)

    def test_cases_that_come_and_go(self, served, living):
        index = self.faiss.IndexIDMap2(self.faiss.IndexFlatIP(served[2].shape[1]))
        index.add_with_ids(served[2], np.arange(len(served[2])))
        index.add_with_ids(living[3], living[2])
        index.remove_ids(living[4])
        same_neighbors_live(lambda queries: index.search(queries, K + SPARE)[1], living)

    def test_flat_with_euclidean_distance_alone(self, served):
        vectors, queries = reduced(served)
        index = self.faiss.IndexFlatL2(vectors.shape[1])
        index.add(vectors)
        found = index.search(queries, K + SPARE)[1]
        exact = served[0].query_vectors(served[1]), served[0].index_vectors()
        np.testing.assert_array_equal(rerank(*exact, found, K), served[-1])

    def test_ivf_saved_and_loaded(self, served, tmp_path):
        _, _, vectors, queries, _, _ = served
        metric = self.faiss.METRIC_INNER_PRODUCT
        index = self.faiss.index_factory(vectors.shape[1], "IVF32,Flat", metric)
        index.train(vectors)
        index.add(vectors)
        index.nprobe = 8
        found = self.through_a_file(index, tmp_path).search(queries, K)[1]
        np.testing.assert_array_equal(found, index.search(queries, K)[1])
        assert recall(found, served) > 0.9

    def test_hnsw_saved_and_loaded(self, served, tmp_path):
        # Graphs are made for Euclidean distance: with inner products they miss a third.
        vectors, queries = reduced(served)
        index = self.faiss.IndexHNSWFlat(vectors.shape[1], 32)
        index.hnsw.efSearch = 128
        index.add(vectors)
        found = self.through_a_file(index, tmp_path).search(queries, K)[1]
        np.testing.assert_array_equal(found, index.search(queries, K)[1])
        assert recall(found, served) > 0.95

    def through_a_file(self, index, folder):
        self.faiss.write_index(index, str(folder / "index.faiss"))
        return self.faiss.read_index(str(folder / "index.faiss"))


def reduced(served):
    """Vectors and unit queries for an engine that knows Euclidean distance."""
    model, Q, _, _, _, _ = served
    vectors, queries = model.index_vectors(), model.query_vectors(Q)
    reduction = EuclideanReduction().fit(vectors)
    # Queries of any length have the same neighbours; unit ones keep float32 accurate.
    units = queries / np.linalg.norm(queries, axis=1)[:, None]
    both = reduction.index_vectors(vectors), reduction.query_vectors(units)
    return tuple(part.astype(np.float32) for part in both)


def test_pgvector(served, living, tmp_path):
    pgserver = pytest.importorskip("pgserver")
    psycopg = pytest.importorskip("psycopg")
    from pgvector.psycopg import register_vector

    try:
        server = pgserver.get_server(tmp_path / "db", cleanup_mode="stop")
    except Exception as error:  # a machine where PostgreSQL cannot start
        pytest.skip(f"PostgreSQL does not start here: {error}")
    _, _, vectors, queries, _, _ = served
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            register_vector(connection)
            fill(connection, "exact", vectors)
            # <#> is the negative inner product.
            order = f"SELECT row FROM exact ORDER BY embedding <#> %s LIMIT {K + SPARE}"
            same_neighbors(answers(connection, order, queries), served)
            with connection.cursor() as cursor:
                new = zip(living[2].tolist(), living[3], strict=True)
                cursor.executemany("INSERT INTO exact VALUES (%s, %s)", new)
            connection.execute("DELETE FROM exact WHERE row = ANY(%s)", (living[4].tolist(),))
            same_neighbors_live(lambda asked: answers(connection, order, asked), living)
            # Its graph index is made for Euclidean distance.
            vectors, queries = reduced(served)
            fill(connection, "fast", vectors)
            connection.execute(
                "CREATE INDEX ON fast USING hnsw (embedding vector_l2_ops) "
                "WITH (m = 16, ef_construction = 64)"
            )
            connection.execute("SET enable_seqscan = off")
            connection.execute("SET hnsw.ef_search = 100")
            order = f"SELECT row FROM fast ORDER BY embedding <-> %s LIMIT {K}"
            plan = connection.execute("EXPLAIN " + order, (queries[0],)).fetchall()
            assert "Index Scan" in str(plan)
            assert recall(answers(connection, order, queries), served) > 0.9
    finally:
        server.cleanup()


def fill(connection, name, vectors):
    """A table of vectors."""
    connection.execute(f"CREATE TABLE {name} (row integer, embedding vector({vectors.shape[1]}))")
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {name} FROM STDIN WITH (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["int4", "vector"])
        for number, vector in enumerate(vectors):
            copy.write_row((number, vector))


def answers(connection, order, queries):
    return [[row for (row,) in connection.execute(order, (query,))] for query in queries]


@pytest.mark.slow
def test_lancedb(served, living, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    pa = pytest.importorskip("pyarrow")
    _, _, vectors, queries, _, _ = served

    def rows(numbers, vectors):
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        return pa.table({"row": pa.array(numbers), "vector": column})

    def search(queries):
        return [
            table.search(query).distance_type("dot").limit(K + SPARE).to_arrow()["row"].to_pylist()
            for query in queries
        ]

    database = lancedb.connect(str(tmp_path / "db"))
    table = database.create_table("cases", data=rows(np.arange(len(vectors)), vectors))
    same_neighbors(search(queries), served)
    table.add(rows(*living[2:4]))
    table.delete(f"row IN {tuple(living[4].tolist())}")
    same_neighbors_live(search, living)


@pytest.mark.parametrize("n_neighbors", [1, 5])
@pytest.mark.slow
def test_approximate_inside_predict(served, n_neighbors):
    model, Q, _, _, _, _ = served
    pytest.importorskip("faiss")
    X, codes = model.training_cases()
    y = model.classes_[codes]
    exact = PLML(random_state=0, n_neighbors=n_neighbors).fit(X, y)
    fast = PLML(random_state=0, n_neighbors=n_neighbors, search_backend="approximate").fit(X, y)
    assert exact.search_recall_ == 1.0
    assert 0.9 < fast.search_recall_ <= 1.0
    assert np.mean(exact.predict(Q) == fast.predict(Q)) > 0.99
    truth = exact.kneighbors(Q, n_neighbors)[1]
    distances, found = fast.kneighbors(Q, n_neighbors)
    assert np.mean((truth[:, :, None] == found[:, None, :]).any(axis=2)) > 0.9
    assert (np.diff(distances, axis=1) >= 0).all()
    own = fast.kneighbors(None, n_neighbors)[1]
    assert not (own == np.arange(len(X))[:, None]).any()


def test_rerank_takes_no_row_for_a_candidate_that_is_none():
    vectors = np.array([[1.0], [2.0], [3.0], [9.0]])  # the last one is the best
    np.testing.assert_array_equal(rerank([[1.0]], vectors, [[0, -1, 1, -1]], 2), [[1, 0]])


def test_rerank_refuses_what_does_not_fit(rng):
    V = rng.normal(size=(20, 3))
    with pytest.raises(ValueError, match="minimum of 4"):
        rerank(V[:2], V, [[0, 1], [2, 3]], 4)
    with pytest.raises(ValueError, match="2 queries and 1 candidate"):
        rerank(V[:2], V, [[0, 1]], 1)
    with pytest.raises(ValueError, match="candidate 20 is no row: index_vectors has the rows 0 to"):
        rerank(V[:2], V, [[0, 20], [2, 3]], 1)
    with pytest.raises(ValueError, match="query 1 has 1 candidates, and 2 neighbours are wanted"):
        rerank(V[:2], V, [[0, 1], [2, -1]], 2)


def test_the_reduction_refuses_longer_vectors(rng):
    V = rng.normal(size=(20, 3))
    reduction = EuclideanReduction().fit(V)
    np.testing.assert_allclose(
        np.linalg.norm(reduction.index_vectors(V), axis=1), reduction.radius_
    )
    single = reduction.index_vectors(V.astype(np.float32))  # may be longer by rounding
    np.testing.assert_allclose(single, reduction.index_vectors(V), atol=1e-3)
    whole = EuclideanReduction().fit([[1, 2], [3, 4]]).index_vectors([[1, 2]])
    np.testing.assert_allclose(whole, [[1, 2, np.sqrt(20)]])
    with pytest.raises(ValueError, match="fit the reduction"):
        EuclideanReduction().index_vectors(V)
    with pytest.raises(ValueError, match="NaN"):
        EuclideanReduction().fit(np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="row 1 is longer"):
        reduction.index_vectors(np.vstack([V[:1], 100 * V[:1]]))
