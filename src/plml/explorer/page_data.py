"""From a model and new rows to what the page shows: a map, and a record per point.

A record is an explanation in few words: what is predicted, the votes, why this class and not the
next one, the nearest cases, and how the local metric differs from the average one. Names of columns
and classes are given by their places in ``Facts``.
"""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import on_host
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
from plml.explorer.subject import LEAVING_OUT, Subject, Votes
from plml.inspection.explanation import Explanation
from plml.inspection.explanation_text import leading, short, vote_text
from plml.metric.feature_split import leading_directions, spread_of
from plml.ops.distances import combine_bases

#: Stages of the work.
PREDICTING, MAPPING, EXPLAINING = "predicting the new cases", "drawing the map", "explaining"
#: Columns listed in a contrast, in the likeness to a case, and of the local metric.
N_CONTRAST, N_LIKENESS, N_METRIC = 8, 3, 6
#: Points that are explained at once: many, because searches for few take longer per point, unless
#: there are so many features that their metrics would fill the memory.
_BLOCK, _WIDE_BLOCK = 4000, 500
#: Features beyond which the leading directions of every local metric would take too long.
_MOST_DIRECTIONS = 60
#: Loadings of the leading direction that are listed.
_N_LOADINGS = 4
#: Classes whose probabilities are listed.
_N_CLASSES = 5


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
    rows : the new rows on the map
    """

    points: Points
    records: list[str]
    facts: dict[str, Any]
    subject: Subject
    shown: ShownCases
    places: np.ndarray
    average: "LocalMetrics"
    rows: Any = field(repr=False)


class LocalMetrics(NamedTuple):
    """Metrics in units of the spreads of the features.

    Attributes
    ----------
    shares : (q, n_columns) of the columns in the trace
    matrices : (q, D, D), or None where there are too many features
    """

    shares: np.ndarray
    matrices: np.ndarray | None


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
    labels : (n_new,) their true classes, if anybody knows
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
    average, n_features = average_metric(subject), subject.base.X.shape[1]
    with stage(EXPLAINING) as progress:
        records: list[str] = []
        for block in _blocks(n_new, n_features):
            votes = None if new.votes is None else new.votes.of(block)
            found = subject.explain(_some(new.rows, block), votes=votes)
            records += _texts(found, subject, average)
            progress.report(
                f"{len(records)} of {len(points.rows)} points", len(records) / len(points.rows)
            )
        for block in _blocks(len(rows), n_features):
            records += _texts(subject.explain_training(rows[block]), subject, average)
            progress.report(
                f"{len(records)} of {len(points.rows)} points", len(records) / len(points.rows)
            )
    facts = _facts(subject, chosen, new)
    return PageData(points, records, facts, subject, shown, places, average, new.rows)


class _New(NamedTuple):
    """The new rows that are shown, and what is predicted."""

    choice: Choice
    rows: Any
    encoded: np.ndarray
    codes: np.ndarray
    labels: np.ndarray
    doubts: np.ndarray
    votes: Votes | None = None

    @classmethod
    def of(
        cls, subject: Subject, X: Any, labels: np.ndarray | None, most: int, random_state: int
    ) -> "_New":
        """Choose among new rows."""
        if X is None:
            nothing = np.empty(0, dtype=int)
            empty = np.empty((0, subject.base.X.shape[1]))
            return cls(Choice(nothing, 0, 0, 0), None, empty, nothing, nothing, np.empty(0))
        encoded = subject.view.encoded(X)
        votes = subject.votes(encoded)
        known = _label_codes(labels, subject.classes, len(encoded))
        wrong = (known >= 0) & (known != votes.codes)
        choice = choose(votes.codes, wrong, most, random_state)
        kept = choice.rows
        doubts = 1.0 - votes.probabilities.max(axis=1)
        return cls(
            choice,
            _some(X, kept),
            encoded[kept],
            votes.codes[kept],
            known[kept],
            doubts[kept],
            votes.of(kept),
        )


def _label_codes(labels: Any, classes: np.ndarray, n: int) -> np.ndarray:
    """(n,) places of labels among the classes; one more for a class that the model never saw."""
    if labels is None:
        return np.full(n, -1)
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise ValueError(f"y must have one label per row of X, {n}, got shape {labels.shape}")
    place = {label: code for code, label in enumerate(classes.tolist())}
    return np.array([place.get(label, len(classes)) for label in labels.tolist()], dtype=int)


def _some(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]


def _blocks(n: int, n_features: int) -> list[slice]:
    size = _BLOCK if n_features <= _MOST_DIRECTIONS else _WIDE_BLOCK
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def local_metrics(subject: Subject, weights: np.ndarray, bases: np.ndarray) -> LocalMetrics:
    """Combinations of basis metrics, in units of the spreads of the features.

    Parameters
    ----------
    weights, bases : (q, m) and (m, D, D) as explanations have them
    """
    spread = spread_of(subject.base.X)
    scaled = bases * np.outer(spread, spread)
    parts = weights @ np.diagonal(scaled, axis1=1, axis2=2)
    sums = np.zeros((len(subject.view.owner), len(subject.view.columns)))
    sums[np.arange(len(sums)), subject.view.owner] = 1.0
    columns = parts @ sums
    total = columns.sum(axis=1, keepdims=True)
    shares = np.divide(columns, total, out=np.zeros_like(columns), where=total > 0.0)
    few = scaled.shape[1] <= _MOST_DIRECTIONS
    return LocalMetrics(shares, combine_bases(weights, scaled) if few else None)


def average_metric(subject: Subject, most: int = 1000) -> LocalMetrics:
    """The metric at the average training row."""
    metric = subject.metric
    if hasattr(metric, "training_weights"):
        weights = metric.training_weights.mean(axis=0, keepdims=True, dtype=np.float64)
        return local_metrics(subject, weights, metric.M)
    rows = subject.base.X[:: max(len(subject.base.X) // most, 1)]
    average = on_host(metric.matrix(rows)).mean(axis=0, keepdims=True, dtype=np.float64)
    return local_metrics(subject, np.ones((1, 1)), average)


def _texts(found: Explanation, subject: Subject, average: LocalMetrics) -> list[str]:
    return [json.dumps(r, separators=(",", ":")) for r in records_of(found, subject, average)]


def records_of(found: Explanation, subject: Subject, average: LocalMetrics) -> list[dict[str, Any]]:
    """What the page says of each point.

    Parameters
    ----------
    found : explanations in the columns of the table
    subject, average : the model and its average metric
    """
    local = local_metrics(subject, found.weights, found.basis_metrics)
    directions = _directions(local, subject)
    ellipses = _ellipses(local, average, subject)
    code = {label: number for number, label in enumerate(found.classes.tolist())}
    predictions, rivals = found.predictions.tolist(), found.rivals.tolist()
    neighbors = _neighbors(found, np.vectorize(code.__getitem__, otypes=[int])(found.labels))
    return [
        {
            "prediction": code[predictions[i]],
            "probabilities": _top_classes(found.probabilities[i]),
            "votes": _votes(found, i),
            "rival": code[rivals[i]],
            **_contrast(found, i),
            "neighbors": neighbors[i],
            "metric": _metric_bars(local.shares[i], average.shares[0]),
            "directions": directions[i],
            "ellipse": ellipses[i],
        }
        for i in range(len(found))
    ]


def _votes(found: Explanation, i: int) -> list[str]:
    several = len(found.ballots) > 1
    return [
        (f"{ballot.weight:.0%}: " if several else "") + vote_text(ballot, found.classes, i)
        for ballot in found.ballots
    ]


def _top_classes(probabilities: np.ndarray) -> list[list[float]]:
    order = np.argsort(-probabilities, kind="stable")[:_N_CLASSES]
    return [[int(c), round(float(probabilities[c]), 4)] for c in order]


def _contrast(found: Explanation, i: int) -> dict[str, Any]:
    top, rest = leading(found.contrasts[i], N_CONTRAST)
    return {
        "case_for": int(found.cases_for[i]),
        "case_against": int(found.cases_against[i]),
        "for_squared": _digits(found.for_squared[i]),
        "against_squared": _digits(found.against_squared[i]),
        "margin": _digits(found.margins[i]),
        "contrast": [
            [
                int(f),
                _digits(found.contrasts[i, f]),
                short(found.queries[i, f]),
                short(found.for_values[i, f]),
                short(found.against_values[i, f]),
            ]
            for f in top
        ],
        "rest": None if rest is None else _digits(rest),
    }


def _neighbors(found: Explanation, labels: np.ndarray) -> list[list[list[Any]]]:
    """Row, class, distance, vote, and the columns that set it apart with their shares.

    Parameters
    ----------
    labels : (q, k) classes of the neighbours, as places
    """
    total = found.likeness.sum(axis=2, keepdims=True)
    shares = np.divide(found.likeness, total, out=np.zeros_like(found.likeness), where=total > 0.0)
    top = np.argsort(-shares, axis=2, kind="stable")[:, :, :N_LIKENESS]
    columns = (
        found.neighbors,
        labels,
        np.sqrt(found.squared_distances),
        found.votes,
        top,
        np.take_along_axis(shares, top, axis=2),
        np.take_along_axis(found.neighbor_values, top, axis=2),
    )
    return [
        [
            [row, label, _digits(distance), _digits(vote), _apart(*parts)]
            for row, label, distance, vote, *parts in zip(*of_one, strict=True)
        ]
        for of_one in zip(*(part.tolist() for part in columns), strict=True)
    ]


def _apart(places: list[int], shares: list[float], values: list[Any]) -> list[list[Any]]:
    """Columns that make up more than half a percent of a distance."""
    return [
        [place, round(share, 3), short(value)]
        for place, share, value in zip(places, shares, values, strict=True)
        if share > 0.005
    ]


def _metric_bars(here: np.ndarray, average: np.ndarray) -> list[list[Any]]:
    top, _ = leading(np.maximum(here, average), N_METRIC)
    return [[int(f), _digits(here[f]), _digits(average[f])] for f in top]


def _directions(local: LocalMetrics, subject: Subject) -> list[Any]:
    """The leading direction of each metric: its share of the trace, and its largest loadings."""
    if local.matrices is None:
        return [None] * len(local.shares)
    names = subject.view.feature_names
    values, vectors = leading_directions(local.matrices, 1)
    traces = np.trace(local.matrices, axis1=1, axis2=2)
    found = []
    for value, vector, trace in zip(values[:, 0], vectors[:, 0], traces, strict=True):
        top, _ = leading(vector, _N_LOADINGS)
        loadings = [
            [str(names[f]), round(float(vector[f]), 2)] for f in top if abs(vector[f]) > 0.05
        ]
        found.append([round(float(value / trace), 3) if trace > 0.0 else 0.0, loadings])
    return found


def _ellipses(local: LocalMetrics, average: LocalMetrics, subject: Subject) -> list[Any]:
    """The local and the average metric of the two numbers that count most.

    Names of the two features, then the entries 11, 12 and 22 of the two metrics.
    """
    owned = [subject.view.columns[column].is_number for column in subject.view.owner]
    numbers = np.flatnonzero(owned)
    if local.matrices is None or average.matrices is None or len(numbers) < 2:
        return [None] * len(local.shares)
    diagonals = np.diagonal(local.matrices, axis1=1, axis2=2)[:, numbers]
    names, found = subject.view.feature_names, []
    for M, diagonal in zip(local.matrices, diagonals, strict=True):
        a, b = numbers[np.sort(np.argsort(-diagonal, kind="stable")[:2])]
        entries = [
            _digits(A[p, q]) for A in (M, average.matrices[0]) for p, q in ((a, a), (a, b), (b, b))
        ]
        found.append([str(names[a]), str(names[b]), *entries])
    return found


def _digits(value: Any) -> float | None:
    """Six significant digits; None for what is not finite."""
    value = float(value)
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _facts(subject: Subject, chosen: Choice, new: _New) -> dict[str, Any]:
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
        "chosen": "; ".join(sentences),
        "labelled": known,
        "n_training": subject.n_training,
        "n_new": new.choice.n,
        "values": [] if new.rows is None else texts_of(subject, new.rows),
    }


def texts_of(subject: Subject, rows: Any) -> list[list[str]]:
    """The values of rows as texts that ``TableView.parsed`` reads again."""
    return [[_exact(value) for value in row] for row in subject.view.values(rows).tolist()]


def _exact(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def changed_case(data: PageData, texts: list[str], unchanged: list[str]) -> dict[str, Any]:
    """A case with other values: its record and its place on the map.

    Parameters
    ----------
    data : the page
    texts, unchanged : the values now and before, as texts
    """
    row = data.subject.view.parsed(texts, unchanged)
    found = data.subject.explain(row)
    squared = data.shown.squared_distances(data.subject.view.encoded(row))
    place = places_among(squared, data.places)[0]
    (record,) = records_of(found, data.subject, data.average)
    return {"record": record, "x": float(place[0]), "y": float(place[1])}


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
    squared = data.shown.squared_distances(subject.base.X[[row]])
    x, y = places_among(squared, data.places)[0]
    label = int(subject.training_codes[row])
    return {"record": record, "x": float(x), "y": float(y), "label": label}
