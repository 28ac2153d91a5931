"""A nearest-neighbour classifier for any table, with what it needs selected on the table itself."""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from plml.backend.arrays import Array, check_device, is_collection, to_available_device
from plml.estimators._calibration import calibrated, calibration
from plml.estimators._certificate import certificate_text
from plml.estimators._committee import (
    KINDS_IN_WORDS,
    SharedPreparation,
    eligible,
    in_words,
    members,
    metrics_of,
    seats,
    seats_by_score,
)
from plml.estimators._cross_validation import (
    FINAL_FIT,
    ComparedSettings,
    Fold,
    RegularizationPath,
    SettingGrid,
    compare,
    cost_of_fit,
    held_out_shares,
    plan_of,
    same_splits,
)
from plml.estimators._encoding_choice import fill_line, fill_scores
from plml.estimators._fit_warnings import rows_left_out
from plml.estimators._fitted_state import of_one_fit, refitted
from plml.estimators._folds import checked_splits, folds_of_kept
from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._living_tables import LivingTable
from plml.estimators._parameters import COUNT, POSITIVE, Parameters, parameter
from plml.estimators._scoring import ScoresAsSelected, Scoring
from plml.estimators._selection import counts, largest_first, votes
from plml.estimators.plml import PLML
from plml.estimators.sml import SML
from plml.evaluation.stratified import stratified_part
from plml.io.checkpoints import Checkpoint
from plml.metric.votes import Voting
from plml.ops.span import inside, span_of
from plml.preprocessing.columns import are_keys, listed
from plml.preprocessing.table_encoder import FILLS, TableEncoder
from plml.stages.run import Run
from plml.stages.triplets import check_targets
from plml.validation import (
    WeightedRows,
    refuse_keywords,
    row_names,
    rows_that_count,
    training_data,
    with_class_weight,
)
from plml.wording import counted

#: What may be learned: nothing, so that the prior is the metric; one metric for all; metrics that
#: vary over the data; and these with one per class at the stored cases besides.
METRICS = ("prior", "one", "local", "two-sided")
PRIORS = ("identity", "within")
#: The regularization that leaves a metric at its prior.
_ALL_PRIOR = 1e6
#: Kinds of metrics that are the same everywhere.
_SINGLE = ("prior", "one")
#: Settings of a comparison that a committee is chosen from.
_KEPT = 128
#: What the comparison of local and two-sided metrics is called.
_SECOND = "local metrics, "


