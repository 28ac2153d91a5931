"""A metric at the query and one at the stored case, M(x) + N_j, ready to be asked."""

from dataclasses import dataclass

import numpy as np

from plml.backend.arrays import Array, like, namespace, on_host
from plml.metric.basis_metric import BasisMetric, SearchIndexes
from plml.ops.distances import combine_bases, local_pairs, mean_of_cases
from plml.ops.span import inward
from plml.stages.search import (
    LocalMetricIndex,
    TwoSidedIndex,
    two_sided_index_vectors,
    two_sided_query_vectors,
)


@dataclass(eq=False)
class TwoSidedMetric(BasisMetric):
    """d^2(x, x_j) = (x - x_j)^T (sum_b w_b(x) M_b + sum_c V_jc N_c) (x - x_j).

    Where a point is a case of its own, its V is that of the nearest row that was learned from.
    """

    case_weights: np.ndarray | None  # (n, m'), V; None: the weights of the basis metrics
    N: np.ndarray  # (m', d, d)

    @property
    def V(self) -> np.ndarray:
        """(n, m') weights of the metrics at the cases."""
        return self._own_weights() if self.case_weights is None else self.case_weights

    def matrix(self, Q: Array | None) -> Array:
        """(q, d, d) metrics between a point and a case at the same place."""
        weights = self.weights(Q)
        at_query = combine_bases(weights, like(self.M, weights))
        cases = self._case_weights_at(Q)
        return at_query + like(combine_bases(cases, like(self.N, cases)), at_query)

    def _weights_with(
        self, points: Array, own: bool, cases: Array, sample_weight: np.ndarray | None
    ) -> tuple[Array, Array]:
        """As in ``BasisMetric``; the metric at the cases is the average over those of a point."""
        xp = namespace(points)
        weights, M = super()._weights_with(points, own, cases, sample_weight)
        average = mean_of_cases(like(self.V, points, xp.float64), cases, sample_weight)
        both = xp.concat([xp.astype(weights, xp.float64), average], axis=1)
        return both, xp.concat([M, like(inward(self.N, self.span), points, M.dtype)], axis=0)

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances from queries, the first rows, to cases, the second ones."""
        rows = np.arange(len(second))[:, None]
        cases = on_host(self._case_weights_at(second))
        from_cases = local_pairs(second, cases, self.N, first, rows)[:, 0]
        return super().pair_distances(first, second) + from_cases

    def index_vectors(self, rows: np.ndarray | None = None) -> np.ndarray:
        """(x_j, q_j, N_j x_j, V_j, x_j^T N_j x_j) of all cases or some, about the center."""
        X, V = (part if rows is None else part[rows] for part in (self.X, self.V))
        return two_sided_index_vectors(self._about_the_center(X), self.M, V, self.N)

    def query_vectors(self, Q: Array | None) -> Array:
        """(2 M(x) x, -w(x), 2 x, -p(x), -1) of points about the center."""
        weights = self.weights(Q)
        points = like(self._about_the_center(self.X if Q is None else Q), weights)
        return two_sided_query_vectors(
            points, weights, like(self.M, weights), like(self.N, weights)
        )

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``, with those of the cases: (q, k, d, d)."""
        of_cases = combine_bases(self.V[cases.ravel()], self.N)
        return super().between(Q, own, cases) + of_cases.reshape(*cases.shape, *self.N.shape[1:])

    def _case_weights_at(self, Q: Array | None) -> Array:
        """(q, m') weights of cases at given points, those of the training rows for None."""
        if Q is None:
            return self.V
        points = self._placed(Q)
        nearest = self.indexes_on(points).euclidean_index.nearest(points, 1)[:, 0]
        return like(self.V[: self.n_learned], points)[nearest]

    def index_of(self, cases: Array, center: Array | None) -> TwoSidedIndex:
        """As in ``BasisMetric``."""
        M, N = inward(self.M, self.span), inward(self.N, self.span)
        M, V, N = (like(part, cases) for part in (M, self.V, N))
        return TwoSidedIndex(cases, M, V, N, center)

    def index_after(
        self, index: LocalMetricIndex, now: SearchIndexes, left_out: np.ndarray
    ) -> LocalMetricIndex:
        """As in ``BasisMetric``; made anew where the weights of added cases may have changed."""
        assert isinstance(index, TwoSidedIndex)
        own_weights = self.case_weights is None
        if own_weights and len(left_out) and len(self.X) > self.n_learned:
            return now.exact
        if len(left_out):
            return index.without(left_out, now.cases)
        V = now.case_weights if own_weights else like(self.V, now.cases)
        return index.extended(now.cases, V)
