"""How given neighbours vote."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from plml.backend.arrays import Array, like, namespace
from plml.stages.search import inverse_distances, nested_votes, vote

#: Ways to weigh votes.
VOTES = ("uniform", "distance", "linear")
#: Of the linear vote: how much is added to the inner products of the neighbours, relative to their
#: mean squared distance from the query.
RIDGE = 0.1


class Voting(NamedTuple):
    """How many neighbours vote, and how."""

    n_neighbors: int
    vote: str


class Reconstructs(Protocol):
    """A metric under which a point can be made up from training rows."""

    def reconstruction(
        self,
        Q: Array | None,
        cases: Array,
        ridge: float,
        sizes: Sequence[int],
        sample_weight: np.ndarray | None = None,
    ) -> list[Array]:
        """Weights of the first cases of each point, see ``ops.distances.reconstruction_weights``.

        Points are (q, d), or None for the training rows; cases are (q, k) training rows.
        """


def class_shares(
    metric: Reconstructs,
    Q: Array | None,
    squared: Array,
    nearest: Array,
    labels: np.ndarray,
    n_classes: int,
    how: str,
    sample_weight: np.ndarray | None = None,
) -> Array:
    """(q, n_classes) shares of the classes in the votes of given neighbours.

    Parameters
    ----------
    metric : under which they are near
    Q : (q, d) the points that they vote for, or None for the training rows
    squared, nearest : (q, k) squared distances and training rows
    labels : (n,) class codes of the training rows
    how : {"uniform", "distance", "linear"}
        A vote counts one; one over the distance; or as in ``linear_shares``.
    sample_weight : (n,) by which the votes of the training rows are multiplied, or None
    """
    if how == "linear":
        sizes = nearest.shape[1:]
        return linear_shares(metric, Q, nearest, labels, n_classes, sizes, sample_weight)[0]
    weights = _counted(squared, nearest, how, sample_weight)
    shares = vote(like(labels, nearest)[nearest], n_classes, weights)
    if sample_weight is None:
        return shares
    # A class that has all votes has exactly one, in whatever order they were added.
    return shares / namespace(shares).sum(shares, axis=1)[:, None]


def vote_weights(
    metric: Reconstructs,
    Q: Array | None,
    squared: Array,
    nearest: Array,
    how: str,
    sample_weight: np.ndarray | None = None,
) -> Array:
    """(q, k) what each neighbour adds to the vote; rows sum to one.

    Parameters
    ----------
    metric, Q, squared, nearest, how, sample_weight : as in ``class_shares``
    """
    if how == "linear":
        return metric.reconstruction(Q, nearest, RIDGE, nearest.shape[1:], sample_weight)[0]
    xp = namespace(squared)
    weights = _counted(squared, nearest, how, sample_weight)
    weights = xp.ones_like(squared) if weights is None else weights
    return weights / xp.sum(weights, axis=1)[:, None]


def _counted(
    squared: Array, nearest: Array, how: str, sample_weight: np.ndarray | None
) -> Array | None:
    """(q, k) weights of uniform votes and of those by distance; None where all are one."""
    by_distance = inverse_distances(squared) if how == "distance" else None
    if sample_weight is None:
        return by_distance
    of_cases = like(sample_weight, nearest)[nearest]
    return of_cases if by_distance is None else by_distance * of_cases


def linear_shares(
    metric: Reconstructs,
    Q: Array | None,
    nearest: Array,
    labels: np.ndarray,
    n_classes: int,
    sizes: Sequence[int],
    sample_weight: np.ndarray | None = None,
) -> list[Array]:
    """The shares at the query of affine functions that fit the classes of its neighbours best.

    With sample weights the squares of a neighbour's error count as often as its weight says.

    Votes may be negative, where a neighbour shows that a class becomes rarer towards the query; the
    share of a class is not.

    Parameters
    ----------
    metric, Q, nearest, labels, n_classes, sample_weight : as in ``class_shares``
    sizes : numbers of neighbours that vote, an array of shares for each
    """
    codes, result = like(labels, nearest)[nearest], []
    found = metric.reconstruction(Q, nearest, RIDGE, sizes, sample_weight)
    for k, weights in zip(sizes, found, strict=True):
        xp = namespace(weights)
        shares = xp.clip(vote(codes[:, :k], n_classes, weights), 0.0, None)
        result.append(shares / xp.sum(shares, axis=1)[:, None])
    return result


def shares_by_voting(
    metric: Reconstructs,
    Q: Array,
    squared: Array,
    nearest: Array,
    labels: np.ndarray,
    n_classes: int,
    votings: Sequence[Voting],
    sample_weight: np.ndarray | None = None,
) -> list[Array]:
    """The shares of every voting, from one search for the most neighbours.

    Parameters
    ----------
    metric, Q, squared, nearest, labels, n_classes, sample_weight : as in ``class_shares``
    votings : of no more neighbours than were found
    """
    near = like(labels, nearest)[nearest]

    def shares(how: str, sizes: list[int]) -> list[Array]:
        if how == "linear":
            return linear_shares(metric, Q, nearest, labels, n_classes, sizes, sample_weight)
        # Neighbours at distance zero come first, so they outvote the others among the first k too.
        weights = _counted(squared, nearest, how, sample_weight)
        return nested_votes(near, n_classes, sizes, weights)

    sizes = {how: [k for k, other in votings if other == how] for _, how in votings}
    found = {how: iter(shares(how, sizes_of)) for how, sizes_of in sizes.items()}
    return [next(found[how]) for _, how in votings]
