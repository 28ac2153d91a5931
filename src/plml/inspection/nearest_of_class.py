"""The nearest case of some classes: among the neighbours of a point, or else among all cases.

Where distances are inner products (``index_vectors``), one matrix product per block of points has
the nearest case of every class. Elsewhere more and more neighbours are looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from plml.backend.arrays import on_host
from plml.ops.topk import row_blocks

#: (numbers of points, k) -> (q, k) the nearest training rows, nearest first.
Search = Callable[[np.ndarray, int], np.ndarray]
#: Neighbours that are looked at first; then so many times as many.
FIRST, _MORE = 32, 8
#: Inner products that are held at once.
_ELEMENTS = 2**22


@dataclass(frozen=True)
class ClassVectors:
    """Index vectors of the training rows, class after class.

    Attributes
    ----------
    vectors : (n, D) float64
    rows : (n,) the training row of each
    starts : (n_classes + 1,) where the classes begin and end
    """

    vectors: np.ndarray
    rows: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, metric: Any, codes: np.ndarray, n_classes: int) -> "ClassVectors | None":
        """Those of a metric; None where its distances are no inner products."""
        if not hasattr(metric, "index_vectors"):
            return None
        rows = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[rows], np.arange(n_classes + 1))
        vectors = on_host(metric.index_vectors())[rows].astype(np.float64)
        return cls(vectors, rows, starts)

    def nearest(self, queries: np.ndarray, own: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(q, n_classes) the nearest training row of every class, and its inner product.

        Parameters
        ----------
        queries : (q, D) query vectors
        own : (q,) the training rows that the queries are, which do not count, or None
        """
        place = np.argsort(self.rows)
        shape = len(queries), len(self.starts) - 1
        found, scores = np.full(shape, -1), np.full(shape, -np.inf)
        size = max(_ELEMENTS // len(self.rows), 1)
        for start in range(0, len(queries), size):
            block = slice(start, min(start + size, len(queries)))
            products = queries[block] @ self.vectors.T
            if own is not None:
                products[np.arange(len(products)), place[own[block]]] = -np.inf
            for code, (low, high) in enumerate(zip(self.starts, self.starts[1:], strict=False)):
                if low < high:
                    best = products[:, low:high].argmax(axis=1)
                    scores[block, code] = products[np.arange(len(products)), low + best]
                    found[block, code] = self.rows[low + best]
        return np.where(np.isfinite(scores), found, -1), scores


class NearestOfClass:
    """Finds the nearest cases of given classes, for some points.

    Parameters
    ----------
    near : (q, k) the nearest training rows of the points
    codes : (n,) classes of all training rows
    search : looks for more neighbours of some of the points
    n_rows : training rows that it can find
    of_all : gives (q, n_classes) rows and inner products as ``ClassVectors`` has them, or None
        where distances are no inner products
    """

    def __init__(
        self,
        near: np.ndarray,
        codes: np.ndarray,
        search: Search,
        n_rows: int,
        of_all: Callable[[], tuple[np.ndarray, np.ndarray]] | None,
    ) -> None:
        self._near, self._codes, self._search, self._n_rows = near, codes, search, n_rows
        self._of_all = of_all

    def rows(self, wanted: np.ndarray) -> np.ndarray:
        """(q,) training rows; -1 where there is no such case.

        Parameters
        ----------
        wanted : (q, n_classes) the classes that a point asks for
        """
        found = _first_of(self._near, self._codes, wanted)
        missing = np.flatnonzero(found < 0)
        if len(missing) and self._of_all is not None:
            rows, scores = self._table
            best = np.where(wanted, scores, -np.inf).argmax(axis=1)
            there = np.where(wanted, rows, -1)[np.arange(len(rows)), best]
            return np.where(found < 0, there, found)
        n_found = self._near.shape[1]
        while len(missing) and n_found < self._n_rows:
            n_found = min(max(n_found, 1) * _MORE, self._n_rows)
            for block in row_blocks(len(missing), 4 * n_found):
                points = missing[block]
                near = self._search(points, n_found)
                found[points] = _first_of(near, self._codes, wanted[points])
            missing = missing[found[missing] < 0]
        return found

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        assert self._of_all is not None
        return self._of_all()


def _first_of(near: np.ndarray, codes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(q,) the first of (q, k) rows whose class a point asks for, -1 for none."""
    if near.shape[1] == 0:
        return np.full(len(near), -1)
    good = np.take_along_axis(wanted, codes[near], axis=1)
    first = good.argmax(axis=1)
    each = np.arange(len(near))
    return np.where(good[each, first], near[each, first], -1)
