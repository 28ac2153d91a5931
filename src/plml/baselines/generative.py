"""Generative local metrics (Noh, Zhang, Lee, NIPS 2010): reduce the bias of the 1-NN error.

With class densities p_c, the finite-sample bias of the nearest-neighbour error at x is
proportional to tr(M^{-1} B) for

    B = sum_c Hess p_c(x) sum_{c' != c} p_c'(x) (p_c'(x) - p_c(x)),

and the metric of unit determinant that makes it vanish, or smallest if it cannot vanish, is

    M = [U+ U-] diag(d+ Lambda+, -d- Lambda-) [U+ U-]^T, rescaled,

with Lambda+-, U+- and d+- the positive and the negative eigenvalues of B, their eigenvectors and
their numbers.
"""

from typing import NamedTuple

import numpy as np

from plml.backend.threads import thread_team
from plml.ops.topk import Measured, neighbor_order
from plml.stages.search import vote

_FLOOR = 1e-6
#: Relative difference below which distances are equal.
_TIE = 1e-10


class GaussianClasses(NamedTuple):
    """One Gaussian per class, weighted by its share of the data."""

    means: np.ndarray  # (c, d)
    precisions: np.ndarray  # (c, d, d), inverse covariances
    log_constants: np.ndarray  # (c,), log(prior) - log|covariance| / 2


def fit_gaussians(
    X: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    shrinkage: float,
    sample_weight: np.ndarray | None = None,
) -> GaussianClasses:
    """Class means and covariances, shrunk towards a multiple of the identity.

    Sigma_c = (1 - shrinkage) S_c + shrinkage tr(S) / d I with S_c the covariance of the class and
    S that of the whole sample, so that no class is singular, not even one of a single point. All of
    them, and the shares of the classes, are weighted where there are (n,) sample weights.
    """
    X = X.astype(np.float64, copy=False)
    counts = np.ones(len(X)) if sample_weight is None else sample_weight
    variances = np.average((X - np.average(X, axis=0, weights=counts)) ** 2, 0, counts)
    scale = max(float(variances.mean()), np.finfo(float).tiny)
    means, precisions, constants = [], [], []
    for label in range(n_classes):
        members, own = X[y == label], counts[y == label]
        mean = np.average(members, axis=0, weights=own)
        S = (members - mean).T @ ((members - mean) * own[:, None]) / own.sum()
        eigenvalues, vectors = np.linalg.eigh((1.0 - shrinkage) * S)
        eigenvalues = np.maximum(eigenvalues, 0.0) + shrinkage * scale
        means.append(mean)
        precisions.append((vectors / eigenvalues) @ vectors.T)
        constants.append(np.log(own.sum() / counts.sum()) - 0.5 * np.log(eigenvalues).sum())
    return GaussianClasses(np.array(means), np.array(precisions), np.array(constants))


def log_densities(model: GaussianClasses, X: np.ndarray) -> np.ndarray:
    """Log p_c(x) up to a constant shared by all classes, (n, c)."""
    result = np.empty((len(X), len(model.means)))
    for c, (mean, P, constant) in enumerate(zip(*model, strict=True)):
        difference = X - mean
        squared = np.einsum("nd,nd->n", _row_by_row(difference, P), difference)
        result[:, c] = constant - 0.5 * squared
    return result


