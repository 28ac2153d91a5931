"""Large-margin triplets (i, j, k): j a same-class and k an other-class neighbour of i."""

from typing import NamedTuple

import numpy as np

from plml.stages.neighbors import euclidean_neighbors


class Triplets(NamedTuple):
    """Triplets over shared pairs.

    Attributes
    ----------
    pairs : (n_pairs, 2) integer array; rows (i, j), target pairs first
    n_target_pairs : how many of the pairs are target pairs
    target, impostor : (n_triplets,) integer arrays, the pairs (i, j) and (i, k) of a triplet
    """

    pairs: np.ndarray
    n_target_pairs: int
    target: np.ndarray
    impostor: np.ndarray


def target_neighbors(X: np.ndarray, y: np.ndarray, n_targets: int) -> np.ndarray:
    """The nearest same-class instances, (n, n_targets), -1 where the class has too few."""
    result = np.full((len(X), n_targets), -1, dtype=np.int64)
    for members in _class_members(y):
        _, found = euclidean_neighbors(X[members], n_targets)
        result[members, : found.shape[1]] = members[found]
    return result


def impostor_neighbors(X: np.ndarray, y: np.ndarray, n_impostors: int) -> np.ndarray:
    """The nearest other-class instances, (n, n_impostors), -1 where there are too few."""
    result = np.full((len(X), n_impostors), -1, dtype=np.int64)
    for members in _class_members(y):
        others = np.flatnonzero(y != y[members[0]])
        _, found = euclidean_neighbors(X[others], n_impostors, X[members])
        result[members, : found.shape[1]] = others[found]
    return result


def cross_triplets(targets: np.ndarray, impostors: np.ndarray) -> Triplets:
    """Every target of an instance against every impostor of it; -1 marks an absent neighbour."""
    target_pairs, target_ids = _number_pairs(targets, 0)
    impostor_pairs, impostor_ids = _number_pairs(impostors, len(target_pairs))
    present = (target_ids[:, :, None] >= 0) & (impostor_ids[:, None, :] >= 0)
    return Triplets(
        np.concatenate([target_pairs, impostor_pairs]),
        len(target_pairs),
        np.broadcast_to(target_ids[:, :, None], present.shape)[present],
        np.broadcast_to(impostor_ids[:, None, :], present.shape)[present],
    )


def check_targets(y: np.ndarray) -> None:
    """Refuse data in which no class has two members."""
    if np.bincount(y).max() < 2:
        raise ValueError(
            "every class has a single member, so no instance has a same-class neighbour to learn "
            "from; give at least one class two or more rows"
        )


def _class_members(y: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(y, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(y[order])) + 1)


def _number_pairs(neighbors: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs (i, neighbour) as rows, and the number of each (-1 where absent)."""
    rows, columns = np.nonzero(neighbors >= 0)
    ids = np.full(neighbors.shape, -1, dtype=np.int64)
    ids[rows, columns] = first + np.arange(len(rows))
    return np.column_stack([rows, neighbors[rows, columns]]), ids
