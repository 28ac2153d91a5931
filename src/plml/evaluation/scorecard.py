"""What a classifier is worth on labelled rows, beside what simpler ones are worth there."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_score,
    recall_score,
    roc_auc_score,
)

from plml.evaluation.paired import Comparison, accuracy_interval, mcnemar
from plml.evaluation.rivals import LARGEST
from plml.evaluation.scorecard_text import as_html, as_text, verdict
from plml.preprocessing.columns import listed

#: The smallest probability that log-loss counts with.
_FLOOR = np.finfo(np.float64).eps


class Figures(NamedTuple):
    """The figures of one method; those of a positive class are None if there is none.

    Attributes
    ----------
    accuracy : float
    low, high : float
        Wilson's 95% interval of the accuracy.
    balanced_accuracy : float
        The mean over classes of the share that is found.
    log_loss : float
    precision, recall, roc_auc, average_precision : float or None
        Of the positive class.

    Examples
    --------
    >>> import numpy as np
    >>> from plml.evaluation import Scorecard
    >>> shares = {"mine": np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])}
    >>> card = Scorecard(np.array(["no", "yes", "yes"]), np.array(["no", "yes"]), shares)
    >>> card.figures["mine"].balanced_accuracy
    0.75
    """

    accuracy: float
    low: float  # Wilson's 95% interval of the accuracy
    high: float
    balanced_accuracy: float  # the mean over classes of the share that is found
    log_loss: float
    precision: float | None = None
    recall: float | None = None
    roc_auc: float | None = None
    average_precision: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Scorecard:
    """Accuracy with its interval, and whether a method beats simpler ones by more than chance.

    ``plml.evaluation.evaluate`` makes one from a fitted model and labelled rows.

    Parameters
    ----------
    labels : (n,) true classes
    classes : (n_classes,) in the order of the shares
    shares : (n, n_classes) probabilities by method; the first method is the one that is judged
    source : what the text calls the rows
    positive : the class of interest, one of two; or None
    n_known : rows that are the same as rows that were learned from by what predicted them
    folds : (n,) by which of several models a row was predicted; None where there is one

    Examples
    --------
    >>> import numpy as np
    >>> from plml.evaluation import Scorecard
    >>> shares = {"mine": np.array([[0.9, 0.1], [0.2, 0.8]]), "theirs": np.full((2, 2), 0.5)}
    >>> card = Scorecard(np.array(["no", "yes"]), np.array(["no", "yes"]), shares)
    >>> card.figures["mine"].accuracy
    1.0
    >>> card.compared_with("theirs").p_value
    1.0
    """

    labels: np.ndarray
    classes: np.ndarray
    shares: Mapping[str, np.ndarray]
    source: str = ""
    positive: Any = None
    n_known: int = 0
    folds: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Refuse what does not belong together."""
        if not len(self.labels):
            raise ValueError("there is no row to evaluate; give at least one labelled row")
        wanted = (len(self.labels), len(self.classes))
        for name, shares in self.shares.items():
            if shares.shape != wanted:
                raise ValueError(f"the shares of {name} must be {wanted}, got {shares.shape}")
        if self.positive is not None:
            object.__setattr__(self, "positive", positive_class(self.classes, self.positive))

    @property
    def judged(self) -> str:
        """The method that is compared with the others."""
        return next(iter(self.shares))

    @property
    def rivals(self) -> list[str]:
        """The other methods."""
        return list(self.shares)[1:]

    @cached_property
    def predictions(self) -> dict[str, np.ndarray]:
        """The class with the largest share, by method; ties to the first class."""
        return {name: self.classes[share.argmax(axis=1)] for name, share in self.shares.items()}

    @cached_property
    def figures(self) -> dict[str, Figures]:
        """The figures of every method."""
        return {name: self._figures(name) for name in self.shares}

    def _figures(self, name: str) -> Figures:
        right = self.right(name)
        present = np.unique(self.labels)
        found = recall_score(
            self.labels, self.predictions[name], labels=present, average="macro", zero_division=0
        )
        interval = accuracy_interval(int(right.sum()), len(right))
        extra = self._positive_figures(name) if self.positive is not None else ()
        return Figures(float(right.mean()), *interval, float(found), self._log_loss(name), *extra)

    def _log_loss(self, name: str) -> float:
        """Mean of minus the logarithm of the share of the true class; 0 for one that is unknown."""
        match = self.labels[:, None] == self.classes
        given = np.where(match, self.shares[name], 0.0).sum(axis=1)
        return float(np.log(1 / np.clip(given, _FLOOR, 1.0)).mean())

    def _positive_figures(self, name: str) -> tuple[float | None, ...]:
        truth, scores = self.ranked(name)
        predicted = self.predictions[name] == self.positive
        return (
            float(precision_score(truth, predicted)) if predicted.any() else None,
            float(recall_score(truth, predicted)) if truth.any() else None,
            *self._ranking_figures(truth, scores),
        )

    def _ranking_figures(
        self, truth: np.ndarray, scores: np.ndarray
    ) -> tuple[float | None, float | None]:
        """ROC AUC and average precision; means over folds, as their models rank apart."""
        folds = np.zeros(len(truth)) if self.folds is None else self.folds
        areas, precisions = [], []
        for fold in np.unique(folds):
            here, given = truth[folds == fold], scores[folds == fold]
            n_positive = int(here.sum())
            n_pairs = n_positive * (len(here) - n_positive)
            if n_pairs:
                areas.append((roc_auc_score(here, given), n_pairs))
            if n_positive:
                precisions.append((average_precision_score(here, given), n_positive))
        return _weighted(areas), _weighted(precisions)

    def ranked(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Which rows are of the positive class, and the share that a method gives to it.

        Parameters
        ----------
        name : name of the method
        """
        if self.positive is None:
            raise ValueError("no class was called positive; give positive=")
        (place,) = np.flatnonzero(self.classes == self.positive)
        return self.labels == self.positive, self.shares[name][:, place]

    def right(self, name: str) -> np.ndarray:
        """(n,) whether a method is right.

        Parameters
        ----------
        name : name of the method
        """
        return self.predictions[name] == self.labels

    def compared_with(self, rival: str) -> Comparison:
        """McNemar's test of the judged method against another.

        Parameters
        ----------
        rival : name of the other one
        """
        return mcnemar(self.right(self.judged), self.right(rival))

    def gain_over(self, rival: str) -> tuple[float, float, float]:
        """How much more accurate the judged method is than another, and the 95% interval of that.

        Parameters
        ----------
        rival : name of the other one
        """
        return self.compared_with(rival).gain(len(self.labels))

    @property
    def largest(self) -> Any:
        """The class that is answered without looking at the rows; None where it is another one in
        another fold, or where no method does so.
        """
        answers = np.unique(self.predictions.get(LARGEST, []))
        return answers[0] if len(answers) == 1 else None

    @property
    def verdict(self) -> str:
        """Whether the judged method helps, by how much, and whether that is more than chance."""
        return verdict(self)

    @cached_property
    def confusion(self) -> tuple[np.ndarray, np.ndarray]:
        """Classes, and how often each (rows) was predicted as each (columns)."""
        predicted = self.predictions[self.judged]
        names = np.unique(np.concatenate([self.classes, self.labels]))
        return names, confusion_matrix(self.labels, predicted, labels=names)

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        names, matrix = self.confusion
        compared = {
            rival: {
                **self.compared_with(rival)._asdict(),
                "gain": self.gain_over(rival)[0],
                "gain_interval": list(self.gain_over(rival)[1:]),
            }
            for rival in self.rivals
        }
        return {
            "rows": len(self.labels),
            "source": self.source,
            "positive": None if self.positive is None else str(self.positive),
            "figures": {name: found._asdict() for name, found in self.figures.items()},
            "compared": compared,
            "verdict": self.verdict,
            "classes": [str(name) for name in names],
            "confusion": matrix.tolist(),
            "known_rows": self.n_known,
        }

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _weighted(parts: list[tuple[float, int]]) -> float | None:
    """The mean of values with weights; None of no value."""
    if not parts:
        return None
    values, weights = zip(*parts, strict=True)
    return float(np.average(values, weights=weights))


def positive_class(classes: np.ndarray, given: Any) -> Any:
    """One of two classes, found by its name.

    Parameters
    ----------
    classes : all of them
    given : the one that is meant, or its text
    """
    if len(classes) != 2:
        raise ValueError(
            f"a positive class is one of two, and there are {len(classes)} classes; leave it out"
        )
    found = [name for name in classes if str(given) in (str(name), str(name).removesuffix(".0"))]
    if not found:
        raise ValueError(f"there is no class {str(given)!r}; the classes are {listed(classes)}")
    return found[0]
