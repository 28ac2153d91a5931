"""Settings of the pipeline compared by cross-validation.

What settings have in common is computed once per fold: the weights of stage 1, the triplets and the
weights of the queries. Along a path of regularizations every solution starts from the one before.
Given a metric, all numbers of neighbours and all votes take one search.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata

from plml.backend.arrays import Array, is_tensor, like, on_host
from plml.backend.processes import end_with
from plml.estimators._folds import Split
from plml.estimators._recipe import Recipe
from plml.estimators._scoring import Scoring
from plml.metric.basis_metric import BasisMetric
from plml.metric.votes import Voting, shares_by_voting
from plml.metric.weight_rules import KnownWeights
from plml.solvers.problem import NO_CHECKPOINT, Checkpointer
from plml.stages.costs import SELECTION_ITERATIONS, metrics_cost, search_cost
from plml.stages.one_machine import OneMachine
from plml.stages.pipeline import (
    METRICS,
    TRIPLETS,
    Prepared,
    Settings,
    Weighting,
    costs,
    learn_metrics_of,
    with_triplets,
)
from plml.stages.run import Run

#: The stage after all folds, and the one after stage 2 in each.
FINAL_FIT, SCORING = "final fit", "scoring"


class RegularizationPath(NamedTuple):
    """Metrics that differ in their regularization alone."""

    recipe: Recipe
    regularizations: tuple[float, ...]  # largest first
    params: dict[str, Any]  # what sets it apart from other paths
    name: str = ""  # for the progress
    per_triplet: bool = False  # whether the regularizations are relative to the weight of triplets

    def stage(self, value: float) -> str:
        """What one value is called in the progress."""
        return f"{self.name}{', ' if self.name else ''}regularization {value:g}"

    def regularization(self, value: float, stages: OneMachine, n_classes: int) -> float:
        """The value itself, for the rows of given stages."""
        if not self.per_triplet:
            return value
        return value * self.recipe.triplets_of(stages.y, n_classes, stages.sample_weight)


class SettingGrid(NamedTuple):
    """The settings to compare: every value of every path with every voting."""

    paths: tuple[RegularizationPath, ...]
    votings: tuple[Voting, ...]
    tol: float  # the relative gap of stage 2 within the folds
    n_kept: int = 0  # settings whose votes are kept, the best of a fold (by Brier scores)
    voting_names: tuple[str, ...] = Voting._fields  # which of them are selected
    weigh_votes: bool = False  # whether votes are multiplied with the weights of the cases

    def settings(self) -> list[tuple[int, int, int]]:
        """Numbers of path, value and voting; first the first values of all paths."""
        return sorted(
            (
                (p, r, v)
                for p, path in enumerate(self.paths)
                for r in range(len(path.regularizations))
                for v in range(len(self.votings))
            ),
            key=lambda setting: (setting[1], setting[0], setting[2]),
        )

    def params(self) -> list[dict[str, Any]]:
        """The parameters of the settings, in their order."""
        return [
            {
                "regularization": self.paths[p].regularizations[r],
                **self.paths[p].params,
                **{name: getattr(self.votings[v], name) for name in self.voting_names},
            }
            for p, r, v in self.settings()
        ]

    def only(self, number: int) -> "SettingGrid":
        """A single setting, by its place in the order."""
        p, r, v = self.settings()[number]
        path = self.paths[p]._replace(regularizations=(self.paths[p].regularizations[r],))
        return self._replace(paths=(path,), votings=(self.votings[v],))


@dataclass(eq=False)
class Fold:
    """One fold, and what is done on it.

    Parameters
    ----------
    scoring : how votes are scored; it knows the classes
    train, test : numbers of rows
    sample_weight : (n,) of all rows, or None
    """

    scoring: Scoring
    train: np.ndarray
    test: np.ndarray
    sample_weight: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._known: dict[Weighting, _Preparation] = {}
        self._duals: dict[tuple[Weighting, Settings], Array] = {}

    @classmethod
    def of(
        cls, splits: list[Split], n_rows: int, scoring: Scoring, sample_weight: np.ndarray | None
    ) -> "list[Fold]":
        """Folds of splits that may also be given as masks."""
        rows = np.arange(n_rows)
        return [cls(scoring, rows[train], rows[test], sample_weight) for train, test in splits]

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.scoring.classes)

    def counted(self, rows: np.ndarray) -> np.ndarray | None:
        """The sample weights of some rows, where there are any."""
        return None if self.sample_weight is None else self.sample_weight[rows]

    def costs(self, candidates: SettingGrid, d: int) -> dict[str, float]:
        """The stages of a fold, with rough seconds."""
        stages: dict[str, float] = {}
        for weighting in dict.fromkeys(path.recipe.weighting for path in candidates.paths):
            for name, seconds in weighting.costs(len(self.train), d).items():
                stages[name] = stages.get(name, 0.0) + seconds
        stages[TRIPLETS] = search_cost(len(self.train), len(self.train), d)
        for path in candidates.paths:
            per_value = sum(self._costs_of_value(d, path.recipe.weighting.n_bases).values())
            stages |= {path.stage(value): per_value for value in path.regularizations}
        return stages

    def scores(
        self, candidates: SettingGrid, X: Array, y: np.ndarray, run: Run
    ) -> tuple[np.ndarray, ...]:
        """Scores, Brier scores and gaps of all settings, in their order; kept settings and their
        votes, (n_kept,) and (n_kept, q, n_classes).
        """
        codes, counted = y[self.test], self.counted(self.test)
        truth, settings = np.eye(self.n_classes)[codes], candidates.settings()
        place = {setting: number for number, setting in enumerate(settings)}
        table, kept = np.empty((3, len(settings))), _KeptVotes(candidates.n_kept)
        for p, r, gap, shares in self.votes(candidates, X, y, run):
            numbers, stacked = [place[p, r, v] for v in range(len(shares))], np.stack(shares)
            scores = self.scoring.scores(stacked, codes, counted)
            brier = np.average(((stacked - truth) ** 2).sum(axis=2), axis=1, weights=counted)
            table[:, numbers] = scores, brier, np.full(len(shares), gap)
            badness = brier if self.scoring.given is None else -scores
            for number, score, share in zip(numbers, badness.tolist(), shares, strict=True):
                kept.offer(score, number, share)
        return (*table, *kept.arrays((len(self.test), self.n_classes)))

    def votes(
        self, candidates: SettingGrid, X: Array, y: np.ndarray, run: Run
    ) -> Iterator[tuple[int, int, float, list[np.ndarray]]]:
        """(path, value, gap of stage 2, (q, n_classes) shares of every voting)."""
        run.plan(self.costs(candidates, X.shape[1]))
        for p, path in enumerate(candidates.paths):
            preparation = self._prepared(path.recipe, X, y, run)
            for r, gap, metric in self._metrics(path, candidates.tol, preparation, run):
                with run.stage(SCORING):
                    yield p, r, gap, self._shares(candidates, preparation, metric)

    def _prepared(self, recipe: Recipe, X: Array, y: np.ndarray, run: Run) -> "_Preparation":
        """What the paths with these weights share; kept for those that come later."""
        known = self._known
        if recipe.weighting not in known:
            first = next(iter(known.values()), None)
            if first is None:
                counted = self.counted(self.train)
                unit = recipe.unit(X[like(self.train, X)], counted)
                rows, queries = (X[like(part, X)] / unit for part in (self.train, self.test))
                stages = recipe.stages(rows, y[self.train], counted)
                weights = recipe.weighting.learn(stages, recipe.settings, run)
                prepared = with_triplets(weights, stages, recipe.settings, run)
            else:  # neither the neighbours nor the triplets depend on the weights
                stages, queries = first.stages, first.queries
                weights = recipe.weighting.learn(stages, recipe.settings, run)
                prepared = first.prepared._replace(weights=weights)
            known[recipe.weighting] = _Preparation(stages, queries, prepared)
        return known[recipe.weighting]

    def _metrics(
        self, path: RegularizationPath, tol: float, preparation: "_Preparation", run: Run
    ) -> Iterator[tuple[int, float, BasisMetric]]:
        """(value, gap, metric); every value starts where the one before ended."""
        stages, gamma = preparation.stages, None
        for r, value in enumerate(path.regularizations):
            regularization = path.regularization(value, stages, self.n_classes)
            settings = replace(path.recipe.settings, regularization=regularization, tol=tol)
            problem = path.recipe.weighting, settings
            start = self._duals.get(problem, gamma)  # where it was solved before
            with run.stage(path.stage(value)):
                run.plan(self._costs_of_value(stages.shape[1], path.recipe.weighting.n_bases))
                metrics = learn_metrics_of(stages, preparation.prepared, settings, run, start)
                self._duals[problem] = gamma = metrics.gamma
                yield r, metrics.gap, preparation.metric(path.recipe, on_host(metrics.M))

    def _costs_of_value(self, d: int, m: int) -> dict[str, float]:
        """The stages of one value, with rough seconds."""
        return {
            METRICS: metrics_cost(len(self.train), d, m, SELECTION_ITERATIONS),
            SCORING: search_cost(len(self.test), len(self.train), d + m),
        }

    def _shares(
        self, candidates: SettingGrid, preparation: "_Preparation", metric: BasisMetric
    ) -> list[np.ndarray]:
        """By voting, from one search."""
        queries, stages, votings = preparation.queries, preparation.stages, candidates.votings
        squared, nearest = metric.quick_search(queries, max(k for k, _ in votings))
        voters = stages.y, self.n_classes, votings
        weights = stages.sample_weight if candidates.weigh_votes else None
        shares = shares_by_voting(metric, queries, squared, nearest, *voters, weights)
        return [on_host(share) for share in shares]


class _KeptVotes:
    """The votes of the settings with the smallest scores, in half precision."""

    def __init__(self, n_kept: int) -> None:
        self._n_kept = n_kept
        self._kept: list[tuple[float, int, np.ndarray]] = []  # a heap, the largest score first

    def offer(self, score: float, number: int, shares: np.ndarray) -> None:
        """Keep the votes of a setting if it is among the best so far."""
        if len(self._kept) < self._n_kept:
            heappush(self._kept, (-score, number, shares.astype(np.float16)))
        elif self._n_kept and -score > self._kept[0][0]:
            heapreplace(self._kept, (-score, number, shares.astype(np.float16)))

    def arrays(self, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of settings in their order, and their votes."""
        kept = sorted((number, shares) for _, number, shares in self._kept)
        numbers = np.array([number for number, _ in kept], dtype=np.int64)
        return numbers, np.array([shares for _, shares in kept]).reshape(-1, *shape)


