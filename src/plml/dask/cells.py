"""A shard's rows in the inverted files of faiss, whose lists are the cells."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from plml.dask.shards import Scaling, Shard


class CellIndex:
    """A shard's rows by class and cell.

    Parameters
    ----------
    shard : Shard
    scaling : of the rows, for searches
    """

    def __init__(self, shard: Shard, scaling: Scaling) -> None:
        self.rows = shard.rows
        self.unit = scaling.unit
        self.first_cell = int(shard.cells.min())
        self.n_cells = int(shard.cells.max()) + 1 - self.first_cell
        X, cells = scaling.single(shard.X), shard.cells - self.first_cell
        #: For every class its number, and an inverted file of its rows.
        self.files = [
            (int(code), _inverted_file(X, cells, self.n_cells, np.flatnonzero(shard.codes == code)))
            for code in np.unique(shard.codes)
        ]

    def __getstate__(self) -> dict[str, Any]:
        import faiss

        files = [(code, faiss.serialize_index(file)) for code, file in self.files]
        return {**vars(self), "files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import faiss

        vars(self).update(state)
        self.files = [(code, faiss.deserialize_index(data)) for code, data in state["files"]]

    @property
    def nbytes(self) -> int:
        """Of rows and their numbers."""
        return self.rows.nbytes + sum(file.ntotal * (4 * file.d + 8) for _, file in self.files)

    def search(
        self, X: np.ndarray, probes: np.ndarray, k: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Class by class: squared distances and numbers of k near rows.

        Parameters
        ----------
        X : (q, d) queries in the coordinates of searches
        probes : (q, n_cells) cells to look into; those of other shards are passed over
        """
        from faiss.contrib.ivf_tools import search_preassigned

        probes = self._probes_here(probes)
        for code, file in self.files:
            file.nprobe = probes.shape[1]
            d2, numbers = search_preassigned(file, X, k, probes)
            yield code, d2.astype(np.float64) * self.unit**2, numbers

    def _probes_here(self, probes: np.ndarray) -> np.ndarray:
        """The cells of this shard first, -1 after them; no more than there are, or faiss reads
        the rows of this table as if they were shorter.
        """
        probes = probes - self.first_cell
        probes = np.where((probes >= 0) & (probes < self.n_cells), probes, -1)
        order = np.argsort(probes < 0, axis=1, kind="stable")[:, : self.n_cells]
        return np.ascontiguousarray(np.take_along_axis(probes, order, axis=1))


def _inverted_file(X: np.ndarray, cells: np.ndarray, n_cells: int, members: np.ndarray) -> Any:
    """Of some rows; their cells are known, so the index's own quantiser is never asked."""
    import faiss
    from faiss.contrib.ivf_tools import add_preassigned

    file = faiss.index_factory(X.shape[1], f"IVF{n_cells},Flat")
    file.is_trained = True
    add_preassigned(file, X[members], cells[members], members)
    return file
