"""From a fitted metric and its cases to an explanation."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from plml.backend.arrays import on_host
from plml.inspection.contrasts import (
    MOST_ROWS,
    clear_means,
    column_contrasts,
    deletion_groups,
    drawn_cases,
    shares_of,
    spread_over_features,
)
from plml.inspection.explanation import Ballot, Explanation, Importances
from plml.inspection.nearest_of_class import FIRST, ClassVectors, NearestOfClass
from plml.metric.feature_split import split_distances
from plml.metric.votes import Voting, class_shares, vote_weights

#: Training rows near a query whose contrasts are its importance.
_NEAR = 15


class Tally(NamedTuple):
    """Who voted, and what came of it."""

    voting: Voting
    nearest: np.ndarray  # (q, k) training rows
    weights: np.ndarray  # (q, k) of their votes, which sum to one
    shares: np.ndarray  # (q, n_classes)
    weighted: bool = False  # whether votes count as the cases do

    def ballot(self, codes: np.ndarray, weight: float = 1.0) -> Ballot:
        """In numbers of neighbours and shares of classes."""
        classes = np.arange(self.shares.shape[1])
        counts = (codes[self.nearest][:, :, None] == classes).sum(axis=1)
        return Ballot(weight, *self.voting, counts, self.shares, self.weighted)

    def of(self, rows: np.ndarray | slice) -> "Tally":
        """That of some of the points."""
        parts = self.nearest[rows], self.weights[rows], self.shares[rows]
        return Tally(self.voting, *parts, self.weighted)

    def votes_of(self, cases: np.ndarray) -> np.ndarray:
        """(q, c) what given training rows add to the vote, zero where they have none."""
        same = cases[:, :, None] == self.nearest[:, None, :]
        return (same * self.weights[:, None, :]).sum(axis=2)


class Election(NamedTuple):
    """The votes behind some predictions."""

    shares: np.ndarray  # (q, n_classes) what is predicted by
    ballots: tuple[Ballot, ...]  # in numbers
    tallies: tuple[tuple[float, Tally], ...]  # by cases, with the weight of each vote

    def of(self, rows: np.ndarray | slice) -> "Election":
        """That of some of the points."""
        return Election(
            self.shares[rows],
            tuple(b._replace(counts=b.counts[rows], shares=b.shares[rows]) for b in self.ballots),
            tuple((weight, tally.of(rows)) for weight, tally in self.tallies),
        )


def joined(elections: Sequence[Election]) -> Election:
    """Several votes as one."""
    return Election(
        np.sum([election.shares for election in elections], axis=0),
        tuple(ballot for election in elections for ballot in election.ballots),
        tuple(pair for election in elections for pair in election.tallies),
    )


@dataclass(frozen=True)
class CaseBase:
    """Labelled training rows under a metric.

    Points are (q, d) arrays, or None for training rows, each of which is then left out of its own
    neighbours.
    """

    metric: Any  # see ``plml.metric``
    X: np.ndarray  # (n, d)
    codes: np.ndarray  # (n,)
    classes: np.ndarray
    names: np.ndarray  # (d,) of the features
    rows: np.ndarray | None = None  # the training rows that None stands for; all of them by default
    #: (d,) what the features were made from; by default each its own.
    columns: np.ndarray | None = None
    voting: Voting = field(default=Voting(1, "uniform"))  # the estimator's own
    sample_weight: np.ndarray | None = None  # (n,) by which votes are multiplied
    #: (q, d) -> (q, n_classes) shares, where the estimator predicts by no vote (the energy rule).
    rule: Callable[[np.ndarray], np.ndarray] | None = None
    #: Threads and memory that questions may take.
    limits: Callable[[], AbstractContextManager[None]] = nullcontext
    #: Of the training rows, where somebody has made them already.
    vectors: ClassVectors | None = None

    def election(
        self,
        Q: np.ndarray | None,
        members: Sequence[tuple[float, Voting]],
        near: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Election:
        """What is said of the points by weighted votes, or by the estimator's rule.

        Parameters
        ----------
        Q : the points
        members : votes and their weights
        near : (q, k) squared distances and training rows, where they were found already
        """
        if self.rule is not None:
            shares = self.rule(self.X[self._own] if Q is None else Q)
            ballot = Ballot(1.0, 0, "energy", np.zeros(shares.shape, dtype=int), shares)
            return Election(shares, (ballot,), ())
        votings = [voting for _, voting in members]
        near = self._search(Q, max(k for k, _ in votings)) if near is None else near
        counted = self.counted(Q, *near, votings)
        pairs = tuple((weight, tally) for (weight, _), tally in zip(members, counted, strict=True))
        return Election(
            np.sum([weight * tally.shares for weight, tally in pairs], axis=0),
            tuple(tally.ballot(self.codes, weight) for weight, tally in pairs),
            pairs,
        )

    def counted(
        self,
        Q: np.ndarray | None,
        squared: np.ndarray,
        nearest: np.ndarray,
        votings: Sequence[Voting],
    ) -> list[Tally]:
        """The votes of neighbours that were found, (q, k) squared distances and training rows."""
        found = []
        for voting in votings:
            near = squared[:, : voting.n_neighbors], nearest[:, : voting.n_neighbors]
            how, counted = voting.vote, self.sample_weight
            weights = vote_weights(self.metric, Q, *near, how, counted)
            n_classes = len(self.classes)
            shares = class_shares(self.metric, Q, *near, self.codes, n_classes, how, counted)
            tally = Tally(voting, near[1], on_host(weights), on_host(shares), counted is not None)
            found.append(tally)
        return found

    def explanation(
        self,
        Q: np.ndarray | None,
        n_neighbors: int,
        election: Election,
        probabilities: np.ndarray,
        votes: np.ndarray | None = None,
        near: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Explanation:
        """Why the classes with the largest shares are predicted.

        Parameters
        ----------
        Q : the points
        n_neighbors : cases listed
        election : the votes
        probabilities : (q, n_classes) what a user is told
        votes : (q, n_neighbors) what the listed cases add, where that is known without tallies
        near : (q, k) squared distances and training rows, as in ``election``
        """
        squared, nearest = self.near(Q, n_neighbors) if near is None else near
        squared, neighbors = squared[:, :n_neighbors], nearest[:, :n_neighbors]
        points, own = (self.X[self._own], self._own) if Q is None else (Q, None)
        predicted, rivals, pair = self._opponents(Q, nearest, election.shares)
        parts = split_distances(self.metric, points, own, np.maximum(pair, 0), "bilinear")
        apart = np.where(pair < 0, np.inf, np.maximum(parts.sum(axis=2), 0.0))
        there = (pair >= 0).all(axis=1, keepdims=True)
        if votes is None:
            parts_of = [weight * tally.votes_of(neighbors) for weight, tally in election.tallies]
            votes = np.sum([np.zeros(neighbors.shape), *parts_of], axis=0)
        weights, bases = self._local_metrics(Q)
        return Explanation(
            classes=self.classes,
            predictions=self.classes[predicted],
            probabilities=probabilities,
            ballots=election.ballots,
            neighbors=neighbors,
            labels=self.classes[self.codes[neighbors]],
            squared_distances=squared,
            votes=votes,
            likeness=split_distances(self.metric, points, own, neighbors, "likeness"),
            contributions=split_distances(self.metric, points, own, neighbors, "bilinear"),
            rivals=self.classes[rivals],
            cases_for=pair[:, 0],
            cases_against=pair[:, 1],
            for_squared=apart[:, 0],
            against_squared=apart[:, 1],
            contrasts=np.where(there, parts[:, 1] - parts[:, 0], 0.0),
            queries=points,
            neighbor_values=self.X[neighbors],
            for_values=self.X[pair[:, 0]],
            against_values=self.X[pair[:, 1]],
            importances=self.importances(Q),
            weights=weights,
            basis_metrics=bases,
            feature_names=self.names,
        )

    def near(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(q, at least k) squared distances and numbers of the neighbours of the points.

        Some more than k, because the nearest case of each class is looked for among them first.

        Parameters
        ----------
        Q : the points
        k : that are needed
        """
        return self._search(Q, min(max(k, FIRST), len(self.X) - (Q is None)))

    def importances(self, Q: np.ndarray | None) -> Importances:
        """Of the features, near the points and on average, when they are asked for."""

        def local() -> np.ndarray:
            with self.limits():
                return self.local_importance(Q)

        def average() -> np.ndarray:
            with self.limits():
                return self.average_importance()

        return Importances(local, average)

    def contrasts_of(self, rows: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
        """Mean contrasts of columns at training rows, the (n,) groups left out in turn; see
        ``column_contrasts``.
        """
        cases = drawn_cases(self.codes, len(rows), self.X.shape[1])
        groups = None if groups is None else groups[cases]
        return column_contrasts(self.metric, rows, cases, self.codes, self._columns, groups)

    def average_importance(self) -> np.ndarray:
        """(d,) shares of the features in what sets the classes apart, over the training rows.

        A column whose average cannot be told from zero has none. Features made from one column
        have the same part of its share.
        """
        rows = np.arange(len(self.X))
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        groups = deletion_groups(len(self.X))
        shares = shares_of(clear_means(self.contrasts_of(rows, groups), groups[rows]))
        return spread_over_features(shares, self._columns)

    def local_importance(self, Q: np.ndarray | None) -> np.ndarray:
        """(q, d) the same over the training rows nearest to each point."""
        k = min(_NEAR, len(self.X) - 1)
        _, nearest = self._search(Q, k)
        rows, place = np.unique(nearest, return_inverse=True)
        contrasts = self.contrasts_of(rows)[0]
        shares = shares_of(contrasts[place.reshape(nearest.shape)].mean(axis=1))
        return spread_over_features(shares, self._columns)

    def _opponents(
        self, Q: np.ndarray | None, near: np.ndarray, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The predicted class and the one that comes second, and the nearest case of each.

        (q,) codes each, (q, 2) training rows. Where no other class has a share, that of the nearest
        case of another class comes second.
        """
        cases, classes = self._of_class(Q, near), np.arange(len(self.classes))
        predicted, others = shares.argmax(axis=1), shares.copy()
        others[np.arange(len(others)), predicted] = -1.0
        rivals, alone = others.argmax(axis=1), others.max(axis=1) <= 0.0
        if alone.any():
            found = cases.rows(classes != predicted[:, None])
            rivals = np.where(alone & (found >= 0), self.codes[found], rivals)
        sides = [cases.rows(classes == code[:, None]) for code in (predicted, rivals)]
        return predicted, rivals, np.stack(sides, axis=1)

    def _of_class(self, Q: np.ndarray | None, near: np.ndarray) -> NearestOfClass:
        """Finds cases of given classes, see there."""

        def search(which: np.ndarray, k: int) -> np.ndarray:
            if Q is None:
                return on_host(self.metric.search_rows(self._own[which], k)[1])
            return on_host(self.metric.search(Q[which], k)[1])

        def of_all() -> tuple[np.ndarray, np.ndarray]:
            vectors = self.vectors
            if vectors is None:
                vectors = ClassVectors.of(self.metric, self.codes, len(self.classes))
            assert vectors is not None
            queries = on_host(self.metric.query_vectors(Q)).astype(np.float64)
            own = self._own if Q is None else None
            return vectors.nearest(queries if own is None else queries[own], own)

        known = of_all if hasattr(self.metric, "index_vectors") else None
        return NearestOfClass(near, self.codes, search, len(self.X) - (Q is None), known)

    def _search(self, Q: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = self.metric.search_rows(self._own, k) if Q is None else self.metric.search(Q, k)
        return on_host(found[0]), on_host(found[1])

    @property
    def _columns(self) -> np.ndarray:
        """(d,) from features to columns, numbered without gaps."""
        if self.columns is None:
            return np.arange(self.X.shape[1])
        return np.unique(self.columns, return_inverse=True)[1]

    @property
    def _own(self) -> np.ndarray:
        return np.arange(len(self.X)) if self.rows is None else self.rows

    def _local_metrics(self, Q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Weights and basis metrics whose combinations are the local metrics."""
        if hasattr(self.metric, "weights"):
            weights = on_host(self.metric.weights(Q))
            return weights[self._own] if Q is None else weights, self.metric.M
        metrics = on_host(self.metric.matrix(Q))
        metrics = metrics[self._own] if Q is None else metrics
        return np.eye(len(metrics)), metrics
