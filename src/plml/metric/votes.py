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
        self, Q: Array | None, cases: Array, ridge: float, sizes: Sequence[int]
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
    """
    if how == "linear":
        return linear_shares(metric, Q, nearest, labels, n_classes, nearest.shape[1:])[0]
    weights = inverse_distances(squared) if how == "distance" else None
    return vote(like(labels, nearest)[nearest], n_classes, weights)


def vote_weights(
    metric: Reconstructs, Q: Array | None, squared: Array, nearest: Array, how: str
) -> Array:
    """(q, k) what each neighbour adds to the vote; rows sum to one.

    Parameters
    ----------
    metric, Q, squared, nearest, how : as in ``class_shares``
    """
    if how == "linear":
        return metric.reconstruction(Q, nearest, RIDGE, nearest.shape[1:])[0]
    xp = namespace(squared)
    weights = inverse_distances(squared) if how == "distance" else xp.ones_like(squared)
    return weights / xp.sum(weights, axis=1)[:, None]


def linear_shares(
    metric: Reconstructs,
    Q: Array | None,
    nearest: Array,
    labels: np.ndarray,
    n_classes: int,
    sizes: Sequence[int],
) -> list[Array]:
    """The shares at the query of affine functions that fit the classes of its neighbours best.

    Votes may be negative, where a neighbour shows that a class becomes rarer towards the query; the
    share of a class is not.

    Parameters
    ----------
    metric, Q, nearest, labels, n_classes : as in ``class_shares``
    sizes : numbers of neighbours that vote, an array of shares for each
    """
    codes, result = like(labels, nearest)[nearest], []
    for k, weights in zip(sizes, metric.reconstruction(Q, nearest, RIDGE, sizes), strict=True):
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
) -> list[Array]:
    """The shares of every voting, from one search for the most neighbours.

    Parameters
    ----------
    metric, Q, squared, nearest, labels, n_classes : as in ``class_shares``
    votings : of no more neighbours than were found
    """
    near = like(labels, nearest)[nearest]

    def shares(how: str, sizes: list[int]) -> list[Array]:
        if how == "linear":
            return linear_shares(metric, Q, nearest, labels, n_classes, sizes)
        # Neighbours at distance zero come first, so they outvote the others among the first k too.
        weights = inverse_distances(squared) if how == "distance" else None
        return nested_votes(near, n_classes, sizes, weights)

    sizes = {how: [k for k, other in votings if other == how] for _, how in votings}
    found = {how: iter(shares(how, sizes_of)) for how, sizes_of in sizes.items()}
    return [next(found[how]) for _, how in votings]
