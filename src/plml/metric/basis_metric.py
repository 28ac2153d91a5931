"""M(x) = sum_b w_b(x) M_b (equation 2), ready to be asked."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from weakref import proxy

import numpy as np

from plml.backend.arrays import Array, device, like, namespace, on_host, to_available_device
from plml.metric.weight_rules import WeightRule
from plml.ops.distances import combine_bases, local_pairs, reconstruction_weights
from plml.ops.growing import appended, without_rows
from plml.ops.span import Span, inside, inward, placed_after
from plml.ops.topk import share_found
from plml.stages.neighbors import ApproximateIndex, EuclideanIndex, can_approximate
from plml.stages.search import (
    ApproximateMetricIndex,
    LocalMetricIndex,
    index_vectors,
    query_vectors,
)

#: Rows on which the recall of an approximate index is measured.
_SAMPLE = 256


class SearchIndexes:
    """The cases of a metric and their indexes on one device, in the coordinates of the search.

    The cases vote; the first of them, the rows that were learned from, give the weights of points.
    """

    def __init__(self, metric: "BasisMetric", cases: Array) -> None:
        self._metric = proxy(metric)  # which holds this: both go at once
        self.cases = cases
        self.weights = self._known_weights = like(metric.training_weights, cases)  # (n_learned, m)
        self.X = cases[: metric.n_learned]
        self._approximate = metric.approximate and can_approximate(cases)
        center = metric.center
        self._center = (
            None
            if center is None
            else inside(like(center[None], cases, namespace(cases).float64), metric.span)[0]
        )

    @cached_property
    def exact(self) -> LocalMetricIndex:
        """Of the cases."""
        return self._metric.index_of(self.cases, self._center)

    @cached_property
    def metric_index(self) -> LocalMetricIndex | ApproximateMetricIndex:
        """Of the cases, as they are searched."""
        return ApproximateMetricIndex(self.exact) if self._approximate else self.exact

    @cached_property
    def euclidean_index(self) -> EuclideanIndex | ApproximateIndex:
        """Of the rows that were learned from, for the weights of new points."""
        if self._approximate:
            return ApproximateIndex(self.X)
        return EuclideanIndex(self.X, self._center)

    @cached_property
    def case_weights(self) -> Array:
        """(n, m) weights of all cases."""
        known = self._known_weights
        added = self.cases[len(known) :]
        if not len(added):
            return known
        return appended(known, (self._metric.case_rule or self._metric.rule).weights(added, self))

    def changed(self, metric: "BasisMetric", left_out: np.ndarray) -> "SearchIndexes":
        """Those of a metric with other cases: some are left out, or more follow.

        Parameters
        ----------
        metric : the same but for its cases
        left_out : numbers of cases that are not there any more
        """
        now = SearchIndexes(metric, placed_after(self.cases, metric.X, metric.span, left_out))
        made, learned = vars(self), left_out[left_out < len(self.X)]
        if "euclidean_index" in made:
            near = self.euclidean_index
            now.euclidean_index = near.without(learned) if len(learned) else near
        if not len(learned):  # with other neighbours, added cases have other weights
            known = self.case_weights if "case_weights" in made else self._known_weights
            now._known_weights = without_rows(known, left_out[left_out < len(known)])
        if "exact" in made:
            now.exact = metric.index_after(self.exact, now, left_out)
            if isinstance(graph := made.get("metric_index"), ApproximateMetricIndex):
                now.metric_index = graph.after(now.exact, left_out)
        return now

    def recall(self, k: int) -> float:
        """Share of the true neighbours that the index finds for a sample of its own rows."""
        index = self.metric_index
        if isinstance(index, LocalMetricIndex):
            return 1.0
        rows = np.arange(len(self.X))[:: -(-len(self.X) // _SAMPLE)]
        arguments = (self.X[rows], self.weights[rows], k, rows)
        found, truth = (which.search(*arguments)[1] for which in (index, index.exact))
        return share_found(truth, found)


@dataclass(eq=False)
class BasisMetric:
    """A convex combination of basis metrics at every point; neighbours are cases.

    The first cases are the rows that were learned from, and their weights give those of all other
    points: cases that are added after them change no distance. Points are (n, d) arrays in the
    coordinates of the data, or None for the cases.
    """

    X: np.ndarray  # (n, d), the cases
    training_weights: np.ndarray  # (n_learned, m), of the rows that were learned from
    M: np.ndarray  # (m, d, d)
    rule: WeightRule  # for new points
    _: KW_ONLY
    case_rule: WeightRule | None = None  # for cases that were added; by default that of new points
    center: np.ndarray | None = None  # (d,) that vectors are about; by default the mean of X
    span: Span | None = None  # in which the rows lie, where that is less than the whole space
    device: str = "cpu"  # where the work is done
    approximate: bool = False  # whether the search is

    searches_on_gpu = True

    def __post_init__(self) -> None:
        self._indexes: dict[str, SearchIndexes] = {}

    @property
    def n_learned(self) -> int:
        """How many of the cases were learned from."""
        return len(self.training_weights)

    def adopt(self, before: "BasisMetric", left_out: np.ndarray) -> None:
        """Take over the indexes of a metric whose cases were others.

        Parameters
        ----------
        before : without the last cases of this one, or with more
        left_out : numbers of its cases that this one has not
        """
        for key, indexes in before._indexes.items():
            self._indexes[key] = indexes.changed(self, left_out)

    def index_after(
        self, index: LocalMetricIndex, now: SearchIndexes, left_out: np.ndarray
    ) -> LocalMetricIndex:
        """The index of the cases of now, from that of others.

        Parameters
        ----------
        index : without the last cases, or with more
        now : the cases of now
        left_out : numbers of cases of the index that are not there any more
        """
        return index.without(left_out, now.cases) if len(left_out) else index.extended(now.cases)

    def search(self, Q: Array | None, k: int) -> tuple[Array, Array]:
        """Squared distances and numbers of the k nearest, nearest first."""
        if Q is None:
            return self.search_rows(np.arange(len(self.X)), k)
        points = self._placed(Q)
        indexes = self.indexes_on(points)
        return indexes.metric_index.search(points, self.rule.weights(points, indexes), k)

    def search_rows(self, rows: np.ndarray, k: int) -> tuple[Array, Array]:
        """``search`` of training rows, each left out of its own neighbours."""
        points = self._placed(self.X[rows])
        indexes, own = self.indexes_on(points), like(rows, points)
        return indexes.metric_index.search(points, indexes.case_weights[own], k, own)

    def quick_search(self, Q: Array, k: int) -> tuple[Array, Array]:
        """As ``search``, but neighbours that rounding cannot tell apart are in any order."""
        points = self._placed(Q)
        indexes = self.indexes_on(points)
        return indexes.exact.quick_search(points, self.rule.weights(points, indexes), k)

    def nearest_labels(self, Q: Array, k: int, labels: np.ndarray) -> Array:
        """(q, k) labels of the k nearest in any order, given those of the training rows."""
        points = self._placed(Q)
        indexes = self.indexes_on(points)
        nearest = indexes.metric_index.nearest(points, self.rule.weights(points, indexes), k)
        return like(labels, nearest)[nearest]

    def reconstruction(
        self,
        Q: Array | None,
        cases: Array,
        ridge: float,
        sizes: Sequence[int],
        sample_weight: np.ndarray | None = None,
    ) -> list[Array]:
        """Weights that make up points from training rows (``ops.distances``)."""
        points = self._placed(self.X if Q is None else Q)
        weights, M = self._weights_with(points, Q is None, cases, sample_weight)

        def metrics(block: slice) -> Array:
            return M if len(M) == 1 else combine_bases(weights[block], M)

        X = self.indexes_on(points).cases
        return reconstruction_weights(points, X, cases, metrics, ridge, sizes, sample_weight)

    def _weights_with(
        self, points: Array, own: bool, cases: Array, sample_weight: np.ndarray | None
    ) -> tuple[Array, Array]:
        """The weights and the metrics between placed points and some cases of each."""
        indexes = self.indexes_on(points)
        weights = indexes.case_weights if own else self.rule.weights(points, indexes)
        return weights, like(inward(self.M, self.span), points)

    def weights(self, Q: Array | None) -> Array:
        """(q, m) weights of the basis metrics."""
        if Q is None:
            return self._own_weights()
        points = self._placed(Q)
        return self.rule.weights(points, self.indexes_on(points))

    def _own_weights(self) -> np.ndarray:
        """(n, m) of the cases."""
        if self.n_learned == len(self.X):
            return self.training_weights
        return on_host(self.indexes_on(self._placed(self.X[:1])).case_weights)

    def matrix(self, Q: Array | None) -> Array:
        """(q, d, d) metrics; a read-only view where there is one for all."""
        if len(self.M) == 1:
            n = len(self.X if Q is None else Q)
            return np.broadcast_to(self.M[0], (n, *self.M.shape[1:]))
        weights = self.weights(Q)
        return combine_bases(weights, like(self.M, weights))

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances between rows, under the metrics at the first ones."""
        rows = np.arange(len(second))[:, None]
        return local_pairs(first, on_host(self.weights(first)), self.M, second, rows)[:, 0]

    def index_vectors(self, rows: np.ndarray | None = None) -> np.ndarray:
        """(x_j, q_j) of all cases or some, about the center, q_jb = x_j^T M_b x_j."""
        X = self.X if rows is None else self.X[rows]
        return index_vectors(self._about_the_center(X), self.M)

    def query_vectors(self, Q: Array | None) -> Array:
        """(2 M(x) x, -w(x)) of points about the center."""
        weights = self.weights(Q)
        points = like(self._about_the_center(self.X if Q is None else Q), weights)
        return query_vectors(points, weights, like(self.M, weights))

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """The metrics between points and training rows, (q, 1, d, d), see ``feature_split``."""
        weights = on_host(self.weights(Q)) if own is None else self._own_weights()[own]
        return combine_bases(weights, self.M)[:, None]

    def recall(self, k: int) -> float:
        """Share of the true neighbours that the search finds for a sample of training rows."""
        return self.indexes_on(self._placed(self.X[:1])).recall(k)

    def indexes_on(self, like_x: Array) -> SearchIndexes:
        """What a search needs, on the device of an array; made once per device."""
        key = f"{type(like_x).__module__} {device(like_x)}"
        if key not in self._indexes:
            self._indexes[key] = SearchIndexes(self, like(inside(self.X, self.span), like_x))
        return self._indexes[key]

    def index_of(self, cases: Array, center: Array | None) -> LocalMetricIndex:
        """The index of placed cases, about a placed center."""
        return LocalMetricIndex(cases, like(inward(self.M, self.span), cases), center=center)

    def _placed(self, Q: Array) -> Array:
        """Points where the work is done, in the coordinates of the search."""
        return inside(to_available_device(Q, self.device), self.span)

    @property
    def origin(self) -> np.ndarray:
        """(d,) what vectors are about."""
        return self.X.mean(axis=0, dtype=np.float64) if self.center is None else self.center

    def _about_the_center(self, X: Array) -> Array:
        xp = namespace(X)
        return xp.astype(X - like(self.origin, X, xp.float64), X.dtype)
