"""A metric at the query and one at the stored case, M(x) + N_j, ready to be asked."""

from dataclasses import dataclass

import numpy as np

from plml.backend.arrays import Array, like, namespace, on_host
from plml.metric.basis_metric import BasisMetric
from plml.ops.distances import combine_bases, local_pairs
from plml.ops.span import inside, inward
from plml.stages.search import (
    TwoSidedIndex,
    two_sided_index_vectors,
    two_sided_query_vectors,
)


@dataclass(eq=False)
class TwoSidedMetric(BasisMetric):
    """d^2(x, x_j) = (x - x_j)^T (sum_b w_b(x) M_b + sum_c V_jc N_c) (x - x_j).

    Where a case is wanted that is not a training row, its V is that of the nearest one.
    """

    case_weights: np.ndarray  # (n, m'), V
    N: np.ndarray  # (m', d, d)

    def matrix(self, Q: Array | None) -> Array:
        """(q, d, d) metrics between a point and a case at the same place."""
        weights = self.weights(Q)
        at_query = combine_bases(weights, like(self.M, weights))
        cases = self._case_weights_at(Q)
        return at_query + like(combine_bases(cases, like(self.N, cases)), at_query)

    def _weights_with(self, points: Array, own: bool, cases: Array) -> tuple[Array, Array]:
        """As in ``BasisMetric``; the metric at the cases is the average over those of a point."""
        xp = namespace(points)
        weights, M = super()._weights_with(points, own, cases)
        average = xp.mean(like(self.case_weights, points, xp.float64)[cases], axis=1)
        both = xp.concat([xp.astype(weights, xp.float64), average], axis=1)
        return both, xp.concat([M, like(inward(self.N, self.span), points, M.dtype)], axis=0)

    def pair_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances from queries, the first rows, to cases, the second ones."""
        rows = np.arange(len(second))[:, None]
        cases = on_host(self._case_weights_at(second))
        from_cases = local_pairs(second, cases, self.N, first, rows)[:, 0]
        return super().pair_distances(first, second) + from_cases

    def index_vectors(self) -> np.ndarray:
        """(x_j, q_j, N_j x_j, V_j, x_j^T N_j x_j) of the training rows about their mean."""
        X = self._about_the_mean(self.X)
        return two_sided_index_vectors(X, self.M, self.case_weights, self.N)

    def query_vectors(self, Q: Array | None) -> Array:
        """(2 M(x) x, -w(x), 2 x, -p(x), -1) of points about the mean of the training rows."""
        weights = self.weights(Q)
        points = like(self._about_the_mean(self.X if Q is None else Q), weights)
        return two_sided_query_vectors(
            points, weights, like(self.M, weights), like(self.N, weights)
        )

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """As in ``BasisMetric``, with those of the cases: (q, k, d, d)."""
        of_cases = combine_bases(self.case_weights[cases.ravel()], self.N)
        return super().between(Q, own, cases) + of_cases.reshape(*cases.shape, *self.N.shape[1:])

    def _case_weights_at(self, Q: Array | None) -> Array:
        """(q, m') weights of cases at given points, those of the training rows for None."""
        if Q is None:
            return self.case_weights
        points = self._placed(Q)
        nearest = self.indexes_on(points).euclidean_index.nearest(points, 1)[:, 0]
        return like(self.case_weights, points)[nearest]

    def _make_index(self, like_x: Array) -> TwoSidedIndex:
        X = inside(self.X, self.span)
        M, N = inward(self.M, self.span), inward(self.N, self.span)
        return TwoSidedIndex(*(like(part, like_x) for part in (X, M, self.case_weights, N)))
