"""A map of cases: who is shown, and where, so that neighbours under the learned metric stay near.

The places are those of t-SNE (van der Maaten and Hinton, JMLR 2008) on the neighbour lists of the
metric. The repulsion is that of a sample of the points, a new one at every step, which makes a map
of 4,000 points a matter of seconds.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from plml.backend.arrays import on_host
from plml.backend.threads import limit_threads
from plml.ops.projections import psd_factor

#: Training cases and new ones on a map.
MOST_TRAINING, MOST_NEW = 4000, 1000
#: Cases of a class that are kept in any case.
_PER_CLASS = 5
#: Neighbours that hold a point in its place, and how many of them count about equally.
_N_NEIGHBORS, _PERPLEXITY = 24, 8.0
#: Points that push at one step; steps of the first phase, which finds the clusters, and of all.
_SAMPLE, _EARLY, _STEPS = 256, 80, 280
_EXAGGERATION = 12.0
#: Shown cases whose places decide where a new one lies.
_HOLD = 5
#: Points whose distances to all others are computed at once.
_BLOCK = 512


class Choice(NamedTuple):
    """Cases that are shown.

    Attributes
    ----------
    rows : (k,) their numbers, in order
    n : of all cases
    n_wrong, n_wrong_shown : cases that are predicted wrongly, and how many of them are shown
    """

    rows: np.ndarray
    n: int
    n_wrong: int
    n_wrong_shown: int

    def in_words(self, kind: str) -> str:
        """What was chosen, as ``4,000 of 50,000 training cases, with all 812 errors``."""
        shown = len(self.rows)
        text = (
            f"{shown:,} {kind} cases"
            if shown == self.n
            else f"{shown:,} of {self.n:,} {kind} cases"
        )
        if shown == self.n:
            return text
        if self.n_wrong_shown == self.n_wrong:
            return f"{text}, with every class and all {self.n_wrong:,} errors"
        return f"{text}, with every class and {self.n_wrong_shown:,} of {self.n_wrong:,} errors"


def choose(codes: np.ndarray, wrong: np.ndarray, most: int, random_state: int) -> Choice:
    """Cases to show: all errors, some of every class, and a sample of the others.

    Errors that are more than can be shown are sampled as well.

    Parameters
    ----------
    codes : (n,) classes of the cases
    wrong : (n,) whether a case is an error
    most : how many to show at most
    random_state : of the sample
    """
    n, order = len(codes), np.random.default_rng(random_state).permutation(len(codes))
    place = np.empty(n, dtype=int)
    _, sizes = np.unique(codes, return_counts=True)
    by_class = np.argsort(codes[order], kind="stable")
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place[order[by_class]] = np.arange(n) - first  # of each case among those of its class
    # Rank 0 to 4 of a class, then the errors, then the others.
    rank = np.where(place < _PER_CLASS, place, np.where(wrong, _PER_CLASS, _PER_CLASS + 1))
    kept = order[np.argsort(rank[order], kind="stable")][:most]
    rows = np.sort(kept)
    return Choice(rows, n, int(wrong.sum()), int(wrong[rows].sum()))


class ShownCases:
    """Training rows on the map, ready to be measured from anywhere.

    Parameters
    ----------
    metric : see ``plml.metric``
    rows : the training rows shown
    """

    def __init__(self, metric: Any, rows: np.ndarray) -> None:
        self.metric, self.rows = metric, rows
        self._cases = metric.X[rows].astype(np.float64)
        self._has_vectors = hasattr(metric, "query_vectors")
        if self._has_vectors:
            self._index = on_host(metric.index_vectors())[rows].astype(np.float64)

    def squared_distances(self, Q: np.ndarray | None) -> np.ndarray:
        """(q, n_shown) from points, or from the shown cases themselves where None."""
        if not self._has_vectors:
            return self._one_by_one(Q)
        vectors = on_host(self.metric.query_vectors(Q)).astype(np.float64)
        points = self._cases if Q is None else Q.astype(np.float64)
        vectors = vectors[self.rows] if Q is None else vectors
        d = points.shape[1]
        own = 0.5 * np.einsum("qd,qd->q", vectors[:, :d], points - self.metric.origin)
        return np.maximum(own[:, None] - vectors @ self._index.T, 0.0)

    def _one_by_one(self, Q: np.ndarray | None) -> np.ndarray:
        """Under the metric at each point."""
        points = self._cases if Q is None else Q.astype(np.float64)
        metrics = on_host(self.metric.matrix(points.astype(self.metric.X.dtype)))
        result = np.empty((len(points), len(self._cases)))
        for i, (point, M) in enumerate(zip(points, metrics, strict=True)):
            D = point - self._cases
            result[i] = np.einsum("nd,nd->n", D @ M, D)
        return np.maximum(result, 0.0)

    def average_view(self) -> np.ndarray:
        """(n_shown, 2) the leading principal components under the average metric."""
        some = self._cases[:: max(len(self._cases) // 200, 1)].astype(self.metric.X.dtype)
        average = on_host(self.metric.matrix(some)).mean(axis=0, dtype=np.float64)
        Z = (self._cases - self._cases.mean(axis=0)) @ psd_factor(average).T
        return principal_components(Z)


def principal_components(Z: np.ndarray) -> np.ndarray:
    """(n, 2) the two leading ones; they point where their largest loading is positive."""
    Z = Z - Z.mean(axis=0)
    axes = np.linalg.eigh(Z.T @ Z)[1][:, ::-1][:, :2].T
    axes = (
        axes
        * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)] < 0.0, -1.0, 1.0)[
            :, None
        ]
    )
    points = Z @ axes.T
    return points if points.shape[1] == 2 else np.column_stack([points, np.zeros(len(points))])


def layout(shown: ShownCases, random_state: int, advance: Any = None) -> np.ndarray:
    """(n_shown, 2) places of the shown cases; distances within the map mean little, groups do.

    Parameters
    ----------
    shown : the cases
    random_state : of the sampled repulsion
    advance : told the fraction that is done, now and then
    """
    start = shown.average_view()
    spread = start.std()
    start = start / spread if spread > 0.0 else start
    if len(start) < 4:
        return start
    held = affinities(*neighbor_lists(shown))
    with limit_threads(1):  # the products of a step are small
        return standardized(embedded(held, start, random_state, advance))


def neighbor_lists(shown: ShownCases) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) squared distances and numbers of the nearest other shown cases."""
    n = len(shown.rows)
    k = min(_N_NEIGHBORS, n - 1)
    table = shown.squared_distances(None).astype(np.float32)
    np.fill_diagonal(table, np.inf)
    squared, nearest = np.empty((n, k)), np.empty((n, k), dtype=np.int64)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        near = np.argpartition(table[block], k - 1, axis=1)[:, :k]
        squared[block] = np.take_along_axis(table[block], near, axis=1)
        nearest[block] = near
    return squared, nearest


