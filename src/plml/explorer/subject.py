"""What the explorer knows of a model: how it votes, and the columns its cases are described in.

Every model comes down to votes of neighbours (``Member``) and a ``TableView``, which turns the rows
of a user into features and training rows back into values.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import on_host
from plml.backend.progress import stage
from plml.backend.threads import limit_threads
from plml.estimators._calibration import calibrated
from plml.estimators._metric_queries import MetricQueries
from plml.estimators.auto_plml import AutoPLML
from plml.explorer.table_views import TableView, table_view
from plml.inspection.explaining import CaseBase, Election, joined
from plml.inspection.explanation import Explanation
from plml.inspection.nearest_of_class import ClassVectors
from plml.metric.votes import Voting
from plml.preprocessing.keys import keys_of
from plml.validation import row_names

#: The stage in which every training row votes for the others.
LEAVING_OUT = "leaving each training case out"
#: Training rows that are searched for before the progress is told. Large: Faiss computes the
#: products of few rows without BLAS, which takes four times as long.
_BLOCK = 16384
#: Points that one thread explains sooner than several.
_FEW = 8
#: Cases listed at most where nobody says how many.
N_LISTED = 6


class Member(NamedTuple):
    """Where neighbours are looked for, how they vote, and what each vote counts."""

    base: CaseBase
    votes: Sequence[tuple[float, Voting]]

    @property
    def n_voters(self) -> int:
        """Neighbours that vote at most."""
        return max(voting.n_neighbors for _, voting in self.votes)


@dataclass(frozen=True)
class Votes:
    """What the neighbours of some points say.

    Attributes
    ----------
    probabilities : (q, n_classes)
    election : the votes that they come from
    near : (q, k) squared distances and numbers of the nearest cases of the first member
    """

    probabilities: np.ndarray
    election: Election
    near: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def codes(self) -> np.ndarray:
        """(q,) places of the predicted classes."""
        return self.election.shares.argmax(axis=1)

    def of(self, rows: np.ndarray | slice) -> "Votes":
        """Those of some of the points."""
        return Votes(
            self.probabilities[rows],
            self.election.of(rows),
            None if self.near is None else (self.near[0][rows], self.near[1][rows]),
        )


class Subject:
    """A fitted model as the explorer sees it.

    Parameters
    ----------
    classifier : a fitted estimator that has neighbours
    view : the columns that its cases are described in
    names : (n,) of the training rows, where they have other names than the classifier knows
    key : the column of new rows that names them, where there is one
    """

    def __init__(
        self,
        classifier: Any,
        view: TableView,
        names: np.ndarray | None = None,
        key: str | None = None,
    ) -> None:
        self.view = view
        self._key = key
        self.members = _members(classifier)
        self.calibration: tuple[float, float, float] | None = getattr(
            classifier, "calibration_", None
        )
        self.base = self.members[0].base
        self.classes: np.ndarray = classifier.classes_
        self.training_names = classifier.training_names() if names is None else names

    def new_names(self, X: Any) -> np.ndarray | None:
        """The names of new rows; None where they are the numbers of the rows."""
        named = self._key is not None and self._key in getattr(X, "columns", ())
        return keys_of(X[self._key]) if named else row_names(X)

    @property
    def n_training(self) -> int:
        """Training rows."""
        return len(self.base.X)

    @property
    def training_codes(self) -> np.ndarray:
        """(n,) places of the classes of the training rows in ``classes``."""
        return self.base.codes

    @property
    def metric(self) -> Any:
        """The metric that cases are near under (see ``plml.metric``)."""
        return self.base.metric

    @cached_property
    def training_votes(self) -> Votes:
        """The votes for all training rows, each left out of its own neighbours."""
        with self.base.limits(), stage(LEAVING_OUT) as progress:
            n_searches, done = len(self.members), 0

            def search(base: CaseBase, k: int) -> tuple[np.ndarray, np.ndarray]:
                nonlocal done
                parts = []
                for start in range(0, len(base.X), _BLOCK):
                    rows = np.arange(start, min(start + _BLOCK, len(base.X)))
                    parts.append([on_host(part) for part in base.metric.search_rows(rows, k)])
                    done += len(rows)
                    progress.report(
                        f"{rows[-1] + 1} of {len(base.X)} cases", done / (n_searches * len(base.X))
                    )
                squared, nearest = (np.concatenate(part) for part in zip(*parts, strict=True))
                return squared, nearest

            return self._votes(None, search)

    def votes(self, Q: np.ndarray) -> Votes:
        """The votes for encoded points."""
        with self.base.limits():
            return self._votes(Q, lambda base, k: _found(base, Q, k))

    def explain(
        self, X: Any, n_neighbors: int | None = None, votes: Votes | None = None
    ) -> Explanation:
        """New rows of the user, in the columns of the table, without importances.

        Parameters
        ----------
        X : as the model's ``predict`` takes it
        n_neighbors : cases listed; those that vote by default, a few at most
        votes : for these rows, where they are known
        """
        Q = self.view.encoded(X)
        # The threads of a search for a few points would wait for each other most of the time.
        with self.base.limits(), limit_threads(1) if len(Q) <= _FEW else nullcontext():
            votes = self.votes(Q) if votes is None else votes
            found = self._told(self.base, Q, n_neighbors, votes)
        return self._in_columns(found, self.view.values(X))

    def explain_training(self, rows: np.ndarray, n_neighbors: int | None = None) -> Explanation:
        """Some training rows, each left out of its own neighbours.

        Parameters
        ----------
        rows : (q,) training rows
        n_neighbors : as in ``explain``
        """
        votes = self.training_votes.of(rows)
        with self.base.limits():
            found = self._told(replace(self.base, rows=rows), None, n_neighbors, votes)
        return self._in_columns(found, self.view.training_values(rows))

    def _told(
        self, base: CaseBase, Q: np.ndarray | None, n_neighbors: int | None, votes: Votes
    ) -> Explanation:
        k, near = self._listed(n_neighbors), votes.near
        if near is not None and near[1].shape[1] < k:
            near = None
        return base.explanation(Q, k, votes.election, votes.probabilities, near=near)

    def _in_columns(self, found: Explanation, values: np.ndarray) -> Explanation:
        names = [column.name for column in self.view.columns]

        def cases(rows: np.ndarray) -> np.ndarray:
            different, place = np.unique(rows, return_inverse=True)
            return self.view.training_values(different)[place.reshape(rows.shape)]

        return found.in_columns(names, self.view.owner, values, cases)

    def _listed(self, n_neighbors: int | None) -> int:
        most = max(member.n_voters for member in self.members)
        asked = min(max(most, 3), N_LISTED) if n_neighbors is None else n_neighbors
        return min(asked, self.n_training - 1)

    def _votes(
        self,
        Q: np.ndarray | None,
        search: Callable[[CaseBase, int], tuple[np.ndarray, np.ndarray]],
    ) -> Votes:
        """The votes of all members, from one search each; none where a rule predicts."""
        near = [
            search(member.base, max(self._listed(None), member.n_voters))
            for member in self.members
            if member.base.rule is None
        ]
        election = joined(
            [
                base.election(Q, votes, found)
                for (base, votes), found in zip_longest(self.members, near)
            ]
        )
        shares = election.shares
        probabilities = calibrated(shares, *self.calibration) if self.calibration else shares
        return Votes(probabilities, election, near[0] if near else None)


def subject_of(model: Any, table: str = "the table") -> Subject:
    """A model to explore: an estimator of this library, a pipeline, or a model of ``plml fit``.

    Parameters
    ----------
    model : fitted
    table : what messages call the new rows
    """
    model = getattr(model, "best_estimator_", model)
    classifier = getattr(model, "classifier", model)
    if hasattr(classifier, "steps"):
        classifier = classifier[-1]
    if not isinstance(classifier, MetricQueries | AutoPLML):
        raise ValueError(f"{type(classifier).__name__} has no neighbours to explore")
    check_is_fitted(classifier)
    # Of a model of plml fit; a pipeline has no such thing.
    names, key = getattr(model, "keys", None), getattr(model, "key", None)
    return Subject(classifier, table_view(model, classifier, table), names, key)


def _members(classifier: Any) -> tuple[Member, ...]:
    """Those who vote, first the one whose metric the cases are near under."""
    if isinstance(classifier, AutoPLML):
        found = [Member(model.case_base(), votes) for model, votes in classifier.committee()]
    else:
        base = classifier.case_base()
        found = [Member(base, [(1.0, base.voting)])]
    base = found[0].base
    vectors = ClassVectors.of(base.metric, base.codes, len(base.classes))
    return (found[0]._replace(base=replace(base, vectors=vectors)), *found[1:])


def _found(base: CaseBase, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    squared, nearest = base.metric.search(Q, k)
    return on_host(squared), on_host(nearest)
