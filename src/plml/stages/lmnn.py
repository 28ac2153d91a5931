"""Large Margin Nearest Neighbour (Weinberger and Saul, JMLR 2009), one metric or several.

    min_{M_g >= 0} (1 - mu) sum_{j ~> i} d^2(x_i, x_j)
                   + mu sum_{j ~> i} sum_{l: y_l != y_i} [1 + d^2(x_i, x_j) - d^2(x_i, x_l)]_+

with d(x_i, x_j) under the metric of the group of x_j, the second point. Every other-class point
may be an impostor; those that matter are found by exact search and kept in an active set.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from plml.ops.pairs import PairOperator
from plml.ops.projections import psd_factor
from plml.ops.topk import row_blocks


class LmnnData(NamedTuple):
    """What stays fixed while the metrics are learned."""

    X: np.ndarray  # (n, d), centred
    y: np.ndarray  # (n,) class codes
    groups: np.ndarray  # (n,) the metric that each point carries
    targets: np.ndarray  # (n, k), -1 where absent


class Violations(NamedTuple):
    """Impostors within the margin, under some metrics."""

    hinge: float  # sum of all hinge losses, over all triplets
    pairs: np.ndarray  # (n_found, 2) the nearest violators of every instance


def squared_distances(data: LmnnData, M: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """d^2 of pairs (i, j) under the metric of j."""
    return _operator(data, pairs, len(M)).distances(M)


def target_distances(data: LmnnData, M: np.ndarray) -> np.ndarray:
    """d^2 to every target, (n, k); -inf where absent, so that its hinge is zero."""
    rows, columns = np.nonzero(data.targets >= 0)
    result = np.full(data.targets.shape, -np.inf)
    pairs = np.column_stack([rows, data.targets[rows, columns]])
    result[rows, columns] = squared_distances(data, M, pairs)
    return result


def find_violations(data: LmnnData, M: np.ndarray, near: np.ndarray, n_nearest: int) -> Violations:
    """All hinge losses, and the ``n_nearest`` violators of each instance in each group and class.

    Parameters
    ----------
    near : (n, k) squared distances to the targets
    """
    hinge, pairs = 0.0, []
    for rows, columns, d2 in _blocks_of_distances(data, M):
        radius = 1.0 + near[rows].max(axis=1)
        i, k = np.nonzero(d2 < radius[:, None])
        found = d2[i, k]
        hinge += float(np.maximum(1.0 + near[rows[i]] - found[:, None], 0.0).sum())
        keep = _nearest_of_each(i, found, n_nearest)
        pairs.append(np.column_stack([rows[i[keep]], columns[k[keep]]]))
    return Violations(hinge, np.concatenate(pairs))


def _blocks_of_distances(
    data: LmnnData, M: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Blocks (rows, columns, d^2) that cover every pair of different classes once."""
    for group, metric in enumerate(M):
        Z = data.X @ psd_factor(metric).T.astype(data.X.dtype)
        z2 = np.einsum("nd,nd->n", Z, Z)
        for label in np.unique(data.y[data.groups == group]):
            columns = np.flatnonzero((data.groups == group) & (data.y == label))
            others = np.flatnonzero(data.y != label)
            for block in row_blocks(len(others), len(columns)):
                rows = others[block]
                d2 = -2.0 * (Z[rows] @ Z[columns].T)
                d2 += z2[rows, None]
                d2 += z2[columns]
                yield rows, columns, d2


def _nearest_of_each(rows: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k smallest distances of every row number."""
    order = np.lexsort((distances, rows))
    sorted_rows = rows[order]
    first = np.searchsorted(sorted_rows, sorted_rows, side="left")
    return order[np.arange(len(order)) - first < k]


def _operator(data: LmnnData, pairs: np.ndarray, n_groups: int) -> PairOperator:
    # The metric is that of the second point, and differences have no sign: turn the pairs round.
    weights = np.eye(n_groups, dtype=data.X.dtype)[data.groups]
    return PairOperator(data.X, weights, pairs[:, ::-1])
