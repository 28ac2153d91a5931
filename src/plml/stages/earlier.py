"""What an earlier fit left for the next one to start from: a warm refit.

The next fit has other rows: most of the old ones in any order, some gone, some new. The problems
that it solves are its own, and so are their certificates; a start changes only how soon they end.
"""

from collections import defaultdict, deque
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import Array, like, namespace, on_host
from plml.ops.pairs import pair_operator
from plml.ops.span import Span, inside, inward
from plml.stages.triplets import Triplets

#: Least share of the rows that the earlier fit has to know, for its anchors to be kept.
_KNOWN = 0.5


class Earlier(NamedTuple):
    """The solutions of an earlier fit, told for the rows of the next one.

    An array without elements stands for what is not known. ``None`` instead of all of it stands for
    a cold start.
    """

    rows: np.ndarray  # (n,) the number of every row in the earlier fit, -1 for a new one
    anchors: np.ndarray  # (m, d)
    weights: np.ndarray  # (n, m)
    M: np.ndarray  # (m', d, d), those of the cases included
    triplets: np.ndarray  # (n_triplets, 3) rows i, j, k of the earlier fit
    gamma: np.ndarray  # (n_triplets,)

    def inside(self, span: Span | None, unit: float) -> "Earlier":
        """The same in the coordinates of a span, in units of a length.

        Parameters
        ----------
        span : of the rows of the next fit
        unit : the length that is one there
        """
        anchors = self.anchors
        if anchors.size:
            anchors = inside(anchors, span) / unit
        return self._replace(anchors=anchors, M=inward(self.M, span) * unit**2)

    def has_anchors(self, n_bases: int) -> bool:
        """Whether its anchors can be kept: as many as are asked for, and most rows are known."""
        enough = len(self.rows) and np.mean(self.rows >= 0) >= _KNOWN
        return bool(enough and len(self.anchors) == n_bases)

    def weights_for(self, n_bases: int) -> np.ndarray | None:
        """Where stage 1 starts, (n, m), if the anchors were kept."""
        return self.weights if self.has_anchors(n_bases) and self.weights.size else None


def same_rows(X: np.ndarray, y: np.ndarray, old_X: np.ndarray, old_y: np.ndarray) -> np.ndarray:
    """The number of every row among some old ones, -1 for a new row, (n,).

    Rows are the same where all values and the class are; of several such rows the first is the
    first, and so on.

    Parameters
    ----------
    X, y : (n, d) rows and (n,) classes
    old_X, old_y : the old ones
    """
    places: defaultdict[Any, deque[int]] = defaultdict(deque)
    for number, key in enumerate(_keys(old_X.astype(X.dtype), old_y)):
        places[key].append(number)
    found = (places.get(key) for key in _keys(X, y))
    return np.array([known.popleft() if known else -1 for known in found], dtype=np.int64)


def _keys(X: np.ndarray, y: np.ndarray) -> list[tuple[bytes, Any]]:
    rows = np.ascontiguousarray(X + 0.0)  # no negative zeros
    return [(row.tobytes(), label) for row, label in zip(rows, y.tolist(), strict=True)]


def starting_gamma(
    earlier: Earlier, X: Array, weights: Array, case_weights: Array | None, triplets: Triplets
) -> Array | None:
    """Where stage 2 starts: (n_triplets,) old values; of new triplets one where they are violated.

    None where the metrics of the earlier fit belong to another problem.

    Parameters
    ----------
    earlier : in the coordinates of X
    X, weights, case_weights, triplets : as in ``learn_metrics``
    """
    xp = namespace(X)
    n_bases = weights.shape[1] + (0 if case_weights is None else case_weights.shape[1])
    if earlier.M.shape != (n_bases, X.shape[1], X.shape[1]):
        return None
    gamma, known = _old_values(earlier, triplets)
    new = np.flatnonzero(~known)
    if len(new):
        ends = np.stack([triplets.target[new], triplets.impostor[new]])
        used, places = np.unique(ends, return_inverse=True)
        X = xp.astype(X, xp.float64)
        X = X - xp.mean(X, axis=0)
        pairs = pair_operator(X, weights, case_weights, triplets.pairs[used])
        target, impostor = on_host(pairs.distances(like(earlier.M, X)))[places.reshape(ends.shape)]
        gamma[new] = impostor < target + 1.0
    return like(gamma, X, xp.float64)


def _old_values(earlier: Earlier, triplets: Triplets) -> tuple[np.ndarray, np.ndarray]:
    """The gammas of the triplets that the earlier fit had, and which these are; zero for others."""
    n, n_triplets = len(earlier.rows), len(triplets.target)
    if not len(earlier.triplets):
        return np.zeros(n_triplets), np.zeros(n_triplets, dtype=bool)
    now = np.full(max(int(earlier.rows.max()), int(earlier.triplets.max())) + 1, -1)
    now[earlier.rows[earlier.rows >= 0]] = np.flatnonzero(earlier.rows >= 0)
    old = now[earlier.triplets]
    here = (old >= 0).all(axis=1)
    old, values = _numbers(old[here], n), earlier.gamma[here]
    order = np.argsort(old)
    old, values = old[order], values[order]
    first, others = triplets.pairs[triplets.target], triplets.pairs[triplets.impostor, 1]
    wanted = _numbers(np.column_stack([first, others]), n)
    if not len(old):
        return np.zeros(n_triplets), np.zeros(n_triplets, dtype=bool)
    places = np.minimum(np.searchsorted(old, wanted), len(old) - 1)
    known = old[places] == wanted
    return np.where(known, values[places], 0.0), known


def _numbers(triplets: np.ndarray, n: int) -> np.ndarray:
    """One number for every triplet of rows."""
    i, j, k = triplets.astype(np.int64).T
    return (i * n + j) * n + k
