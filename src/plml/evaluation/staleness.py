"""Whether a model is due for a refit, by new labelled rows."""

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from html import escape
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import _num_samples

from plml.backend.arrays import on_host
from plml.evaluation.measuring import at_classifier, euclidean
from plml.evaluation.paired import Comparison, accuracy_interval, mcnemar
from plml.evaluation.scorecard_text import aligned, cell, html_table
from plml.evaluation.stratified import stratified_folds
from plml.preprocessing.columns import listed
from plml.stages.search import inverse_distances, vote
from plml.validation import labels_of_rows, query_data, taken

#: The four answers for every new row.
AS_IS, EUCLIDEAN, GROWN, REFIT = (
    "model as it is",
    "Euclidean neighbours",
    "old metrics, new cases",
    "refit",
)
#: A gain in accuracy below which a refit is not worth its time.
MATTERS = 0.01


@dataclass(frozen=True, eq=False, repr=False)
class Staleness:
    """What the metrics of a model lose on new rows against other answers for the same rows.

    ``plml.staleness`` makes one of a fitted model and labelled rows.

    Parameters
    ----------
    right : (n,) booleans by answer, true where it is right
    n_parts : parts that the new rows were cut into: a row is judged by models that know the others

    Examples
    --------
    >>> import numpy as np
    >>> from plml.evaluation.staleness import Staleness
    >>> right = {"model as it is": np.arange(200) > 30, "Euclidean neighbours": np.arange(200) > 60,
    ...          "old metrics, new cases": np.arange(200) > 30, "refit": np.arange(200) > 5}
    >>> Staleness(right, 2).due
    True
    """

    right: Mapping[str, np.ndarray]
    n_parts: int

    @property
    def n_rows(self) -> int:
        """How many rows were judged."""
        return len(self.right[AS_IS])

    @cached_property
    def accuracies(self) -> dict[str, tuple[float, float, float]]:
        """The accuracy of every answer with Wilson's 95% interval."""
        return {
            name: (float(right.mean()), *accuracy_interval(int(right.sum()), self.n_rows))
            for name, right in self.right.items()
        }

    def compared(self, first: str, second: str) -> Comparison:
        """McNemar's test of two answers.

        Parameters
        ----------
        first, second : their names
        """
        return mcnemar(self.right[first], self.right[second])

    def gain(self, first: str, second: str) -> tuple[float, float, float]:
        """How much more accurate one answer is than another, and the 95% interval of that.

        Parameters
        ----------
        first, second : their names
        """
        return self.compared(first, second).gain(self.n_rows)

    @property
    def instead(self) -> str:
        """What a refit has to beat: the old metrics, with the new rows as cases where that goes."""
        return GROWN if GROWN in self.right else AS_IS

    @property
    def due(self) -> bool | None:
        """Whether a refit is due; None where these rows cannot tell."""
        _, _, high = self.gain(REFIT, self.instead)
        if self.compared(REFIT, self.instead).sign() == "+":
            return True
        return False if high <= MATTERS else None

    @property
    def verdict(self) -> str:
        """One sentence: whether a refit is due."""
        gain, low, high = (100 * part for part in self.gain(REFIT, self.instead))
        found = f"{gain:+.1f} points against the {self.instead} ({low:+.1f} to {high:+.1f})"
        if self.due:
            return f"A refit is due: {found}, which is more than chance."
        if self.due is not None:
            helps = self.compared(self.instead, AS_IS).sign() == "+"
            cases = "; the new rows as cases are enough" if helps else ""
            return f"No refit is due: it would change {found}{cases}."
        return f"These {self.n_rows} rows cannot tell whether a refit is due: {found}."

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        others = [name for name in self.right if name != AS_IS]
        pairs = [(AS_IS, name) for name in others]
        if self.instead != AS_IS:
            pairs.append((self.instead, REFIT))
        return {
            "rows": self.n_rows,
            "parts": self.n_parts,
            "accuracies": {
                name: {"accuracy": part[0], "interval": list(part[1:])}
                for name, part in self.accuracies.items()
            },
            "differences": [
                {
                    "of": second,
                    "over": first,
                    "gain": (gain := self.gain(second, first))[0],
                    "interval": list(gain[1:]),
                    "p_value": self.compared(second, first).p_value,
                }
                for first, second in pairs
            ],
            "due": self.due,
            "verdict": self.verdict,
        }

    def _lines(self) -> list[list[str]]:
        lines = [["", "accuracy", "95% interval", "more than the model"]]
        for name, (share, low, high) in self.accuracies.items():
            gain, least, most = (100 * part for part in self.gain(name, AS_IS))
            more = "" if name == AS_IS else f"{gain:+.1f} ({least:+.1f} to {most:+.1f})"
            lines.append([name, f"{share:.1%}", f"{100 * low:.1f} to {high:.1%}", more])
        return lines

    def __repr__(self) -> str:
        return "\n".join([f"{self.n_rows} new rows", *aligned(self._lines()), self.verdict])

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = [[cell(line[0], "th"), *map(cell, line[1:])] for line in rows]
        return (
            f"<p>{self.n_rows} new rows</p>{html_table(head, cells)}<p>{escape(self.verdict)}</p>"
        )


