"""What approximate engines find of the neighbours under the local metric, on Optdigits.

    python benchmarks/engines.py [--data-dir DIR]

All 1,797 queries, five neighbours: recall against ``kneighbors`` and seconds for all queries.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import faiss
import numpy as np

from plml import PLML
from plml.serving import EuclideanReduction
from plml_study.datasets import load
from plml_study.protocols import prepared_split, splits

K = 5


def indexes(vectors: np.ndarray, lifted: np.ndarray) -> dict[str, tuple[Any, bool]]:
    """Engines by name, each filled, and whether it wants the lifted vectors."""
    d = vectors.shape[1]
    flat = faiss.IndexFlatIP(d)
    ivf = faiss.index_factory(d, "IVF32,Flat", faiss.METRIC_INNER_PRODUCT)
    ivf.nprobe = 8
    hnsw = faiss.IndexHNSWFlat(d + 1, 32)
    hnsw.hnsw.efSearch = 128
    found = {
        "faiss flat, inner product": (flat, False),
        "faiss IVF32, 8 cells probed": (ivf, False),
        "faiss HNSW32, Euclidean reduction, ef 128": (hnsw, True),
    }
    for index, wants_lifted in found.values():
        data = lifted if wants_lifted else vectors
        index.train(data)
        index.add(data)
    return found


def report(name: str, search: Callable[[], np.ndarray], truth: np.ndarray) -> None:
    began = perf_counter()
    found = search()
    seconds = perf_counter() - began
    recall = np.mean((truth[:, :, None] == found[:, None, :]).any(axis=2))
    print(f"{name:<45} recall {recall:.4f}   {1e3 * seconds:7.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    dataset = load("optdigits", parser.parse_args().data_dir)
    X, y, Q, _ = prepared_split(dataset, *next(iter(splits(dataset))))
    model = PLML(rescale=False, random_state=0).fit(X, y)
    truth = model.kneighbors(Q, K, return_distance=False)
    vectors, queries = model.index_vectors(), model.query_vectors(Q)
    reduction = EuclideanReduction().fit(vectors)
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    lifted, asked = reduction.index_vectors(vectors), reduction.query_vectors(units)
    vectors, queries, lifted, asked = (
        part.astype(np.float32) for part in (vectors, queries, lifted, asked)
    )
    for name, (index, wants_lifted) in indexes(vectors, lifted).items():
        wanted = asked if wants_lifted else queries
        report(name, lambda i=index, w=wanted: i.search(w, K)[1], truth)
    fast = PLML(rescale=False, random_state=0, search_backend="approximate").fit(X, y)
    fast.kneighbors(Q[:1], K)
    name = f'search_backend="approximate" (search_recall_ {fast.search_recall_:.4f})'
    report(name, lambda: fast.kneighbors(Q, K, return_distance=False), truth)
    report("kneighbors, exact", lambda: model.kneighbors(Q, K, return_distance=False), truth)


if __name__ == "__main__":
    main()
