"""Choosing ``regularization`` by cross-validation along a warm-started path."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata

from plml.backend.arrays import Array, is_tensor, like, on_host
from plml.backend.processes import end_with
from plml.estimators._folds import Split, checked_splits
from plml.estimators._recipe import Recipe
from plml.metric.votes import class_shares
from plml.solvers.problem import Checkpointer
from plml.stages.costs import SELECTION_ITERATIONS, metrics_cost, search_cost
from plml.stages.pipeline import METRICS, costs, learn_metrics_of, preparation_costs, with_triplets
from plml.stages.run import Run
from plml.stages.triplets import check_targets

#: The paper's grid for alpha_1.
REGULARIZATIONS = (0.01, 0.1, 1.0, 10.0, 100.0)
#: The stage after all folds, and the one after stage 2 in each.
FINAL_FIT, SCORING = "final fit", "scoring"


class Selection(NamedTuple):
    """The value with the best mean accuracy, and how every value did."""

    regularization: float
    score: float
    results: dict[str, Any]


def select_regularization(model: Any, X: Array, y: np.ndarray, how: Any, run: Run) -> Selection:
    """The value with the best accuracy over the folds; the larger of equals.

    Parameters
    ----------
    model : a ``LargeMarginClassifier`` that knows its classes
    X, y : rows in their span and class codes
    how : has ``regularizations``, positive numbers in any order, ``cv`` in scikit-learn's meaning,
        and ``selection_tol``, the relative gap within the folds
    run : its threads are shared by the folds
    """
    check_targets(y)
    values = _largest_first(how.regularizations)
    k, classes = model.n_neighbors, model.classes_
    splits = _same_splits(
        run.checkpoint, lambda: checked_splits(how.cv, X, y, classes, "regularization", k)
    )
    recipe = model._recipe()
    folds = [
        _Fold(
            recipe,
            values,
            how.selection_tol,
            k,
            model.vote,
            len(classes),
            *_numbers(split, len(y)),
        )
        for split in splits
    ]
    results = _as_results(values, _scores(folds, X, y, run))
    best = int(results["mean_test_score"].argmax())
    return Selection(float(values[best]), float(results["mean_test_score"][best]), results)


class _Fold(NamedTuple):
    """One fold, and what is done on it."""

    recipe: Recipe
    values: np.ndarray  # largest first
    tol: float
    n_neighbors: int
    vote: str
    n_classes: int
    train: np.ndarray
    test: np.ndarray

    def costs(self, d: int) -> dict[str, float]:
        """The stages of a fold, with rough seconds."""
        per_value = sum(self.costs_of_value(d).values())
        return {
            **preparation_costs(len(self.train), d, self.recipe.weighting),
            **dict.fromkeys(map(_named, self.values), per_value),
        }

    def costs_of_value(self, d: int) -> dict[str, float]:
        """The stages of one value, with rough seconds."""
        m, sizes = self.recipe.weighting.n_bases, (len(self.test), len(self.train))
        return {
            METRICS: metrics_cost(len(self.train), d, m, SELECTION_ITERATIONS),
            SCORING: search_cost(*sizes, d + m),
        }

    def scores(self, X: Array, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
        """Accuracies and gaps; every value starts where the one before ended."""
        recipe = self.recipe
        unit = recipe.unit(X[like(self.train, X)])
        rows, y_train = X[like(self.train, X)] / unit, y[self.train]
        stages = recipe.stages(rows, y_train)
        run.plan(self.costs(X.shape[1]))
        weights = recipe.weighting.learn(stages, recipe.settings, run)
        prepared = with_triplets(weights, stages, recipe.settings, run)
        anchors = None if weights.anchors is None else on_host(weights.anchors)
        host, W = on_host(rows), on_host(weights.weights)
        scores, gaps, gamma = [], [], None
        for value in self.values:
            settings = replace(recipe.settings, regularization=float(value), tol=self.tol)
            with run.stage(_named(value)):
                run.plan(self.costs_of_value(X.shape[1]))
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
                    queries = X[like(self.test, X)] / unit
                    voters = metric.search(queries, self.n_neighbors)
                    shares = class_shares(*voters, y_train, self.n_classes, self.vote)
                    found = on_host(shares).argmax(axis=1)
            scores.append(np.mean(found == y[self.test]))
            gaps.append(metrics.gap)
        return np.array(scores), np.array(gaps)


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


def _as_results(values: np.ndarray, folds: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    results: dict[str, Any] = {
        "params": [{"regularization": float(value)} for value in values],
        "param_regularization": values,
    }
    for i, (scores, gaps) in enumerate(folds):
        results[f"split{i}_test_score"] = scores
        results[f"split{i}_dual_gap"] = gaps
    scores = np.array([scores for scores, _ in folds])
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


def _named(value: float) -> str:
    return f"regularization {value:g}"


def _largest_first(regularizations: Sequence[float]) -> np.ndarray:
    """The values as a descending array; refuses an empty or non-positive grid."""
    values = np.asarray(regularizations)
    numbers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iuf"
    if not numbers or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"regularizations must be a non-empty sequence of positive numbers, got "
            f"{regularizations!r}"
        )
    return np.unique(values.astype(np.float64))[::-1]
