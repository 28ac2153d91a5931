"""Cases of a table's model that come and go, with all that its file knows of them."""

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline

from plml.estimators._fitted_state import changed
from plml.inspection.lineage import known_values, lineage
from plml.preprocessing.columns import listed
from plml.preprocessing.forgetting import Rows, encoder_without
from plml.preprocessing.keys import joined_keys, key_texts, keys_of
from plml.preprocessing.table_encoder import TableEncoder, unpacked_gaps
from plml.validation import row_numbers
from plml.wording import rows_told

if TYPE_CHECKING:
    import pandas as pd

    from plml.tables.table_models import Model


def new_keys(model: "Model", table: "pd.DataFrame", key: str | None, name: str) -> Any:
    """The keys of all cases after those of a table have joined; None where cases have none.

    Parameters
    ----------
    model : whose cases have keys, or not
    table, name : of the new cases
    key : the column of their keys; by default the one that was given at the fit
    """
    if model.keys is None:
        if key is not None:
            raise ValueError("the cases of this model have no keys; leave --id out")
        return None
    key = model.key if key is None else key
    if key is None:
        raise ValueError("the cases of this model have keys; name the column of the new ones: --id")
    if key not in table.columns:
        raise ValueError(f"{name} has no column {key!r}; it has {listed(table.columns)}")
    keys = keys_of(table[key])
    lost = np.flatnonzero(table[key].isna())
    if len(lost):
        raise ValueError(
            f"{name}: column {key!r} has no key in {rows_told(lost)}; give each case one of its own"
        )
    fresh, counts = np.unique(key_texts(keys), return_counts=True)
    known = fresh[np.isin(fresh, key_texts(model.keys))]
    if len(known):
        raise ValueError(
            f"{name}: a case with the key {str(known[0])!r} is already there; leave the row out, "
            "or forget that case first"
        )
    if (counts > 1).any():
        twice = str(fresh[counts > 1][0])
        raise ValueError(f"{name}: two rows have the key {twice!r}; give each case one of its own")
    return joined_keys(model.keys, keys)


def rows_of(model: "Model", rows: Any, keys: Sequence[Any] | None) -> np.ndarray:
    """The numbers of cases that are named by their numbers or by their keys.

    Parameters
    ----------
    model : whose cases they are
    rows : numbers, or None
    keys : keys or one key, or None; all cases that have one of them
    """
    n_cases = len(model.classifier.training_cases()[1])
    if (rows is None) == (keys is None):
        raise ValueError("name the cases by their rows, or by their keys")
    if keys is None:
        return row_numbers(rows, n_cases)
    if model.keys is None:
        raise ValueError("the cases of this model have no keys; name them by their rows")
    wanted, known = key_texts(np.ravel(np.asarray(keys, dtype=object))), key_texts(model.keys)
    lacking = wanted[~np.isin(wanted, known)].tolist()
    if lacking:
        raise ValueError(f"no case has the key {listed(lacking)}")
    return np.flatnonzero(np.isin(known, wanted))


def case_values(model: "Model") -> np.ndarray:
    """(n, n_columns) the values of all cases in the columns of the table, missing ones as NaN."""
    classifier = model.classifier
    if hasattr(classifier, "training_values"):
        return classifier.training_values()
    rows = classifier.training_cases()[0]
    steps = model.pipeline[:-1]
    values = known_values(lineage(steps, list(model.columns.names)), rows, np.arange(len(rows)))
    if model.gaps is not None:
        values[unpacked_gaps(model.gaps, values.shape[1])] = np.nan
    return values


def pipeline_with(model: "Model", rows: Any, labels: Any, new_classes: str) -> Pipeline:
    """The pipeline of a model with more cases; that of the model stays as it is.

    Parameters
    ----------
    model : who gets them
    rows, labels, new_classes : as in ``add_cases`` of its classifier
    """
    classifier = changed(model.classifier, lambda one: one._add(rows, labels, new_classes))
    return Pipeline([*model.pipeline.steps[:-1], (model.pipeline.steps[-1][0], classifier)])


def pipeline_without(model: "Model", rows: np.ndarray) -> Pipeline:
    """The pipeline of a model without some of its cases; that of the model stays as it is.

    Parameters
    ----------
    model : whose cases they are
    rows : (r,) their numbers
    """
    classifier = changed(model.classifier, lambda one: one._forget(rows))
    steps = dict(model.pipeline.steps)
    encoder = steps.get("encode")
    if isinstance(encoder, TableEncoder):
        scaler = steps["scale"]
        before = np.asarray(scaler.inverse_transform(model.classifier.training_cases()[0]))
        gaps = np.zeros((len(before), len(model.columns.names)), dtype=bool)
        if model.gaps is not None:
            gaps = unpacked_gaps(model.gaps, gaps.shape[1])
        stay = Rows(np.delete(before, rows, axis=0), np.delete(gaps, rows, axis=0))
        steps["encode"], filled = encoder_without(encoder, Rows(before[rows], gaps[rows]), stay)
        if not np.array_equal(filled.encoded, stay.encoded):
            moved = filled.encoded / scaler.scale_
            classifier = changed(classifier, lambda one: one._replace_rows(moved))
        names = steps["encode"].get_feature_names_out()  # of categories, without those forgotten
        steps["scale"] = copy(scaler)
        steps["scale"].feature_names_in_ = classifier.feature_names_in_ = names
    elif encoder is not None and (rows < model.classifier.n_learned).any():
        raise ValueError(
            "this model is of an older version, which keeps more of single rows than can be taken "
            "out of it; fit again"
        )
    return Pipeline(list({**steps, "classify": classifier}.items()))
