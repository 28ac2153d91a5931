"""The stages of the pipeline on rows in the shards of a cluster.

Only what must be spread is spread. Neighbours, the terms of equation 4 and stage 2 are computed
where the rows are. Anchors are the work of one task, on a sample that it has room for, and stage 1
is solved on the driver, by the function of one machine: its weights are (n, m), however many
features there are.
"""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from sklearn.utils import check_random_state

from plml.backend.progress import plan
from plml.backend.threads import thread_team
from plml.dask.cluster import Cluster
from plml.dask.landmarks import FEWEST_LANDMARKS, Landmarks, choose_landmarks, extended_weights
from plml.dask.sharded_dual import sharded_dual
from plml.dask.sharded_moves import minimize
from plml.dask.sharded_neighbors import NeighborLists, Wanted, find_neighbors, partners_of
from plml.dask.shards import Shard, Shards, n_shards_for, rows_of_a_task, sample_of, shares_of
from plml.dask.sums import stacked
from plml.dask.training_blocks import TrainingBlocks
from plml.solvers.problem import Callback, Checkpointer
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import graph_laplacian, local_scales, n_nearest, similarity_graph
from plml.stages.metrics import Metrics, certified_metrics, phases
from plml.stages.one_machine import solved_weights
from plml.stages.pipeline import Prepared, Settings, SmoothWeighting, Weights
from plml.stages.weights import NewPointRule, RowTerms, WeightProblem, row_terms

#: Rows that are clustered at the most.
MOST_CLUSTERED = 2**18


class GraphRows(NamedTuple):
    """The neighbours of all rows, and of the rows that stage 1 is learned on."""

    scales: list[Future]  # of all rows, one array per shard
    shards: Shards  # that stage 1 is learned on: all rows, or landmarks
    lists: list[Future]  # NeighborLists of these, among themselves
    landmarks: Landmarks | None = None
    near: Sequence[Future] = ()  # NeighborLists of all rows among the landmarks


