"""Local-metric search in other engines: what they need to know, as plain vectors.

``index_vectors()`` and ``query_vectors(X)`` of a fitted model turn the local metric into a search
for the largest inner product, which faiss, pgvector, LanceDB and most vector databases offer. For
an engine that knows Euclidean distance alone there is ``EuclideanReduction``. Engines compute in
float32; ``rerank`` settles what that leaves open.
"""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from plml.ops.reduction import EuclideanReduction
from plml.ops.topk import Measured, row_blocks, sorted_prefix

__all__ = ["EuclideanReduction", "rerank"]


def rerank(query_vectors: Any, index_vectors: Any, candidates: Any, n_neighbors: int) -> np.ndarray:
    """The nearest of an engine's candidates, by inner products in float64; ties by index.

    Parameters
    ----------
    query_vectors : (q, D) array, of ``query_vectors``
    index_vectors : (n, D) array, of ``index_vectors``
    candidates : (q, c) integer array of index rows, a few more than wanted; -1 stands for none, as
        faiss has it where it finds no more
    n_neighbors : how many are wanted

    Returns
    -------
    (q, n_neighbors) integer array, nearest first

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.serving import rerank
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=5, random_state=0).fit(X[::2], y[::2])
    >>> queries, stored = model.query_vectors(X[1:4:2]), model.index_vectors()
    >>> candidates = (-queries @ stored.T).argsort(axis=1)[:, :8]  # what an engine would return
    >>> nearest = rerank(queries, stored, candidates, 3)
    >>> bool((nearest == model.kneighbors(X[1:4:2], 3, return_distance=False)).all())
    True
    """
    queries, vectors = (check_array(v, dtype=np.float64) for v in (query_vectors, index_vectors))
    candidates = check_array(candidates, dtype=np.int64, ensure_min_features=n_neighbors)
    if len(candidates) != len(queries):
        raise ValueError(f"there are {len(queries)} queries and {len(candidates)} candidate rows")
    _check_candidates(candidates, len(vectors), n_neighbors)
    result = np.empty((len(queries), n_neighbors), dtype=np.int64)
    for rows in row_blocks(len(queries), candidates.shape[1] * vectors.shape[1]):
        scores = np.einsum("qd,qcd->qc", queries[rows], vectors[candidates[rows]])
        scores[candidates[rows] < 0] = -np.inf
        result[rows] = sorted_prefix(Measured(-scores), candidates[rows], n_neighbors)[1]
    return result


def _check_candidates(candidates: np.ndarray, n: int, n_neighbors: int) -> None:
    """Refuse candidates that are no rows, and fewer than are wanted."""
    if (wrong := candidates[(candidates < -1) | (candidates >= n)]).size:
        raise ValueError(f"candidate {wrong[0]} is no row: index_vectors has the rows 0 to {n - 1}")
    found = (candidates >= 0).sum(axis=1)
    if (few := np.flatnonzero(found < n_neighbors)).size:
        raise ValueError(
            f"query {few[0]} has {found[few[0]]} candidates, and {n_neighbors} neighbours are "
            "wanted; ask the engine for more"
        )