def _row_by_row(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Rows @ matrix, one row at a time: how a row is rounded does not depend on the others.

    Where an eigenvalue of B crosses zero the metric jumps, so the same row must always be rounded
    in the same way.
    """
    return (rows[:, None, :] @ matrix)[:, 0]


def bias_weights(log_p: np.ndarray) -> np.ndarray:
    """p_c sum_{c' != c} p_c' (p_c' - p_c), per row up to a positive factor, (n, c).

    Densities far from the data underflow, and so does this product. Its leading order is
    p_(1)^2 p_(2), the largest density squared times the second largest, so it is divided by that.
    """
    n = len(log_p)
    order = np.argsort(-log_p, axis=1)
    first, second = order[:, 0], order[:, 1]
    rows = np.arange(n)
    to_first = np.exp(log_p - log_p[rows, first, None])
    to_second = np.exp(np.minimum(log_p - log_p[rows, second, None], 0.0))
    # c' against c, over p_(1)^2: sum_{c' != c} r_c' (r_c' - r_c)
    others = (to_first**2).sum(axis=1, keepdims=True) - to_first**2
    crossed = to_first * (to_first.sum(axis=1, keepdims=True) - to_first)
    weights = to_second * (others - crossed)
    # The first class has a factor p_(1) / p_(2), which may overflow: multiply it in.
    rest = to_second.copy()
    rest[rows, first] = 0.0
    weights[rows, first] = (rest * (to_first - 1.0)).sum(axis=1)
    return weights


def bias_matrices(model: GaussianClasses, X: np.ndarray) -> np.ndarray:
    """B at every point, up to a positive factor, (n, d, d).

    Hess p = p (P (x - mean) (x - mean)^T P - P) for a Gaussian of precision P.
    """
    X = X.astype(np.float64, copy=False)
    weights = bias_weights(log_densities(model, X))
    n_classes, d = model.means.shape
    B = -_row_by_row(weights, model.precisions.reshape(n_classes, -1)).reshape(-1, d, d)
    for c, (mean, P, _) in enumerate(zip(*model, strict=True)):
        z = _row_by_row(X - mean, P)
        B += weights[:, c, None, None] * z[:, :, None] * z[:, None, :]
    return B


def generative_metrics(B: np.ndarray, exponent: float = 1.0) -> np.ndarray:
    """The metrics of unit determinant for given bias matrices, (n, d, d).

    An ``exponent`` below one gives M^exponent, a point on the shortest path from the identity (at
    zero) to M among the metrics of unit determinant.
    """
    scales, vectors = metric_spectrum(B)
    return (vectors * scales[:, None, :] ** exponent) @ vectors.mT


def metric_spectrum(B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (n, d) and eigenvectors (n, d, d) of the metrics for given bias matrices."""
    eigenvalues, vectors = np.linalg.eigh(B)
    flat = 1e-12 * np.abs(eigenvalues).max(axis=1, keepdims=True)
    positive, negative = eigenvalues > flat, eigenvalues < -flat
    counts = np.where(
        positive, positive.sum(axis=1, keepdims=True), negative.sum(axis=1, keepdims=True)
    )
    scales = np.where(positive | negative, counts * np.abs(eigenvalues), 0.0)
    largest = scales.max(axis=1, keepdims=True)
    scales = np.where(largest > 0, scales / np.where(largest > 0, largest, 1.0), 1.0)
    scales = np.maximum(scales, _FLOOR)  # directions without curvature keep a small weight
    return scales / np.exp(np.log(scales).mean(axis=1, keepdims=True)), vectors


def shrunk_predictions(
    model: GaussianClasses,
    X: np.ndarray,
    y: np.ndarray,
    Q: np.ndarray,
    exponents: np.ndarray,
    n_neighbors: int,
    vote_weights: np.ndarray | None = None,
) -> np.ndarray:
    """Class codes of queries under M^exponent for every exponent, (n_exponents, q).

    The powers of a metric share its eigenvectors, so one rotation of the differences serves all.
    X and y are the training instances and their class codes; ``n_neighbors`` of them vote, with
    (n,) weights if there are any.
    """
    X, Q = X.astype(np.float64, copy=False), Q.astype(np.float64, copy=False)
    result = np.empty((len(exponents), len(Q)), dtype=np.int64)
    n_classes = len(model.means)

    def predict(i: int) -> None:
        scales, vectors = metric_spectrum(bias_matrices(model, Q[i : i + 1]))
        squared = ((X - Q[i]) @ vectors[0]) ** 2
        distances = (squared @ scales[0][:, None] ** exponents).T
        nearest = np.stack([_nearest(row, n_neighbors) for row in distances])
        counted = None if vote_weights is None else vote_weights[nearest]
        result[:, i] = vote(y[nearest], n_classes, counted).argmax(axis=1)

    with thread_team() as threads:
        threads.map(predict, range(len(Q)))
    return result


def _nearest(distances: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k smallest; of those that agree to ten digits, the first."""
    last = np.partition(distances, k - 1)[k - 1] * (1.0 + _TIE)
    rows = np.flatnonzero(distances <= last)
    near = distances[None, rows]
    return rows[neighbor_order(Measured(near, _TIE * near), rows[None])[0, :k]]
