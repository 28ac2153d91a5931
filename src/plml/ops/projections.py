"""Euclidean projections. Each docstring is the optimisation problem that the function solves."""

import numpy as np

from plml.backend.threads import ALONE, Crew

#: From so many dimensions on a decomposition takes longer than handing it over.
_WORTH_A_THREAD = 32


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


def project_simplex_from(V: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """``project_simplex`` by Newton's method on the thresholds, from those of a like matrix.

    Measured from the row's largest entry, the threshold is the root of sum_b [v_b - t]_+ = 1,
    which is convex, decreasing and piecewise linear in t: Newton's method is exact after finitely
    many steps, and two or three when the start is close.

    Parameters
    ----------
    V : (n, m) array
    threshold : (n,) array, the start, overwritten by the result; -1 where nothing is known
    """
    m = V.shape[1]
    ones = np.ones(m, dtype=V.dtype)
    shifted = V - V.max(axis=1, keepdims=True)
    tolerance = 4.0 * m * np.finfo(V.dtype).eps
    for _ in range(m + 2):
        above = shifted - threshold[:, None]
        np.maximum(above, 0.0, out=above)
        excess = above @ ones
        excess -= 1.0
        if np.abs(excess).max(initial=0.0) <= tolerance:
            break
        threshold += excess / ((above > 0.0) @ ones)
        # The largest entry is above every threshold in question, so something always is.
        np.clip(threshold, -1.0, -0.5 / m, out=threshold)
    return above


def project_box(v: np.ndarray, lower: float = 0.0, upper: float = 1.0) -> np.ndarray:
    """argmin_w ||w - v||^2 subject to lower <= w <= upper."""
    return np.clip(v, lower, upper)


def project_psd(S: np.ndarray, crew: Crew = ALONE) -> np.ndarray:
    """argmin_P ||P - S||_F^2 subject to P positive semidefinite, for symmetric S.

    Parameters
    ----------
    S : (..., d, d) array, symmetric
    crew : threads that share the matrices
    """
    flat = S.reshape(-1, *S.shape[-2:])
    if S.shape[-1] < _WORTH_A_THREAD:
        return _positive_part(flat).reshape(S.shape)
    return np.stack(crew.map(_positive_part, list(flat))).reshape(S.shape)


def _positive_part(S: np.ndarray) -> np.ndarray:
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
