"""Naive float64 re-computations that share no code with the library.

They follow the paper's formulas with plain loops and take only what an estimator returned.
"""

import numpy as np


def nearest(X, query, candidates, k):
    """The k candidates nearest to a point, equal distances by index."""
    d2 = [float(np.sum((X[j] - query) ** 2)) for j in candidates]
    return [candidates[i] for i in np.lexsort((candidates, d2))[:k]]


def triplet_lists(X, y, n_targets, n_impostors):
    """Targets and impostors of every instance."""
    targets, impostors = [], []
    for i in range(len(X)):
        same = [j for j in range(len(X)) if y[j] == y[i] and j != i]
        other = [j for j in range(len(X)) if y[j] != y[i]]
        targets.append(nearest(X, X[i], same, n_targets))
        impostors.append(nearest(X, X[i], other, n_impostors))
    return targets, impostors


def local_distance(x, z, w, M):
    """Squared distance from x to z under sum_b w_b M_b."""
    metric = sum(w[b] * np.asarray(M[b], dtype=float) for b in range(len(M)))
    return float((x - z) @ metric @ (x - z))


def metrics_primal(
    X, y, W, M, regularization, pull, n_targets=3, n_impostors=3, sample_weight=None
):
    """Equation 5; the terms of an instance count as often as its weight says."""
    X, W, M = (np.asarray(a, dtype=float) for a in (X, W, M))
    counts = [1.0] * len(X) if sample_weight is None else sample_weight
    value = regularization * sum(float(np.sum(M_b**2)) for M_b in M)
    targets, impostors = triplet_lists(X, y, n_targets, n_impostors)
    for i in range(len(X)):
        near = [local_distance(X[i], X[j], W[i], M) for j in targets[i]]
        far = [local_distance(X[i], X[k], W[i], M) for k in impostors[i]]
        value += counts[i] * pull * sum(near)
        value += counts[i] * sum(max(0.0, 1.0 + a - b) for a in near for b in far)
    return value


def weights_primal(X, U, W, S, locality, smoothness, sample_weight=None):
    """Equation 4, from a dense similarity matrix; an edge counts as often as both its ends do."""
    value = 0.0
    counts = [1.0] * len(X) if sample_weight is None else sample_weight
    for i in range(len(X)):
        value += counts[i] * float(np.sum((X[i] - W[i] @ U) ** 2))
        for b in range(len(U)):
            value += counts[i] * locality * W[i, b] * float(np.sum((X[i] - U[b]) ** 2))
        for j in range(len(X)):
            edge = counts[i] * counts[j] * S[i, j]
            value += 0.5 * smoothness * edge * float(np.sum((W[i] - W[j]) ** 2))
    return float(value)


def similarity(X, n_graph_neighbors):
    """Self-tuning similarities on the union of the nearest-neighbour graph."""
    n = len(X)
    d2 = np.array([[np.sum((a - b) ** 2) for b in X] for a in X])
    order = [nearest(X, X[i], [j for j in range(n) if j != i], n) for i in range(n)]
    scale = [np.sqrt(d2[i, order[i][min(7, n - 1) - 1]]) for i in range(n)]
    S = np.zeros((n, n))
    for i in range(n):
        for j in order[i][:n_graph_neighbors]:
            product = scale[i] * scale[j]
            S[i, j] = S[j, i] = np.exp(-d2[i, j] / product) if product else float(d2[i, j] == 0)
    return S


def local_neighbors(X, query, w, M, k, leave_out=None):
    """Indices and squared distances of the nearest instances under a query's metric."""
    candidates = [j for j in range(len(X)) if j != leave_out]
    d2 = np.array([local_distance(query, X[j], w, M) for j in candidates])
    order = np.lexsort((candidates, d2))[:k]
    return np.array(candidates)[order], d2[order]
