"""Squared distances between given pairs, by the definition, in float64 and bounded memory."""

import numpy as np

from plml.ops.topk import row_blocks


def euclidean_pairs(Q: np.ndarray, X: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """||q_i - x_j||^2 for j in row i of candidates.

    Parameters
    ----------
    Q : (q, d) array
    X : (n, d) array
    candidates : (q, c) integer array

    Returns
    -------
    (q, c) float64 array
    """
    result = np.empty(candidates.shape)
    for block in row_blocks(len(Q), candidates.shape[1] * X.shape[1]):
        difference = _differences(Q[block], X, candidates[block])
        result[block] = np.einsum("qcd,qcd->qc", difference, difference)
    return result


def local_pairs(
    Q: np.ndarray, weights: np.ndarray, M: np.ndarray, X: np.ndarray, candidates: np.ndarray
) -> np.ndarray:
    """(q_i - x_j)^T (sum_b W_ib M_b) (q_i - x_j) for j in row i of candidates.

    The local metric of a query is formed once, never a loop over bases per pair.

    Parameters
    ----------
    Q : (q, d) array
    weights : (q, m) array
    M : (m, d, d) array
    X : (n, d) array
    candidates : (q, c) integer array

    Returns
    -------
    (q, c) float64 array
    """
    d = X.shape[1]
    result = np.empty(candidates.shape)
    for block in row_blocks(len(Q), d * (d + 2 * candidates.shape[1])):
        metrics = combine_bases(weights[block], M)
        difference = _differences(Q[block], X, candidates[block])
        result[block] = np.einsum("qcd,qcd->qc", difference @ metrics, difference)
    return np.maximum(result, 0.0, out=result)


def grouped_pairs(
    Q: np.ndarray, M: np.ndarray, groups: np.ndarray, X: np.ndarray, candidates: np.ndarray
) -> np.ndarray:
    """(q_i - x_j)^T M_g (q_i - x_j) with g the group of x_j, for j in row i of candidates.

    Parameters
    ----------
    Q : (q, d) array
    M : (m, d, d) array
    groups : (n,) integer array
    X : (n, d) array
    candidates : (q, c) integer array

    Returns
    -------
    (q, c) float64 array
    """
    result = np.empty(candidates.shape)
    for block in row_blocks(len(Q), 2 * candidates.shape[1] * X.shape[1]):
        difference = _differences(Q[block], X, candidates[block])
        carried = groups[candidates[block]]
        part = np.empty(carried.shape)
        for group in np.unique(carried):
            chosen = difference[carried == group]
            part[carried == group] = np.einsum("pd,pd->p", chosen @ M[group], chosen)
        result[block] = part
    return np.maximum(result, 0.0, out=result)


def combine_bases(weights: np.ndarray, M: np.ndarray) -> np.ndarray:
    """M_i = sum_b W_ib M_b (equation 2): (q, m) weights, (m, d, d) bases -> (q, d, d) float64."""
    flat = M.reshape(len(M), -1).astype(np.float64, copy=False)
    return (weights.astype(np.float64, copy=False) @ flat).reshape(-1, *M.shape[1:])


def _differences(Q: np.ndarray, X: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    return Q[:, None, :].astype(np.float64, copy=False) - X[candidates]
