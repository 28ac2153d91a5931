"""The stages of the pipeline on rows in the memory of this machine or of its GPU."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from plml.backend.arrays import Array, fetch, like, namespace
from plml.solvers.problem import NO_CHECKPOINT, Callback, Checkpointer
from plml.stages.anchors import kept_anchors, kmeans_anchors
from plml.stages.approximate import neighbors_of
from plml.stages.earlier import Earlier, starting_gamma
from plml.stages.graph import laplacian_of_neighbors, local_scales, n_nearest
from plml.stages.metrics import Metrics, learn_metrics
from plml.stages.pipeline import Prepared, Settings, SmoothWeighting, Stages, Weights
from plml.stages.priors import prior_metric
from plml.stages.triplets import Triplets, neighbor_triplets
from plml.stages.weights import WeightProblem, learn_weights, row_terms


class OneMachine(Stages):
    """``Stages`` on one array of rows (n, d) with class codes (n,), and weights (n,) or none.

    Where an earlier fit is known, both stages start from it, and its anchors are kept.
    """

    def __init__(
        self,
        X: Array,
        y: np.ndarray,
        neighbor_search: str = "auto",
        sample_weight: np.ndarray | None = None,
        earlier: Earlier | None = None,
    ) -> None:
        self.X = X
        self.y = y
        self.sample_weight = sample_weight
        self.earlier = earlier
        #: Those that stage 2 learned from, once they are found.
        self.found: Triplets | None = None
        self.neighbors = neighbors_of(X, y, neighbor_search)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape

    def graph(
        self, n_graph_neighbors: int, checkpoint: Checkpointer
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of the nearest rows."""
        squared, nearest = checkpoint.arrays(
            "graph", lambda: self.neighbors.graph(n_nearest(n_graph_neighbors))
        )
        return squared, nearest

    def anchors(
        self, n_bases: int, random_state: Any, checkpoint: Checkpointer
    ) -> tuple[Array, np.ndarray]:
        """Centers, and the cluster of every row."""
        random, earlier = check_random_state(random_state), self.earlier

        def found() -> tuple[Array, np.ndarray]:
            if earlier is not None and earlier.has_anchors(n_bases):
                return kept_anchors(self.X, earlier.anchors)[:2]
            return kmeans_anchors(self.X, n_bases, random, self.sample_weight)[:2]

        centers, labels = checkpoint.arrays("anchors", found)
        return like(centers, self.X), labels

    def weight_problem(
        self, graph: tuple[np.ndarray, np.ndarray], anchors: Array, weighting: SmoothWeighting
    ) -> WeightProblem:
        """The problem of equation 4."""
        terms = row_terms(self.X, anchors, weighting.locality)
        laplacian = laplacian_of_neighbors(
            *graph, weighting.n_graph_neighbors, self.X, self.sample_weight
        )
        return WeightProblem(terms, anchors, weighting.smoothness, laplacian, self._counted())

    def smooth_weights(
        self,
        graph: tuple[np.ndarray, np.ndarray],
        anchors: tuple[Array, np.ndarray],
        weighting: SmoothWeighting,
        settings: Settings,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Weights:
        problem = self.weight_problem(graph, anchors[0], weighting)
        start = None if self.earlier is None else self.earlier.weights_for(len(anchors[0]))
        learned = solved_weights(problem, self.X.dtype, settings, callback, checkpoint, start)
        return learned._replace(anchors=anchors[0], scales=local_scales(graph[0]))

    def triplets(self, n_targets: int, n_impostors: int, checkpoint: Checkpointer) -> Triplets:
        known = checkpoint.arrays(
            "triplets", lambda: neighbor_triplets(self.neighbors, n_targets, n_impostors)
        )
        self.found = Triplets(*known)._replace(n_target_pairs=int(known[1]))
        return self.found

    def recall(self, checkpoint: Checkpointer) -> dict[str, float]:
        """As in ``Stages``; includes the searches before an interruption."""
        found = self.neighbors.recall
        purposes, shares = checkpoint.arrays("recall", lambda: (list(found), list(found.values())))
        return {str(name): float(share) for name, share in zip(purposes, shares, strict=True)}

    def metrics(
        self,
        prepared: Prepared,
        settings: Settings,
        gamma: Array | None,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Metrics:
        weights, triplets = prepared.weights.weights, prepared.triplets
        cases, prior = case_weights(settings.case_metrics, self.y, weights), None
        if settings.prior is not None:
            weighted: dict[str, Any] = {"sample_weight": self.sample_weight}
            prior = prior_metric(settings.prior, self.X, self.y, triplets, **weighted)
        if gamma is None and self.earlier is not None and settings.solver != "fista":
            anchors = prepared.weights.anchors
            if anchors is None or self.earlier.has_anchors(len(anchors)):
                gamma = starting_gamma(self.earlier, self.X, weights, cases, triplets)
        return learn_metrics(
            self.X,
            like(weights, self.X, self.X.dtype),
            triplets,
            settings.regularization,
            settings.pull,
            case_weights=None if cases is None else like(cases, self.X, self.X.dtype),
            prior=prior,
            sample_weight=self._counted(),
            solver=settings.solver,
            tol=settings.tol,
            max_iter=settings.max_iter,
            gamma=gamma,
            callback=callback,
            checkpoint=checkpoint,
        )

    def _counted(self) -> Array | None:
        """The sample weights where the rows are."""
        return None if self.sample_weight is None else like(self.sample_weight, self.X)


def case_weights(kind: str | None, y: np.ndarray, weights: Array) -> Array | None:
    """V, the weights of the metrics N at the stored cases: their classes, or their own weights.

    Parameters
    ----------
    kind : {"class", "local"} or None, where there are none
    y : (n,) class codes
    weights : (n, m) array, W
    """
    if kind is None:
        return None
    return np.eye(y.max() + 1)[y] if kind == "class" else weights


def solved_weights(
    problem: WeightProblem,
    dtype: Any,
    settings: Settings,
    callback: Callback | None,
    checkpoint: Checkpointer = NO_CHECKPOINT,
    start: np.ndarray | None = None,
) -> Weights:
    """Stage 1 by the settings; weights in a dtype, with the gap of exactly these."""
    solution = learn_weights(
        problem,
        solver=settings.solver,
        tol=settings.tol,
        max_iter=settings.max_iter,
        start=None if start is None else like(start, problem.B, problem.B.dtype),
        callback=callback,
        checkpoint=checkpoint,
    )
    xp = namespace(problem.B)
    weights = xp.astype(solution.x, dtype)
    at_weights = problem.evaluate(xp.astype(weights, xp.float64))
    (gap,) = fetch(problem.gap(weights, at_weights, problem.gradient(at_weights)))
    return Weights(
        weights,
        gap=gap,
        n_iter=solution.n_iter,
        history=solution.history,
        interrupted=solution.interrupted,
    )
