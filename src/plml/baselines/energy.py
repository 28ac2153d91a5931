"""The energy-based classification of Weinberger and Saul (JMLR 2009)."""

import numpy as np

from plml.baselines.lmnn_problem import LmnnData, target_distances
from plml.ops.distances import Transformed
from plml.ops.topk import row_blocks


def energies(data: LmnnData, M: np.ndarray, queries: np.ndarray, n_classes: int) -> np.ndarray:
    """How much the objective grows when a query joins each class, (q, n_classes).

    It is the query's pull to its nearest members of the class, the hinge losses of its own
    margins, and those of the training margins that it invades, measured with the metric of the
    class. The query counts once, a training instance as often as its sample weight says. Needs one
    metric, or one per class.
    """
    near = target_distances(data, M)
    reach = 1.0 + near.max(axis=1)
    result = np.empty((len(queries), n_classes))
    for block in row_blocks(len(queries), 2 * len(data.X)):
        d2 = _distances_to_training(data, M, queries[block])
        for label in range(n_classes):
            members, others = data.y == label, data.y != label
            k = min(data.targets.shape[1], int(members.sum()))
            own = np.sort(d2[:, members], axis=1)[:, :k]
            energy = data.pull * own.sum(axis=1)
            away = d2[:, others]
            for j in range(k):
                energy += np.maximum(1.0 + own[:, j, None] - away, 0.0).sum(axis=1)
            metric = M[min(label, len(M) - 1)]
            invaded = Transformed(data.X[others], metric).distances(queries[block])
            rows, columns = np.nonzero(invaded < reach[others])
            margins = 1.0 + near[others][columns] - invaded[rows, columns][:, None]
            losses = np.maximum(margins, 0.0).sum(axis=1)
            if data.sample_weight is not None:
                losses = losses * data.sample_weight[others][columns]
            result[block, label] = energy + np.bincount(rows, losses, len(energy))
    return result


def _distances_to_training(data: LmnnData, M: np.ndarray, queries: np.ndarray) -> np.ndarray:
    d2 = np.empty((len(queries), len(data.X)))
    for group, metric in enumerate(M):
        members = data.groups == group
        d2[:, members] = Transformed(data.X[members], metric).distances(queries)
    return d2
