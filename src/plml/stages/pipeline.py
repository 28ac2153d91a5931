"""The paper from end to end, as one function.

    neighbours -> anchors -> weights (stage 1) -> triplets -> metrics (stage 2)

``Stages`` says where the rows are and how each stage is computed there; ``Run`` what goes on around
it. The three ways to weigh the basis metrics are those of the paper: smoothly (PLML), by clusters
(CBLML), and not at all (SML).
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from plml.solvers.problem import Callback, Checkpointer, Iteration
from plml.stages.costs import (
    METRICS_ITERATIONS,
    anchors_cost,
    metrics_cost,
    search_cost,
    weights_cost,
)
from plml.stages.metrics import Metrics
from plml.stages.run import Run
from plml.stages.weights import NewPointRule

#: Stages as progress and callbacks name them.
NEIGHBORS, ANCHORS, WEIGHTS = "neighbours", "anchors", "stage 1, weights"
TRIPLETS, METRICS = "triplets", "stage 2, metrics"


@dataclass(frozen=True)
class Settings:
    """What stage 2 minimises, and how accurately both stages are solved."""

    regularization: float = 1.0
    pull: float = 1.0
    n_targets: int = 3
    n_impostors: int = 3
    tol: float = 1e-3
    max_iter: int = 1000
    solver: str = "auto"
    case_metrics: str | None = None  # "class" or "local": metrics at the stored cases as well
    prior: str | None = None  # "identity" or "within"


class Weights(NamedTuple):
    """The weights of the training instances, and how they were learned."""

    weights: Any  # (n, m), on one machine or in shards
    anchors: Any = None  # (m, d)
    scales: Any = None  # (n,), of the similarities
    gap: float = 0.0
    n_iter: int = 0
    history: tuple[Iteration, ...] = ()
    interrupted: bool = False  # by a callback


class Prepared(NamedTuple):
    """What stage 2 needs and what does not depend on ``regularization``."""

    weights: Weights
    triplets: Any
    recall: dict[str, float]  # of the neighbour searches


class Learned(NamedTuple):
    """The outcome of the pipeline."""

    weights: Weights
    metrics: Metrics
    recall: dict[str, float]

    def in_units(self, unit: float) -> "Learned":
        """What was learned of rows / unit, for the rows themselves."""
        weights, metrics = self.weights, self.metrics
        if weights.anchors is not None:
            weights = weights._replace(anchors=weights.anchors * unit)
        if weights.scales is not None:
            weights = weights._replace(scales=weights.scales * unit)
        return self._replace(weights=weights, metrics=metrics._replace(M=metrics.M / unit**2))


class Stages(Protocol):
    """The stages on rows that are on this machine, on a GPU, or in the shards of a cluster."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""

    def graph(self, n_graph_neighbors: int, checkpoint: Checkpointer) -> Any:
        """Neighbours that the edges of the similarity graph are made from."""

    def anchors(self, n_bases: int, random_state: Any, checkpoint: Checkpointer) -> Any:
        """k-means centers, and the cluster of every row where the rows are in one place."""

    def smooth_weights(
        self,
        graph: Any,
        anchors: Any,
        weighting: "SmoothWeighting",
        settings: Settings,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Weights:
        """Stage 1."""

    def triplets(self, n_targets: int, n_impostors: int, checkpoint: Checkpointer) -> Any:
        """Of the nearest same-class and other-class instances."""

    def recall(self, checkpoint: Checkpointer) -> dict[str, float]:
        """The share of the true neighbours that the searches found, by purpose."""

    def metrics(
        self,
        prepared: Prepared,
        settings: Settings,
        gamma: Any,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Metrics:
        """Stage 2: the basis metrics."""


@dataclass(frozen=True)
class SmoothWeighting:
    """Equation 4 over anchor points: the weights of PLML."""

    n_bases: int = 20
    locality: float = 1.0
    smoothness: float = 100.0
    n_graph_neighbors: int = 6
    random_state: Any = None
    n_solvers: ClassVar[int] = 1

    def learn(self, stages: Stages, settings: Settings, run: Run) -> Weights:
        """The weights of the training instances, from the graph and the anchors."""
        with run.stage(NEIGHBORS):
            graph = stages.graph(self.n_graph_neighbors, run.checkpoint)
        with run.stage(ANCHORS):
            anchors = stages.anchors(self.n_bases, self.random_state, run.checkpoint)
        with run.solver(WEIGHTS, settings.tol, settings.max_iter) as callback:
            return stages.smooth_weights(graph, anchors, self, settings, callback, run.checkpoint)

    def rule_for_new_points(self, anchors: Any, tol: float, max_iter: int) -> NewPointRule:
        """The same equation for a point that comes later."""
        return NewPointRule(
            anchors, self.locality, self.smoothness, self.n_graph_neighbors, tol, max_iter
        )

    def costs(self, n: int, d: int) -> dict[str, float]:
        """The stages of ``learn``, with rough seconds."""
        return {
            NEIGHBORS: search_cost(n, n, d),
            ANCHORS: anchors_cost(n, self.n_bases),
            WEIGHTS: weights_cost(n, self.n_bases),
        }


@dataclass(frozen=True)
class ClusterWeighting:
    """The metric of an instance is that of its cluster: the weights of CBLML."""

    n_bases: int = 20
    random_state: Any = None
    n_solvers: ClassVar[int] = 0

    def learn(self, stages: Stages, settings: Settings, run: Run) -> Weights:
        """As in ``SmoothWeighting``."""
        with run.stage(ANCHORS):
            centers, labels = stages.anchors(self.n_bases, self.random_state, run.checkpoint)
        return Weights(np.eye(len(centers))[labels], centers)

    def costs(self, n: int, d: int) -> dict[str, float]:
        """As in ``SmoothWeighting``."""
        return {ANCHORS: anchors_cost(n, self.n_bases)}


@dataclass(frozen=True)
class SingleWeighting:
    """One metric for all: SML."""

    n_bases: ClassVar[int] = 1
    n_solvers: ClassVar[int] = 0

    def learn(self, stages: Stages, settings: Settings, run: Run) -> Weights:
        """As in ``SmoothWeighting``."""
        return Weights(np.ones((stages.shape[0], 1)))

    def costs(self, n: int, d: int) -> dict[str, float]:
        """As in ``SmoothWeighting``."""
        return {}


Weighting = SmoothWeighting | ClusterWeighting | SingleWeighting


def in_units(weighting: Weighting, settings: Settings, unit: float) -> tuple[Weighting, Settings]:
    """The same problems for rows in which ``unit`` is the length that the parameters call one.

    Stage 1 is quadratic in lengths, but for its smoothness; metrics are lengths to the power -2.
    """
    if isinstance(weighting, SmoothWeighting):
        weighting = replace(weighting, smoothness=weighting.smoothness * unit**2)
    return weighting, replace(settings, regularization=settings.regularization * unit**4)


def learn(stages: Stages, weighting: Weighting, settings: Settings, run: Run) -> Learned:
    """Weights and basis metrics of the rows of the stages, certified."""
    run.plan(costs(*stages.shape, weighting))
    weights = weighting.learn(stages, settings, run)
    prepared = with_triplets(weights, stages, settings, run)
    metrics = learn_metrics_of(stages, prepared, settings, run)
    run.checkpoint.finish()
    return Learned(weights, metrics, prepared.recall)


def with_triplets(weights: Weights, stages: Stages, settings: Settings, run: Run) -> Prepared:
    """The weights and the triplets: what every choice of ``regularization`` shares."""
    with run.stage(TRIPLETS):
        triplets = stages.triplets(settings.n_targets, settings.n_impostors, run.checkpoint)
    return Prepared(weights, triplets, stages.recall(run.checkpoint))


def learn_metrics_of(
    stages: Stages,
    prepared: Prepared,
    settings: Settings,
    run: Run,
    gamma: np.ndarray | None = None,
) -> Metrics:
    """Stage 2, from a warm start if there is one."""
    with run.solver(METRICS, settings.tol, settings.max_iter) as callback:
        return stages.metrics(prepared, settings, gamma, callback, run.checkpoint)


def costs(
    n: int, d: int, weighting: Weighting, n_iter: int = METRICS_ITERATIONS
) -> dict[str, float]:
    """The stages of ``learn``, with rough seconds."""
    return {
        **preparation_costs(n, d, weighting),
        METRICS: metrics_cost(n, d, weighting.n_bases, n_iter),
    }


def preparation_costs(n: int, d: int, weighting: Weighting) -> dict[str, float]:
    """The stages before stage 2, with rough seconds."""
    return {**weighting.costs(n, d), TRIPLETS: search_cost(n, n, d)}