def staleness(model: Any, X: Any, y: Any, *, n_parts: int = 2, random_state: int = 0) -> Staleness:
    """What the metrics of a fitted model lose on new labelled rows.

    The rows are cut into parts. Every row is judged once, by the model as it is, by Euclidean
    neighbours over the same cases (as many as vote in the model), by the old metrics with the other
    parts as cases, and by a refit to the old rows and the other parts. The preprocessing of a
    pipeline stays as it is. Where the rows of the model have weights, those of the refit have them
    as well, a new row the average weight of its class.

    Parameters
    ----------
    model : as in ``plml.evaluation.evaluate``; it stays as it is
    X, y : rows that it was not fitted to, and their classes
    n_parts : number of parts, at least two; every part takes a refit
    random_state : seeds the cut into parts

    Returns
    -------
    plml.evaluation.staleness.Staleness
        The errors of all four; printing it says whether a refit is due.

    See Also
    --------
    plml.evaluation.evaluate : Measure a model next to simpler methods.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from plml import SML
    >>> X, y = load_wine(return_X_y=True)
    >>> found = SML().fit(X[::2], y[::2]).staleness(X[1::2], y[1::2])
    >>> found.n_rows
    89
    """
    X, model = at_classifier(model, X)
    labels = _known_labels(labels_of_rows(y, _num_samples(X), model.classes_), model.classes_)
    folds = _parts(labels, n_parts, random_state)
    predicted = on_host(model.predict(X))
    queries, rows, codes = euclidean(model, X)
    plain = model.classes_[_euclidean_codes(model, rows, codes, queries)]
    right = {AS_IS: predicted == labels, EUCLIDEAN: plain == labels}
    for name, answer in ((GROWN, _grown), (REFIT, _refitted)):
        if name == GROWN and not hasattr(model, "add_cases"):
            continue
        right[name] = np.zeros(len(labels), dtype=bool)
        for known, judged in folds:
            found = on_host(answer(model, X, labels, known, judged))
            right[name][judged] = found == labels[judged]
    return Staleness(right, n_parts)


def _euclidean_codes(
    model: Any, rows: np.ndarray, codes: np.ndarray, queries: np.ndarray
) -> np.ndarray:
    """Class codes of queries by Euclidean neighbours, whose votes count as those of the model."""
    k, how, counts = _voting(model)
    plain = KNeighborsClassifier(min(k, len(rows)), weights=how, algorithm="brute")
    if counts is None:
        return plain.fit(rows, codes).predict(queries)
    distances, nearest = plain.fit(rows, codes).kneighbors(queries)
    votes = counts[nearest]
    if how == "distance":
        votes = votes * inverse_distances(distances**2)
    return on_host(vote(codes[nearest], len(model.classes_), votes)).argmax(axis=1)


def _grown(
    model: Any, X: Any, labels: np.ndarray, known: np.ndarray, judged: np.ndarray
) -> np.ndarray:
    """Predictions by the old metrics, with some rows as cases."""
    return _with_cases(model, X, labels, known).predict(taken(X, judged))


def _with_cases(model: Any, X: Any, labels: np.ndarray, rows: np.ndarray) -> Any:
    return deepcopy(model).add_cases(taken(X, rows), labels[rows])


def _refitted(
    model: Any, X: Any, labels: np.ndarray, known: np.ndarray, judged: np.ndarray
) -> np.ndarray:
    """Predictions by a model that learned from the old rows and from some of the new."""
    old_y = model.classes_[on_host(model.training_cases()[1])]
    y = np.concatenate([old_y, labels[known]])
    rows, new = _table(model, X) if hasattr(model, "encoder_") else _matrix(model, X)
    again, counts = clone(model), None
    if model.training_weights() is not None:  # with those of the classes
        counts = _with_cases(model, X, labels, known).training_weights()
        if again.class_weight != "balanced":  # balanced again, as the new rows may not be
            again.set_params(class_weight=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the model itself was fitted
        fitted = again.fit(_joined(rows, taken(new, known)), y, sample_weight=counts)
    return fitted.predict(taken(new, judged))


def _matrix(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    return on_host(model.training_cases()[0]), query_data(model, X)


def _table(model: Any, X: Any) -> tuple[Any, Any]:
    """The rows that were learned from and new ones, as the encoder understands the table."""
    import pandas as pd

    encoder = model.encoder_
    old = pd.DataFrame(model.training_values()).infer_objects()
    if hasattr(X, "columns"):
        old.columns = getattr(X, "column_names", X.columns)  # of pyarrow, columns are values
    for place, name in enumerate(old.columns):
        if str(name) in encoder.dates_:  # texts, the year first
            old[name] = pd.to_datetime(old.iloc[:, place], format="ISO8601")
    return encoder.tidied(old), encoder.tidied(X)


def _joined(first: Any, second: Any) -> Any:
    if not hasattr(first, "iloc"):
        return np.concatenate([first, second])
    import pandas as pd

    both = pd.concat([first, second], ignore_index=True)
    categories = first.select_dtypes("category").columns
    return both.astype(dict.fromkeys(categories, "category"))


def _voting(model: Any) -> tuple[int, str, np.ndarray | None]:
    """How many neighbours vote, how, as far as scikit-learn knows it, and by which weights."""
    base = getattr(model, "model_", model).case_base()
    how = "distance" if base.voting.vote == "distance" else "uniform"
    return base.voting.n_neighbors, how, base.sample_weight


def _known_labels(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The labels, all of them classes of the model."""
    unknown = sorted(set(y.tolist()) - set(classes.tolist()), key=str)
    if unknown:
        raise ValueError(
            f"y has classes that the model does not know: {listed(unknown)}; leave these rows out, "
            "or fit the model again"
        )
    return y


def _parts(
    labels: np.ndarray, n_parts: int, random_state: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows that are known and rows that are judged, for every part."""
    if not isinstance(n_parts, Integral) or n_parts < 2:
        raise ValueError(f"n_parts must be an integer of at least 2, got {n_parts!r}")
    largest = int(np.unique(labels, return_counts=True)[1].max())
    if largest < n_parts:
        raise ValueError(
            f"{len(labels)} rows are too few to be cut into {n_parts} parts: no class has as many; "
            "give more new rows"
        )
    return stratified_folds(labels, n_parts, random_state)
