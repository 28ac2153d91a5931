"""Settings of the pipeline compared by cross-validation.

What settings have in common is computed once per fold: the weights of stage 1, the triplets and the
weights of the queries. Along a path of regularizations every solution starts from the one before.
Given a metric, all numbers of neighbours and all votes take one search.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata

from plml.backend.arrays import Array, is_tensor, like, on_host
from plml.backend.processes import end_with
from plml.estimators._folds import Split
from plml.estimators._recipe import Recipe
from plml.metric.basis_metric import BasisMetric
from plml.metric.votes import class_shares, linear_shares
from plml.metric.weight_rules import KnownWeights
from plml.solvers.problem import NO_CHECKPOINT, Checkpointer
from plml.stages.costs import SELECTION_ITERATIONS, metrics_cost, search_cost
from plml.stages.pipeline import (
    METRICS,
    TRIPLETS,
    Prepared,
    Weighting,
    Weights,
    costs,
    learn_metrics_of,
    with_triplets,
)
from plml.stages.run import Run

#: The stage after all folds, and the one after stage 2 in each.
FINAL_FIT, SCORING = "final fit", "scoring"


class Path(NamedTuple):
    """Metrics that differ in their regularization alone."""

    recipe: Recipe
    regularizations: tuple[float, ...]  # largest first
    params: dict[str, Any]  # what sets it apart from other paths
    name: str = ""  # for the progress
    per_triplet: bool = False  # whether the regularizations are relative to the number of triplets

    def stage(self, value: float) -> str:
        """What one value is called in the progress."""
        return f"{self.name}{', ' if self.name else ''}regularization {value:g}"

    def regularization(self, value: float, class_sizes: np.ndarray) -> float:
        """The value itself, for rows with classes of given sizes."""
        return value * self.recipe.triplets_of(class_sizes) if self.per_triplet else value


class Voting(NamedTuple):
    """How many neighbours vote, and how."""

    n_neighbors: int
    vote: str


class Candidates(NamedTuple):
    """The settings to compare: every value of every path with every voting."""

    paths: tuple[Path, ...]
    votings: tuple[Voting, ...]
    tol: float  # the relative gap of stage 2 within the folds
    voting_names: tuple[str, ...] = Voting._fields  # which of them are selected

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

    def only(self, number: int) -> "Candidates":
        """A single setting, by its place in the order."""
        p, r, v = self.settings()[number]
        path = self.paths[p]._replace(regularizations=(self.paths[p].regularizations[r],))
        return self._replace(paths=(path,), votings=(self.votings[v],))


class Fold(NamedTuple):
    """One fold, and what is done on it."""

    candidates: Candidates
    n_classes: int
    train: np.ndarray
    test: np.ndarray

    def costs(self, d: int) -> dict[str, float]:
        """The stages of a fold, with rough seconds."""
        stages: dict[str, float] = {}
        for weighting in dict.fromkeys(path.recipe.weighting for path in self.candidates.paths):
            for name, seconds in weighting.costs(len(self.train), d).items():
                stages[name] = stages.get(name, 0.0) + seconds
        stages[TRIPLETS] = search_cost(len(self.train), len(self.train), d)
        for path in self.candidates.paths:
            per_value = sum(self.costs_of_value(d, path.recipe.weighting.n_bases).values())
            stages |= {path.stage(value): per_value for value in path.regularizations}
        return stages

    def costs_of_value(self, d: int, m: int) -> dict[str, float]:
        """The stages of one value, with rough seconds."""
        return {
            METRICS: metrics_cost(len(self.train), d, m, SELECTION_ITERATIONS),
            SCORING: search_cost(len(self.test), len(self.train), d + m),
        }

    def scores(self, X: Array, y: np.ndarray, run: Run) -> tuple[np.ndarray, ...]:
        """Accuracies, Brier scores and gaps of all settings, in their order."""
        truth = np.eye(self.n_classes)[y[self.test]]
        found: dict[tuple[int, int, int], tuple[float, float, float]] = {}
        for p, r, gap, shares in self.votes(X, y, run):
            for v, share in enumerate(shares):
                right = float(np.mean(share.argmax(axis=1) == y[self.test]))
                brier = float(np.mean(np.sum((share - truth) ** 2, axis=1)))
                found[p, r, v] = right, brier, gap
        columns = zip(*(found[setting] for setting in self.candidates.settings()), strict=True)
        return tuple(np.array(column) for column in columns)

    def votes(
        self, X: Array, y: np.ndarray, run: Run
    ) -> Iterator[tuple[int, int, float, list[np.ndarray]]]:
        """(path, value, gap of stage 2, (q, n_classes) shares of every voting)."""
        run.plan(self.costs(X.shape[1]))
        unit = self.candidates.paths[0].recipe.unit(X[like(self.train, X)])
        rows, queries = (X[like(part, X)] / unit for part in (self.train, self.test))
        known: dict[Weighting, _Preparation] = {}
        for p, path in enumerate(self.candidates.paths):
            weighting = path.recipe.weighting
            if weighting not in known:
                triplets = next((of.prepared.triplets for of in known.values()), None)
                known[weighting] = _prepare(path.recipe, rows, y[self.train], triplets, run)
            for r, gap, metric in self._metrics(path, known[weighting], queries, run):
                with run.stage(SCORING):
                    yield p, r, gap, self._shares(metric, queries, y[self.train])

    def _metrics(
        self, path: Path, preparation: "_Preparation", queries: Array, run: Run
    ) -> Iterator[tuple[int, float, BasisMetric]]:
        """(value, gap, metric); every value starts where the one before ended."""
        gamma, sizes = None, np.bincount(preparation.y, minlength=self.n_classes)
        for r, value in enumerate(path.regularizations):
            settings = replace(
                path.recipe.settings,
                regularization=path.regularization(value, sizes),
                tol=self.candidates.tol,
            )
            with run.stage(path.stage(value)):
                run.plan(self.costs_of_value(queries.shape[1], path.recipe.weighting.n_bases))
                stages = preparation.stages
                metrics = learn_metrics_of(stages, preparation.prepared, settings, run, gamma)
                gamma = metrics.gamma
                metric = preparation.metric(path.recipe, on_host(metrics.M))
                metric.rule = preparation.rule(metric, queries)
                yield r, metrics.gap, metric

    def _shares(self, metric: BasisMetric, queries: Array, y_train: np.ndarray) -> list[np.ndarray]:
        """By voting, from one search."""
        votings = self.candidates.votings
        squared, nearest = metric.quick_search(queries, max(k for k, _ in votings))
        sizes = [k for k, how in votings if how == "linear"]
        of_all = metric, queries, nearest, y_train, self.n_classes
        linear = iter(linear_shares(*of_all, sizes) if sizes else ())

        def shares(k: int, how: str) -> Array:
            if how == "linear":
                return next(linear)
            near = squared[:, :k], nearest[:, :k]
            return class_shares(metric, queries, *near, y_train, self.n_classes, how)

        return [on_host(shares(k, how)) for k, how in votings]


class _Preparation:
    """What the paths with the same weights share in a fold."""

    def __init__(self, stages: Any, y: np.ndarray, prepared: Prepared) -> None:
        self.stages = stages
        self.y = y
        self.prepared = prepared
        self._rule: KnownWeights | None = None

    @cached_property
    def _on_host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Rows, their weights, anchors."""
        rows, weights = on_host(self.stages.X), self.prepared.weights
        anchors = None if weights.anchors is None else on_host(weights.anchors)
        return rows, on_host(weights.weights).astype(rows.dtype, copy=False), anchors

    def metric(self, recipe: Recipe, M: np.ndarray) -> BasisMetric:
        """Learned basis metrics, ready to be asked."""
        rows, W, anchors = self._on_host
        scales = self.prepared.weights.scales
        return recipe.metric(rows, self.y, W, M.astype(rows.dtype, copy=False), anchors, scales)

    def rule(self, metric: BasisMetric, queries: Array) -> KnownWeights:
        """The weights of the queries, which do not depend on the metrics."""
        if self._rule is None:
            self._rule = KnownWeights(metric.weights(queries))
        return self._rule


