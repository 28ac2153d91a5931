"""From a model and new rows to what the page shows: a map, and a record per point."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from plml.backend.progress import plan, stage
from plml.explorer.case_map import (
    MOST_NEW,
    MOST_TRAINING,
    Choice,
    ShownCases,
    choose,
    layout,
    places_among,
)
from plml.explorer.case_records import (
    MOST_DIRECTIONS,
    LocalMetrics,
    average_metric,
    texts_of_records,
)
from plml.explorer.subject import LEAVING_OUT, Subject, Votes
from plml.inspection.explanation import Explanation
from plml.validation import check_rows, labels_of_rows, missing_labels

#: Stages of the work.
PREDICTING, MAPPING, EXPLAINING = "predicting the new cases", "drawing the map", "explaining"
#: Points that are explained at once: many, because searches for few take longer per point, unless
#: there are so many features that their metrics would fill the memory.
_BLOCK, _WIDE_BLOCK = 4000, 500


class Points(NamedTuple):
    """The points of the map, new ones first.

    Attributes
    ----------
    rows : (p,) numbers of the rows, of the new table or of the training cases
    is_new : (p,)
    places : (p, 2)
    codes : (p,) predicted classes, each training case left out of its own neighbours
    labels : (p,) true classes, -1 where nobody knows
    doubts : (p,) one minus the probability of the predicted class
    """

    rows: np.ndarray
    is_new: np.ndarray
    places: np.ndarray
    codes: np.ndarray
    labels: np.ndarray
    doubts: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        """(p,) whether a point is known to be predicted wrongly."""
        return (self.labels >= 0) & (self.labels != self.codes)


@dataclass(frozen=True)
class PageData:
    """All that a page shows.

    Attributes
    ----------
    points : of the map
    records : one JSON text per point
    facts : names and numbers that all records share, ready for JSON
    subject, shown, places, average : what a changed case is compared with
    new : all new rows, on the map or not, or None
    new_labels : (n_new,) their classes, -1 where nobody knows
    """

    points: Points
    records: list[str]
    facts: dict[str, Any]
    subject: Subject
    shown: ShownCases
    places: np.ndarray
    average: LocalMetrics
    new: Any = field(repr=False)
    new_labels: np.ndarray = field(repr=False)


def page_data(
    subject: Subject,
    X: Any,
    labels: np.ndarray | None = None,
    *,
    most_training: int = MOST_TRAINING,
    most_new: int = MOST_NEW,
    random_state: int = 0,
) -> PageData:
    """Everything for the page, with the progress of its stages.

    Parameters
    ----------
    subject : the model
    X : new rows, as the model takes them, or None
    labels : (n_new,) their true classes, if anybody knows; missing where nobody does
    most_training, most_new : cases on the map
    random_state : of the choice and of the map
    """
    plan({LEAVING_OUT: 4, PREDICTING: 1, MAPPING: 3, EXPLAINING: 4})
    training = subject.training_votes
    wrong = training.codes != subject.training_codes
    chosen = choose(subject.training_codes, wrong, most_training, random_state)
    with stage(PREDICTING):
        new = _New.of(subject, X, labels, most_new, random_state)
    with stage(MAPPING) as progress:
        shown = ShownCases(subject.metric, chosen.rows)
        places = layout(shown, random_state, lambda done: progress.report("", done))
        new_places = np.empty((0, 2))
        if len(new.choice.rows):
            new_places = places_among(shown.squared_distances(new.encoded), places)
    n_new, rows = len(new.choice.rows), chosen.rows
    points = Points(
        np.concatenate([new.choice.rows, rows]),
        np.arange(n_new + len(rows)) < n_new,
        np.concatenate([new_places, places]),
        np.concatenate([new.codes, training.codes[rows]]),
        np.concatenate([new.labels, subject.training_codes[rows]]),
        np.concatenate([new.doubts, 1.0 - training.probabilities.max(axis=1)[rows]]),
    )
    average = average_metric(subject)
    with stage(EXPLAINING) as progress:
        records: list[str] = []
        for found in _explained(subject, new, rows):
            records += texts_of_records(found, subject, average)
            done, most = len(records), len(points.rows)
            progress.report(f"{done} of {most} points", done / most)
    names = {"training": subject.training_names, "new": subject.new_names(X)}
    facts = _facts(subject, chosen, new, names)
    return PageData(points, records, facts, subject, shown, places, average, X, new.all_labels)


class _New(NamedTuple):
    """The new rows that are shown, and what is predicted."""

    choice: Choice
    rows: Any
    encoded: np.ndarray
    codes: np.ndarray
    labels: np.ndarray
    doubts: np.ndarray
    all_labels: np.ndarray
    votes: Votes | None = None

    @classmethod
    def of(
        cls, subject: Subject, X: Any, labels: np.ndarray | None, most: int, random_state: int
    ) -> "_New":
        """Choose among new rows."""
        if X is None:
            nothing = np.empty(0, dtype=int)
            empty = np.empty((0, subject.base.X.shape[1]))
            return cls(
                Choice(nothing, 0, 0, 0), None, empty, nothing, nothing, np.empty(0), nothing
            )
        check_rows(X)
        encoded = subject.view.encoded(X)
        votes = subject.votes(encoded)
        known = _label_codes(labels, subject.classes, len(encoded))
        wrong = (known >= 0) & (known != votes.codes)
        choice = choose(votes.codes, wrong, most, random_state)
        kept = choice.rows
        doubts = 1.0 - votes.probabilities.max(axis=1)
        return cls(
            choice,
            some_rows(X, kept),
            encoded[kept],
            votes.codes[kept],
            known[kept],
            doubts[kept],
            known,
            votes.of(kept),
        )


def _label_codes(labels: Any, classes: np.ndarray, n: int) -> np.ndarray:
    """(n,) places of labels among the classes; one more for a class that the model never saw, -1
    for a label that is missing.
    """
    if labels is None:
        return np.full(n, -1)
    known = ~missing_labels(labels)
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise ValueError(f"y must have one label per row of X, {n}, got shape {labels.shape}")
    place = {label: code for code, label in enumerate(classes.tolist())}
    codes, given = np.full(n, -1), np.array(labels[known].tolist())
    if len(given):
        given = labels_of_rows(given, len(given), classes)
    codes[known] = [place.get(label, len(classes)) for label in given.tolist()]
    return codes


def some_rows(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]


def _explained(subject: Subject, new: _New, rows: np.ndarray) -> Iterator[Explanation]:
    """Block after block of the new rows and of some training rows."""
    n_features = subject.base.X.shape[1]
    for block in _blocks(len(new.choice.rows), n_features):
        votes = None if new.votes is None else new.votes.of(block)
        yield subject.explain(some_rows(new.rows, block), votes=votes)
    for block in _blocks(len(rows), n_features):
        yield subject.explain_training(rows[block])


def _blocks(n: int, n_features: int) -> list[slice]:
    size = _BLOCK if n_features <= MOST_DIRECTIONS else _WIDE_BLOCK
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _facts(
    subject: Subject, chosen: Choice, new: _New, names: dict[str, np.ndarray | None]
) -> dict[str, Any]:
    known = bool((new.labels >= 0).any())
    sentences = [chosen.in_words("training")]
    if new.choice.n:
        sentences.append(new.choice.in_words("new"))
    n_classes = len(subject.classes)
    return {
        "classes": [str(label) for label in subject.classes] + ["(unknown to the model)"],
        "n_classes": n_classes,
        "columns": [
            column._asdict() | {"number": column.is_number} for column in subject.view.columns
        ],
        "can_change": subject.view.is_table,
        "chosen": "; ".join(sentences),
        "labelled": known,
        "n_training": subject.n_training,
        "n_new": new.choice.n,
        "names": {
            kind: None if found is None else found.astype(str).tolist()
            for kind, found in names.items()
        },
        "values": [] if new.rows is None else texts_of(subject, new.rows),
    }


def texts_of(subject: Subject, rows: Any) -> list[list[str]]:
    """The values of rows as texts that ``TableView.changed`` reads again."""
    return [[_exact(value) for value in row] for row in subject.view.values(rows).tolist()]


def _exact(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)
