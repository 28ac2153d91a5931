"""How long the parts of a fit take on two cores, in rough seconds: their shares of a progress bar.

Only the ratios are used: a part that takes longer or shorter than this only moves the bar slower or
faster.
"""

from plml.stages.approximate import APPROXIMATE_FROM

#: Iterations of stage 2 to the usual gap of a fit, and of one setting during a selection.
METRICS_ITERATIONS = 50
SELECTION_ITERATIONS = 12


def search_cost(n_queries: int, n_rows: int, n_features: int) -> float:
    """Seconds to find the nearest rows of queries."""
    return 1e-9 * (3 + 0.3 * n_features) * n_queries * min(n_rows, APPROXIMATE_FROM)


def anchors_cost(n_rows: int, n_bases: int) -> float:
    """Seconds of k-means."""
    return 0.2 + 2e-6 * n_rows * n_bases


def weights_cost(n_rows: int, n_bases: int) -> float:
    """Seconds of stage 1."""
    return 7e-6 * n_rows * n_bases


def metrics_cost(n_rows: int, n_features: int, n_bases: int, n_iter: int) -> float:
    """Seconds of stage 2."""
    return 1.2e-10 * n_iter * n_rows * n_bases * (1400 + n_features**2)
