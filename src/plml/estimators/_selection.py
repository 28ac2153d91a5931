"""Choosing ``regularization``, and what costs little more, by cross-validation.

Along the path of the regularizations every solution starts from the one before. Given a metric, all
numbers of neighbours and all votes take one search.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata

from plml.backend.arrays import Array, is_tensor, like, on_host
from plml.backend.processes import end_with
from plml.estimators._folds import Split, checked_splits
from plml.estimators._recipe import Recipe
from plml.metric.basis_metric import BasisMetric
from plml.metric.votes import VOTES, class_shares
from plml.solvers.problem import Checkpointer
from plml.stages.costs import SELECTION_ITERATIONS, metrics_cost, search_cost
from plml.stages.pipeline import (
    METRICS,
    SingleWeighting,
    costs,
    learn_metrics_of,
    preparation_costs,
    with_triplets,
)
from plml.stages.run import Run
from plml.stages.triplets import check_targets
from plml.validation import positive_integer

#: The paper's grid for alpha_1.
REGULARIZATIONS = (0.01, 0.1, 1.0, 10.0, 100.0)
#: The stage after all folds, and the one after stage 2 in each.
FINAL_FIT, SCORING = "final fit", "scoring"


class Selection(NamedTuple):
    """The setting with the best mean accuracy, and how every setting did."""

    params: dict[str, Any]
    score: float
    results: dict[str, Any]


class Choices(NamedTuple):
    """What is selected from; of settings that do as well, that of the first values is taken."""

    regularizations: tuple[float, ...]  # largest first
    n_bases: tuple[int | None, ...]  # None where the number is no parameter
    n_neighbors: tuple[int, ...]  # largest first
    votes: tuple[str, ...]

    @classmethod
    def of(cls, model: Any, regularizations: Sequence[float]) -> "Choices":
        """Those of a classifier whose parameters may be single values or several."""
        bases = counts("n_bases", model.n_bases) if hasattr(model, "n_bases") else ()
        return cls(
            _largest_first(regularizations),
            tuple(sorted(bases)) or (None,),
            tuple(sorted(counts("n_neighbors", model.n_neighbors), reverse=True)),
            votes(model.vote),
        )

    def params(self) -> list[dict[str, Any]]:
        """All settings in the order of their scores, by what there are several values of."""
        names = ("regularization", "n_bases", "n_neighbors", "vote")
        selected = [
            name
            for name, values in zip(names, self, strict=True)
            if name == "regularization" or len(values) > 1
        ]
        settings = (dict(zip(names, values, strict=True)) for values in product(*self))
        return [{name: setting[name] for name in selected} for setting in settings]


def counts(name: str, given: Any) -> tuple[int, ...]:
    """One count or several, as a tuple; refuses what is no count."""
    values = (given,) if isinstance(given, Integral) else tuple(given)
    if not values:
        raise ValueError(f"{name} must be a count or a non-empty sequence of counts, got {given!r}")
    return tuple(dict.fromkeys(positive_integer(name, value) for value in values))


def votes(given: Any) -> tuple[str, ...]:
    """One vote or several, as a tuple."""
    values = (given,) if isinstance(given, str) else tuple(given)
    unknown = [value for value in values if value not in VOTES]
    if unknown or not values:
        raise ValueError(
            f"vote must be one of {', '.join(VOTES)}, or several of them, got {given!r}"
        )
    return tuple(dict.fromkeys(values))


def select_regularization(model: Any, X: Array, y: np.ndarray, how: Any, run: Run) -> Selection:
    """The setting with the best accuracy over the folds; the larger regularization of equals.

    Parameters
    ----------
    model : a ``LargeMarginClassifier`` that knows its classes; where its ``n_neighbors``, ``vote``
        or ``n_bases`` are several, these are selected as well
    X, y : rows in their span and class codes
    how : has ``regularizations``, positive numbers in any order, ``cv`` in scikit-learn's meaning,
        and ``selection_tol``, the relative gap within the folds
    run : its threads are shared by the folds
    """
    check_targets(y)
    choices, classes = Choices.of(model, how.regularizations), model.classes_
    k = choices.n_neighbors[0]
    splits = _same_splits(
        run.checkpoint, lambda: checked_splits(how.cv, X, y, classes, "regularization", k)
    )
    recipe = model.recipe()
    folds = [
        _Fold(recipe, choices, how.selection_tol, len(classes), *_numbers(split, len(y)))
        for split in splits
    ]
    results = _as_results(choices.params(), _scores(folds, X, y, run))
    best = int(results["mean_test_score"].argmax())
    score = float(results["mean_test_score"][best])
    return Selection(results["params"][best], score, results)


class _Fold(NamedTuple):
    """One fold, and what is done on it."""

    recipe: Recipe
    choices: Choices
    tol: float
    n_classes: int
    train: np.ndarray
    test: np.ndarray

    def recipes(self) -> list[Recipe]:
        """One for each number of bases."""
        return [self._with_bases(m) for m in self.choices.n_bases]

    def _with_bases(self, n_bases: int | None) -> Recipe:
        weighting = self.recipe.weighting
        if n_bases is None or isinstance(weighting, SingleWeighting):
            return self.recipe
        return replace(self.recipe, weighting=replace(weighting, n_bases=n_bases))

    def costs(self, d: int) -> dict[str, float]:
        """The stages of a fold, with rough seconds."""
        stages: dict[str, float] = {}
        for recipe in self.recipes():
            m = recipe.weighting.n_bases
            for name, seconds in preparation_costs(len(self.train), d, recipe.weighting).items():
                stages[name] = stages.get(name, 0.0) + seconds
            per_value = sum(self.costs_of_value(d, m).values())
            values = self.choices.regularizations
            stages |= {_named(value, self._said(m)): per_value for value in values}
        return stages

    def _said(self, n_bases: int) -> int | None:
        """The number of bases where it is worth saying."""
        return n_bases if len(self.choices.n_bases) > 1 else None

    def costs_of_value(self, d: int, m: int) -> dict[str, float]:
        """The stages of one value, with rough seconds."""
        sizes = (len(self.test), len(self.train))
        return {
            METRICS: metrics_cost(len(self.train), d, m, SELECTION_ITERATIONS),
            SCORING: search_cost(*sizes, d + m),
        }

    def scores(self, X: Array, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
        """Accuracies and gaps of all settings."""
        unit = self.recipe.unit(X[like(self.train, X)])
        rows, queries = (X[like(part, X)] / unit for part in (self.train, self.test))
        run.plan(self.costs(X.shape[1]))
        found = [
            self._path(recipe, rows, queries, y, run) for recipe in self.recipes()
        ]  # (n_values, n_k, n_votes) scores, (n_values,) gaps
        scores = np.stack([scores for scores, _ in found], axis=1)
        gaps = np.stack([gaps for _, gaps in found], axis=1)
        return scores, np.broadcast_to(gaps[:, :, None, None], scores.shape).copy()

    def _path(
        self, recipe: Recipe, rows: Array, queries: Array, y: np.ndarray, run: Run
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and gaps; every value starts where the one before ended."""
        y_train, y_test = y[self.train], y[self.test]
        stages = recipe.stages(rows, y_train)
        weights = recipe.weighting.learn(stages, recipe.settings, run)
        prepared = with_triplets(weights, stages, recipe.settings, run)
        anchors = None if weights.anchors is None else on_host(weights.anchors)
        host, W = on_host(rows), on_host(weights.weights)
        scores, gaps, gamma = [], [], None
        for value in self.choices.regularizations:
            settings = replace(recipe.settings, regularization=value, tol=self.tol)
            with run.stage(_named(value, self._said(recipe.weighting.n_bases))):
                run.plan(self.costs_of_value(host.shape[1], recipe.weighting.n_bases))
                metrics = learn_metrics_of(stages, prepared, settings, run, gamma)
                gamma = metrics.gamma
                with run.stage(SCORING):
                    metric = recipe.metric(
                        host,
                        y_train,
                        W.astype(host.dtype, copy=False),
                        on_host(metrics.M).astype(host.dtype, copy=False),
                        anchors,
                        weights.scales,
                    )
                    scores.append(self._accuracies(metric, queries, y_train, y_test))
            gaps.append(metrics.gap)
        return np.array(scores), np.array(gaps)

    def _accuracies(
        self, metric: BasisMetric, queries: Array, y_train: np.ndarray, y_test: np.ndarray
    ) -> list[list[float]]:
        """By number of neighbours and vote, from one search."""
        squared, nearest = metric.search(queries, self.choices.n_neighbors[0])

        def accuracy(k: int, how: str) -> float:
            shares = class_shares(squared[:, :k], nearest[:, :k], y_train, self.n_classes, how)
            return float(np.mean(on_host(shares).argmax(axis=1) == y_test))

        return [[accuracy(k, how) for how in self.choices.votes] for k in self.choices.n_neighbors]


