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
    drawn_cases,
    nearest_where,
    shares_of,
    spread_over_features,
)
from plml.inspection.explanation import Ballot, Explanation, Importances
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

    def ballot(self, codes: np.ndarray, weight: float = 1.0) -> Ballot:
        """In numbers of neighbours and shares of classes."""
        classes = np.arange(self.shares.shape[1])
        counts = (codes[self.nearest][:, :, None] == classes).sum(axis=1)
        return Ballot(weight, *self.voting, counts, self.shares)

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
            tuple(
                (weight, Tally(t.voting, t.nearest[rows], t.weights[rows], t.shares[rows]))
                for weight, t in self.tallies
            ),
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
    #: (q, d) -> (q, n_classes) shares, where the estimator predicts by no vote (the energy rule).
    rule: Callable[[np.ndarray], np.ndarray] | None = None
    #: Threads and memory that questions may take.
    limits: Callable[[], AbstractContextManager[None]] = nullcontext

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
            weights = vote_weights(self.metric, Q, *near, voting.vote)
            shares = class_shares(self.metric, Q, *near, self.codes, len(self.classes), voting.vote)
            found.append(Tally(voting, near[1], on_host(weights), on_host(shares)))
        return found

    def explanation(
        self,
        Q: np.ndarray | None,
        n_neighbors: int,
        election: Election,
        probabilities: np.ndarray,
        votes: np.ndarray | None = None,
    ) -> Explanation:
        """Why the classes with the largest shares are predicted.

        Parameters
        ----------
        Q : the points
        n_neighbors : cases listed
        election : the votes
        probabilities : (q, n_classes) what a user is told
        votes : (q, n_neighbors) what the listed cases add, where that is known without tallies
        """
        squared, neighbors = self._search(Q, n_neighbors)
        points, own = (self.X[self._own], self._own) if Q is None else (Q, None)
        predicted, rivals = self._rivals(Q, election.shares)
        cases_for = self._nearest_of(Q, predicted)
        cases_against = self._nearest_of(Q, rivals)
        pair = np.concatenate([cases_for.rows, cases_against.rows], axis=1)
        parts = split_distances(self.metric, points, own, np.maximum(pair, 0), "bilinear")
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
            cases_for=cases_for.rows[:, 0],
            cases_against=cases_against.rows[:, 0],
            for_squared=cases_for.squared[:, 0],
            against_squared=cases_against.squared[:, 0],
            contrasts=parts[:, 1] - parts[:, 0],
            queries=points,
            neighbor_values=self.X[neighbors],
            for_values=self.X[cases_for.rows[:, 0]],
            against_values=self.X[cases_against.rows[:, 0]],
            importances=self.importances(Q),
            weights=weights,
            basis_metrics=bases,
            feature_names=self.names,
        )

    def importances(self, Q: np.ndarray | None) -> Importances:
        """Of the features, near the points and on average, when they are asked for."""

        def local() -> np.ndarray:
            with self.limits():
                return self.local_importance(Q)

        def average() -> np.ndarray:
            with self.limits():
                return self.average_importance()

        return Importances(local, average)

    def contrasts_of(self, rows: np.ndarray) -> np.ndarray:
        """(r, n_columns) mean contrasts of columns at training rows; see ``column_contrasts``."""
        cases = drawn_cases(self.codes, len(rows), self.X.shape[1])
        return column_contrasts(self.metric, rows, cases, self.codes, self._columns)

    def average_importance(self) -> np.ndarray:
        """(d,) shares of the features in what sets the classes apart, over the training rows.

        A column whose average cannot be told from zero has none. Features made from one column
        have the same part of its share.
        """
        rows = np.arange(len(self.X))
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        shares = shares_of(clear_means(self.contrasts_of(rows)))
        return spread_over_features(shares, self._columns)

    def local_importance(self, Q: np.ndarray | None) -> np.ndarray:
        """(q, d) the same over the training rows nearest to each point."""
        k = min(_NEAR, len(self.X) - 1)
        _, nearest = self._search(Q, k)
        rows, place = np.unique(nearest, return_inverse=True)
        contrasts = self.contrasts_of(rows)
        shares = shares_of(contrasts[place.reshape(nearest.shape)].mean(axis=1))
        return spread_over_features(shares, self._columns)

    def _rivals(self, Q: np.ndarray | None, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The predicted class and the one that comes second, (q,) codes each.

        Where no other class has a share, it is that of the nearest case of another class.
        """
        predicted = shares.argmax(axis=1)
        others = shares.copy()
        others[np.arange(len(others)), predicted] = -1.0
        rivals = others.argmax(axis=1)
        alone = others.max(axis=1) <= 0.0
        if alone.any():
            nearest = self._nearest(
                Q, lambda which, near: self.codes[near] != predicted[which, None]
            )
            found = np.where(nearest.rows[:, 0] >= 0, self.codes[nearest.rows[:, 0]], rivals)
            rivals = np.where(alone, found, rivals)
        return predicted, rivals

    def _nearest_of(self, Q: np.ndarray | None, wanted: np.ndarray) -> Any:
        """The nearest case of one class per point."""
        return self._nearest(Q, lambda which, near: self.codes[near] == wanted[which, None])

    def _nearest(self, Q: np.ndarray | None, wanted: Any) -> Any:
        def search(which: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
            if Q is None:
                found = self.metric.search_rows(self._own[which], k)
            else:
                found = self.metric.search(Q[which], k)
            return tuple(on_host(part) for part in found)  # type: ignore[return-value]

        n_queries = len(self._own) if Q is None else len(Q)
        return nearest_where(search, wanted, n_queries, len(self.X) - (Q is None))

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
