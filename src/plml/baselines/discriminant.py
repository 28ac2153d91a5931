"""Discriminant adaptive metrics (Hastie and Tibshirani, PAMI 1996)."""

import numpy as np

from plml.stages.own_metric_search import OwnMetricIndex

_RIDGE = 1e-6


def discriminant_metrics(
    X: np.ndarray,
    y: np.ndarray,
    Q: np.ndarray,
    own: np.ndarray | None = None,
    *,
    n_classes: int,
    n_local: int,
    epsilon: float,
    n_iterations: int,
    index: OwnMetricIndex | None = None,
    sample_weight: np.ndarray | None = None,
) -> np.ndarray:
    """M = W^{-1/2} (W^{-1/2} B W^{-1/2} + epsilon I) W^{-1/2} around every query, (q, d, d).

    W and B are the pooled within-class and the between-class covariance of the ``n_local``
    training instances nearest under the current metric, weighted by a tricube of their distance.

    Parameters
    ----------
    X : (n, d) array
    y : (n,) class codes
    Q : (q, d) array
    own : (q,) integer array; query i is training instance own[i]; None for new points
    index : of X, if there is one
    sample_weight : (n,) by which the weights of the training instances are multiplied, or None
    """
    X, Q = X.astype(np.float64, copy=False), Q.astype(np.float64, copy=False)
    d = X.shape[1]
    metrics = np.tile(np.eye(d), (len(Q), 1, 1))
    mean = np.average(X, axis=0, weights=sample_weight)
    variances = np.average((X - mean) ** 2, axis=0, weights=sample_weight)
    ridge = _RIDGE * (float(variances.mean()) or 1.0)
    index = OwnMetricIndex(X) if index is None else index
    for _ in range(n_iterations):
        squared, local = index.search(Q, metrics, n_local, own)
        weights = tricube(np.sqrt(squared))
        if sample_weight is not None:
            weights = weights * sample_weight[local]
        W, B = local_covariances(X[local], y[local], weights, n_classes)
        eigenvalues, vectors = np.linalg.eigh(W)
        scales = 1.0 / np.sqrt(np.maximum(eigenvalues, 0.0) + ridge)
        whiten = (vectors * scales[:, None, :]) @ vectors.mT
        metrics = whiten @ (whiten @ B @ whiten + epsilon * np.eye(d)) @ whiten
    return metrics


def tricube(distances: np.ndarray) -> np.ndarray:
    """(1 - (d / h)^3)^3 with h the largest distance of the row; one where all distances are h."""
    h = distances.max(axis=1, keepdims=True)
    weights = (1.0 - (distances / np.where(h > 0, h, 1.0)) ** 3) ** 3
    return np.where(weights.sum(axis=1, keepdims=True) > 1e-12, weights, 1.0)


def local_covariances(
    points: np.ndarray, labels: np.ndarray, weights: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted within-class and between-class covariances of every neighbourhood, (q, d, d).

    Points are (q, k, d), labels and weights (q, k).
    """
    shares = weights / weights.sum(axis=1, keepdims=True)
    member = shares[:, :, None] * (labels[:, :, None] == np.arange(n_classes))  # (q, k, c)
    class_share = member.sum(axis=1)  # pi_c
    safe = np.where(class_share > 0, class_share, 1.0)
    class_means = member.mT @ points / safe[:, :, None]
    mean = (shares[:, None, :] @ points)[:, 0]
    own_means = np.take_along_axis(class_means, labels[:, :, None], axis=1)
    residual = points - own_means
    within = (residual * shares[:, :, None]).mT @ residual
    offset = class_means - mean[:, None, :]
    between = (offset * class_share[:, :, None]).mT @ offset
    return within, between