class ShardedStages:
    """``Stages`` over shards.

    Parameters
    ----------
    cluster : Cluster
    table : what is known of all rows
    shards : the rows
    exact : whether neighbours are searched in all cells
    n_targets, n_impostors : found with the neighbours of the graph, in one pass
    n_landmarks : rows that stage 1 is learned on, if there are more
    seed : of all random choices but the anchors
    """

    def __init__(
        self,
        cluster: Cluster,
        table: TrainingBlocks,
        shards: Shards,
        *,
        exact: bool,
        n_targets: int,
        n_impostors: int,
        n_landmarks: int,
        seed: int,
    ) -> None:
        self.cluster = cluster
        self.table = table
        self.shards = shards
        self.exact = exact
        self.n_partners = n_targets, n_impostors
        self.n_landmarks = n_landmarks
        self.seed = seed
        self._partners: list[Future] = []
        self._recall: dict[str, float] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """As in ``Stages``."""
        return self.shards.n_rows, self.table.n_features

    def graph(self, n_graph_neighbors: int, checkpoint: Checkpointer) -> GraphRows:
        """As in ``Stages``; the partners of triplets are found on the way."""
        submit, k = self.cluster.submit, n_nearest(n_graph_neighbors)
        plan({"neighbors": 2, "landmarks": 1})
        with self.cluster.doing("neighbors"):
            lists, self._recall = self._find(self.shards, Wanted(k, *self.n_partners))
            self._partners = [submit(partners_of, its) for its in lists]
            scales = [submit(scales_of, its) for its in lists]
        if self.n_landmarks >= self.shards.n_rows:
            return GraphRows(scales, self.shards, lists)
        del lists
        with self.cluster.doing("landmarks"):
            n_shards = n_shards_for(self.cluster, self.table, self.n_landmarks, FEWEST_LANDMARKS)
            landmarks = choose_landmarks(
                self.cluster, self.shards, self.n_landmarks, n_shards, self.seed
            )
            few, _ = self._find(landmarks.shards, Wanted(k, 0, 0))
            near, recall = self._find(self.shards, Wanted(k, 0, 0), landmarks.shards)
            self._recall["landmarks"] = recall["graph"]
        return GraphRows(scales, landmarks.shards, few, landmarks, near)

    def _find(
        self, shards: Shards, wanted: Wanted, among: Shards | None = None
    ) -> tuple[list[Future], dict[str, float]]:
        sizes = self.table.class_sizes
        return find_neighbors(self.cluster, shards, sizes, wanted, self.exact, self.seed, among)

    def anchors(self, n_bases: int, random_state: Any, checkpoint: Checkpointer) -> np.ndarray:
        """As in ``Stages``; those of one machine where one task has room for all rows."""
        random = check_random_state(random_state)
        with self.cluster.doing("anchors"):
            most = rows_of_a_task(self.cluster, self.table.n_features, MOST_CLUSTERED)
            sample = sampled_rows(self.cluster, self.shards, max(most, n_bases), self.seed)
            centers = self.cluster.gather(self.cluster.submit(clustered, sample, n_bases, random))
        random.randint(2)  # the task drew from a copy; the next fit shall not draw the same
        return centers

    def smooth_weights(
        self,
        graph: GraphRows,
        anchors: np.ndarray,
        weighting: SmoothWeighting,
        settings: Settings,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Weights:
        """As in ``Stages``; weights and scales stay on the cluster, one array per shard."""
        with self.cluster.doing("stage-weights"):
            problem, scales = self._weight_problem(graph, anchors, weighting)
            learned = solved_weights(problem, self.table.dtype, settings, callback)
            if graph.landmarks is None:
                parts = self._cut(learned.weights)
            else:
                rule = weighting.rule_for_new_points(anchors, settings.tol, settings.max_iter)
                parts = self._extended(graph, graph.landmarks, learned.weights, scales, rule)
        return learned._replace(weights=parts, anchors=anchors, scales=graph.scales)

    def _weight_problem(
        self, graph: GraphRows, anchors: np.ndarray, weighting: SmoothWeighting
    ) -> tuple[WeightProblem, np.ndarray]:
        """Equation 4 of the rows that it is learned on, and their scales, on the driver."""
        submit, U = self.cluster.submit, self.cluster.put(anchors)
        parts, lists = self.cluster.gather(
            (
                [submit(terms_of, part, U, weighting.locality) for part in graph.shards.parts],
                graph.lists,
            )
        )
        near: NeighborLists = stacked(lists)
        L = graph_laplacian(similarity_graph(near.squared, near.graph, weighting.n_graph_neighbors))
        problem = WeightProblem.from_terms(stacked(parts), anchors, weighting.smoothness, L)
        return problem, local_scales(near.squared)

    def _cut(self, weights: np.ndarray) -> list[Future]:
        """The weights of every shard's rows."""
        return [
            self.cluster.put_rows(weights[first:last])
            for first, last in pairwise(self.shards.offsets.tolist())
        ]

    def _extended(
        self,
        graph: GraphRows,
        landmarks: Landmarks,
        weights: np.ndarray,
        scales: np.ndarray,
        rule: NewPointRule,
    ) -> list[Future]:
        """The same from the weights of landmarks."""
        with self.cluster.doing("landmarks"):
            known = [self.cluster.put_rows(array) for array in (weights, scales)]
            known.append(self.cluster.put(rule))
            firsts = landmarks.offsets[:-1].tolist()
            rows = zip(self.shards.parts, graph.near, landmarks.chosen, firsts, strict=True)
            return [self.cluster.submit(extended_weights, *its, *known) for its in rows]

    def triplets(self, n_targets: int, n_impostors: int, checkpoint: Checkpointer) -> list[Future]:
        """As in ``Stages``: ``Partners`` of every shard's rows."""
        if (n_targets, n_impostors) != self.n_partners:
            raise ValueError(f"partners were searched for other numbers, {self.n_partners}")
        return self._partners

    def recall(self, checkpoint: Checkpointer) -> dict[str, float]:
        """As in ``Stages``."""
        return self._recall

    def metrics(
        self,
        prepared: Prepared,
        settings: Settings,
        gamma: list[Future] | None,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Metrics:
        """As in ``Stages``; gammas stay with their rows."""
        weights, table = prepared.weights, self.table
        with self.cluster.doing("stage-metrics"), thread_team() as threads:
            dual = sharded_dual(
                self.cluster,
                self.shards,
                prepared.triplets,
                weights.weights,
                settings.regularization,
                settings.pull,
                threads,
            )
            return certified_metrics(
                dual,
                minimize,
                phases(np, table.dtype, table.largest, "auto", settings.tol),
                table.dtype,
                gamma=gamma,
                tol=settings.tol,
                max_iter=settings.max_iter,
                callback=callback,
            )


def seed_of(random_state: Any) -> int:
    """A seed that leaves the state as it is."""
    return int(deepcopy(check_random_state(random_state)).randint(2**31 - 1))


def sampled_rows(cluster: Cluster, shards: Shards, most: int, seed: int) -> list[Future]:
    """All rows, or a random sample of them, as smaller shards."""
    n_rows = min(most, shards.n_rows)
    shares, seeds = shares_of(np.diff(shards.offsets), n_rows, np.random.default_rng(seed))
    return [
        cluster.submit(sample_of, *its) for its in zip(shards.parts, shares, seeds, strict=True)
    ]


def clustered(sample: list[Shard], n_bases: int, random: np.random.RandomState) -> np.ndarray:
    """The anchors of sampled rows, taken in the order of the user."""
    whole: Shard = stacked(sample)
    return kmeans_anchors(whole.X[np.argsort(whole.rows)], n_bases, random).centers


def scales_of(lists: NeighborLists) -> np.ndarray:
    """Local scales of a shard's rows."""
    return local_scales(lists.squared)


def terms_of(shard: Shard, anchors: np.ndarray, locality: float) -> RowTerms:
    """What equation 4 keeps of a shard's rows."""
    return row_terms(shard.X, anchors, locality)
