"""Approximate nearest neighbours in a navigable graph (faiss)."""

from copy import copy
from typing import Self

import numpy as np

_LINKS = 32
_EFFORT_TO_BUILD = 100
_EFFORT_TO_SEARCH = 128
#: Candidates to ask for beyond the neighbours wanted.
SPARE_CANDIDATES = 8


class NavigableGraph:
    """Rows (n, D) linked to nearby rows; a search walks along the links."""

    def __init__(self, X: np.ndarray) -> None:
        import faiss

        self.center = X.mean(axis=0, dtype=np.float64)
        self.scale = float(np.abs(X - self.center).max()) or 1.0
        self._index = faiss.IndexHNSWFlat(X.shape[1], _LINKS)
        self._index.hnsw.efConstruction = _EFFORT_TO_BUILD
        self._index.hnsw.efSearch = _EFFORT_TO_SEARCH
        self._index.add(self._single(X))

    def extended(self, X: np.ndarray) -> Self:
        """Another graph, with more rows (r, D) linked to those of this one."""
        import faiss

        grown, index = copy(self), faiss.clone_index(self._index)
        index.add(self._single(X))
        grown._index = index  # type: ignore[assignment]
        return grown

    def candidates(self, queries: np.ndarray, k: int) -> np.ndarray:
        """(q, k) rows, nearest first; all rows if there are no more than k."""
        n = self._index.ntotal
        if k >= n:
            return np.broadcast_to(np.arange(n), (len(queries), n)).copy()
        found = self._index.search(self._single(queries), k)[1]
        short = (found < 0).any(axis=1)
        for row in np.flatnonzero(short):  # the walk ended early: fill up with other rows
            more = np.setdiff1d(np.arange(min(2 * k, n)), found[row])
            missing = found[row] < 0
            found[row, missing] = more[: missing.sum()]
        return found

    def _single(self, X: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray((X - self.center) / self.scale, dtype=np.float32)