def _prepare(
    recipe: Recipe, rows: Array, y: np.ndarray, triplets: Any, run: Run
) -> _Preparation:
    stages = recipe.stages(rows, y)
    weights: Weights = recipe.weighting.learn(stages, recipe.settings, run)
    if triplets is None:
        return _Preparation(stages, y, with_triplets(weights, stages, recipe.settings, run))
    return _Preparation(stages, y, Prepared(weights, triplets, {}))


def compare(
    candidates: Candidates, splits: list[Split], X: Array, y: np.ndarray, n_classes: int, run: Run
) -> dict[str, Any]:
    """How every setting does in every fold, as scikit-learn's ``cv_results_``.

    Parameters
    ----------
    candidates : the settings
    splits : rows to train on and rows to test on
    X, y : rows in their span and class codes
    n_classes : number of classes
    run : its threads are shared by the folds
    """
    folds = [Fold(candidates, n_classes, *_numbers(split, len(y))) for split in splits]
    return _as_results(candidates.params(), _scores(folds, X, y, run))


def held_out_shares(
    candidates: Candidates, splits: list[Split], X: Array, y: np.ndarray, n_classes: int, run: Run
) -> tuple[np.ndarray, np.ndarray]:
    """The votes of a single setting for the rows that it did not learn from.

    Parameters
    ----------
    candidates : that setting alone
    splits, X, y, n_classes, run : as in ``compare``

    Returns
    -------
    shares : (n_rows, n_classes) array
    codes : (n_rows,) their classes
    """
    alone = replace(run, checkpoint=NO_CHECKPOINT)  # which is of the last fit
    shares, codes = [], []
    for split in splits:
        fold = Fold(candidates, n_classes, *_numbers(split, len(y)))
        ((_, _, _, (votes,)),) = fold.votes(X, y, alone)
        shares.append(votes)
        codes.append(y[fold.test])
    return np.concatenate(shares), np.concatenate(codes)


