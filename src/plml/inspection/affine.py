"""Explanations through steps that mix columns by an affine map, as PCA does.

With z = A x + b the metric M of the features z is the metric A^T M A of the columns x, and whatever
adds up over features adds up over columns.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from plml.inspection.explaining import CaseBase, Election
from plml.inspection.explanation import Explanation

#: How far the features of a row may be from those of an affine map, relative to their size.
_CLOSE = 1e-6
#: The same for features in single precision.
_CLOSE_SINGLE = 1e-3
#: Points that this is checked on, besides the rows.
_N_CHECKED = 8


class AffineMap:
    """z = A x + b, found by asking a function of rows.

    Parameters
    ----------
    transform : (n, d) rows -> (n, r) features
    X : (q, d) rows to check it on
    made : (n, r) features that the map has to reach
    """

    def __init__(
        self, transform: Callable[[np.ndarray], np.ndarray], X: np.ndarray, made: np.ndarray
    ) -> None:
        d = X.shape[1]
        center = X.mean(axis=0)
        spread = np.maximum(np.abs(X - center).max(axis=0), np.abs(center))
        step = np.where(spread > 0.0, spread, 1.0)
        probes = transform(np.vstack([center, center + np.diag(step)]))
        self.A = ((probes[1:] - probes[0]) / step[:, None]).T  # (r, d)
        self.b = probes[0] - self.A @ center
        others = np.random.default_rng(0).uniform(-1.0, 1.0, (_N_CHECKED, d))
        X = np.vstack([X, center + step * others])
        found, expected = self(X), transform(X)
        scale = np.abs(expected).max(initial=1.0)
        self.is_exact = bool(np.abs(found - expected).max(initial=0.0) <= _CLOSE * scale)
        self._back = np.linalg.pinv(self.A * step) * step[:, None] if d else self.A.T
        # Far from the rows a step may be constant, as an encoder is of what it does not know.
        missed = np.abs(self(self.back(made)) - made).max(initial=0.0)
        close = _CLOSE if made.dtype == np.float64 else _CLOSE_SINGLE
        self.is_exact &= bool(missed <= close * np.abs(made).max(initial=1.0))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Features of rows."""
        return X @ self.A.T + self.b

    def back(self, Z: np.ndarray) -> np.ndarray:
        """Rows with given features: of all that have them, the smallest in units of the columns."""
        return (Z - self.b) @ self._back.T


class PulledBack:
    """A metric of features as one of columns, see above.

    Parameters
    ----------
    metric : of the features
    affine : from columns to features
    X : (n, d) the training rows in columns
    """

    def __init__(self, metric: Any, affine: AffineMap, X: np.ndarray) -> None:
        self.metric, self.affine, self.X = metric, affine, X

    def search(self, Q: np.ndarray | None, k: int) -> Any:
        """As in ``plml.metric``."""
        return self.metric.search(None if Q is None else self.affine(Q), k)

    def search_rows(self, rows: np.ndarray, k: int) -> Any:
        """As in ``plml.metric``."""
        return self.metric.search_rows(rows, k)

    def matrix(self, Q: np.ndarray | None) -> np.ndarray:
        """As in ``plml.metric``."""
        return self._pulled(self.metric.matrix(None if Q is None else self.affine(Q)))

    def between(self, Q: np.ndarray, own: np.ndarray | None, cases: np.ndarray) -> np.ndarray:
        """As in ``plml.metric``."""
        return self._pulled(self.metric.between(self.affine(Q), own, cases))

    def _pulled(self, M: np.ndarray) -> np.ndarray:
        return self.affine.A.T @ M @ self.affine.A


def explained_in_columns(
    base: CaseBase,
    affine: AffineMap,
    found: Explanation,
    Q: np.ndarray | None,
    names: list[str],
    cases: np.ndarray | None,
) -> Explanation:
    """An explanation in features, in the columns that an affine map made them from.

    Parameters
    ----------
    base : the cases in features
    affine : from columns to features
    found : the explanation in features
    Q : (q, d) the queries in columns, None for the training rows
    names : of the columns
    cases : (n, d) the training rows in columns; by default some with the same features
    """
    X = affine.back(base.X) if cases is None else cases
    columns = CaseBase(
        PulledBack(base.metric, affine, X), X, base.codes, base.classes, np.array(names, object)
    )
    shares = np.sum([ballot.weight * ballot.shares for ballot in found.ballots], axis=0)
    election = Election(shares, found.ballots, ())
    return columns.explanation(
        Q, found.neighbors.shape[1], election, found.probabilities, found.votes
    )
