"""Explanations of many points at once: the nearest case of every class from one product.

``CaseBase`` looks for the nearest case of a class among more and more neighbours, which takes long
where the classes lie far apart. Where distances are inner products (``index_vectors``), one matrix
product per block of points has the nearest case of all classes.
"""

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from plml.backend.arrays import on_host
from plml.inspection.contrasts import NearestCases
from plml.inspection.explaining import CaseBase
from plml.metric.feature_split import split_distances

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


class RememberedWeights:
    """A rule for the weights of new points that does not compute the same ones twice in a row.

    Parameters
    ----------
    rule : see ``plml.metric.weight_rules``
    """

    def __init__(self, rule: Any) -> None:
        self._rule = rule
        self._last: tuple[bytes, Any] = (b"", None)

    def weights(self, points: Any, indexes: Any) -> Any:
        """As the rule has them."""
        if not isinstance(points, np.ndarray):
            return self._rule.weights(points, indexes)
        key, (known, found) = points.tobytes(), self._last
        if key != known:
            found = self._rule.weights(points, indexes)
            self._last = (key, found)
        return found


def with_memory(metric: Any) -> Any:
    """The same metric; one whose weights follow a rule remembers those of the last points."""
    if not hasattr(metric, "rule"):
        return metric
    metric = copy(metric)
    metric.rule = RememberedWeights(metric.rule)
    return metric


@dataclass(frozen=True)
class QuickCaseBase(CaseBase):
    """A ``CaseBase`` for many points; it remembers the nearest cases of the points it was asked of.

    Made for one explanation, because ``of_classes`` holds for one set of points.
    """

    vectors: ClassVectors | None = None
    near: tuple[np.ndarray, np.ndarray] | None = None  # neighbours that were found already

    def _search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        if self.near is None or self.near[1].shape[1] < k:
            return super()._search(Q, k)
        return self.near[0][:, :k], self.near[1][:, :k]

    def _rivals(self, Q: np.ndarray | None, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.vectors is None:
            return super()._rivals(Q, shares)
        rows, scores = self._of_classes(Q)
        each = np.arange(len(rows))
        predicted = shares.argmax(axis=1)
        others, nearness = shares.copy(), scores.copy()
        others[each, predicted] = -1.0
        nearness[each, predicted] = -np.inf
        alone = others.max(axis=1) <= 0.0
        return predicted, np.where(alone, nearness.argmax(axis=1), others.argmax(axis=1))

    def _nearest_of(self, Q: np.ndarray | None, wanted: np.ndarray) -> Any:
        if self.vectors is None:
            return super()._nearest_of(Q, wanted)
        rows = self._of_classes(Q)[0][np.arange(len(wanted)), wanted][:, None]
        points, own = (self.X[self._own], self._own) if Q is None else (Q, None)
        parts = split_distances(self.metric, points, own, np.maximum(rows, 0), "bilinear")
        return NearestCases(rows, np.where(rows < 0, np.inf, np.maximum(parts.sum(axis=2), 0.0)))

    def _of_classes(self, Q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        key = None if Q is None else id(Q)
        if self._found.get("key", "nothing") != key:
            assert self.vectors is not None
            queries = on_host(self._query_vectors(Q)).astype(np.float64)
            own = self._own if Q is None else None
            self._found.update(key=key, found=self.vectors.nearest(queries, own))
        return self._found["found"]

    def _query_vectors(self, Q: np.ndarray | None) -> Any:
        vectors = self.metric.query_vectors(Q)
        return vectors[self._own] if Q is None else vectors

    @cached_property
    def _found(self) -> dict[str, Any]:
        return {}
