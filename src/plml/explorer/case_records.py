"""A record per point: an explanation in few words, for the page.

What is predicted, the votes, why this class and not the next one, the nearest cases, and how the
local metric differs from the average one. Names of columns and classes are given by their places.
"""

import json
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import on_host
from plml.explorer.subject import Subject
from plml.inspection.explanation import Explanation
from plml.inspection.explanation_text import leading, short, vote_text
from plml.metric.feature_split import leading_directions, spread_of
from plml.ops.distances import combine_bases

#: Columns listed in a contrast, in the likeness to a case, and of the local metric.
N_CONTRAST, N_LIKENESS, N_METRIC = 8, 3, 6
#: Features beyond which the leading directions of every local metric would take too long.
MOST_DIRECTIONS = 60
#: Loadings of the leading direction that are listed.
_N_LOADINGS = 4
#: Classes whose probabilities are listed.
_N_CLASSES = 5


class LocalMetrics(NamedTuple):
    """Metrics in units of the spreads of the features.

    Attributes
    ----------
    shares : (q, n_columns) of the columns in the trace
    matrices : (q, D, D), or None where there are too many features
    """

    shares: np.ndarray
    matrices: np.ndarray | None


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
    few = scaled.shape[1] <= MOST_DIRECTIONS
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


def texts_of_records(found: Explanation, subject: Subject, average: LocalMetrics) -> list[str]:
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
    numbers = subject.view.numbers
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
