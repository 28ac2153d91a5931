"""The weights of the basis metrics at new points, given those of the training rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from plml.backend.arrays import Array, like, namespace, on_host
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.weights import NewPointRule

if TYPE_CHECKING:
    from plml.metric.basis_metric import SearchIndexes


class WeightRule(Protocol):
    """Weights of points in the coordinates of the search."""

    def weights(self, Q: Array, indexes: "SearchIndexes") -> Array:
        """(q, d) points -> (q, m) weights, in their dtype and on their device."""
        ...


class SingleMetric(NamedTuple):
    """One metric for all."""

    def weights(self, Q: Array, indexes: "SearchIndexes") -> Array:
        """As in ``WeightRule``."""
        return namespace(Q).ones_like(Q[:, :1])


class NearestCenter(NamedTuple):
    """All weight on the nearest anchor: the cluster of a point."""

    anchors: np.ndarray  # (m, d), in the coordinates of the search

    def weights(self, Q: Array, indexes: "SearchIndexes") -> Array:
        """As in ``WeightRule``."""
        _, nearest = euclidean_neighbors(like(self.anchors, Q), 1, Q)
        return like(np.eye(len(self.anchors)), Q, Q.dtype)[nearest[:, 0]]


class NearestRow(NamedTuple):
    """The weights of the nearest training row."""

    def weights(self, Q: Array, indexes: "SearchIndexes") -> Array:
        """As in ``WeightRule``."""
        return indexes.weights[indexes.euclidean_index.nearest(Q, 1)[:, 0]]


class KnownWeights(NamedTuple):
    """Weights that were computed before, for the same points."""

    values: Array

    def weights(self, Q: Array, indexes: "SearchIndexes") -> Array:
        """As in ``WeightRule``."""
        return self.values


class NewPoint(NamedTuple):
    """Equation 4 for the point alone, the weights of the training rows given."""

    rule: NewPointRule  # its anchors in the coordinates of the search
    scales: np.ndarray  # (n,), of the training rows
    #: Told the largest relative gap of a point.
    report_gap: Callable[[float], None]
    sample_weight: np.ndarray | None = None  # (n,) how often edges to the training rows count

    def weights(self, Q: Array, indexes: "SearchIndexes") -> Array:
        """As in ``WeightRule``."""
        n_near = min(self.rule.n_near, len(indexes.X))
        squared, neighbors = (on_host(part) for part in indexes.euclidean_index.search(Q, n_near))
        known = indexes.weights, self.scales, self.sample_weight
        weights, gap = self.rule.weights(Q, squared, neighbors, *known)
        self.report_gap(gap)
        return namespace(Q).astype(weights, Q.dtype, copy=False)
