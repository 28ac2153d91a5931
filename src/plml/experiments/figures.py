"""Figures 1 and 2 of the paper: what they show, as arrays; ``plml.plots.paper`` draws them."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

#: Points a class at which Figure 1 shows the metric.
POINTS_A_CLASS = 60


def sampled_metrics(model: Any, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, Any]:
    """Local metrics at a few training points of every class.

    Parameters
    ----------
    model : fitted on X and y
    X : (n, d) array
    y : (n,) labels
    seed : of the sample; the same points for every method
    """
    rng = check_random_state(seed)
    chosen = np.concatenate(
        [
            rng.choice(members, min(POINTS_A_CLASS, len(members)), replace=False)
            for members in (np.flatnonzero(y == label) for label in np.unique(y))
        ]
    )
    estimator = getattr(model, "estimator_", model)
    metrics = estimator.get_mahalanobis_matrix(X[chosen])
    return {
        "points": X[chosen].round(4).tolist(),
        "labels": [str(label) for label in y[chosen]],
        "metrics": np.asarray(metrics, dtype=float).tolist(),
    }
