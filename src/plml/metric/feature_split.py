"""Why a case is near: the squared local distance split over the features.

With the difference D = x - x_j and the metric M between the two,

    bilinear    d^2 = sum_f c_f ,              c_f = D_f (M D)_f
    likeness    d^2 = sum_f d^2 [c_f]_+ / sum_g [c_g]_+

Both add up to the squared distance, in any units, and give nothing to features that are equal. In
the first one a feature whose difference makes up for that of another counts below zero; the second
leaves such features out.
"""

from typing import Protocol

import numpy as np

from plml.ops.topk import row_blocks

#: Ways to split a squared distance over the features.
SPLITS = ("likeness", "bilinear")


class Between(Protocol):
    """What a split needs to know of a fitted metric."""

    X: np.ndarray  # (n, d), the training rows

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """The metrics between points and training rows, (q, k, d, d) float64.

        (q, 1, d, d) where they do not depend on the case.

        Parameters
        ----------
        Q : (q, d) points
        own : (q,) the training rows that they are, or None
        cases : (q, k) training rows
        """


def split_distances(
    metric: Between, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray, kind: str
) -> np.ndarray:
    """Parts of the squared distances between points and training rows, (q, k, d) float64.

    Parameters
    ----------
    metric, Q, own, cases : see ``Between``
    kind : {"likeness", "bilinear"}
    """
    (q, k), d = cases.shape, Q.shape[1]
    result = np.empty((q, k, d))
    for rows in row_blocks(q, k * d * (d + 4)):
        difference = Q[rows, None, :].astype(np.float64) - metric.X[cases[rows]]
        metrics = metric.between(Q[rows], None if own is None else own[rows], cases[rows])
        split = likeness_parts if kind == "likeness" else bilinear_parts
        result[rows] = split(difference, metrics)
    return result


def bilinear_parts(D: np.ndarray, M: np.ndarray) -> np.ndarray:
    """D_f (M D)_f: (q, k, d) differences, (q, k, d, d) or (q, 1, d, d) metrics."""
    return D * _applied(M, D)


def likeness_parts(D: np.ndarray, M: np.ndarray) -> np.ndarray:
    """The positive ones of ``bilinear_parts``, scaled so that they add up to the same."""
    parts = bilinear_parts(D, M)
    positive = np.maximum(parts, 0.0)
    total = positive.sum(axis=2, keepdims=True)
    squared = np.maximum(parts.sum(axis=2, keepdims=True), 0.0)
    return positive * np.divide(squared, total, out=np.zeros_like(total), where=total > 0.0)


def column_parts(
    D: np.ndarray, M: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """D_G' M_GG D_G, and the squared distance if D_G were zero, (q, k, n_columns) each.

    Parameters
    ----------
    D, M : as in ``bilinear_parts``
    columns : (d,) the column that each feature was made from; G are the features of one
    """
    sums = np.eye(columns.max() + 1)[columns]
    parts = bilinear_parts(D, M)
    alone = bilinear_parts(D, M * (columns[:, None] == columns)) @ sums
    return alone, parts.sum(axis=2, keepdims=True) - (2.0 * (parts @ sums) - alone)


def _applied(M: np.ndarray, D: np.ndarray) -> np.ndarray:
    """M D, where M may be the same for all cases of a point."""
    if M.shape[1] == 1:
        return D @ M[:, 0]
    return (D[:, :, None, :] @ M)[:, :, 0]


def spread_of(X: np.ndarray) -> np.ndarray:
    """(d,) standard deviations; one where all rows are the same."""
    spread = X.std(axis=0, dtype=np.float64)
    return np.where(spread > 0.0, spread, 1.0)


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
