"""Euclidean projections. Each docstring is the optimisation problem that the function solves."""

import numpy as np


def project_simplex(V: np.ndarray) -> np.ndarray:
    r"""argmin_W ||W - V||_F^2 subject to W >= 0 and every row of W summing to one.

    Sorts each row once, O(n m log m) (Duchi et al., ICML 2008).

    Parameters
    ----------
    V : (n, m) array
    """
    n, m = V.shape
    # The projection is invariant to a shift of the row; this one keeps the sums small.
    V = V - V.max(axis=1, keepdims=True)
    descending = -np.sort(-V, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    n_active = (descending * np.arange(1, m + 1) > excess).sum(axis=1)
    threshold = excess[np.arange(n), n_active - 1] / n_active
    return np.maximum(V - threshold[:, None], 0.0)


def project_box(v: np.ndarray, lower: float = 0.0, upper: float = 1.0) -> np.ndarray:
    """argmin_w ||w - v||^2 subject to lower <= w <= upper."""
    return np.clip(v, lower, upper)


def project_psd(S: np.ndarray) -> np.ndarray:
    """argmin_P ||P - S||_F^2 subject to P positive semidefinite, for symmetric S.

    Parameters
    ----------
    S : (..., d, d) array, symmetric
    """
    eigenvalues, vectors = np.linalg.eigh(S)
    scaled = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[..., None, :]
    return scaled @ np.swapaxes(scaled, -1, -2)


def psd_factor(M: np.ndarray, rank_tolerance: float = 0.0) -> np.ndarray:
    """L with L^T L = M for a positive semidefinite (d, d) M, rows by decreasing eigenvalue.

    Eigenvalues at or below ``rank_tolerance`` times the largest are dropped; one row is kept
    even of a zero matrix.
    """
    eigenvalues, vectors = np.linalg.eigh(M)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    keep = eigenvalues > rank_tolerance * max(eigenvalues[0], 0.0)
    keep[0] = True
    return np.sqrt(np.maximum(eigenvalues[keep], 0.0))[:, None] * vectors[:, keep].T
