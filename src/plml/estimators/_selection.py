"""Choosing ``regularization``, and what costs little more, by cross-validation."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import Array
from plml.estimators._cross_validation import (
    FINAL_FIT,
    Fold,
    RegularizationPath,
    SettingGrid,
    compare,
    cost_of_fit,
    plan_of,
    same_splits,
)
from plml.estimators._folds import checked_splits, folds_of_kept
from plml.estimators._recipe import Recipe
from plml.estimators._scoring import Scoring
from plml.metric.votes import VOTES, Voting
from plml.stages.pipeline import SingleWeighting
from plml.stages.run import Run
from plml.stages.triplets import check_targets
from plml.validation import positive_integer

#: The paper's grid for alpha_1.
REGULARIZATIONS = (0.01, 0.1, 1.0, 10.0, 100.0)


class Selection(NamedTuple):
    """The setting with the best mean score, and how every setting did."""

    params: dict[str, Any]
    score: float
    results: dict[str, Any]


def select_regularization(
    model: Any,
    X: Array,
    y: np.ndarray,
    how: Any,
    run: Run,
    sample_weight: np.ndarray | None = None,
) -> Selection:
    """The setting with the best score over the folds; the larger regularization of equals.

    Parameters
    ----------
    model : a ``LargeMarginClassifier`` that knows its classes; where its ``n_neighbors``, ``vote``
        or ``n_bases`` are several, these are selected as well
    X, y : rows in their span and class codes
    how : has ``regularizations``, positive numbers in any order, ``cv`` in scikit-learn's meaning,
        ``selection_tol``, the relative gap within the folds, and maybe ``scoring``
    run : its threads are shared by the folds
    sample_weight : (n,) of the rows, or None
    """
    check_targets(y)
    candidates, classes = _candidates(model, how), model.classes_
    scoring = Scoring(getattr(how, "scoring", None), classes)
    k = candidates.votings[0].n_neighbors
    cv = folds_of_kept(how.cv, getattr(model, "kept_rows_", None))
    splits = same_splits(
        run.checkpoint, lambda: checked_splits(cv, X, y, classes, "regularization", k)
    )
    scoring.check(splits, y, sample_weight)
    folds = Fold.of(splits, len(y), scoring, sample_weight)
    stages = plan_of(candidates, folds, X, run)
    run.plan({**stages, FINAL_FIT: cost_of_fit(candidates, X)})
    results = compare(candidates, folds, X, y, run).results
    best = int(results["mean_test_score"].argmax())
    score = float(results["mean_test_score"][best])
    return Selection(results["params"][best], score, results)


def _candidates(model: Any, how: Any) -> SettingGrid:
    """The settings of a classifier whose parameters may be single values or several.

    Of settings that do as well, the first one is taken: the largest regularization, then the
    fewest bases, the most neighbours and the first vote.
    """
    values, recipe = largest_first(how.regularizations), model.recipe()
    bases = sorted(counts("n_bases", model.n_bases)) if hasattr(model, "n_bases") else []
    if len(bases) > 1:
        paths = [
            RegularizationPath(_with_bases(recipe, m), values, {"n_bases": m}, f"{m} bases")
            for m in bases
        ]
    else:
        paths = [RegularizationPath(recipe, values, {})]
    neighbors = sorted(counts("n_neighbors", model.n_neighbors), reverse=True)
    kinds = votes(model.vote)
    several = {"n_neighbors": len(neighbors) > 1, "vote": len(kinds) > 1}
    return SettingGrid(
        tuple(paths),
        tuple(Voting(k, kind) for k, kind in product(neighbors, kinds)),
        how.selection_tol,
        voting_names=tuple(name for name, selected in several.items() if selected),
        weigh_votes=model.weigh_votes,
    )


def _with_bases(recipe: Recipe, n_bases: int) -> Recipe:
    if isinstance(recipe.weighting, SingleWeighting):
        return recipe
    return replace(recipe, weighting=replace(recipe.weighting, n_bases=n_bases))


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


def largest_first(regularizations: Sequence[float]) -> tuple[float, ...]:
    """The values in descending order; refuses an empty or non-positive grid."""
    values = np.asarray(regularizations)
    numbers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iuf"
    if not numbers or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"regularizations must be a non-empty sequence of positive numbers, got "
            f"{regularizations!r}"
        )
    return tuple(np.unique(values.astype(np.float64))[::-1].tolist())
