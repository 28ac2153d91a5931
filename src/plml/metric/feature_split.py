"""Why a neighbour is near: the squared local distance split over features and directions.

    d^2(x, x_j) = sum_f (x - x_j)_f (M (x - x_j))_f = sum_k lambda_k <v_k, x - x_j>^2

with lambda_k, v_k the eigenvalues and eigenvectors of the metric M at x. The second split has no
negative terms; in the first one a feature whose difference makes up for another's counts below
zero.
"""

import numpy as np

from plml.ops.distances import combine_bases
from plml.ops.topk import row_blocks


def feature_contributions(
    queries: np.ndarray, cases: np.ndarray, weights: np.ndarray, M: np.ndarray
) -> np.ndarray:
    """(x - x_j)_f (M(x) (x - x_j))_f, which sum to the squared distance.

    Parameters
    ----------
    queries : (q, d) array, x
    cases : (q, k, d) array, x_j
    weights : (q, m) array
    M : (m, d, d) array

    Returns
    -------
    (q, k, d) float64 array
    """
    result = np.empty(cases.shape)
    _, k, d = cases.shape
    for rows in row_blocks(len(queries), d * (d + 2 * k)):
        differences = queries[rows, None, :].astype(np.float64) - cases[rows]
        result[rows] = differences * (differences @ combine_bases(weights[rows], M))
    return result


def leading_directions(metrics: np.ndarray, n_directions: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues (q, k) of each metric and their unit eigenvectors (q, k, d).

    An eigenvector points where its largest entry is positive, so that it is the same on every
    machine.
    """
    eigenvalues, vectors = np.linalg.eigh(metrics)
    largest = np.maximum(eigenvalues[:, ::-1][:, :n_directions], 0.0)
    directions = np.swapaxes(vectors[:, :, ::-1][:, :, :n_directions], 1, 2)
    peak = np.take_along_axis(directions, np.abs(directions).argmax(axis=2, keepdims=True), axis=2)
    return largest, directions * np.where(peak < 0.0, -1.0, 1.0)


def feature_importance(diagonals: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Share of each feature in the diagonal of a metric, in units of the features' spread.

    diag_f spread_f^2 is the squared distance of two points that differ by one standard deviation
    in feature f alone. Rows sum to one; a metric of zero has no shares.

    Parameters
    ----------
    diagonals : (q, d) array
    spread : (d,) array, standard deviations
    """
    sizes = diagonals * spread**2
    totals = sizes.sum(axis=1, keepdims=True)
    return np.divide(sizes, totals, out=np.zeros_like(sizes), where=totals > 0.0)