def _scores(
    folds: list[_Fold], X: Array, y: np.ndarray, run: Run
) -> list[tuple[np.ndarray, np.ndarray]]:
    """What every fold finds; those that a checkpoint knows are not computed again."""
    checkpoint = run.checkpoint
    to_do = [i for i in range(len(folds)) if not checkpoint.knows(f"fold {i}")]
    jobs = _in_parallel([folds[i] for i in to_do], X, y, run)
    names = [f"cross-validation: fold {i + 1} of {len(folds)}" for i in range(len(folds))]
    seconds = dict.fromkeys(names, 0.0)
    for i in to_do:
        seconds[names[i]] = sum(folds[i].costs(X.shape[1]).values())
    whole = costs(len(X), X.shape[1], folds[0].recipe.weighting)
    run.plan({**seconds, FINAL_FIT: sum(whole.values())})
    found = []
    for i, name in enumerate(names):
        with run.stage(name):
            found.append(checkpoint.arrays(f"fold {i}", lambda: next(jobs)))
    return found


def _in_parallel(
    folds: list[_Fold], X: Array, y: np.ndarray, run: Run
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The scores of every fold, several at the same time, as they are asked for."""
    n_jobs = 1 if is_tensor(X) else run.n_jobs  # one GPU
    employer = os.getpid()
    yield from Parallel(n_jobs=n_jobs, return_as="generator")(
        # Threads are those that the folds at the same time leave each other.
        delayed(_fold_scores)(fold, X, y, run.memory, employer)
        for fold in folds
    )


def _fold_scores(
    fold: _Fold, X: Array, y: np.ndarray, memory: float | None, employer: int
) -> tuple[np.ndarray, np.ndarray]:
    end_with(employer)
    run = Run(memory=memory)
    with run.limits():
        return fold.scores(X, y, run)


def _as_results(
    params: list[dict[str, Any]], folds: list[tuple[np.ndarray, np.ndarray]]
) -> dict[str, Any]:
    results: dict[str, Any] = {"params": params}
    for name in params[0]:
        results[f"param_{name}"] = np.array([setting[name] for setting in params])
    for i, (scores, gaps) in enumerate(folds):
        results[f"split{i}_test_score"] = scores.ravel()
        results[f"split{i}_dual_gap"] = gaps.ravel()
    scores = np.array([scores.ravel() for scores, _ in folds])
    results["mean_test_score"] = scores.mean(axis=0)
    results["std_test_score"] = scores.std(axis=0)
    results["rank_test_score"] = rankdata(-results["mean_test_score"], "min").astype(int)
    return results


def _same_splits(checkpoint: Checkpointer, compute: Callable[[], list[Split]]) -> list[Split]:
    """The same splits after an interruption, even where they are drawn at random."""
    flat = checkpoint.arrays("splits", lambda: tuple(part for split in compute() for part in split))
    return list(zip(flat[::2], flat[1::2], strict=True))


def _numbers(split: Split, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of rows, also where a split is given as masks."""
    train, test = (np.arange(n)[rows] for rows in split)
    return train, test


def _named(value: float, n_bases: int | None) -> str:
    bases = "" if n_bases is None else f"{n_bases} bases, "
    return f"{bases}regularization {value:g}"


def _largest_first(regularizations: Sequence[float]) -> tuple[float, ...]:
    """The values in descending order; refuses an empty or non-positive grid."""
    values = np.asarray(regularizations)
    numbers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iuf"
    if not numbers or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"regularizations must be a non-empty sequence of positive numbers, got "
            f"{regularizations!r}"
        )
    return tuple(np.unique(values.astype(np.float64))[::-1].tolist())