def affinities(squared: np.ndarray, nearest: np.ndarray) -> sparse.csr_matrix:
    """(n, n) how much two cases hold each other: symmetric, and all of them sum to one.

    The neighbours of every case count by a Gaussian whose width makes so many of them count as the
    perplexity says.

    Parameters
    ----------
    squared, nearest : (n, k) squared distances and numbers of the neighbours
    """
    n, k = squared.shape
    D = squared - squared.min(axis=1, keepdims=True)
    scale = D.mean(axis=1, keepdims=True)
    D = np.divide(D, scale, out=np.zeros_like(D), where=scale > 0.0)
    target = np.log(min(_PERPLEXITY, 0.8 * k))
    low, high = np.full((n, 1), -10.0), np.full((n, 1), 10.0)  # logarithms of the precision
    for _ in range(40):
        middle = (low + high) / 2.0
        P = np.exp(-D * np.exp(middle))
        P /= P.sum(axis=1, keepdims=True)
        entropy = -(P * np.log(np.maximum(P, 1e-30))).sum(axis=1, keepdims=True)
        low, high = (
            np.where(entropy > target, middle, low),
            np.where(entropy > target, high, middle),
        )
    rows = np.repeat(np.arange(n), k)
    one_sided = sparse.csr_matrix((P.ravel(), (rows, nearest.ravel())), shape=(n, n))
    both = (one_sided + one_sided.T).tocsr()
    return both / both.sum()


