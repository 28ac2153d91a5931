"""The problem that Large Margin Nearest Neighbour solves (Weinberger and Saul, JMLR 2009).

    min_{M_g >= 0} pull sum_{j ~> i} d^2(x_i, x_j)
                   + sum_{j ~> i} sum_{l: y_l != y_i} [1 + d^2(x_i, x_j) - d^2(x_i, x_l)]_+

with d(x_i, x_j) under the metric of the group of x_j, the second point; pull = (1 - mu) / mu, and
the paper's objective is mu times this one. With sample weights the terms of instance i count as
often as its weight says. Every other-class point may be an impostor: the relevant
ones are found by exact search and kept in an active set. Dropping impostors lowers the objective,
so a dual bound on the active set bounds the whole problem.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from plml.backend.arrays import (
    Array,
    fetch,
    like,
    namespace,
    on_host,
    segment_sum,
    total,
)
from plml.backend.threads import SERIAL, ThreadTeam
from plml.ops.distances import Transformed
from plml.ops.grouped import GroupedPairs
from plml.ops.topk import row_blocks
from plml.solvers.problem import Iteration
from plml.stages.neighbors import class_members
from plml.stages.triplets import neighbor_pairs, triplets_of_pairs

#: The most violators per instance and class that join the active set in one round.
_MOST_PER_CLASS = 1000
#: The most that join it in one round altogether, which bounds the memory.
_MOST_PAIRS = 1_000_000


class LmnnData(NamedTuple):
    """The data and settings, which stay fixed while the metrics are learned."""

    X: Array  # (n, d), centred
    y: np.ndarray  # (n,) class codes
    groups: np.ndarray  # (n,) the metric that each point carries
    n_groups: int
    targets: np.ndarray  # (n, k), -1 where absent
    pull: float
    team: ThreadTeam = SERIAL
    sample_weight: np.ndarray | None = None  # (n,); None where all are one

    def counted(self, pairs: np.ndarray) -> np.ndarray:
        """(n_pairs,) how often the terms of pairs (i, j) count: as often as instance i."""
        if self.sample_weight is None:
            return np.ones(len(pairs))
        return self.sample_weight[pairs[:, 0]]

    def total_weight(self) -> float:
        """The sum of the sample weights, the number of instances without weights."""
        return float(len(self.X) if self.sample_weight is None else self.sample_weight.sum())


class LmnnSolution(NamedTuple):
    """Metrics (m, d, d) with the objective over all impostors and what is known of it."""

    M: np.ndarray
    objective: float
    gap: float = np.inf  # relative; infinite if there is no certificate
    n_iter: int = 0
    converged: bool = False  # the solver met its own stopping rule before max_iter
    stopped: bool = False  # by a callback or an observer
    history: tuple[Iteration, ...] = ()


#: Sees the metrics after every round; a true return value ends the fit.
Observer = Callable[[np.ndarray], bool]


class Violations(NamedTuple):
    """The objective over all impostors, and the impostors within the margin."""

    objective: float
    pairs: np.ndarray  # (n_violations, 2)


def target_scatter(data: LmnnData) -> np.ndarray:
    """A_g, the sum of (x_i - x_j)(x_i - x_j)^T over the target pairs of every metric, (m, d, d)."""
    pairs = neighbor_pairs(data.targets)
    return on_host(_operator(data, pairs).scatter(like(data.counted(pairs), data.X)))


def target_distances(data: LmnnData, M: np.ndarray) -> np.ndarray:
    """d^2 to every target, (n, k); -inf where absent, so that its hinge is zero."""
    operator = _operator(data, neighbor_pairs(data.targets))
    result = np.full(data.targets.shape, -np.inf)
    result[data.targets >= 0] = np.maximum(on_host(operator.distances(like(M, data.X))), 0.0)
    return result


def find_violations(data: LmnnData, M: np.ndarray, slack: float = 0.0) -> Violations:
    """The objective over all impostors, and those within the margin of each instance.

    ``slack`` extends the margin, relative to its size, for the pairs that are returned. These are
    at most the nearest ``_MOST_PER_CLASS`` per instance and class, and ``_MOST_PAIRS`` in total;
    all impostors count in the objective.
    """
    near = target_distances(data, M)
    reach = (1.0 + slack) * (1.0 + near.max(axis=1))
    pulled = near[data.targets >= 0]
    if data.sample_weight is not None:
        pulled = pulled * data.counted(neighbor_pairs(data.targets))
    objective = data.pull * float(pulled.sum())
    pairs, depths = np.empty((0, 2), dtype=np.int64), np.empty(0)
    for columns in class_members(data.groups * (int(data.y.max()) + 1) + data.y):
        # The points of one class that carry the same metric.
        others = np.flatnonzero((data.y != data.y[columns[0]]) & np.isfinite(reach))
        to = Transformed(data.X[like(columns, data.X)], M[data.groups[columns[0]]])
        search = partial(_within_reach, data, near, reach, others, columns, to)
        blocks = row_blocks(len(others), len(columns), data.X)
        for loss, their_pairs, their_depths in data.team.map(search, blocks):
            objective += loss
            pairs = np.concatenate([pairs, their_pairs])
            depths = np.concatenate([depths, their_depths])
            if len(depths) > _MOST_PAIRS:
                deepest = np.sort(np.argpartition(depths, _MOST_PAIRS)[:_MOST_PAIRS])
                pairs, depths = pairs[deepest], depths[deepest]
    return Violations(objective, pairs)


def _within_reach(
    data: LmnnData,
    near: np.ndarray,
    reach: np.ndarray,
    others: np.ndarray,
    columns: np.ndarray,
    to: Transformed,
    block: slice,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Hinge losses of a block of the others, their impostors among the columns, and how near."""
    rows = others[block]
    d2 = to.distances(data.X[like(rows, data.X)])
    within = namespace(d2).nonzero(d2 < like(reach[rows], d2)[:, None])
    found = on_host(d2[within])
    i, k = (on_host(part) for part in within)
    losses = np.maximum(1.0 + near[rows[i]] - found[:, None], 0.0)
    if data.sample_weight is not None:
        losses = losses * data.sample_weight[rows[i]][:, None]
    loss = float(losses.sum())
    keep = _nearest_of_each(i, found, _MOST_PER_CLASS)
    depths = found[keep] / reach[rows[i[keep]]]
    return loss, np.column_stack([rows[i[keep]], columns[k[keep]]]), depths


