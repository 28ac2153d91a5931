"""What a fitted large-margin classifier leaves for its next fit to start from.

Kept with ``warm_start=True`` alone, 20 bytes per triplet: the dual values of stage 2 with the rows
that they belong to. All else is in the fitted attributes anyway.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from plml.backend.arrays import Array, on_host
from plml.solvers.problem import Checkpointer
from plml.stages.earlier import Earlier, same_rows
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.triplets import Triplets

_NOTHING = Earlier(np.empty(0, dtype=np.int64), *(np.empty(0) for _ in range(5)))


def kept_duals(triplets: Triplets, gamma: Array) -> tuple[np.ndarray, np.ndarray]:
    """The rows i, j, k of all triplets, (n_triplets, 3), and their dual values.

    Parameters
    ----------
    triplets, gamma : of stage 2
    """
    ends = triplets.pairs[triplets.target]
    rows = np.column_stack([ends, triplets.pairs[triplets.impostor, 1]])
    return rows.astype(np.int32), on_host(gamma)


def duals_of(
    rows: np.ndarray, values: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What ``kept_duals`` returned, for a part of the rows: triplets of other rows are left out.

    Parameters
    ----------
    rows, values : of ``kept_duals``
    kept : numbers of the rows that stay, in their new order
    """
    size = max(int(rows.max(initial=-1)), int(kept.max(initial=-1))) + 1
    now = np.full(size, -1, dtype=np.int32)
    now[kept] = np.arange(len(kept))
    here = (now[rows] >= 0).all(axis=1)
    return now[rows[here]], values[here]


def earlier_fit(before: Any, model: Any, checkpoint: Checkpointer) -> Earlier | None:
    """What the last fit of an estimator leaves for the rows of the next one; None for nothing.

    A fit that is resumed from a checkpoint starts where it started then.

    Parameters
    ----------
    before : the estimator as it was fitted, or not
    model : the same, its training data validated and nothing learned yet
    checkpoint : of the next fit
    """
    found = Earlier(*checkpoint.arrays("earlier", lambda: _earlier_fit(vars(before), model)))
    return found if len(found.rows) else None


def _earlier_fit(state: Mapping[str, Any], model: Any) -> Earlier:
    is_here = all(isinstance(state.get(name), np.ndarray) for name in ("_fit_X", "weights_"))
    if not is_here or state["_fit_X"].shape[1] != model.n_features_in_:
        return _NOTHING
    learned = slice(len(state["weights_"]))  # cases may come after the rows that were learned from
    old_X, old_y = state["_fit_X"][learned], state["classes_"][state["_fit_codes"][learned]]
    rows = same_rows(model._fit_X, model.classes_[model._fit_codes], old_X, old_y)
    earlier = Earlier(
        rows,
        state.get("anchors_", np.empty(0)),
        np.empty(0),
        _all_metrics(state, model.classes_),
        state.get("_dual_rows", np.empty(0)),
        state.get("_duals", np.empty(0)),
    )
    if "_scales" not in state or not earlier.has_anchors(len(earlier.anchors)):
        return earlier
    return earlier._replace(weights=_weights(rows, model._fit_X, old_X, state["weights_"]))


def _weights(rows: np.ndarray, X: np.ndarray, old_X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of all rows; a new one has those of the nearest old one."""
    new, rows = np.flatnonzero(rows < 0), rows.copy()
    if len(new):
        old_X, queries = (part.astype(np.float64) for part in (old_X, X[new]))
        rows[new] = euclidean_neighbors(old_X, 1, queries)[1][:, 0]
    return weights[rows].astype(np.float64)


def _all_metrics(state: Mapping[str, Any], classes: np.ndarray) -> np.ndarray:
    """The metrics of queries and cases; a class that is new has the mean of those of the others."""
    M = state["basis_metrics_"]
    side, N = state.get("_fitted_case_side"), state.get("case_metrics_")
    if side is None or N is None:
        return M
    if side == "class":
        known = dict(zip(state["classes_"].tolist(), N, strict=True))
        N = np.stack([known.get(name, N.mean(axis=0)) for name in classes.tolist()])
    return np.concatenate([M, N])
