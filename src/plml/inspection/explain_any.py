"""``plml.explain``: for a model alone, or at the end of a pipeline."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from plml.inspection.affine import AffineMap, explained_in_columns
from plml.inspection.explanation import Explanation
from plml.inspection.lineage import Lineage, in_columns, inputs_of, known_values, lineage
from plml.inspection.values import snapped, table_values
from plml.install import as_pandas
from plml.preprocessing.table_encoder import TableEncoder
from plml.validation import check_rows, row_names


def explain(
    model: Any, X: Any = None, n_neighbors: int | None = None, *, cases: Any = None
) -> Explanation:
    """Why a model predicts what it predicts, in the columns that it was given.

    Parameters
    ----------
    model : a fitted estimator of this library, a ``Pipeline`` that ends in one, or a search over
        either (``GridSearchCV``)
    X : the rows to explain, as ``model.predict`` takes them; None for the training rows, each of
        which is then left out of its own neighbours
    n_neighbors : cases listed per row; by default those that vote, 15 at most
    cases : the table that the model was fitted to, for the values of the stored cases. Without it
        they are computed back from what the model has: gaps as an imputer filled them, and unknown
        after a step that discards something, as ``Normalizer`` does. Its index names them, where it
        is not the default one; without it, that of the data frame that the last step was fitted to.

    Returns
    -------
    Explanation
        Of all rows; ``explanation[0]`` is that of the first, and printing it shows its text.

    See Also
    --------
    counterfactual : The smallest change that changes a prediction.
    explore : Explanations on a map, in the browser.
    plml.inspection.explanation.Explanation : What is returned.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import plml
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = make_pipeline(StandardScaler(), plml.SML(n_neighbors=5)).fit(X, y)
    >>> plml.explain(model, X.iloc[[70]]).rivals
    array([1])
    """
    if X is not None:
        check_rows(X)
    model = getattr(model, "best_estimator_", model)
    _check_columns("X", X, _first_of(model))
    X, cases = with_dates(model, X), known_cases(model, cases)
    found = _explained(model, X, n_neighbors, cases)
    names = row_names(cases)
    return found.named(X, found.row_names if names is None else names)


def _explained(model: Any, X: Any, n_neighbors: int | None, cases: Any) -> Explanation:
    steps, last = classifier_of(model)
    if steps is None:
        found = last.explain(X, n_neighbors)
        return found if cases is None else _with_values(found, table_values(cases))
    names = _input_names(steps, X if cases is None else cases)
    made = None if X is None else steps.transform(X)
    found = last.explain(made, n_neighbors)
    columns = _lineage(steps, last, names)
    found = _weighed_by_column(found, last, made, columns)
    if not columns.is_table:
        through = _through_affine_steps(steps, last, found, X, cases, names)
        if through is not None:
            return through
    features = _training_values(last)
    stored = partial(known_values, columns, features)
    if cases is not None and columns.is_table:
        known = table_values(cases)
        here = known if X is None else table_values(X)
        told = in_columns(found, columns, stored, here)
        return _with_values(told, known[:, np.unique(columns.owner)])
    if X is not None and columns.is_table:
        return in_columns(found, columns, stored, table_values(X))
    if made is None:
        return in_columns(found, columns, stored, columns.values(features))
    rows = table_values(made) if hasattr(made, "columns") else np.asarray(made)
    return in_columns(found, columns, stored, snapped(columns.values(rows)))


def _lineage(steps: Any, last: Any, names: Sequence[str]) -> Lineage:
    """Of what a classifier sees behind some steps."""
    return lineage(steps, names, inputs_of(last, steps[-1]))


def known_cases(model: Any, cases: Any) -> Any:
    """The table that a model was fitted to, in the order of its columns; None where none is given.

    Parameters
    ----------
    model, cases : as in ``explain``
    """
    if cases is None:
        return None
    first, last = _first_of(model), classifier_of(model)[1]
    cases = as_pandas(cases)
    _check_columns("cases", cases, first)
    names = getattr(first, "feature_names_in_", None)
    if names is not None and hasattr(cases, "columns"):
        cases = cases[list(names)]
    shape, n = np.shape(cases), len(last.training_cases()[1])
    d = getattr(first, "n_features_in_", shape[-1] if shape else 0)
    if shape != (n, d):
        raise ValueError(
            f"cases must be the table that the model was fitted to, {n} rows and {d} columns; its "
            f"shape is {shape}"
        )
    return with_dates(model, cases)


def with_dates(model: Any, table: Any) -> Any:
    """A data frame with dates in the columns of dates, whatever form they were given in.

    Anything else stays as it is.

    Parameters
    ----------
    model : as in ``explain``
    table : its rows, or None
    """
    first = _first_of(model)
    encoder = first[0] if isinstance(first, Pipeline) else getattr(first, "encoder_", None)
    if not isinstance(encoder, TableEncoder) or not hasattr(table, "columns"):
        return table
    return encoder.with_dates(table)


def _first_of(model: Any) -> Any:
    """What sees the rows of a user: the steps of a pipeline, or the classifier alone."""
    steps, last = classifier_of(model)
    return last if steps is None else steps


def _check_columns(what: str, table: Any, first: Any) -> None:
    """Refuse a data frame that lacks a column."""
    given = getattr(table, "column_names", getattr(table, "columns", None))
    names = getattr(first, "feature_names_in_", ())
    missing = [name for name in names if given is not None and name not in given]
    if missing:
        raise ValueError(f"{what} lacks the column {missing[0]!r} that the model was fitted to")


def _weighed_by_column(found: Explanation, last: Any, Q: Any, columns: Lineage) -> Explanation:
    """With importances of whole columns, where several features were made from one."""
    if hasattr(last, "encoder_") or len(np.unique(columns.owner)) == len(columns.owner):
        return found
    base = last.case_base(columns.owner)
    points = None if Q is None else np.asarray(Q, dtype=base.X.dtype)
    return replace(found, importances=base.importances(points))


def _through_affine_steps(
    steps: Any, last: Any, found: Explanation, X: Any, cases: Any, names: list[str]
) -> Explanation | None:
    """The explanation in the columns of the table, where the steps are an affine map of numbers."""
    encoder = getattr(last, "encoder_", None)

    def features(rows: np.ndarray) -> np.ndarray:
        frame = _framed(rows, steps)
        made = steps.transform(frame)
        return np.asarray(made if encoder is None else encoder.transform(made), dtype=np.float64)

    try:
        given = [np.asarray(part, dtype=np.float64) for part in (X, cases) if part is not None]
        base = (last if encoder is None else last.model_).case_base()
        rows = np.vstack(given) if given else np.zeros((1, len(names)))
        affine = AffineMap(features, rows, base.X)
    except (AttributeError, TypeError, ValueError):  # not numbers
        return None
    if not affine.is_exact:
        return None
    queries = None if X is None else given[0]
    known = None if cases is None else given[-1]
    told = explained_in_columns(base, affine, found, queries, names, known)
    here = snapped(told.queries) if X is None else table_values(X)
    return told.in_columns(
        list(told.feature_names),
        np.arange(len(told.feature_names)),
        here,
        lambda numbers: _values_of(affine, base, known, numbers),
    )


def _values_of(affine: Any, base: Any, known: np.ndarray | None, numbers: np.ndarray) -> np.ndarray:
    """The values of training rows, or unknown where several rows have the same features."""
    if known is not None:
        return known[numbers].astype(object)
    d = affine.A.shape[1]
    if np.linalg.matrix_rank(affine.A) < d:
        return np.full((*numbers.shape, d), None, dtype=object)
    rows = affine.back(base.X[numbers.ravel()])
    return snapped(rows).reshape(*numbers.shape, d)


def _framed(rows: np.ndarray, steps: Any) -> Any:
    """Rows with names, where the steps were fitted with names."""
    names = getattr(steps, "feature_names_in_", None)
    if names is None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def _with_values(found: Explanation, known: np.ndarray) -> Explanation:
    """With the values of the stored cases as a user has them."""
    d = len(found.feature_names)
    return found.in_columns(
        list(found.feature_names), np.arange(d), found.queries, lambda rows: known[rows]
    )


def case_values(model: Any, places: list[int], rows: np.ndarray, cases: Any) -> np.ndarray:
    """(n, len(places)) values of training rows in some columns of the table.

    None where they are unknown.

    Parameters
    ----------
    model : as in ``explain``
    places : of the columns
    rows : (n,) numbers of training rows
    cases : from ``known_cases``
    """
    steps, last = classifier_of(model)
    if cases is not None:
        return table_values(cases)[rows][:, places]
    features = _training_values(last)
    if steps is None:
        return features[rows][:, places].astype(object)
    columns = _lineage(steps, last, _input_names(steps, None))
    if not columns.is_table:
        return np.full((len(rows), len(places)), None, dtype=object)
    return known_values(columns, features, rows)[:, places]


def _training_values(model: Any) -> np.ndarray:
    """The training rows in what the explanations of a classifier speak of."""
    if hasattr(model, "training_values"):
        return model.training_values()
    return model.training_cases()[0]


def classifier_of(model: Any) -> tuple[Any, Any]:
    """What comes before the classifier, and the classifier."""
    if not isinstance(model, Pipeline):
        _check_explains(model)
        return None, model
    _check_explains(model[-1])
    return (model[:-1] if len(model) > 1 else None), model[-1]


def _check_explains(model: Any) -> None:
    if hasattr(model, "pipeline"):
        raise ValueError(
            "this is the model of a table, which explains itself: model.explain(table)"
        )
    if not hasattr(model, "explain"):
        raise ValueError(
            f"{type(model).__name__} has no neighbours to explain by; give one of plml's "
            "nearest-neighbour estimators, or a pipeline that ends in one"
        )


def input_names(model: Any, X: Any) -> list[str]:
    """What explanations call the columns of a user's rows.

    Parameters
    ----------
    model, X : as in ``explain``
    """
    steps, last = classifier_of(model)
    return _input_names(last, None) if steps is None else _input_names(steps, X)


def _input_names(steps: Any, table: Any) -> list[str]:
    """Names of the columns; scikit-learn remembers none that are numbers, a data frame has them."""
    names = getattr(steps, "feature_names_in_", getattr(table, "columns", None))
    if names is None:
        width = 0 if table is None else np.shape(table)[1]  # a step need not have counted them
        return [f"x{i}" for i in range(getattr(steps, "n_features_in_", width))]
    return [str(name) for name in names]
