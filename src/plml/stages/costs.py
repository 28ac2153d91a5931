"""Rough seconds of the parts of a fit on two cores: the shares that they have of a progress bar.

Only their ratios are used, and a part that takes another time than this moves the bar faster or
slower, no more.
"""

from plml.stages.approximate import APPROXIMATE_FROM

#: Iterations of stage 2 at the gaps that are usual for a fit, and for a value of a selection.
METRICS_ITERATIONS = 50
SELECTION_ITERATIONS = 12


def search_cost(n_queries: int, n_rows: int, n_features: int) -> float:
    """Of the nearest rows of some queries."""
    return 1e-9 * (3 + 0.3 * n_features) * n_queries * min(n_rows, APPROXIMATE_FROM)


def anchors_cost(n_rows: int, n_bases: int) -> float:
    """Of k-means."""
    return 0.2 + 2e-6 * n_rows * n_bases


def weights_cost(n_rows: int, n_bases: int) -> float:
    """Of stage 1."""
    return 7e-6 * n_rows * n_bases


def metrics_cost(n_rows: int, n_features: int, n_bases: int, n_iter: int) -> float:
    """Of stage 2."""
    return 1.2e-10 * n_iter * n_rows * n_bases * (1400 + n_features**2)
