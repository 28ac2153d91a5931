"""How given neighbours vote."""

import numpy as np

from plml.backend.arrays import Array, like
from plml.stages.search import inverse_distances, vote

#: Ways to weigh votes.
VOTES = ("uniform", "distance")


def class_shares(
    squared: Array, nearest: Array, labels: np.ndarray, n_classes: int, how: str
) -> Array:
    """(q, n_classes) shares of the classes in the votes of given neighbours.

    Parameters
    ----------
    squared, nearest : (q, k) squared distances and training rows
    labels : (n,) class codes of the training rows
    how : {"uniform", "distance"}
    """
    weights = inverse_distances(squared) if how == "distance" else None
    return vote(like(labels, nearest)[nearest], n_classes, weights)
