"""Stage 1 under the estimators: smooth local weights over anchor points."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from plml.backend.arrays import Array, fetch, like, namespace, on_host
from plml.estimators._costs import anchors_cost, search_cost, weights_cost
from plml.estimators._large_margin import LargeMarginClassifier, Preparation, fewer_anchors
from plml.progress import stage
from plml.solvers.problem import Solution, history_arrays
from plml.stages.anchors import kmeans_anchors
from plml.stages.approximate import neighbors_of
from plml.stages.graph import (
    SCALE_NEIGHBOR,
    find_graph,
    graph_laplacian,
    local_scales,
    similarity_graph,
)
from plml.stages.metrics import Metrics
from plml.stages.weights import (
    QueryWeightProblem,
    WeightProblem,
    learn_query_weights,
    learn_weights,
    query_similarity,
)

WEIGHTS = "stage 1, weights"


@dataclass(frozen=True)
class SmoothPreparation(Preparation):
    """Stage 1's outcome beside the weights themselves."""

    anchors: np.ndarray
    scales: np.ndarray
    solution: Solution
    gap: float  # of the weights as they are kept, in the dtype of X


class SmoothLocalMetric(LargeMarginClassifier):
    """Stage 1 and the weights of new points: what ``PLML`` and ``PLMLCV`` share."""

    _n_stages = 2

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LargeMarginClassifier._parameter_constraints,
        "n_bases": [Interval(Integral, 1, None, closed="left")],
        "locality": [Interval(Real, 0, None, closed="left")],
        "smoothness": [Interval(Real, 0, None, closed="left")],
        "n_graph_neighbors": [Interval(Integral, 1, None, closed="left")],
        "query_weights": [StrOptions({"nearest", "optimize"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_bases: int,
        pull: float,
        locality: float,
        smoothness: float,
        n_targets: int,
        n_impostors: int,
        n_graph_neighbors: int,
        n_neighbors: int,
        query_weights: str,
        tol: float,
        max_iter: int,
        solver: str,
        neighbor_search: str,
        search_backend: str,
        device: str,
        n_jobs: int | None,
        working_memory: float | None,
        random_state: int | np.random.RandomState | None,
        verbose: int,
    ) -> None:
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

    def _prepare(self, X: np.ndarray, y: np.ndarray) -> SmoothPreparation:
        """Graph, anchors, weights and triplets."""
        with stage("neighbours"):
            neighbors = neighbors_of(X, y, self.neighbor_search)
            squared, nearest = self._kept.arrays(
                "graph", lambda: find_graph(neighbors, self.n_graph_neighbors)
            )
            laplacian = graph_laplacian(similarity_graph(squared, nearest, self.n_graph_neighbors))
        random = check_random_state(self.random_state)
        with stage("anchors"):
            (anchors,) = self._kept.arrays(
                "anchors", lambda: (kmeans_anchors(X, self.n_bases, random).centers,)
            )
        anchors = like(anchors, X)
        problem = WeightProblem(X, anchors, self.locality, self.smoothness, laplacian)
        with self._stage(WEIGHTS, self.tol) as callback:
            solution = learn_weights(
                problem,
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                callback=callback,
                keep=self._kept,
            )
        xp = namespace(X)
        weights = xp.astype(solution.x, X.dtype)
        at_weights = problem.evaluate(xp.astype(weights, xp.float64))
        (gap,) = fetch(problem.gap(weights, at_weights, problem.gradient(at_weights)))
        return SmoothPreparation(
            weights=weights,
            triplets=self._triplets(neighbors),
            recall=self._recall(neighbors),
            anchors=anchors,
            scales=local_scales(squared),
            solution=solution,
            gap=gap,
        )

    def _preparation_costs(self, n: int, d: int) -> dict[str, float]:
        return {
            "neighbours": search_cost(n, n, d),
            "anchors": anchors_cost(n, self.n_bases),
            WEIGHTS: weights_cost(n, self.n_bases),
            **super()._preparation_costs(n, d),
        }

    def _set_preparation(self, preparation: SmoothPreparation, dtype: np.dtype) -> None:
        super()._set_preparation(preparation, dtype)
        self._set_anchors(on_host(preparation.anchors), dtype)
        self.weights_gap_ = preparation.gap
        self.weights_n_iter_ = preparation.solution.n_iter
        self._scales = preparation.scales

    def _set_fitted(self, X: np.ndarray, preparation: Any, metrics: Metrics) -> None:
        super()._set_fitted(X, preparation, metrics)
        if preparation.solution.interrupted:
            self._cut.append("weights")
        self.history_["weights"] = history_arrays(preparation.solution.history)
        self.converged_ = self.converged_ and bool(preparation.gap <= self.tol)

    def _troubles(self) -> Iterator[Warning]:
        yield from fewer_anchors(self.n_bases, len(self.anchors_), len(self.weights_))
        yield from self._gap_trouble("stage 1 (weights)", self.weights_gap_, "weights" in self._cut)
        yield from super()._troubles()

    def _weights_at(self, X: Array) -> Array:
        placed = self._placed(X)
        if self.query_weights == "nearest":
            return placed.weights[placed.euclidean_index.nearest(X, 1)[:, 0]]
        squared, neighbors = (
            on_host(part)
            for part in placed.euclidean_index.search(
                X, min(max(self.n_graph_neighbors, SCALE_NEIGHBOR), len(placed.X))
            )
        )
        problem = QueryWeightProblem(
            X,
            like(self._inside(self.anchors_), X),
            self.locality,
            self.smoothness,
            placed.weights,
            query_similarity(squared, neighbors, self._scales, self.n_graph_neighbors),
        )
        weights, gap = learn_query_weights(problem, self.tol, self.max_iter)
        for trouble in self._gap_trouble("the weights of new points", gap):
            warnings.warn(trouble, stacklevel=2)
        return namespace(X).astype(weights, X.dtype, copy=False)