def _scores(
    folds: list[Fold], X: Array, y: np.ndarray, run: Run
) -> list[tuple[np.ndarray, ...]]:
    """What every fold finds; those that a checkpoint knows are not computed again."""
    checkpoint = run.checkpoint
    to_do = [i for i in range(len(folds)) if not checkpoint.knows(f"fold {i}")]
    jobs = _in_parallel([folds[i] for i in to_do], X, y, run)
    names = [f"cross-validation: fold {i + 1} of {len(folds)}" for i in range(len(folds))]
    seconds = dict.fromkeys(names, 0.0)
    for i in to_do:
        seconds[names[i]] = sum(folds[i].costs(X.shape[1]).values())
    whole = costs(len(X), X.shape[1], folds[0].candidates.paths[-1].recipe.weighting)
    run.plan({**seconds, FINAL_FIT: sum(whole.values())})
    found = []
    for i, name in enumerate(names):
        with run.stage(name):
            found.append(checkpoint.arrays(f"fold {i}", lambda: next(jobs)))
    return found


def _in_parallel(
    folds: list[Fold], X: Array, y: np.ndarray, run: Run
) -> Iterator[tuple[np.ndarray, ...]]:
    """The scores of every fold, several at the same time, as they are asked for."""
    n_jobs = 1 if is_tensor(X) else run.n_jobs  # one GPU
    employer = os.getpid()
    yield from Parallel(n_jobs=n_jobs, return_as="generator")(
        # Threads are those that the folds at the same time leave each other.
        delayed(_fold_scores)(fold, X, y, run.memory, employer)
        for fold in folds
    )


def _fold_scores(
    fold: Fold, X: Array, y: np.ndarray, memory: float | None, employer: int
) -> tuple[np.ndarray, ...]:
    end_with(employer)
    run = Run(memory=memory)
    with run.limits():
        return fold.scores(X, y, run)


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
    results["rank_test_score"] = rankdata(-results["mean_test_score"], "min").astype(int)
    return results


def same_splits(checkpoint: Checkpointer, compute: Callable[[], list[Split]]) -> list[Split]:
    """The same splits after an interruption, even where they are drawn at random."""
    flat = checkpoint.arrays("splits", lambda: tuple(part for split in compute() for part in split))
    return list(zip(flat[::2], flat[1::2], strict=True))


def _numbers(split: Split, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of rows, also where a split is given as masks."""
    train, test = (np.arange(n)[rows] for rows in split)
    return train, test
