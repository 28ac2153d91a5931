"""The stages of the pipeline on rows in the shards of a cluster.

Only what must be spread is spread. Neighbours, the terms of equation 4 and stage 2 are computed
where the rows are. Anchors are the work of one task, on a sample that it has room for, and stage 1
is solved on the driver, by the function of one machine: its weights are (n, m), however many
features there are.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from sklearn.utils import check_random_state

from plml.backend.progress import plan
from plml.backend.threads import thread_team
from plml.dask.cluster import Cluster
from plml.dask.landmarks import FEWEST_LANDMARKS, Landmarks, choose_landmarks, extended_weights
from plml.dask.reading import Table
from plml.dask.sharded_dual import sharded_dual
from plml.dask.sharded_moves import minimize
from plml.dask.sharded_neighbors import NeighborLists, Wanted, find_neighbors
from plml.dask.shards import Shard, Shards, n_shards_for, rows_of_a_task, sampled_rows
from plml.dask.sums import stacked
from plml.solvers.problem import Callback, Checkpointer
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import graph_laplacian, local_scales, n_nearest, similarity_graph
from plml.stages.metrics import Metrics, certified_metrics, phases
from plml.stages.one_machine import solved_weights
from plml.stages.pipeline import Prepared, Settings, SmoothWeighting, Stages, Weights
from plml.stages.weights import RowTerms, WeightProblem, row_terms

#: Rows that are clustered at the most.
MOST_CLUSTERED = 2**18


class GraphRows(NamedTuple):
    """The neighbours of all rows, and of the rows that stage 1 is learned on."""

    scales: list[Future]  # of all rows, one array per shard
    shards: Shards  # that stage 1 is learned on: all rows, or landmarks
    lists: list[Future]  # NeighborLists of these, among themselves
    landmarks: Landmarks | None = None
    near: Sequence[Future] = ()  # NeighborLists of all rows among the landmarks


@dataclass
class ShardedStages(Stages):
    """The stages over shards."""

    cluster: Cluster
    table: Table  # what is known of all rows
    shards: Shards  # the rows
    _: KW_ONLY
    exact: bool  # whether neighbours are searched in all cells
    n_targets: int  # found with the neighbours of the graph, in one pass
    n_impostors: int
    n_landmarks: int  # rows that stage 1 is learned on, if there are more
    seed: int  # of all random choices but the anchors
    _partners: list[Future] = field(default_factory=list, init=False)
    _recall: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.shards.n_rows, self.table.n_features

    def graph(self, n_graph_neighbors: int, checkpoint: Checkpointer) -> GraphRows:
        """The neighbours; the partners of triplets are found on the way."""
        k = n_nearest(n_graph_neighbors)
        how = self.table.class_sizes, self.exact, self.seed
        find = partial(find_neighbors, self.cluster, *how)
        plan({"neighbors": 2, "landmarks": 1})
        with self.cluster.doing("neighbors"):
            lists, self._recall = find(self.shards, Wanted(k, self.n_targets, self.n_impostors))
            self._partners = self.cluster.map(partners_of, lists)
            scales = self.cluster.map(scales_of, lists)
        if self.n_landmarks >= self.shards.n_rows:
            return GraphRows(scales, self.shards, lists)
        del lists
        with self.cluster.doing("landmarks"):
            n_shards = n_shards_for(self.cluster, self.table, self.n_landmarks, FEWEST_LANDMARKS)
            landmarks = choose_landmarks(
                self.cluster, self.shards, self.n_landmarks, n_shards, self.seed
            )
            few, _ = find(landmarks.shards, Wanted(k, 0, 0))
            near, recall = find(self.shards, Wanted(k, 0, 0), landmarks.shards)
            self._recall["landmarks"] = recall["graph"]
        return GraphRows(scales, landmarks.shards, few, landmarks, near)

    def anchors(self, n_bases: int, random_state: Any, checkpoint: Checkpointer) -> np.ndarray:
        """Those of one machine where one task has room for all rows."""
        random, shards = check_random_state(random_state), self.shards
        with self.cluster.doing("anchors"):
            most = rows_of_a_task(self.cluster, self.table.n_features, MOST_CLUSTERED)
            most = min(max(most, n_bases), shards.n_rows)
            sample = sampled_rows(self.cluster, shards.parts, shards.sizes, most, self.seed)
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
        """Weights and scales stay on the cluster, one array per shard."""
        put_rows = self.cluster.put_rows
        with self.cluster.doing("stage-weights"):
            problem, scales = self._weight_problem(graph, anchors, weighting)
            learned = solved_weights(problem, self.table.dtype, settings, callback)
            if graph.landmarks is None:
                cuts = self.shards.offsets[1:-1]
                weights = [put_rows(part) for part in np.split(learned.weights, cuts)]
            else:
                rule = weighting.rule_for_new_points(anchors, settings.tol, settings.max_iter)
                known = put_rows(learned.weights), put_rows(scales), self.cluster.put(rule)
                weights = self._extended(graph.landmarks, graph.near, known)
        return learned._replace(weights=weights, anchors=anchors, scales=graph.scales)

    def _weight_problem(
        self, graph: GraphRows, anchors: np.ndarray, weighting: SmoothWeighting
    ) -> tuple[WeightProblem, np.ndarray]:
        """Equation 4 of the rows that it is learned on, and their scales, on the driver."""
        known = self.cluster.put(anchors), weighting.locality
        terms = self.cluster.map(terms_of, graph.shards.parts, known=known)
        terms, lists = (stacked(parts) for parts in self.cluster.gather((terms, graph.lists)))
        S = similarity_graph(lists.squared, lists.graph, weighting.n_graph_neighbors)
        problem = WeightProblem(terms, anchors, weighting.smoothness, graph_laplacian(S))
        return problem, local_scales(lists.squared)

    def _extended(
        self, landmarks: Landmarks, near: Sequence[Future], known: tuple[Future, ...]
    ) -> list[Future]:
        """The weights of all rows, from what is known: weights, scales and rule of landmarks."""
        rows = self.shards.parts, near, landmarks.chosen, landmarks.offsets[:-1].tolist()
        with self.cluster.doing("landmarks"):
            return self.cluster.map(extended_weights, *rows, known=known)

    def triplets(self, n_targets: int, n_impostors: int, checkpoint: Checkpointer) -> list[Future]:
        """Targets and impostors of every shard's rows."""
        found = self.n_targets, self.n_impostors
        if (n_targets, n_impostors) != found:
            raise ValueError(f"partners were searched for other numbers, {found}")
        return self._partners

    def recall(self, checkpoint: Checkpointer) -> dict[str, float]:
        return self._recall

    def metrics(
        self,
        prepared: Prepared,
        settings: Settings,
        gamma: list[Future] | None,
        callback: Callback,
        checkpoint: Checkpointer,
    ) -> Metrics:
        """Gammas stay with their rows."""
        table = self.table
        with self.cluster.doing("stage-metrics"), thread_team() as threads:
            return certified_metrics(
                sharded_dual(self.cluster, self.shards, prepared, settings, threads),
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


def clustered(sample: list[Shard], n_bases: int, random: np.random.RandomState) -> np.ndarray:
    """The anchors of sampled rows, taken in the order of the user."""
    whole: Shard = stacked(sample)
    return kmeans_anchors(whole.X[np.argsort(whole.rows)], n_bases, random).centers


def partners_of(lists: NeighborLists) -> np.ndarray:
    """Targets and impostors side by side: what is left of the lists when the graph is made."""
    return np.concatenate([lists.targets, lists.impostors], axis=1)


def scales_of(lists: NeighborLists) -> np.ndarray:
    """Local scales of a shard's rows."""
    return local_scales(lists.squared)


def terms_of(shard: Shard, anchors: np.ndarray, locality: float) -> RowTerms:
    """What equation 4 keeps of a shard's rows."""
    return row_terms(shard.X, anchors, locality)
