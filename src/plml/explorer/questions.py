"""What a live page may ask: a case with other values, or one that is not on the map."""

from typing import Any

import numpy as np

from plml.explorer.case_map import places_among
from plml.explorer.case_records import records_of
from plml.explorer.page_data import PageData, some_rows, texts_of


def changed_case(data: PageData, row: int, texts: list[str]) -> dict[str, Any]:
    """A new case with other values: its record and its place on the map.

    Parameters
    ----------
    data : the page
    row : of the new table
    texts : the values as texts
    """
    given = _new_row(data, row)
    (before,) = texts_of(data.subject, given)
    return _placed_record(data, data.subject.view.changed(given, before, texts))


def _placed_record(data: PageData, row: Any) -> dict[str, Any]:
    """The record of one row of the user, and where it lies."""
    (record,) = records_of(data.subject.explain(row), data.subject, data.average)
    return {"record": record, **_place(data, data.subject.view.encoded(row))}


def _place(data: PageData, encoded: np.ndarray) -> dict[str, float]:
    x, y = places_among(data.shown.squared_distances(encoded), data.places)[0]
    return {"x": float(x), "y": float(y)}


def new_case(data: PageData, row: int) -> dict[str, Any]:
    """A new case that is not on the map: its record, its class, its values, where it would lie.

    Parameters
    ----------
    data : the page
    row : of the new table
    """
    given = _new_row(data, row)
    (values,) = texts_of(data.subject, given)
    return {
        **_placed_record(data, given),
        "label": int(data.new_labels[row]),
        "values": values,
    }


def _new_row(data: PageData, row: int) -> Any:
    n = data.facts["n_new"]
    if not 0 <= row < n:
        raise ValueError(f"there are {n} new cases, numbered from 0")
    return some_rows(data.new, [row])


def training_case(data: PageData, row: int) -> dict[str, Any]:
    """A training case that is not on the map: its record, its class, and where it would lie.

    Parameters
    ----------
    data : the page
    row : of the training cases
    """
    subject = data.subject
    if not 0 <= row < subject.n_training:
        raise ValueError(f"there are {subject.n_training} training cases, numbered from 0")
    (record,) = records_of(subject.explain_training(np.array([row])), subject, data.average)
    label = int(subject.training_codes[row])
    return {"record": record, **_place(data, subject.base.X[[row]]), "label": label}
