"""Template's metric: the inverse of the scatter within the classes."""

import numpy as np


def learn_template(
    X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None, *, shrinkage: float
) -> np.ndarray:
    """The metric, (d, d),

        argmin_{M > 0} tr(M S) - log det M = S^{-1},

    with S = (1 - shrinkage) S_w + shrinkage (tr S_w / d) I, and S_w the mean over the rows of
    (x - mean of its class) (x - mean of its class)^T.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) class codes
    sample_weight : (n,) how often each row counts, or None
    shrinkage : above zero, at most one
    """
    counts = np.ones(len(X)) if sample_weight is None else sample_weight
    members = [y == code for code in range(y.max() + 1)]
    means = np.stack([np.average(X[rows], axis=0, weights=counts[rows]) for rows in members])
    within = X - means[y]
    scatter = (within.T * counts) @ within / counts.sum()
    variance = np.trace(scatter) / max(len(scatter), 1) or 1.0
    return np.linalg.inv((1 - shrinkage) * scatter + shrinkage * variance * np.eye(len(scatter)))
