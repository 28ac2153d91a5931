"""Scorecards: of a fitted model on other rows, and of a whole fit by cross-validation."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_consistent_length, has_fit_parameter

from plml.backend.arrays import on_host
from plml.backend.progress import in_blocks, plan, stage
from plml.evaluation.rivals import RIVALS, rivals
from plml.evaluation.scorecard import Scorecard, positive_class
from plml.evaluation.stratified import stratified_folds, stratified_part
from plml.validation import labels_of_rows, query_data

#: The name of what is judged.
LEARNED = "learned metric"
_CHOOSING = "choosing the rivals"
#: Rows are held out in so many parts; of these, one or all are measured on.
_PARTS = 3


def evaluate(
    model: Any, X: Any, y: Any, *, source: str = "", positive: Any = None, random_state: int = 0
) -> Scorecard:
    """Measure a fitted model on labelled rows, next to simpler methods trained on the same rows.

    The simpler methods are the largest class, Euclidean neighbours, and neighbours whose number and
    weights were chosen by cross-validation. All of them are trained on the rows that the model
    stores.

    Parameters
    ----------
    model : a fitted estimator of this library that has neighbours, a pipeline that ends in one, or
        a search over either (``GridSearchCV``)
    X, y : rows to which it was not fitted, and their classes
    source : what the text calls the rows
    positive : the class of interest, one of two; or None
    random_state : seeds the folds in which the tuned neighbours are chosen

    Returns
    -------
    Scorecard
        The figures of all methods; printing it shows them as ``plml evaluate`` does.

    See Also
    --------
    cross_evaluate : The same when there are no rows besides the training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from plml import SML
    >>> from plml.evaluation import evaluate
    >>> X, y = load_wine(return_X_y=True)
    >>> card = evaluate(SML().fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> card.rivals
    ['tuned kNN', 'Euclidean 5-NN', 'largest class']
    """
    X, model = at_classifier(model, X)
    labels = labels_of_rows(y, _num_samples(X), model.classes_)
    if positive is not None:
        positive_class(model.classes_, positive)  # before the work
    shares = _shares(model, X, random_state)
    n_known = _n_known(*euclidean(model, X)[:2])
    return Scorecard(labels, model.classes_, shares, source, positive, n_known)


def cross_evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    n_folds: int = _PARTS,
    source: str = "",
    positive: Any = None,
    random_state: int = 0,
    sample_weight: np.ndarray | None = None,
    max_rows: int | None = None,
) -> Scorecard:
    """Cross-validate a model: it is fitted again without the rows on which it is measured.

    Whatever the model selects, it selects again in every fold, and so do the simpler methods of
    ``evaluate``.

    Parameters
    ----------
    model : as in ``evaluate``, fitted or not; it stays as it is
    X, y : rows and their classes
    n_folds : folds, stratified and shuffled; with one, a third of the rows is held out once
    source, positive : as in ``evaluate``
    random_state : seeds the folds, including those of the tuned neighbours
    sample_weight : (n,) of the rows that the model is fitted to; every predicted row counts once,
        and the simpler methods ignore weights
    max_rows : of more rows, a fit gets a stratified part of so many

    Returns
    -------
    Scorecard
        As ``evaluate`` returns it.

    See Also
    --------
    evaluate : Measure a fitted model on rows of its own.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from plml import SML
    >>> from plml.evaluation import cross_evaluate
    >>> X, y = load_wine(return_X_y=True)
    >>> card = cross_evaluate(make_pipeline(StandardScaler(), SML()), X, y)
    >>> bool(card.figures["learned metric"].accuracy > 0.9)
    True
    """
    _refuse_model_of_table(model)
    labels = labels_of_rows(y, _num_samples(X))
    classes = np.unique(labels)
    check_consistent_length(X, sample_weight)
    if positive is not None:
        positive_class(classes, positive)
    if n_folds < 1:
        raise ValueError(f"n_folds must be at least 1, got {n_folds}")
    n_parts = n_folds if n_folds > 1 else _PARTS
    folds = stratified_folds(labels, n_parts, random_state)[:n_folds]
    if max_rows is not None:
        folds = [
            (train[stratified_part(labels[train], max_rows, random_state)], test)
            for train, test in folds
        ]
    names = [f"measuring: fold {number + 1} of {len(folds)}" for number in range(len(folds))]
    plan(dict.fromkeys(names, 1.0))
    parts, n_known = [], 0
    for name, (train, test) in zip(names, folds, strict=True):
        with stage(name):
            counts = None if sample_weight is None else np.asarray(sample_weight)[train]
            how = classes, random_state, fit_options(model, counts)
            part, n_copies = _held_out(model, X, labels, train, test, *how)
        parts.append(part)
        n_known += n_copies
    shares = {method: np.concatenate([part[method] for part in parts]) for method in parts[0]}
    tests = [test for _, test in folds]
    tested = np.concatenate(tests)
    parts_of_rows = np.repeat(np.arange(len(folds)), [len(test) for test in tests])
    return Scorecard(labels[tested], classes, shares, source, positive, n_known, parts_of_rows)


def _held_out(
    model: Any,
    X: Any,
    labels: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    classes: np.ndarray,
    random_state: int,
    options: dict[str, Any],
) -> tuple[dict[str, np.ndarray], int]:
    """Shares of all classes for rows that were not learned from; how many have a copy that was."""
    plan({"fit": 9.0, "predict": 1.0})
    with stage("fit", named=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the model itself was fitted
        fitted = clone(model).fit(_safe_indexing(X, train), labels[train], **options)
    with stage("predict", named=False):
        rows, fitted = at_classifier(fitted, _safe_indexing(X, test))
        found = _shares(fitted, rows, random_state)
        n_known = _n_known(*euclidean(fitted, rows)[:2])
    places = np.searchsorted(classes, fitted.classes_)
    wide = {name: np.zeros((len(test), len(classes))) for name in found}
    for name, shares in found.items():
        wide[name][:, places] = shares
    return wide, n_known


def fit_options(model: Any, sample_weight: np.ndarray | None) -> dict[str, Any]:
    """What ``fit`` of an estimator, or of a pipeline of steps that weigh rows, is told of weights.

    Parameters
    ----------
    model : an estimator of this library, or a pipeline that ends in one
    sample_weight : (n,) array, or None
    """
    if sample_weight is None:
        return {}
    if not isinstance(model, Pipeline):
        return {"sample_weight": sample_weight}
    weighing = [name for name, step in model.steps if has_fit_parameter(step, "sample_weight")]
    return {f"{name}__sample_weight": sample_weight for name in weighing}


def at_classifier(model: Any, X: Any) -> tuple[Any, Any]:
    """Rows as the classifier at the end of a pipeline has them, and the classifier."""
    model = getattr(model, "best_estimator_", model)
    _refuse_model_of_table(model)
    if not isinstance(model, Pipeline):
        return X, model
    return (model[:-1].transform(X) if len(model) > 1 else X), model[-1]


def _refuse_model_of_table(model: Any) -> None:
    """Refuse a ``plml.tables.Model``, whose rows are those of a table."""
    if hasattr(model, "pipeline"):
        raise ValueError(
            "this is the model of a table: use model.evaluate(table), or give model.classifier and "
            "model.prepared(table)"
        )


def _shares(model: Any, X: Any, random_state: int) -> dict[str, np.ndarray]:
    """By method, the learned one first; all are asked about the rows as the classifier has them."""
    queries, rows, codes = euclidean(model, X)
    plan({_CHOOSING: 2.0, LEARNED: 3.0, **dict.fromkeys(RIVALS, 1.0)})
    with stage(_CHOOSING):
        others = rivals(rows, codes, random_state)
    found = {LEARNED: in_blocks(LEARNED, model.predict_proba, X)}
    return found | {name: in_blocks(name, answer, queries) for name, answer in others.items()}


def euclidean(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries and training rows where their Euclidean distances mean something; codes of these."""
    if not hasattr(model, "training_cases"):
        raise ValueError(f"{type(model).__name__} stores no rows to train rivals on; use PLML")
    if hasattr(model, "encoder_"):  # AutoPLML: as it has them itself
        X, model = model.encoder_.transform(X), model.model_
    rows, codes = model.training_cases()
    return query_data(model, X), on_host(rows), on_host(codes)


def _n_known(queries: np.ndarray, rows: np.ndarray) -> int:
    """Queries that are the same as a training row, but for rounding."""
    stored = {row.tobytes() for row in _rounded(rows)}
    return sum(query.tobytes() in stored for query in _rounded(queries))


def _rounded(rows: np.ndarray) -> np.ndarray:
    return np.round(np.asarray(rows, dtype=np.float64), 6) + 0.0  # no negative zeros
