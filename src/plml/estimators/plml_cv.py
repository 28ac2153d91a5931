"""PLML with its regularization selected by inner cross-validation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from plml.backend.arrays import Array
from plml.estimators._cross_validation import FINAL_FIT
from plml.estimators._fit_warnings import open_gap
from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._parameters import COUNT, POSITIVE, parameter
from plml.estimators._scoring import ScoresAsSelected
from plml.estimators._selection import (
    REGULARIZATIONS,
    counts,
    select_regularization,
    votes,
)
from plml.estimators._smooth_weights import SmoothWeights
from plml.metric.votes import VOTES
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class PLMLCV(ScoresAsSelected, SmoothWeights, LargeMarginClassifier):
    """PLML that selects ``regularization`` by cross-validation, then refits on all data.

    Within a fold the graph, the anchors, the weights and the triplets are computed once, and the
    values are visited from the largest down, each starting from the solution of the previous one.

    Parameters
    ----------
    regularizations : sequence of float
        The values of alpha_1 to choose from.
    cv : int, splitter or iterable
        scikit-learn's meaning; an integer is the number of stratified folds.
    scoring : str, callable or None
        What is maximised on the held-out rows: accuracy, or a scorer by its name or as a function
        of (estimator, X, y). It is given the votes; X holds the numbers of the held-out rows in
        one column. ``score`` uses it, too.
    selection_tol : float
        Relative gap of stage 2 within the folds; a looser gap than ``tol`` suffices to select.
    n_jobs : int or None
        Folds computed in parallel.
    n_bases, n_neighbors, vote
        As in ``PLML``, or several values to choose from. Several numbers of neighbours and votes
        need no extra fit.
    pull, locality, smoothness, n_targets, n_impostors, n_graph_neighbors, rescale, prior,
    n_directions
        As in ``PLML``.
    case_metrics
        As in ``PLML``.
    query_weights, tol, max_iter, solver, neighbor_search, search_backend, device, working_memory
        As in ``PLML``.
    class_weight, weigh_votes, random_state, verbose
        As in ``PLML``. The scores of held-out rows are weighted as well.
    warm_start
        As in ``PLML``, for the last fit; the selection starts cold.

    Attributes
    ----------
    best_params_ : dict
        The setting with the highest mean score: ``regularization``, and the parameters for which
        several values were given. Of equals, the largest regularization, then the fewest bases, the
        most neighbours and the first vote.
    best_regularization_ : float
        Its ``regularization``.
    best_score_ : float
        Its mean score over the folds.
    cv_results_ : dict of arrays
        ``params``, ``param_regularization`` (and those of the others), ``split{i}_test_score``,
        ``split{i}_dual_gap``, ``mean_test_score``, ``std_test_score``, ``rank_test_score``.

    See Also
    --------
    PLML : The same for a given ``regularization``.
    AutoPLML : Selects the kind of metric, the prior and the vote as well.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLMLCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLMLCV(n_bases=5, n_neighbors=(1, 5), random_state=0).fit(X, y)
    >>> sorted(model.best_params_)
    ['n_neighbors', 'regularization']
    >>> bool(model.best_score_ > 0.9)
    True
    """

    n_neighbors: int | Sequence[int] = parameter(1, COUNT, "array-like")  # type: ignore[assignment]
    n_bases: int | Sequence[int] = parameter(20, COUNT, "array-like")  # type: ignore[assignment]
    vote: str | Sequence[str] = parameter(  # type: ignore[assignment]
        "uniform", StrOptions(set(VOTES)), "array-like"
    )
    regularizations: Sequence[float] = parameter(REGULARIZATIONS, "array-like")
    cv: Any = parameter(2, "cv_object")
    scoring: str | Callable[..., float] | None = parameter(None, str, callable, None)
    selection_tol: float = parameter(1e-2, POSITIVE)

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        selection = select_regularization(self, X, y, self, run, self._fit_weights)
        self.cv_results_ = selection.results
        self.best_params_ = selection.params
        self.best_regularization_ = selection.params["regularization"]
        self.best_score_ = selection.score
        with run.stage(FINAL_FIT):
            super()._learn(X, y, run)

    def _chosen(self, name: str) -> Any:
        if name in (best := getattr(self, "best_params_", {})):
            return best[name]
        # Before the choice any value will do.
        return 1.0 if name == "regularization" else counts(name, getattr(self, name))[0]

    def _voting(self) -> tuple[int, str]:
        best = getattr(self, "best_params_", {})
        k = best.get("n_neighbors", max(counts("n_neighbors", self.n_neighbors)))
        return k, best.get("vote", votes(self.vote)[0])

    def fit_warnings(self) -> Iterator[Warning]:
        gaps = np.stack([v for k, v in self.cv_results_.items() if k.endswith("_dual_gap")])
        worst = float(self.cv_results_["param_regularization"][gaps.max(axis=0).argmax()])
        what = f"in cross-validation, regularization={worst:g}"
        yield from open_gap(self, what, float(gaps.max()), "selection_tol")
        yield from super().fit_warnings()