class _Preparation:
    """What the paths with the same weights share in a fold.

    Parameters
    ----------
    stages : of the rows to train on
    queries : the rows to test on
    prepared : weights and triplets
    """

    def __init__(self, stages: OneMachine, queries: Array, prepared: Prepared) -> None:
        self.stages = stages
        self.queries = queries
        self.prepared = prepared
        self._rule: KnownWeights | None = None

    @cached_property
    def _on_host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Rows, their weights, anchors."""
        rows, weights = on_host(self.stages.X), self.prepared.weights
        anchors = None if weights.anchors is None else on_host(weights.anchors)
        return rows, on_host(weights.weights).astype(rows.dtype, copy=False), anchors

    def metric(self, recipe: Recipe, M: np.ndarray) -> BasisMetric:
        """Learned basis metrics, ready to be asked about the queries."""
        (rows, W, anchors), scales = self._on_host, self.prepared.weights.scales
        M = M.astype(rows.dtype, copy=False)
        metric = replace(recipe, approximate=False).metric(
            rows, self.stages.y, W, M, anchors, scales, None, self.stages.sample_weight
        )
        if self._rule is None:  # the weights of the queries do not depend on the metrics
            self._rule = KnownWeights(metric.weights(self.queries))
        metric.rule = self._rule
        return metric


class ComparedSettings(NamedTuple):
    """How every setting does in every fold."""

    results: dict[str, Any]  # scikit-learn's ``cv_results_``
    kept: list[tuple[np.ndarray, np.ndarray]]  # by fold: settings and their votes

    def joined_with(self, other: "ComparedSettings") -> "ComparedSettings":
        """With other settings on the same folds, which come after these."""
        first, second = self.results, other.results
        results: dict[str, Any] = {"params": first["params"] + second["params"]}
        results |= {
            name: np.concatenate([first[name], second[name]]) for name in first if name != "params"
        }
        results["rank_test_score"] = _ranks(results["mean_test_score"])
        before = len(first["params"])
        kept = [
            (np.concatenate([ours, theirs + before]), np.concatenate([votes, their_votes]))
            for (ours, votes), (theirs, their_votes) in zip(self.kept, other.kept, strict=True)
        ]
        return ComparedSettings(results, kept)

    def votes_in_all_folds(self) -> tuple[np.ndarray, np.ndarray]:
        """The settings that every fold kept, and their votes for all rows in the order of the
        folds, (n_settings, n_rows, n_classes).
        """
        numbers = reduce(np.intersect1d, [numbers for numbers, _ in self.kept])
        votes = [votes[np.searchsorted(kept, numbers)] for kept, votes in self.kept]
        return numbers, np.concatenate(votes, axis=1).astype(np.float32)


def compare(
    candidates: SettingGrid, folds: list[Fold], X: Array, y: np.ndarray, run: Run, phase: str = ""
) -> ComparedSettings:
    """All settings on all folds.

    Parameters
    ----------
    candidates : the settings
    folds : of the rows
    X, y : rows in their span and class codes
    run : its threads are shared by the folds
    phase : a name, where there are several comparisons
    """
    found = _scores(candidates, folds, X, y, run, phase)
    results = _as_results(candidates.params(), [parts[:3] for parts in found])
    return ComparedSettings(results, [(numbers, votes) for *_, numbers, votes in found])


def held_out_shares(
    candidates: SettingGrid, folds: list[Fold], X: Array, y: np.ndarray, run: Run
) -> np.ndarray:
    """The votes of a single setting for the rows that it did not learn from, in the order of folds.

    Parameters
    ----------
    candidates : that setting alone
    folds, X, y, run : as in ``compare``
    """
    alone = replace(run, checkpoint=NO_CHECKPOINT)  # which is of the last fit
    found = []
    for fold in folds:
        ((_, _, _, (votes,)),) = fold.votes(candidates, X, y, alone)
        found.append(votes)
    return np.concatenate(found)


def _scores(
    candidates: SettingGrid, folds: list[Fold], X: Array, y: np.ndarray, run: Run, phase: str
) -> list[tuple[np.ndarray, ...]]:
    """What every fold finds; those that a checkpoint knows are not computed again."""
    checkpoint = run.checkpoint
    to_do = [i for i in range(len(folds)) if not checkpoint.knows(f"{phase}fold {i}")]
    jobs = _in_parallel(candidates, [folds[i] for i in to_do], X, y, run)
    found = []
    for i, name in enumerate(fold_names(len(folds), phase)):
        with run.stage(name):
            found.append(checkpoint.arrays(f"{phase}fold {i}", lambda: next(jobs)))
    return found


def fold_names(n_folds: int, phase: str = "") -> list[str]:
    """What the folds are called in the progress."""
    return [f"comparing settings: {phase}fold {i + 1} of {n_folds}" for i in range(n_folds)]


def plan_of(
    candidates: SettingGrid, folds: list[Fold], X: Array, run: Run, phase: str = ""
) -> dict[str, float]:
    """The stages of a comparison, with rough seconds; none for what a checkpoint knows."""
    return {
        name: 0.0
        if run.checkpoint.knows(f"{phase}fold {i}")
        else sum(fold.costs(candidates, X.shape[1]).values())
        for i, (name, fold) in enumerate(zip(fold_names(len(folds), phase), folds, strict=True))
    }


def cost_of_fit(candidates: SettingGrid, X: Array) -> float:
    """Rough seconds of the fit that follows, at most."""
    return max(
        sum(costs(len(X), X.shape[1], path.recipe.weighting).values()) for path in candidates.paths
    )


def _in_parallel(
    candidates: SettingGrid, folds: list[Fold], X: Array, y: np.ndarray, run: Run
) -> Iterator[tuple[np.ndarray, ...]]:
    """The scores of every fold, several at the same time, as they are asked for."""
    n_jobs = 1 if is_tensor(X) else run.n_jobs  # one GPU
    employer = os.getpid()
    yield from Parallel(n_jobs=n_jobs, return_as="generator")(
        # Threads are those that the folds at the same time leave each other.
        delayed(_fold_scores)(fold, candidates, X, y, run.memory, employer)
        for fold in folds
    )


def _fold_scores(
    fold: Fold,
    candidates: SettingGrid,
    X: Array,
    y: np.ndarray,
    memory: float | None,
    employer: int,
) -> tuple[np.ndarray, ...]:
    end_with(employer)
    run = Run(memory=memory)
    with run.limits():
        return fold.scores(candidates, X, y, run)


def _as_results(
    params: list[dict[str, Any]], folds: list[tuple[np.ndarray, ...]]
) -> dict[str, Any]:
    results: dict[str, Any] = {"params": params}
    for name in params[0]:
        results[f"param_{name}"] = np.array([setting[name] for setting in params])
    for i, (scores, _, gaps) in enumerate(folds):
        results[f"split{i}_test_score"] = scores
        results[f"split{i}_dual_gap"] = gaps
    scores = np.array([scores for scores, _, _ in folds])
    results["mean_test_score"] = scores.mean(axis=0)
    results["std_test_score"] = scores.std(axis=0)
    results["mean_test_brier"] = np.mean([brier for _, brier, _ in folds], axis=0)
    results["rank_test_score"] = _ranks(results["mean_test_score"])
    return results


def _ranks(scores: np.ndarray) -> np.ndarray:
    return rankdata(-scores, "min").astype(int)


def same_splits(checkpoint: Checkpointer, compute: Callable[[], list[Split]]) -> list[Split]:
    """The same splits after an interruption, even where they are drawn at random."""
    flat = checkpoint.arrays("splits", lambda: tuple(part for split in compute() for part in split))
    return list(zip(flat[::2], flat[1::2], strict=True))
