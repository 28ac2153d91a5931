"""An independent judge: objective and gap of both stages from their definitions, in float64.

It shares no code with the stages or the solvers: pairs are differences, metrics are formed one
pair at a time, nothing is expanded into products.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from plml.stages.triplets import Triplets

_BLOCK = 4096


class Verdict(NamedTuple):
    """The objective at a point and a bound on its relative distance to the optimum."""

    objective: float
    gap: float


def judge_weights(
    X: np.ndarray,
    anchors: np.ndarray,
    W: np.ndarray,
    S: sparse.sparray,
    locality: float,
    smoothness: float,
) -> Verdict:
    """Equation 4 at W, (n, m), and its Frank-Wolfe gap.

    S are (n, n) sparse similarities, locality and smoothness lambda_1 and lambda_2.
    """
    X, U, W = (np.asarray(array, dtype=np.float64) for array in (X, anchors, W))
    if W.min() < 0 or np.abs(W.sum(axis=1) - 1.0).max() > 1e-6:
        raise ValueError("rows of W must lie on the simplex")
    residual = X - W @ U
    G = np.stack([((X - u) ** 2).sum(axis=1) for u in U], axis=1)
    edges = sparse.coo_array(S)
    i, j, s = edges.row, edges.col, edges.data
    difference = W[i] - W[j]
    smooth = 0.5 * smoothness * float((s[:, None] * difference**2).sum())
    objective = float((residual**2).sum()) + locality * float((W * G).sum()) + smooth
    gradient = -2.0 * residual @ U.T + locality * G
    np.add.at(gradient, i, 2.0 * smoothness * s[:, None] * difference)
    gap = float(((gradient * W).sum(axis=1) - gradient.min(axis=1)).sum())
    return Verdict(objective, max(gap, 0.0) / objective)


def judge_metrics(
    X: np.ndarray,
    W: np.ndarray,
    triplets: Triplets,
    M: np.ndarray,
    gamma: np.ndarray,
    regularization: float,
    pull: float,
) -> Verdict:
    """Equation 5 at M, (m, d, d), and its distance to the dual value of gamma, (n_triplets,).

    W are (n, m) weights, regularization and pull alpha_1 and alpha_2.
    """
    X, W, M, gamma = (np.asarray(array, dtype=np.float64) for array in (X, W, M, gamma))
    if gamma.size and (gamma.min() < 0 or gamma.max() > 1):
        raise ValueError("gamma must lie in the unit box")
    if np.linalg.eigvalsh(M).min() < -1e-9 * max(np.abs(M).max(), 1e-300):
        raise ValueError("the metrics must be positive semidefinite")
    coefficients = np.zeros(len(triplets.pairs))
    coefficients[: triplets.n_target_pairs] -= pull
    np.subtract.at(coefficients, triplets.target, gamma)
    np.add.at(coefficients, triplets.impostor, gamma)
    d2 = np.empty(len(triplets.pairs))
    negative_K = np.zeros_like(M)
    for start in range(0, len(d2), _BLOCK):
        block = slice(start, start + _BLOCK)
        i, j = triplets.pairs[block].T
        difference = X[i] - X[j]
        for b in range(len(M)):
            weighted = W[i, b, None] * difference
            negative_K[b] += (coefficients[block, None] * weighted).T @ difference
        quadratic = np.stack([((difference @ M_b) * difference).sum(axis=1) for M_b in M], axis=1)
        d2[block] = (W[i] * quadratic).sum(axis=1)
    hinge = np.maximum(0.0, 1.0 + d2[triplets.target] - d2[triplets.impostor]).sum()
    near = d2[: triplets.n_target_pairs].sum()
    primal = float(regularization * (M**2).sum() + pull * near + hinge)
    positive = np.maximum(np.linalg.eigvalsh(negative_K), 0.0)
    dual = float(gamma.sum() - (positive**2).sum() / (4.0 * regularization))
    return Verdict(primal, max(primal - dual, 0.0) / primal)
