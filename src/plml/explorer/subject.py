"""What the explorer knows of a model: how it votes, and the columns its cases are described in.

Every model comes down to votes of neighbours (``Member``) and a ``TableView``, which turns the rows
of a user into features and training rows back into values. Importances are left out: they take most
of the time of an explanation, and the page does not show them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import on_host
from plml.backend.progress import stage
from plml.backend.threads import limit_threads
from plml.estimators._calibration import calibrated
from plml.estimators._metric_queries import MetricQueries
from plml.estimators.auto_plml import AutoPLML
from plml.explorer.quick_cases import ClassVectors, QuickCaseBase, with_memory
from plml.explorer.table_views import TableView, table_view
from plml.inspection.explaining import CaseBase, Tally
from plml.inspection.explanation import Ballot, Explanation
from plml.metric.votes import Voting

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
    """One vote: where its neighbours are looked for, how they vote, and what it counts."""

    estimator: MetricQueries
    voting: Voting
    weight: float


@dataclass(frozen=True)
class Votes:
    """What the neighbours of some points say.

    Attributes
    ----------
    probabilities : (q, n_classes)
    shares : (q, n_classes) what is predicted by
    ballots, tallies : the votes in numbers, and by cases with their weights
    near : (q, k) squared distances and numbers of the nearest cases of the first member
    """

    probabilities: np.ndarray
    shares: np.ndarray
    ballots: tuple[Ballot, ...]
    tallies: tuple[tuple[float, Tally], ...]
    near: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def codes(self) -> np.ndarray:
        """(q,) places of the predicted classes."""
        return self.shares.argmax(axis=1)

    def of(self, rows: np.ndarray | slice) -> "Votes":
        """Those of some of the points."""
        return Votes(
            self.probabilities[rows],
            self.shares[rows],
            tuple(b._replace(counts=b.counts[rows], shares=b.shares[rows]) for b in self.ballots),
            tuple(
                (
                    weight,
                    Tally(t.voting, t.nearest[rows], t.weights[rows], t.shares[rows]),
                )
                for weight, t in self.tallies
            ),
            None if self.near is None else (self.near[0][rows], self.near[1][rows]),
        )


class Subject:
    """A fitted model as the explorer sees it.

    Parameters
    ----------
    classifier : a fitted estimator that has neighbours
    view : the columns that its cases are described in
    """

    def __init__(self, classifier: Any, view: TableView) -> None:
        self.view = view
        self.members = _members(classifier)
        self.calibration: tuple[float, float, float] | None = getattr(
            classifier, "calibration_", None
        )
        self.base: CaseBase = self.members[0].estimator.case_base()
        self.classes: np.ndarray = classifier.classes_
        self._metric = with_memory(self.base.metric)
        self._vectors = ClassVectors.of(self.base.metric, self.base.codes, len(self.classes))

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
        return self._metric

    @cached_property
    def training_votes(self) -> Votes:
        """The votes for all training rows, each left out of its own neighbours."""
        with self._limits(), stage(LEAVING_OUT) as progress:
            n_searches = len({id(member.estimator) for member in self.members})
            done = 0

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
        with self._limits():
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
        with self._limits(), limit_threads(1) if len(Q) <= _FEW else nullcontext():
            votes = self.votes(Q) if votes is None else votes
            base = self._quick(None, votes)
            found = base.explanation(Q, self._listed(n_neighbors), *_parts(votes))
        return self._in_columns(found, self.view.values(X))

    def explain_training(self, rows: np.ndarray, n_neighbors: int | None = None) -> Explanation:
        """Some training rows, each left out of its own neighbours.

        Parameters
        ----------
        rows : (q,) training rows
        n_neighbors : as in ``explain``
        """
        votes = self.training_votes.of(rows)
        with self._limits():
            base = self._quick(rows, votes)
            found = base.explanation(None, self._listed(n_neighbors), *_parts(votes))
        return self._in_columns(found, self.view.training_values(rows))

    def _quick(self, rows: np.ndarray | None, votes: Votes) -> QuickCaseBase:
        base = self.base
        return QuickCaseBase(
            self._metric,
            base.X,
            base.codes,
            base.classes,
            base.names,
            rows=rows,
            weighs_features=False,
            vectors=self._vectors,
            near=votes.near,
        )

    def _in_columns(self, found: Explanation, values: np.ndarray) -> Explanation:
        names = [column.name for column in self.view.columns]

        def cases(rows: np.ndarray) -> np.ndarray:
            different, place = np.unique(rows, return_inverse=True)
            return self.view.training_values(different)[place.reshape(rows.shape)]

        return found.in_columns(names, self.view.owner, values, cases)

    def _listed(self, n_neighbors: int | None) -> int:
        most = max(member.voting.n_neighbors for member in self.members)
        asked = min(max(most, 3), N_LISTED) if n_neighbors is None else n_neighbors
        return min(asked, self.n_training - 1)

    def _votes(
        self,
        Q: np.ndarray | None,
        search: Callable[[CaseBase, int], tuple[np.ndarray, np.ndarray]],
    ) -> Votes:
        """The votes of all members; one search for those that share a metric."""
        ballots, tallies, nearest = [], [], None
        shares = np.zeros((self.n_training if Q is None else len(Q), len(self.classes)))
        for estimator, members in _by_estimator(self.members):
            base = estimator.case_base()
            if estimator is self.members[0].estimator:
                base = replace(base, metric=self._metric)
            if not estimator._votes_are_counted():  # the energy rule, which nobody shares
                found = on_host(estimator._shares(base.X if Q is None else Q))
                ballot = Ballot(1.0, 0, "energy", np.zeros(found.shape, dtype=int), found)
                return Votes(found, found, (ballot,), ())
            votings = [member.voting for member in members]
            near = search(base, max(self._listed(None), *(k for k, _ in votings)))
            nearest = near if nearest is None else nearest
            counted = base.counted(Q, *near, votings)
            for member, tally in zip(members, counted, strict=True):
                shares += member.weight * tally.shares
                ballots.append(tally.ballot(base.codes, member.weight))
                tallies.append((member.weight, tally))
        probabilities = calibrated(shares, *self.calibration) if self.calibration else shares
        return Votes(probabilities, shares, tuple(ballots), tuple(tallies), nearest)

    def _limits(self) -> AbstractContextManager[None]:
        return self.members[0].estimator._run().limits()


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
    return Subject(classifier, table_view(model, classifier, table))


def _members(classifier: Any) -> tuple[Member, ...]:
    if not isinstance(classifier, AutoPLML):
        return (Member(classifier, Voting(*classifier._voting()), 1.0),)
    return tuple(
        Member(
            classifier.models_[member["model"]],
            Voting(member["n_neighbors"], member["vote"]),
            member["weight"],
        )
        for member in sorted(classifier.members_, key=lambda member: member["model"])
    )


def _by_estimator(members: Sequence[Member]) -> list[tuple[MetricQueries, list[Member]]]:
    groups: dict[int, list[Member]] = {}
    for member in members:
        groups.setdefault(id(member.estimator), []).append(member)
    return [(group[0].estimator, group) for group in groups.values()]


def _found(base: CaseBase, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    squared, nearest = base.metric.search(Q, k)
    return on_host(squared), on_host(nearest)


def _parts(votes: Votes) -> tuple[Any, ...]:
    """As ``CaseBase.explanation`` takes them."""
    return votes.shares, votes.probabilities, votes.ballots, votes.tallies