@dataclass(kw_only=True, eq=False, repr=False)
class AutoPLML(LivingTable, Parameters, ScoresAsSelected, BaseEstimator):
    """Nearest neighbours under a metric that cross-validation on the training rows selects.

    It takes a table of numbers, or a data frame with categories, dates and missing values, and
    needs no preparation; ``plml.describe`` says which columns are better left out. It compares
    plain k-nearest neighbours, one metric, local metrics and two-sided metrics; two priors; values
    of the regularization; numbers of neighbours and kinds of vote. Local and two-sided metrics are
    tried with the prior and the pull that are best for one metric. The settings that vote best
    together are fitted to all rows, each with its certificate.

    Parameters
    ----------
    standardize : bool
        Give every column of numbers the same spread. Set it to False if all columns are in the same
        unit, such as the pixels of images.
    missing : {"auto", "median", "indicator", "neighbors"}
        What missing numbers become, as ``missing`` of ``TableEncoder``; "auto" takes what does best
        with Euclidean neighbours on held-out training rows.
    metrics : sequence of {"prior", "one", "local", "two-sided"}
        What may be learned: nothing (the prior is the metric), ``SML``, ``PLML``, or ``PLML`` with
        ``case_metrics="class"``.
    priors : sequence of {"identity", "within"}
        As ``prior`` of ``PLML``; "identity" with nothing learned is the Euclidean distance.
    regularizations : sequence of float
        alpha_1 divided by the number of triplets.
    pulls : sequence of float
        As ``pull`` of ``PLML``.
    n_neighbors : sequence of int
        Numbers of neighbours that vote.
    linear_neighbors : sequence of int
        The same for the linear vote, which needs more of them. If ``n_neighbors`` is a single
        number, it is used here as well.
    vote : sequence of {"uniform", "distance", "linear"}
        As ``vote`` of ``PLML``.
    n_bases : int
        Basis metrics of local and two-sided metrics.
    n_members : int
        The largest number of metrics that vote together, none of them clearly less accurate than
        the best (by more than 1.5 standard errors). With one, or if ``max_selection_samples`` is
        exceeded, there is one metric with one number of neighbours and one vote.
    cv : int or splitter
        Folds; a number of them is stratified and shuffled.
    scoring : str, callable or None
        What is maximised on the held-out rows, as in ``PLMLCV``. None is accuracy for the settings
        and the Brier score for the seats of a committee; any other scorer decides both. A scorer
        of probabilities is given the votes before they are calibrated, none of them zero.
    class_weight : {"balanced"}, dict or None
        As in ``PLML``; scores, calibration and the units of columns are weighted as well.
    weigh_votes : bool
        As in ``PLML``.
    max_selection_samples : int
        If there are more rows than this, settings are selected on a stratified part of them.
    selection_tol : float
        Relative gap of both stages within the folds.
    n_directions : int, "auto" or None
        As in ``PLML``, of the encoded columns.
    tol, max_iter, neighbor_search, search_backend, device, working_memory, verbose
        As in ``PLML``, of the last fit; the device is also that of the folds.
    n_jobs : int or None
        Folds computed in parallel.
    random_state : int, RandomState or None
        Seeds the folds, the part that is selected on, and k-means.

    Attributes
    ----------
    best_params_ : dict
        The setting with the best score: ``metrics``, ``prior``, ``pull``, ``regularization``
        (per triplet), ``n_neighbors``, ``vote``.
    best_score_ : float
        Its mean score over the folds.
    members_ : list of dict
        The settings that vote, as in ``best_params_``, with their ``weight`` and the number of
        their ``model`` in ``models_``; those of the same metric follow each other.
    cv_results_ : dict of arrays
        As in ``PLMLCV``, for all settings; also ``mean_test_brier``, by which settings of the same
        accuracy are told apart.
    baselines_ : dict of float
        Scores over the same folds: of the largest class, of Euclidean neighbours at their best
        number and vote, and of one metric at its best setting.
    models_ : list of PLML or SML
        What was fitted to all rows, as ``encoder_`` gives them, the one with the most weight first.
    model_ : PLML or SML
        The first of ``models_``: the metric of ``kneighbors``, ``explain`` and the vectors.
    encoder_ : TableEncoder
    fill_scores_ : dict of float
        Accuracies of the ways to fill gaps, where one had to be chosen.
    calibration_ : tuple of float
        The smoothing, the power and the floor that turn shares of votes into probabilities, found
        on the votes for held-out rows.
    dual_gap_, weights_gap_, n_iter_ : float, float and int
        The largest of ``models_``. A single metric has no stage 1, so ``weights_gap_`` is zero
        where all of them are single metrics.
    converged_ : bool
        Whether all of ``models_`` have converged.
    n_selection_samples_ : int
        Rows that were selected on.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    PLML : The learned metrics; nothing is selected.
    PLMLCV : The selection of the paper.
    plml.tables.fit : The same from a table with its labels, as ``plml fit`` does it.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from plml import AutoPLML
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AutoPLML(random_state=0).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    >>> sorted(model.baselines_)
    ['Euclidean neighbours', 'largest class', 'one metric']
    """

    standardize: bool = parameter(True, "boolean")
    missing: str = parameter("auto", StrOptions({"auto", *FILLS}))
    metrics: Sequence[str] = parameter(METRICS, "array-like")
    priors: Sequence[str] = parameter(PRIORS, "array-like")
    regularizations: Sequence[float] = parameter((0.1, 0.001), "array-like")
    pulls: Sequence[float] = parameter((1.0,), "array-like")
    n_neighbors: Sequence[int] = parameter((1, 3, 5, 9, 13, 19, 27, 41, 61), "array-like", COUNT)
    linear_neighbors: Sequence[int] = parameter((9, 19, 41, 121, 241), "array-like", COUNT)
    vote: Sequence[str] = parameter(("uniform", "distance", "linear"), "array-like", str)
    n_bases: int = parameter(10, COUNT)
    n_directions: int | str | None = parameter("auto", COUNT, StrOptions({"auto"}), None)
    n_members: int = parameter(2, COUNT)
    cv: Any = parameter(3, "cv_object")
    scoring: str | Callable[..., float] | None = parameter(None, str, callable, None)
    class_weight: dict[Any, float] | str | None = parameter(
        None, dict, StrOptions({"balanced"}), None
    )
    weigh_votes: bool = parameter(False, "boolean")
    max_selection_samples: int = parameter(10_000, COUNT)
    selection_tol: float = parameter(1e-2, POSITIVE)
    tol: float = parameter(1e-3, POSITIVE)
    max_iter: int = parameter(1000, COUNT)
    neighbor_search: str = parameter("auto", StrOptions({"auto", "exact", "approximate"}))
    search_backend: str = parameter("exact", StrOptions({"exact", "approximate"}))
    device: str = parameter("cpu", str)
    n_jobs: int | None = parameter(None, Integral, None)
    working_memory: float | None = parameter(None, POSITIVE, None)
    random_state: int | np.random.RandomState | None = parameter(None, "random_state")
    verbose: int = parameter(0, "verbose")

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        **unknown: Any,
    ) -> Self:
        """Select on the rows of X alone, then fit to all of them.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame; columns that are not numbers are
            categories, and entries may be missing
        y : (n_samples,) class labels
        sample_weight : (n_samples,) how often each row counts; one of weight zero is left out
        checkpoint : as in ``PLML``; folds that are done are not computed again
        """
        refuse_keywords(self, unknown)
        if is_collection(X):
            raise ValueError(
                "AutoPLML learns on one machine; give it X.compute() and y.compute(), or use PLML, "
                "which learns from Dask collections"
            )
        self._validate_params()
        check_device(self.device)
        with refitted(self) as model:
            checkpoint = None if checkpoint is None else Checkpoint.of(checkpoint)
            model._fit(rows_that_count(X, y, sample_weight), checkpoint)
        found = [warning for one in self.models_ for warning in one.fit_warnings()]
        found += rows_left_out(self)
        for warning in {str(warning): warning for warning in found}.values():
            warnings.warn(warning, stacklevel=2)
        return self

    def _fit(self, given: WeightedRows, checkpoint: Checkpoint | None) -> None:
        random = check_random_state(self.random_state)
        seeds = [int(seed) for seed in random.randint(2**31, size=3)]
        rows, codes, weights = self._encode(given, seeds[0])
        run = Run(n_jobs=self.n_jobs, memory=self.working_memory, verbose=self.verbose)
        if checkpoint is not None:
            parameters = {"estimator": type(self).__name__, **self.get_params(deep=False)}
            weighted = [] if weights is None else [weights]
            run = replace(run, checkpoint=checkpoint.open(parameters, rows, codes, *weighted))
        with run.shown():
            part = self._part(codes, seeds[0], run)
            self.n_selection_samples_ = len(part)
            placed = to_available_device(rows[part], self.device)
            together = self.n_members > 1 and len(part) == len(codes)
            counts = None if weights is None else weights[part]
            placed = inside(placed, span_of(placed, self.n_directions, counts))
            folds = self._folds(placed, codes[part], counts, seeds[1], run)
            self._select(placed, codes[part], folds, seeds[2], run, together)
            with run.stage(FINAL_FIT):
                self.models_ = self._fit_members(rows, codes, weights, seeds[2], run)
        self.model_ = self.models_[0]
        self.dual_gap_ = max(model.dual_gap_ for model in self.models_)
        self.weights_gap_ = max(vars(model).get("weights_gap_", 0.0) for model in self.models_)
        self.n_iter_ = max(model.n_iter_ for model in self.models_)
        self.converged_ = all(model.converged_ for model in self.models_)

    def _encode(
        self, given: WeightedRows, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The rows as numbers, gaps filled, their classes and weights, checked and remembered."""
        X, y, weights, kept = given
        first = FILLS[0] if self.missing == "auto" else self.missing
        self.encoder_ = TableEncoder(self.standardize, first).fit(X)
        _warn_of_keys(X)
        self.n_features_in_ = self.encoder_.n_features_in_
        if hasattr(self.encoder_, "feature_names_in_"):
            self.feature_names_in_ = self.encoder_.feature_names_in_
        rows, self.classes_, codes = training_data(SML(), self.encoder_.transform(X), y)
        check_targets(codes)
        self._row_names, self._gaps = row_names(X), self.encoder_.gaps(X)
        if kept is not None:
            self.kept_rows_ = kept
            self._row_names = kept if self._row_names is None else self._row_names
        weights = with_class_weight(weights, self.class_weight, self.classes_, codes)
        choose = self.missing == "auto" and self._gaps.any()
        how = codes, self.standardize, seed, weights
        self.fill_scores_ = fill_scores(self.encoder_.tidied(X), *how) if choose else {}
        best = max(self.fill_scores_, key=self.fill_scores_.__getitem__, default=first)
        if best != first or weights is not None:
            self.encoder_ = TableEncoder(self.standardize, best).fit(X, None, weights)
            rows = self.encoder_.transform(X).astype(rows.dtype)
        if self.encoder_.empty_:
            warnings.warn(
                f"empty columns of X are not used: {listed(self.encoder_.empty_)}; leave them out",
                stacklevel=4,
            )
        return rows, codes, weights

    def _fit_members(
        self,
        rows: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray | None,
        seed: int,
        run: Run,
    ) -> list[LargeMarginClassifier]:
        """The metrics of the members, fitted to all rows; what they have in common, once."""
        firsts = {member["model"]: member for member in reversed(self.members_)}
        # Those with a graph first: the triplets come from the same pass over the distances.
        order = sorted(firsts, key=lambda number: (firsts[number]["metrics"] in _SINGLE, number))
        names = [f"metric {place + 1} of {len(order)}" for place in range(len(order))]
        run.plan(dict.fromkeys(names, 1.0))
        shared = SharedPreparation(run.checkpoint)
        models: dict[int, LargeMarginClassifier] = {}
        for name, number in zip(names, order, strict=True):
            model = self._estimator(firsts[number], seed, codes, weights)
            own = replace(run, checkpoint=shared.of_member(number))
            with run.stage(name):
                models[number] = model.fit_within(rows, self.classes_[codes], own, weights)
        return [models[number] for number in sorted(models)]

    def _part(self, codes: np.ndarray, seed: int, run: Run) -> np.ndarray:
        """The rows that are selected on: all, or a stratified part."""
        most, knows_rows = self.max_selection_samples, not hasattr(self.cv, "split")
        if len(codes) > most and knows_rows and not isinstance(self.cv, Integral | None):
            raise ValueError(
                f"of {len(codes)} rows, max_selection_samples={most} are selected on, so cv must "
                "be a number or a splitter; raise max_selection_samples to give folds by their rows"
            )
        (part,) = run.checkpoint.arrays("part", lambda: (stratified_part(codes, most, seed),))
        return part

    def _select(
        self, X: Array, y: np.ndarray, folds: list[Fold], seed: int, run: Run, together: bool
    ) -> None:
        """Set what is known of the selection: settings that vote together, or the best one."""
        n_kept = _KEPT if together else 0
        grids, comparison = self._compared(folds, X, y, seed, run, n_kept)
        results = self.cv_results_ = comparison.results
        best = _best(results)
        self.best_params_ = results["params"][best]
        self.best_score_ = float(results["mean_test_score"][best])
        self.baselines_ = _baselines(results, folds, y)
        tested = np.concatenate([fold.test for fold in folds])
        truth, counts = y[tested], folds[0].counted(tested)
        numbers, voted = comparison.votes_in_all_folds()
        if len(numbers):
            by_score = self.scoring is not None
            able = slice(None) if by_score else eligible(voted, truth, counts)
            numbers, voted = numbers[able], voted[able]
            settings = [results["params"][number] for number in numbers]
            metrics, most = metrics_of(settings), self.n_members
            if by_score:
                score = partial(folds[0].scoring.scores, codes=truth, sample_weight=counts)
                taken = seats_by_score(voted, metrics, most, score)
            else:
                taken = seats(voted, truth, metrics, most, counts)
            self.members_ = members(settings, taken)
            shares = np.einsum("s,snc->nc", taken / taken.sum(), voted)
        else:
            self.members_ = [{**self.best_params_, "weight": 1.0, "model": 0}]
            chosen = _setting(grids, best)
            (shares,) = run.checkpoint.arrays(
                "shares", lambda: (held_out_shares(chosen, folds, X, y, run),)
            )
        self.calibration_ = calibration(shares, truth, counts)

    def _compared(
        self, folds: list[Fold], X: Array, y: np.ndarray, seed: int, run: Run, n_kept: int
    ) -> tuple[list[SettingGrid], ComparedSettings]:
        """First the single metrics; then the others, with the prior and the pull that are best."""
        votings = self._votings(min(len(fold.train) for fold in folds))
        grid = partial(self._grid, votings=votings, seed=seed, n_kept=n_kept)
        kinds = _known("metrics", self.metrics, METRICS)
        several = [kind for kind in kinds if kind not in _SINGLE]
        single = [kind for kind in kinds if kind in _SINGLE] or several
        priors, pulls = _known("priors", self.priors, PRIORS), _pulls(self.pulls)
        grids = [grid(single, priors, pulls)]
        plan = plan_of(grids[0], folds, X, run)
        if two_phases := single != several and bool(several):
            plan |= plan_of(grid(several, priors[:1], pulls[:1]), folds, X, run, _SECOND)
        n_rows = len(X) if self._gaps is None else len(self._gaps)
        growth = n_rows / len(X)  # all rows to the part that is selected on
        run.plan({**plan, FINAL_FIT: growth * cost_of_fit(grids[0], X)})
        comparison = compare(grids[0], folds, X, y, run)
        if two_phases:
            best = comparison.results["params"][_best(comparison.results)]
            grids.append(grid(several, (best["prior"],), (best["pull"],)))
            later = compare(grids[1], folds, X, y, run, _SECOND)
            comparison = comparison.joined_with(later)
        return grids, comparison

    def _folds(
        self, X: Array, y: np.ndarray, weights: np.ndarray | None, seed: int, run: Run
    ) -> list[Fold]:
        cv = folds_of_kept(self.cv, vars(self).get("kept_rows_"))
        n = float(len(y) if weights is None else weights.sum())
        scoring = Scoring(self.scoring, self.classes_, 1.0 / (n + 1.0))
        if isinstance(cv, Integral):
            cv = StratifiedKFold(int(cv), shuffle=True, random_state=seed)
        instead = "use PLML, which selects nothing"
        splits = same_splits(
            run.checkpoint,
            lambda: checked_splits(cv, X, y, self.classes_, "the metric", instead=instead),
        )
        scoring.check(splits, y, weights)
        return Fold.of(splits, len(y), scoring, weights)

    def _votings(self, n_rows: int) -> tuple[Voting, ...]:
        """How neighbours may vote, where there are so many rows in the smallest fold."""
        neighbors = counts("n_neighbors", self.n_neighbors)
        of_linear = counts("linear_neighbors", self.linear_neighbors)
        if len(neighbors) == 1:
            of_linear = neighbors
        return tuple(
            Voting(k, how)
            for how in votes(self.vote)
            for k in [k for k in (of_linear if how == "linear" else neighbors) if k < n_rows] or [1]
        )

    def _grid(
        self,
        kinds: Sequence[str],
        priors: Sequence[str],
        pulls: Sequence[float],
        *,
        votings: tuple[Voting, ...],
        seed: int,
        n_kept: int,
    ) -> SettingGrid:
        """All values of the regularization for every kind of metrics, prior and pull."""
        values, paths = largest_first(self.regularizations), []
        for kind, prior, pull in product(kinds, priors, pulls):
            if kind == "prior" and pull != pulls[0]:
                continue  # nothing is pulled
            params = {"metrics": kind, "prior": prior, "pull": float(pull)}
            model = self._estimator({**params, "regularization": 1.0}, seed)
            recipe = model.set_params(tol=self.selection_tol).recipe()
            name = f"{KINDS_IN_WORDS[kind]}, prior {prior!r}"
            name += f", pull {pull:g}" * (len(pulls) > 1)
            regularizations = (_ALL_PRIOR,) if kind == "prior" else values
            paths.append(
                RegularizationPath(recipe, regularizations, params, name, per_triplet=True)
            )
        grid = SettingGrid(tuple(paths), votings, self.selection_tol, n_kept)
        return grid._replace(weigh_votes=self.weigh_votes)

    def _estimator(
        self,
        params: dict[str, Any],
        seed: int,
        y: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
    ) -> LargeMarginClassifier:
        """The estimator of a setting; its regularization is that of rows with classes y."""
        how: dict[str, Any] = {
            "prior": params["prior"],
            "pull": params["pull"],
            "regularization": params["regularization"],
            "n_neighbors": params.get("n_neighbors", 1),
            "vote": params.get("vote", "uniform"),
            **{name: getattr(self, name) for name in _PASSED_ON},
        }
        if params["metrics"] in ("prior", "one"):
            model: LargeMarginClassifier = SML(**how)
        else:
            cases = "class" if params["metrics"] == "two-sided" else None
            model = PLML(**how, case_metrics=cases, n_bases=self.n_bases, random_state=seed)
        if y is not None:
            n_triplets = model.recipe().triplets_of(y, len(self.classes_), sample_weight)
            model.set_params(regularization=params["regularization"] * n_triplets)
        return model

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest probability; ties to the first class.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    @of_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated probabilities of the classes, in the order of ``classes_``.

        The order of the classes is that of their shares in the votes.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        rows = self.encoder_.transform(X)
        shares = np.zeros((len(rows), len(self.classes_)))
        for model, pairs in self.committee():
            voted = model.vote_shares(rows, [voting for _, voting in pairs])
            shares += sum(weight * part for (weight, _), part in zip(pairs, voted, strict=True))
        return calibrated(shares, *self.calibration_)

    def committee(self) -> list[tuple[Any, list[tuple[float, Voting]]]]:
        """The models that vote, each with its votes and their weights."""
        found: list[tuple[Any, list[tuple[float, Voting]]]] = [(m, []) for m in self.models_]
        for member in self.members_:
            voting = Voting(member["n_neighbors"], member["vote"])
            found[member["model"]][1].append((member["weight"], voting))
        return [(model, pairs) for model, pairs in found if pairs]

    @of_one_fit
    def summary(self) -> str:
        """What was selected, what it is worth, and the certificate, in a few lines."""
        encoder, scoring = self.encoder_, Scoring(self.scoring, self.classes_)
        name, shown = scoring.name, scoring.shown
        lines = [
            *encoder.summary_lines(),
            *([fill_line(encoder.missing, self.fill_scores_)] if self.fill_scores_ else []),
            f"{name} in cross-validation on {self.n_selection_samples_} rows (the best setting of "
            "each kind, so optimistic)",
            *(f"  {simpler}: {shown(score)}" for simpler, score in self.baselines_.items()),
            f"  best setting: {shown(self.best_score_)}",
            f"selected: {counted(len(self.members_), 'vote')} with "
            f"{counted(len(self.models_), 'metric')}",
            *(f"  {in_words(member)}" for member in self.members_),
            certificate_text(self.models_),
        ]
        return "\n".join(lines)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


_PASSED_ON = (
    "n_directions",
    "tol",
    "max_iter",
    "neighbor_search",
    "search_backend",
    "device",
    "n_jobs",
    "working_memory",
    "weigh_votes",
)


def _known(name: str, given: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    values = (given,) if isinstance(given, str) else tuple(given)
    if not values or any(value not in known for value in values):
        raise ValueError(f"{name} must be some of {', '.join(known)}, got {given!r}")
    return tuple(dict.fromkeys(values))


def _pulls(given: Any) -> tuple[float, ...]:
    values = np.atleast_1d(np.asarray(given))
    numbers = values.ndim == 1 and len(values) > 0 and values.dtype.kind in "iuf"
    if not numbers or not (np.isfinite(values) & (values >= 0.0)).all():
        raise ValueError(f"pulls must be numbers, none of them negative, got {given!r}")
    return tuple(dict.fromkeys(values.astype(float).tolist()))


def _warn_of_keys(X: Any) -> None:
    """Say that a column of a data frame has another whole number in every row, as a key has."""
    if not hasattr(X, "iloc"):
        return
    for name in X.select_dtypes("integer").columns:
        if are_keys(X[name], str(name)):
            warnings.warn(
                f"column {str(name)!r} has another number in every row, as a key has, and the "
                "distances between rows depend on it; leave it out, or make it the index",
                stacklevel=5,
            )


def _best(results: dict[str, Any]) -> int:
    """The setting with the best score; of equals, that with the best Brier score."""
    return int(np.lexsort((results["mean_test_brier"], -results["mean_test_score"]))[0])


def _setting(candidates: Sequence[SettingGrid], number: int) -> SettingGrid:
    """A single setting of several comparisons, by its place in all of them."""
    for several in candidates:
        if number < (n_settings := len(several.settings())):
            return several.only(number)
        number -= n_settings
    raise IndexError(number)


def _baselines(results: dict[str, Any], folds: list[Fold], y: np.ndarray) -> dict[str, float]:
    """Scores of what is simpler, over the same folds."""
    majority = [_score_of_largest_class(fold, y) for fold in folds]
    kinds, priors = results["param_metrics"], results["param_prior"]
    simpler = {
        "Euclidean neighbours": (kinds == "prior") & (priors == "identity"),
        "one metric": kinds == "one",
    }
    best = {
        name: float(results["mean_test_score"][rows].max())
        for name, rows in simpler.items()
        if rows.any()
    }
    return {"largest class": float(np.mean(majority)), **best}


def _score_of_largest_class(fold: Fold, y: np.ndarray) -> float:
    """Of a fold where every row is said to be of the class with the most weight."""
    largest = np.bincount(y[fold.train], fold.counted(fold.train)).argmax()
    shares = np.tile(np.eye(fold.n_classes)[largest], (1, len(fold.test), 1))
    return float(fold.scoring.scores(shares, y[fold.test], fold.counted(fold.test))[0])