def _nearest_of_each(rows: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k smallest distances of every row."""
    order = np.lexsort((distances, rows))
    sorted_rows = rows[order]
    first = np.searchsorted(sorted_rows, sorted_rows, side="left")
    return order[np.arange(len(order)) - first < k]


def _operator(data: LmnnData, pairs: np.ndarray) -> GroupedPairs:
    # The metric is that of the second point, and differences have no sign: reverse the pairs.
    return GroupedPairs(data.X, data.groups, data.n_groups, pairs[:, ::-1], data.team)


class ActiveSet:
    """The impostor pairs that the solver considers, in the order in which they were found."""

    def __init__(self, data: LmnnData, pairs: np.ndarray) -> None:
        self.data = data
        self.pairs = pairs
        self.triplets = triplets_of_pairs(data.targets, pairs)
        self.operator = _operator(data, self.triplets.pairs)
        self._target, self._impostor = (
            like(ends, data.X) for ends in (self.triplets.target, self.triplets.impostor)
        )
        counted = like(data.counted(self.triplets.pairs), data.X)
        self._pulled, self._pushed = counted[: self.triplets.n_target_pairs], counted[self._target]

    def with_more(self, pairs: np.ndarray) -> "ActiveSet":
        """The active set with the pairs that are new; the same object if there are none."""
        n = len(self.data.X)
        new = ~np.isin(pairs[:, 0] * n + pairs[:, 1], self.pairs[:, 0] * n + self.pairs[:, 1])
        return ActiveSet(self.data, np.concatenate([self.pairs, pairs[new]])) if new.any() else self

    def value_and_subgradient(self, M: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective over the active set, and a subgradient, an (m, d, d) NumPy array."""
        n_targets, pull = self.triplets.n_target_pairs, self.data.pull
        xp = namespace(self.data.X)
        d2 = xp.clip(self.operator.distances(like(M, self.data.X)), 0.0, None)
        hinge = 1.0 + d2[self._target] - d2[self._impostor]
        active = xp.astype(hinge > 0, xp.float64) * self._pushed
        weights = segment_sum(active, self._target, len(d2))
        weights -= segment_sum(active, self._impostor, len(d2))
        weights[:n_targets] += pull * self._pulled
        value = pull * total(self._pulled * d2[:n_targets])
        value = value + total(self._pushed * xp.clip(hinge, 0.0, None))
        return fetch(value)[0], on_host(self.operator.scatter(weights))


def negligible(data: LmnnData) -> float:
    """The largest objective that counts as zero."""
    return max(1e-9, float(namespace(data.X).finfo(data.X.dtype).eps)) * data.total_weight()
