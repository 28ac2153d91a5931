"""What a metric is without evidence: the centre of the penalty of stage 2.

The paper's penalty alpha_1 sum_b ||M_b||_F^2 draws the metrics towards zero, where nothing is near
anything. With a prior P it is alpha_1 sum_b ||M_b - P||_F^2.
"""

import numpy as np

from plml.backend.arrays import Array, like, namespace, on_host
from plml.backend.threads import SERIAL, ThreadTeam
from plml.ops.pairs import PairOperator
from plml.stages.triplets import Triplets

#: Share of the average variance that is added to the within-class scatter before its inversion.
_RIDGE = 0.1


def prior_metric(
    kind: str,
    X: Array,
    y: np.ndarray,
    triplets: Triplets,
    team: ThreadTeam = SERIAL,
    sample_weight: np.ndarray | None = None,
) -> Array:
    """P, a multiple of I or of the inverse of the within-class scatter, (d, d) in float64.

    The multiple is such that an average impostor pair has distance one, the margin.

    Parameters
    ----------
    kind : {"identity", "within"}
    X : (n, d) array
    y : (n,) class codes
    triplets : of the rows
    team : threads that share the work
    sample_weight : (n,) how much a row counts; an impostor pair counts as its first row
    """
    xp, n_rows = namespace(X), len(X)
    X = xp.astype(X, xp.float64)
    counted = np.ones(n_rows) if sample_weight is None else on_host(sample_weight)
    shape = np.eye(X.shape[1])
    if kind == "within":
        shape = _inverse_scatter(on_host(X), y, counted)
    pushed = np.arange(len(triplets.pairs)) >= triplets.n_target_pairs
    pushed = pushed * counted[triplets.pairs[:, 0]]
    apart = PairOperator(X, xp.ones_like(X[:, :1]), triplets.pairs, team).scatter(like(pushed, X))
    distance = float(np.sum(shape * on_host(apart[0, ...]))) / (float(pushed.sum()) or 1.0)
    return like(shape / distance if distance > 0.0 else shape, X)


def _inverse_scatter(X: np.ndarray, y: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """(S_w + a share of its average variance)^-1."""
    _, y = np.unique(y, return_inverse=True)  # a class may have no row here
    members = [y == code for code in range(y.max() + 1)]
    means = np.stack([np.average(X[own], axis=0, weights=counted[own]) for own in members])
    within = (X - means[y]) * np.sqrt(counted)[:, None]
    scatter = within.T @ within / counted.sum()
    variance = np.trace(scatter) / len(scatter) or 1.0
    return np.linalg.inv(scatter + _RIDGE * variance * np.eye(len(scatter)))
