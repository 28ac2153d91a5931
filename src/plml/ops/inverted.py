"""Approximate nearest neighbours in inverted files (faiss): rows sorted into cells."""

import numpy as np


class InvertedFile:
    """Rows sorted into cells around 2 sqrt(n) centres; a search looks into the nearest cells only.

    The rows are an (n, d) contiguous float32 array, and so are queries.
    """

    def __init__(self, X: np.ndarray) -> None:
        import faiss

        n, d = X.shape
        n_cells = max(1, min(n, int(2 * np.sqrt(n))))
        self._quantizer = faiss.IndexFlatL2(d)  # kept: the index only borrows it
        self._index = faiss.IndexIVFFlat(self._quantizer, d, n_cells)
        self._index.cp.min_points_per_centroid = 1
        self._index.cp.max_points_per_centroid = 64
        self._index.train(X)
        self._index.add(X)

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return self._index.nlist

    def search(self, queries: np.ndarray, k: int, n_cells: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and numbers of k near rows; infinite and -1 where cells hold fewer."""
        import faiss

        n_cells = min(n_cells, self.n_cells)
        parameters = faiss.SearchParametersIVF(nprobe=n_cells)  # type: ignore[call-arg]
        d2, found = self._index.search(np.ascontiguousarray(queries), k, params=parameters)
        return np.where(found < 0, np.float32(np.inf), d2), found


def nearest_rows(X: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Numbers of the k nearest rows of X, nearest first, up to rounding."""
    import faiss

    k = min(k, len(X))
    return faiss.knn(np.ascontiguousarray(queries), np.ascontiguousarray(X), k)[1]
