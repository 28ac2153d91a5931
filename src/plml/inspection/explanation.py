"""What ``explain`` returns: a prediction, the vote behind it, and why this class, not another."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plml.inspection.explanation_displays import ExplanationDisplay
from plml.inspection.explanation_text import as_html, as_text, percent, short
from plml.inspection.values import alike, table_values
from plml.metric.feature_split import SPLITS, leading_directions
from plml.ops.distances import combine_bases
from plml.validation import row_names

if TYPE_CHECKING:
    import pandas as pd


#: What all queries have in common.
_SHARED = ("classes", "ballots", "importances", "basis_metrics", "feature_names", "row_names")

#: Queries shown by ``print`` and in a notebook.
_PRINTED, _DISPLAYED = 10, 3


class Ballot(NamedTuple):
    """One vote of neighbours; a committee holds several."""

    weight: float  # of this vote among all
    n_neighbors: int  # who vote; 0 where nobody counts votes (the energy rule)
    how: str  # "uniform", "distance", "linear" or "energy"
    counts: np.ndarray  # (q, n_classes) neighbours of each class
    shares: np.ndarray  # (q, n_classes) shares of the classes
    weighted: bool = False  # whether votes were multiplied with the weights of the cases


class Importances:
    """Shares of the features in what sets the classes apart, computed when they are asked for.

    Parameters
    ----------
    local : gives (q, d) the shares near each query
    average : gives (d,) the shares over all training rows
    """

    def __init__(self, local: Callable[[], np.ndarray], average: Callable[[], np.ndarray]) -> None:
        self._local, self._average = local, average

    @cached_property
    def local(self) -> np.ndarray:
        """(q, d) near each query."""
        return self._local()

    @cached_property
    def average(self) -> np.ndarray:
        """(d,) over all training rows."""
        return self._average()

    def of(self, which: Any) -> "Importances":
        """Those of some of the queries."""
        return Importances(lambda: self.local[which], lambda: self.average)

    def summed(self, sums: np.ndarray) -> "Importances":
        """In columns, by a (d, n_columns) matrix that adds features up."""
        return Importances(lambda: self.local @ sums, lambda: self.average @ sums)

    def __getstate__(self) -> dict[str, np.ndarray]:
        return {"local": self.local, "average": self.average}  # without the training rows


@dataclass(frozen=True)
class Explanation(Sequence["Explanation"]):
    """Predictions with their votes, their nearest cases, and what sets the classes apart.

    ``explanation[i]`` is that of one query. ``print`` shows it as text, a notebook as a table.

    Attributes
    ----------
    classes : (c,) all classes
    predictions, probabilities : (q,) predicted classes; (q, c) as ``predict_proba`` has them
    ballots : the votes, see ``Ballot``
    neighbors, labels : (q, k) numbers of the nearest training rows, nearest first; their classes
    squared_distances, votes : (q, k), what each of them adds to the vote, negative in linear votes
    likeness : (q, k, d) parts of the squared distances, one per feature, none negative
    contributions : (q, k, d) parts D_f (M D)_f, which may be negative; both sum to the distances
    rivals : (q,) the classes that come second
    cases_for, cases_against : (q,) the nearest training rows of the predicted class and the rival;
        -1 where there is none, because the only one is the row itself: no contrast then
    for_squared, against_squared : (q,) squared distances to these two
    contrasts : (q, d) parts of the margins, the differences of these two
    queries, neighbor_values : (q, d) and (q, k, d) values of the queries and of the neighbours
    for_values, against_values : (q, d) values of the two cases
    importances : shares of the features in what sets the classes apart, see ``Importances``
    weights, basis_metrics : (q, m) and (m, D, D), the local metrics in the features of the model
    feature_names : (d,) names
    query_names : (q,) labels of the queries in the index of their data frame, if it has its own
    row_names : (n,) the same of all training rows

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import plml
    >>> X, y = load_iris(return_X_y=True)
    >>> explanation = plml.SML(n_neighbors=5).fit(X, y).explain(X[[70]])
    >>> explanation.predictions, explanation.rivals, explanation.contrasts.shape
    (array([2]), array([1]), (1, 4))
    """

    classes: np.ndarray
    predictions: np.ndarray
    probabilities: np.ndarray
    ballots: tuple[Ballot, ...]
    neighbors: np.ndarray
    labels: np.ndarray
    squared_distances: np.ndarray
    votes: np.ndarray
    likeness: np.ndarray
    contributions: np.ndarray
    rivals: np.ndarray
    cases_for: np.ndarray
    cases_against: np.ndarray
    for_squared: np.ndarray
    against_squared: np.ndarray
    contrasts: np.ndarray
    queries: np.ndarray
    neighbor_values: np.ndarray
    for_values: np.ndarray
    against_values: np.ndarray
    importances: Importances
    weights: np.ndarray
    basis_metrics: np.ndarray
    feature_names: np.ndarray
    query_names: np.ndarray | None = None
    row_names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.predictions)

    def __getitem__(self, which: Any) -> "Explanation":
        """That of one query, or of some."""
        if isinstance(which, int | np.integer):
            if not -len(self) <= which < len(self):
                raise IndexError(f"query {which} of {len(self)}")
            which = slice(int(which) % len(self), int(which) % len(self) + 1)
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _SHARED}
        parts = {name: value[which] for name, value in own.items() if value is not None}
        ballots = tuple(
            b._replace(counts=b.counts[which], shares=b.shares[which]) for b in self.ballots
        )
        return replace(self, **parts, ballots=ballots, importances=self.importances.of(which))

    @property
    def importance(self) -> np.ndarray:
        """(q, d) shares of the features in what sets the classes apart near each query."""
        return self.importances.local

    @property
    def global_importance(self) -> np.ndarray:
        """(d,) the same over all training rows."""
        return self.importances.average

    def __iter__(self) -> Iterator["Explanation"]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        if len(self) == 1:
            of = "" if self.query_names is None else f" of row {self.query_names[0]}"
            return f"<Explanation{of}: {self.predictions[0]} ({percent(self.top_probability(0))})>"
        few = ", ".join(str(label) for label in self.predictions[:5])
        return f"<Explanation of {len(self)} predictions: {few}{', ...' if len(self) > 5 else ''}>"

    def __str__(self) -> str:
        few = [as_text(self, i) for i in range(min(len(self), _PRINTED))]
        return "\n\n".join([*few, *self._others(_PRINTED)])

    def _repr_html_(self) -> str:
        few = [as_html(self, i) for i in range(min(len(self), _DISPLAYED))]
        return "".join([*few, *self._others(_DISPLAYED)])

    def _others(self, n_shown: int) -> list[str]:
        """A line on the queries that are not shown, if there are any."""
        rest = len(self) - n_shown
        return [f"... and {rest:,} more; explanation[i] is that of one row"] if rest > 0 else []

    def of_table(self, X: Any) -> "Explanation":
        """The explanation with the types of a data frame: whole numbers and truth values.

        Parameters
        ----------
        X : the queries as a user gave them, None for the training rows
        """
        kinds = {getattr(kind, "kind", "O") for kind in getattr(X, "dtypes", ())}
        if not kinds & set("biu"):
            return self
        queries = table_values(X)
        return replace(
            self,
            queries=queries,
            neighbor_values=alike(self.neighbor_values, queries),
            for_values=alike(self.for_values, queries),
            against_values=alike(self.against_values, queries),
        )

    def named(self, X: Any, rows: np.ndarray | None) -> "Explanation":
        """The explanation with the labels of the queries and training rows, if they have any.

        Parameters
        ----------
        X : the queries as a user gave them, None for the training rows
        rows : see ``row_names``
        """
        return replace(self, query_names=rows if X is None else row_names(X), row_names=rows)

    def text(self, query: int = 0, n_cases: int = 5, n_features: int = 8) -> str:
        """The explanation of one query as text, with the features that count most.

        Parameters
        ----------
        query : the number of the query
        n_cases, n_features : how many cases and features to list
        """
        return as_text(self[query], 0, n_cases, n_features)

    def top_probability(self, query: int) -> float:
        """The probability of the predicted class."""
        place = int(np.flatnonzero(self.classes == self.predictions[query])[0])
        return float(self.probabilities[query, place])

    @property
    def margins(self) -> np.ndarray:
        """(q,) squared distances to the case against, less those to the case for."""
        return self.against_squared - self.for_squared

    @property
    def metrics(self) -> np.ndarray:
        """The local metrics in the features of the model, (q, D, D); computed on demand."""
        return combine_bases(self.weights, self.basis_metrics)

    def parts(self, split: str = "likeness") -> np.ndarray:
        """The squared distances to the neighbours split over the features, (q, k, d).

        Parameters
        ----------
        split : {"likeness", "bilinear"}
        """
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        return self.likeness if split == "likeness" else self.contributions

    def in_columns(
        self,
        names: Sequence[str],
        owner: np.ndarray,
        queries: np.ndarray,
        values: Any,
    ) -> "Explanation":
        """The explanation in the columns that the features were made from.

        Parameters
        ----------
        names : names of the columns
        owner : (d,) the column of each feature
        queries : (q, n_columns) their values at the queries
        values : from training rows, any shape, to values, that shape and (n_columns,)
        """
        sums = np.zeros((len(owner), len(names)))
        sums[np.arange(len(owner)), owner] = 1.0

        def values_at(rows: np.ndarray) -> np.ndarray:
            return alike(values(rows), queries)

        split = ("likeness", "contributions", "contrasts")
        return replace(
            self,
            **{name: getattr(self, name) @ sums for name in split},
            importances=self.importances.summed(sums),
            queries=queries,
            neighbor_values=values_at(self.neighbors),
            for_values=values_at(self.cases_for),
            against_values=values_at(self.cases_against),
            feature_names=np.asarray(names, dtype=object),
        )

    def to_frame(self) -> "pd.DataFrame":
        """One row per query, neighbour and feature: which cases are near, and by which features."""
        _, k, _ = shape = self.likeness.shape
        return _tidy(
            shape,
            **self._query_columns(2),
            prediction=self.predictions[:, None, None],
            rank=np.arange(1, k + 1)[:, None],
            training_row=self.neighbors[:, :, None],
            **self._names("training_name", self.neighbors[:, :, None]),
            label=self.labels[:, :, None],
            vote=self.votes[:, :, None],
            squared_distance=self.squared_distances[:, :, None],
            feature=self.feature_names,
            value=self.queries[:, None, :],
            neighbor_value=self.neighbor_values,
            likeness=self.likeness,
            contribution=self.contributions,
        )

    def contrast_frame(self) -> "pd.DataFrame":
        """One row per query and feature: the cases for and against, the part of the margin.

        The features that count most come first.
        """
        order = np.argsort(-np.abs(self.contrasts), axis=1, kind="stable")

        def sorted_(values: np.ndarray) -> np.ndarray:
            return np.take_along_axis(np.broadcast_to(values, order.shape), order, axis=1)

        return _tidy(
            order.shape,
            **self._query_columns(1),
            prediction=self.predictions[:, None],
            rival=self.rivals[:, None],
            case_for=self.cases_for[:, None],
            **self._names("name_for", self.cases_for[:, None]),
            case_against=self.cases_against[:, None],
            **self._names("name_against", self.cases_against[:, None]),
            margin=self.margins[:, None],
            feature=sorted_(self.feature_names),
            value=sorted_(self.queries),
            value_for=sorted_(self.for_values),
            value_against=sorted_(self.against_values),
            contrast=sorted_(self.contrasts),
        )

    def importance_frame(self) -> "pd.DataFrame":
        """One row per query and feature: its share in what sets classes apart, here and overall."""
        average = np.broadcast_to(self.global_importance, self.importance.shape)
        nothing = np.full(self.importance.shape, np.nan)
        return _tidy(
            self.importance.shape,
            **self._query_columns(1),
            feature=self.feature_names,
            importance=self.importance,
            global_importance=average,
            ratio=np.divide(self.importance, average, out=nothing, where=average > 0.0),
        )

    def directions_frame(self, n_directions: int = 3) -> "pd.DataFrame":
        """One row per query, direction and feature: the leading eigenvectors of the local metrics.

        Parameters
        ----------
        n_directions : how many of each metric
        """
        d = self.basis_metrics.shape[1]
        if not 1 <= n_directions <= d:
            raise ValueError(f"n_directions must be between 1 and {d}, got {n_directions}")
        if d != len(self.feature_names):
            raise ValueError(
                "the directions are those of the model's features; ask the model itself"
            )
        eigenvalues, vectors = leading_directions(self.metrics, n_directions)
        return _tidy(
            vectors.shape,
            **self._query_columns(2),
            direction=np.arange(1, n_directions + 1)[:, None],
            eigenvalue=eigenvalues[:, :, None],
            feature=self.feature_names,
            loading=vectors,
        )

    def _query_columns(self, n_more: int) -> dict[str, np.ndarray]:
        """Numbers and names of the queries, to be repeated along so many more axes."""
        shape = (-1, *[1] * n_more)
        names = {} if self.query_names is None else {"query_name": self.query_names.reshape(shape)}
        return {"query": np.arange(len(self)).reshape(shape), **names}

    def _names(self, column: str, rows: Any) -> dict[str, np.ndarray]:
        """A column of the names of training rows, where they have names."""
        return {} if self.row_names is None else {column: self.row_names[rows]}

    def to_dict(self) -> list[dict[str, Any]]:
        """One dictionary of plain values per query, ready for JSON."""
        return [self._as_dict(i) for i in range(len(self))]

    def _as_dict(self, i: int) -> dict[str, Any]:
        classes = [_plain(label) for label in self.classes]
        names = [str(name) for name in self.feature_names]

        def by_name(values: np.ndarray) -> dict[str, Any]:
            return {name: _plain(value) for name, value in zip(names, values, strict=True)}

        def named(column: str, row: np.integer) -> dict[str, Any]:
            return {key: _plain(name) for key, name in self._names(column, row).items()}

        return {
            **({} if self.query_names is None else {"name": _plain(self.query_names[i])}),
            "prediction": _plain(self.predictions[i]),
            "probabilities": dict(
                zip(map(str, classes), self.probabilities[i].tolist(), strict=True)
            ),
            "votes": [
                {
                    "weight": ballot.weight,
                    "n_neighbors": ballot.n_neighbors,
                    "vote": ballot.how,
                    "counts": dict(zip(map(str, classes), ballot.counts[i].tolist(), strict=True)),
                    "shares": dict(zip(map(str, classes), ballot.shares[i].tolist(), strict=True)),
                }
                for ballot in self.ballots
            ],
            "values": by_name(self.queries[i]),
            "neighbors": [
                {
                    "training_row": int(row),
                    **named("training_name", row),
                    "label": _plain(self.labels[i, j]),
                    "squared_distance": float(self.squared_distances[i, j]),
                    "vote": float(self.votes[i, j]),
                    "values": by_name(self.neighbor_values[i, j]),
                    "likeness": by_name(self.likeness[i, j]),
                }
                for j, row in enumerate(self.neighbors[i])
            ],
            "contrast": {
                "rival": _plain(self.rivals[i]),
                "case_for": int(self.cases_for[i]),
                **named("name_for", self.cases_for[i]),
                "case_against": int(self.cases_against[i]),
                **named("name_against", self.cases_against[i]),
                "margin": _plain(self.margins[i]),
                "parts": by_name(self.contrasts[i]),
                "values_for": by_name(self.for_values[i]),
                "values_against": by_name(self.against_values[i]),
            },
            "importance": by_name(self.importance[i]),
        }

    def plot(self, query: int = 0, **options: Any) -> Any:
        """An ``ExplanationDisplay`` of one query."""
        return ExplanationDisplay(self, query).plot(**options)


def _plain(value: Any) -> Any:
    """A NumPy value as Python's own; a missing one is None."""
    if isinstance(value, np.float32 | np.float16):
        value = float(str(value))  # without digits that it never had
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else short(value)


def _tidy(shape: tuple[int, ...], **columns: Any) -> "pd.DataFrame":
    """One row per entry of an array of that shape, to which the columns are broadcast."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("tables of explanations need pandas: pip install pandas") from None
    return pd.DataFrame({name: np.broadcast_to(c, shape).ravel() for name, c in columns.items()})
