"""PLML with its regularization selected by inner cross-validation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plml.backend.arrays import Array
from plml.estimators._fit_warnings import open_gap
from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._parameters import POSITIVE, parameter
from plml.estimators._selection import FINAL_FIT, REGULARIZATIONS, select_regularization
from plml.estimators._smooth_weights import SmoothWeights
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class PLMLCV(SmoothWeights, LargeMarginClassifier):
    """PLML that selects ``regularization`` by cross-validated accuracy, then refits on all data.

    Within a fold the graph, the anchors, the weights and the triplets are computed once, and the
    values are visited from the largest down, each started from the solution of the one before.

    Parameters
    ----------
    regularizations : sequence of float
        The values of alpha_1 to choose from.
    cv : int, splitter or iterable
        scikit-learn's meaning; an integer is the number of stratified folds.
    selection_tol : float
        Relative gap of stage 2 within the folds; a looser gap than ``tol`` is enough to select.
    n_jobs : int or None
        Folds computed in parallel.
    n_bases, pull, locality, smoothness, n_targets, n_impostors, n_graph_neighbors, n_neighbors
        As in ``PLML``.
    vote, rescale, prior, case_metrics
        As in ``PLML``.
    query_weights, tol, max_iter, solver, neighbor_search, search_backend, device, working_memory
        As in ``PLML``.
    random_state, verbose
        As in ``PLML``.

    Attributes
    ----------
    best_regularization_ : float
        The value with the highest mean accuracy; of equals, the largest.
    best_score_ : float
        Its mean accuracy over the folds.
    cv_results_ : dict of arrays
        ``params``, ``param_regularization``, ``split{i}_test_score``, ``split{i}_dual_gap``,
        ``mean_test_score``, ``std_test_score``, ``rank_test_score``.
    """

    regularizations: Sequence[float] = parameter(REGULARIZATIONS, "array-like")
    cv: Any = parameter(2, "cv_object")
    selection_tol: float = parameter(1e-2, POSITIVE)

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        selection = select_regularization(self, X, y, self, run)
        self.cv_results_ = selection.results
        self.best_regularization_ = selection.regularization
        self.best_score_ = selection.score
        with run.stage(FINAL_FIT):
            super()._learn(X, y, run)

    def _chosen_regularization(self) -> float:
        return getattr(self, "best_regularization_", 1.0)  # before the choice any value will do

    def _fit_warnings(self) -> Iterator[Warning]:
        gaps = np.stack([v for k, v in self.cv_results_.items() if k.endswith("_dual_gap")])
        worst = float(self.cv_results_["param_regularization"][gaps.max(axis=0).argmax()])
        what = f"in cross-validation, regularization={worst:g}"
        yield from open_gap(self, what, float(gaps.max()), "selection_tol")
        yield from super()._fit_warnings()