def embedded(
    P: sparse.csr_matrix, start: np.ndarray, random_state: int, advance: Any = None
) -> np.ndarray:
    """(n, 2) places by gradient descent on the divergence of t-SNE.

    Parameters
    ----------
    P : affinities
    start : (n, 2) of about unit size
    random_state, advance : as in ``layout``
    """
    rng, n = np.random.default_rng(random_state), P.shape[0]
    Y = (1e-2 * start).astype(np.float32)
    velocity, gains = np.zeros_like(Y), np.ones_like(Y)
    rate = max(n / _EXAGGERATION / 4.0, 10.0)
    held = P.tocoo()
    # NumPy would convert other integers at every step.
    row, column = held.row.astype(np.intp), held.col.astype(np.intp)
    strength = held.data.astype(np.float32)
    for step in range(_STEPS):
        early = step < _EARLY
        pull = strength * (_EXAGGERATION if early else 1.0)
        gradient = 4.0 * (_attraction(Y, row, column, pull) - _repulsion(Y, rng))
        momentum = 0.5 if early else 0.8
        against = gradient * velocity < 0.0
        gains = np.maximum(np.where(against, gains + 0.2, gains * 0.8), 0.01).astype(np.float32)
        calm = min(1.0, (_STEPS - step) / 60.0)  # the sample's noise dies away
        velocity = momentum * velocity - calm * rate * gains * gradient
        Y = Y + velocity
        Y -= Y.mean(axis=0)
        if advance is not None and step % 20 == 0:
            advance(step / _STEPS)
    return Y.astype(np.float64)


def _attraction(
    Y: np.ndarray, row: np.ndarray, column: np.ndarray, strength: np.ndarray
) -> np.ndarray:
    x, y = (part[row] - part[column] for part in np.ascontiguousarray(Y.T))
    weight = strength / (1.0 + (x * x + y * y))
    pulled = [np.bincount(row, weight * part, len(Y)) for part in (x, y)]
    return np.stack(pulled, axis=1).astype(np.float32)


def _repulsion(Y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The push of all points, estimated from some of them."""
    n = len(Y)
    some = rng.choice(n, min(_SAMPLE, n), replace=False)
    S = Y[some]
    kernel = np.einsum("nd,nd->n", Y, Y)[:, None] + np.einsum("nd,nd->n", S, S) - 2.0 * (Y @ S.T)
    np.maximum(kernel, 0.0, out=kernel)
    kernel += 1.0
    np.reciprocal(kernel, out=kernel)
    kernel[some, np.arange(len(some))] = 0.0  # nobody pushes himself
    total = float(kernel.sum())
    np.square(kernel, out=kernel)
    return (kernel.sum(axis=1)[:, None] * Y - kernel @ S) / max(total, 1e-12)


def standardized(Y: np.ndarray) -> np.ndarray:
    """The same picture along its principal axes, with a typical radius of one."""
    Y = principal_components(Y)
    size = np.sqrt(np.mean(np.sum(Y**2, axis=1)))
    return Y / size if size > 0.0 else Y


def places_among(squared: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(q, 2) where new cases lie: the mean of their nearest shown cases, the nearer counting more.

    Parameters
    ----------
    squared : (q, n_shown) squared distances to the shown cases
    places : (n_shown, 2) of these
    """
    k = min(_HOLD, squared.shape[1])
    near = np.argpartition(squared, k - 1, axis=1)[:, :k]
    found = np.take_along_axis(squared, near, axis=1)
    size = found.mean(axis=1, keepdims=True)
    weights = 1.0 / (found + 1e-6 * np.where(size > 0.0, size, 1.0))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("qk,qkd->qd", weights, places[near])
