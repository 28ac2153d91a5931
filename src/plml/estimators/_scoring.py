"""What settings are compared by on held-out rows: accuracy, or any scorer of scikit-learn.

The votes of a setting are known as shares of the classes, without an estimator; a scorer gets a
stand-in that predicts by them.
"""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import get_scorer

from plml.estimators._fitted_state import changed
from plml.estimators._folds import Split


@dataclass(frozen=True)
class Scoring:
    """How good shares of votes are for rows whose classes are known; the larger, the better.

    Parameters
    ----------
    given : the parameter ``scoring``: None for accuracy, a name, or a scorer
    classes : (n_classes,) names of the classes
    floor : of the probabilities that a scorer sees
    """

    given: str | Callable[..., float] | None
    classes: np.ndarray
    floor: float = 0.0

    @property
    def name(self) -> str:
        """What a reader is told."""
        if self.given is None or isinstance(self.given, str):
            return self.given or "accuracy"
        score = getattr(self.given, "_score_func", self.given)
        return str(getattr(score, "__name__", type(score).__name__))

    def shown(self, score: float) -> str:
        """A score as a reader sees it: shares of rows as percentages, others as numbers."""
        return f"{score:.2%}" if self.name.endswith("accuracy") else f"{score:.4g}"

    def scores(
        self, shares: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> np.ndarray:
        """(n_settings,) scores of (n_settings, q, n_classes) shares.

        Parameters
        ----------
        shares : of the settings
        codes : (q,) the classes of the rows
        sample_weight : (q,) how much the rows count, where the scorer takes it; or None
        """
        if self.given is None:
            right = shares.argmax(axis=2) == codes
            return np.average(right, axis=1, weights=sample_weight)
        scorer, truth = scorer_of(self.given), self.classes[codes]
        weighted = sample_weight is not None and takes_weights(scorer)
        options = {"sample_weight": sample_weight} if weighted else {}
        numbers = np.arange(len(codes))[:, None]
        voters = (Voters(one, self.classes, self.floor) for one in shares)
        with warnings.catch_warnings():  # of what is not defined for one of many settings
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            found = np.array([float(scorer(voter, numbers, truth, **options)) for voter in voters])
        if not np.isfinite(found).all():
            raise ValueError(
                f"scoring={self.name!r} is not a number on {len(codes)} held-out rows of "
                f"{len(np.unique(codes))} of the {len(self.classes)} classes; give more rows, "
                "another cv or another scoring"
            )
        return found

    def check(self, splits: Sequence[Split], y: np.ndarray, weights: np.ndarray | None) -> None:
        """Refuse a scorer that cannot score the held-out rows of some fold."""
        if self.given is None:
            return
        for train, test in splits:
            shares = np.bincount(y[train], minlength=len(self.classes)) / len(y[train])
            every = np.tile(shares, (1, len(y[test]), 1))
            counted = None if weights is None else weights[test]
            try:
                with warnings.catch_warnings():  # the shares are the same for all rows
                    warnings.simplefilter("ignore")
                    self.scores(every, y[test], counted)
            except Exception as error:
                message = " ".join(str(error).split())
                if message.startswith("scoring="):
                    raise
                raise ValueError(
                    f"scoring={self.name!r} cannot score votes for {len(self.classes)} classes: "
                    f"{message or type(error).__name__}"
                ) from error


class Voters(ClassifierMixin, BaseEstimator):
    """Known shares of votes in the place of the classifier that a scorer asks.

    Parameters
    ----------
    shares : (q, n_classes) array
    classes : (n_classes,) names
    floor : least probability, of all classes together
    """

    def __init__(self, shares: np.ndarray, classes: np.ndarray, floor: float = 0.0) -> None:
        self.shares = shares
        self.classes = classes
        self.floor = floor
        self.classes_ = classes

    def predict(self, X: Any) -> np.ndarray:
        """The classes with the largest shares.

        Parameters
        ----------
        X : (n, 1) numbers of held-out rows
        """
        return self.classes_[self.shares[np.asarray(X)[:, 0]].argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The shares.

        Parameters
        ----------
        X : as in ``predict``
        """
        shares = self.shares[np.asarray(X)[:, 0]].astype(np.float64)
        shares /= shares.sum(axis=1, keepdims=True)  # votes are kept in half precision
        return (1.0 - self.floor) * shares + self.floor / shares.shape[1]


class ScoresAsSelected(ClassifierMixin):
    """Mixin for estimators with a parameter ``scoring``: ``score`` is by that scorer."""

    scoring: Any

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score by ``scoring``: accuracy, where it is None.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        y : (n_queries,) class labels
        sample_weight : (n_queries,) how much each row counts
        """
        if self.scoring is None:
            return super().score(X, y, sample_weight)
        scorer = scorer_of(self.scoring)
        plain = changed(self, lambda model: setattr(model, "scoring", None))  # may be asked itself
        if sample_weight is None:
            return float(scorer(plain, X, y))
        if not takes_weights(scorer):
            raise ValueError(f"scoring={self.scoring!r} takes no sample_weight; leave it out")
        return float(scorer(plain, X, y, sample_weight=sample_weight))


def scorer_of(given: Any) -> Callable[..., float]:
    """A scorer by its name, or the scorer that was given; refuses anything else."""
    if isinstance(given, str):
        with suppress(ValueError):
            return get_scorer(given)
    elif callable(given) and not _is_metric(given):
        return given
    raise ValueError(
        f"scoring={given!r} is no scorer; give a name such as 'balanced_accuracy' (of "
        "sklearn.metrics.get_scorer_names()), a function of (estimator, X, y), or "
        "sklearn.metrics.make_scorer(metric)"
    )


def _is_metric(given: Any) -> bool:
    """Whether this is one of scikit-learn's functions of (y_true, y_pred)."""
    module = str(getattr(given, "__module__", ""))
    return module.startswith("sklearn.metrics.") and "_scorer" not in module


def takes_weights(scorer: Any) -> bool:
    """Whether a scorer can weigh rows."""
    parameters = signature(getattr(scorer, "_score_func", scorer)).parameters.values()
    return any(p.name == "sample_weight" or p.kind is Parameter.VAR_KEYWORD for p in parameters)
