"""Approximate nearest neighbours in an inverted file (faiss), with the recall that it reaches."""

from typing import Any, NamedTuple

import numpy as np

#: Queries on which the recall is measured.
_SAMPLE = 256
#: Share of the true neighbours to reach, by looking into as many cells as that takes.
TARGET_RECALL = 0.95
_CELLS_AT_FIRST = 8


class Approximation(NamedTuple):
    """Neighbours (q, k), -1 where there were too few, and the share of true ones in a sample."""

    indices: np.ndarray
    recall: float


class InvertedFile:
    """Rows sorted into cells around 2 sqrt(n) centres; a search looks into the nearest cells only.

    Parameters
    ----------
    X : (n, d) array
    """

    def __init__(self, X: np.ndarray) -> None:
        import faiss

        center = X.mean(axis=0, dtype=np.float64)
        scale = float(np.abs(X - center).max()) or 1.0
        self.X = np.ascontiguousarray((X - center) / scale, dtype=np.float32)
        n, d = X.shape
        n_cells = max(1, int(2 * np.sqrt(n)))
        self._quantizer = faiss.IndexFlatL2(d)  # kept: the index only borrows it
        self._index = faiss.IndexIVFFlat(self._quantizer, d, n_cells)
        self._index.cp.min_points_per_centroid = 1
        self._index.cp.max_points_per_centroid = 64
        self._index.train(self.X)
        self._index.add(self.X)
        self._n_probes = _CELLS_AT_FIRST

    def search(self, rows: np.ndarray, k: int, among: np.ndarray | None = None) -> Approximation:
        """The k nearest of some rows among some others, without themselves, nearest first.

        As many cells are looked into as a sample of the rows needs for the recall wanted.

        Parameters
        ----------
        rows : (q,) integer array
        k : int
        among : (c,) integer array; None for all rows
        """
        sample = rows[:: -(-len(rows) // _SAMPLE)]
        truth = self._exactly(sample, k, among)
        while True:
            recall = _recall(self._approximately(sample, k, among), truth)
            if recall >= TARGET_RECALL or self._n_probes >= self._index.nlist:
                break
            self._n_probes = min(2 * self._n_probes, self._index.nlist)
        return Approximation(self._approximately(rows, k, among), recall)

    def _approximately(self, rows: np.ndarray, k: int, among: np.ndarray | None) -> np.ndarray:
        import faiss

        options: dict[str, Any] = {"nprobe": self._n_probes}
        if among is not None:
            allowed = np.zeros(len(self.X), dtype=bool)
            allowed[among] = True
            bitmap = np.packbits(allowed, bitorder="little")
            options["sel"] = faiss.IDSelectorBitmap(bitmap)  # type: ignore[call-arg, arg-type]
        parameters = faiss.SearchParametersIVF(**options)
        _, found = self._index.search(self.X[rows], k + 1, params=parameters)
        return _without(found, rows)

    def _exactly(self, rows: np.ndarray, k: int, among: np.ndarray | None) -> np.ndarray:
        import faiss

        others = np.arange(len(self.X)) if among is None else among
        n_found = min(k + 1, len(others))
        _, found = faiss.knn(self.X[rows], self.X[others], n_found)
        padded = np.full((len(rows), k + 1), -1)
        padded[:, :n_found] = others[found]
        return _without(padded, rows)


def _without(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """One column fewer: without the rows themselves, or without the last."""
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    return found[~own].reshape(len(found), -1)


def _recall(found: np.ndarray, truth: np.ndarray) -> float:
    hits = (truth[:, :, None] == found[:, None, :]).any(axis=2) & (truth >= 0)
    return float(hits.sum() / max((truth >= 0).sum(), 1))
