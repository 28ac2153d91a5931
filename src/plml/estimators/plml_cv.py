"""PLML with its regularization selected by inner cross-validation."""

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from plml.backend.arrays import Array
from plml.estimators._fit_warnings import GapWarning, cures_of
from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._recipe import RuleMaker
from plml.estimators._selection import FINAL_FIT, REGULARIZATIONS, select_regularization
from plml.estimators._smooth_weights import CONSTRAINTS, smooth_rule_maker, smooth_weighting
from plml.stages.pipeline import SmoothWeighting
from plml.stages.run import Run
from plml.stages.triplets import check_targets


class PLMLCV(LargeMarginClassifier):
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
        Folds at the same time.
    n_bases, pull, locality, smoothness, n_targets, n_impostors, n_graph_neighbors, n_neighbors
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: constraint
            for name, constraint in LargeMarginClassifier._parameter_constraints.items()
            if name != "regularization"
        },
        **CONSTRAINTS,
        "regularizations": ["array-like"],
        "cv": ["cv_object"],
        "selection_tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        regularizations: Sequence[float] = REGULARIZATIONS,
        cv: Any = 2,
        selection_tol: float = 1e-2,
        n_bases: int = 20,
        pull: float = 1.0,
        locality: float = 1.0,
        smoothness: float = 100.0,
        n_targets: int = 3,
        n_impostors: int = 3,
        n_graph_neighbors: int = 6,
        n_neighbors: int = 1,
        query_weights: str = "nearest",
        tol: float = 1e-3,
        max_iter: int = 1000,
        solver: str = "auto",
        neighbor_search: str = "auto",
        search_backend: str = "exact",
        device: str = "cpu",
        n_jobs: int | None = None,
        working_memory: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.regularizations = regularizations
        self.cv = cv
        self.selection_tol = selection_tol
        self.n_bases = n_bases
        self.pull = pull
        self.locality = locality
        self.smoothness = smoothness
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.n_graph_neighbors = n_graph_neighbors
        self.n_neighbors = n_neighbors
        self.query_weights = query_weights
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.neighbor_search = neighbor_search
        self.search_backend = search_backend
        self.device = device
        self.n_jobs = n_jobs
        self.working_memory = working_memory
        self.random_state = random_state
        self.verbose = verbose

    def _weighting(self) -> SmoothWeighting:
        return smooth_weighting(self)

    def _rule_maker(self) -> RuleMaker:
        return smooth_rule_maker(self)

    def _metric_parameters(self) -> tuple[Any, ...]:
        rule = self._weighting(), self.query_weights, self.tol, self.max_iter
        return *super()._metric_parameters(), *rule

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        check_targets(y)
        selection = select_regularization(
            self._recipe(),
            X,
            y,
            self.regularizations,
            n_neighbors=self.n_neighbors,
            classes=self.classes_,
            cv=self.cv,
            tol=self.selection_tol,
            run=run,
        )
        self.cv_results_ = selection.results
        self.best_regularization_ = selection.regularization
        self.best_score_ = selection.score
        with run.stage(FINAL_FIT):
            super()._learn(X, y, run)

    def _chosen_regularization(self) -> float:
        return getattr(self, "best_regularization_", 1.0)  # before the choice any value will do

    def _fit_warnings(self) -> Iterator[Warning]:
        gaps = np.stack([v for k, v in self.cv_results_.items() if k.endswith("_dual_gap")])
        if gaps.max() > self.selection_tol:
            worst = float(self.cv_results_["param_regularization"][gaps.max(axis=0).argmax()])
            yield GapWarning(
                f"in cross-validation, regularization={worst:g}",
                float(gaps.max()),
                tol=self.selection_tol,
                max_iter=self.max_iter,
                tol_name="selection_tol",
                cures=cures_of(self._fit_X),
            )
        yield from super()._fit_warnings()
