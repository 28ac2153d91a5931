"""Large-margin triplets (i, j, k): j a same-class and k an other-class neighbour of i."""

from typing import NamedTuple

import numpy as np

from plml.stages.neighbors import Neighbors


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


def neighbor_triplets(neighbors: Neighbors, n_targets: int, n_impostors: int) -> Triplets:
    """The triplets of the nearest same-class and other-class instances of every instance."""
    return cross_triplets(neighbors.targets(n_targets), neighbors.impostors(n_impostors))


def cross_triplets(targets: np.ndarray, impostors: np.ndarray) -> Triplets:
    """Every target of an instance with every impostor of it; -1 marks an absent neighbour."""
    return triplets_of_pairs(targets, neighbor_pairs(impostors))


def triplets_of_pairs(targets: np.ndarray, impostor_pairs: np.ndarray) -> Triplets:
    """Every impostor pair (i, k) with every target of i, in the order of the impostor pairs.

    Parameters
    ----------
    targets : (n, n_targets) integer array, -1 where absent
    impostor_pairs : (n_impostor_pairs, 2) integer array of rows (i, k)
    """
    pairs = neighbor_pairs(targets)
    target_ids = np.full(targets.shape, -1, dtype=np.int64)
    target_ids[targets >= 0] = np.arange(len(pairs))
    ids = target_ids[impostor_pairs[:, 0]]
    present = ids >= 0
    impostor_ids = len(pairs) + np.arange(len(impostor_pairs))
    return Triplets(
        np.concatenate([pairs, impostor_pairs]),
        len(pairs),
        ids[present],
        np.broadcast_to(impostor_ids[:, None], ids.shape)[present],
    )


def neighbor_pairs(neighbors: np.ndarray) -> np.ndarray:
    """Rows (i, j) for every neighbour j of i, in the order of i; -1 marks an absent neighbour."""
    rows, columns = np.nonzero(neighbors >= 0)
    return np.column_stack([rows, neighbors[rows, columns]])


def n_triplets(class_sizes: np.ndarray, n_targets: int, n_impostors: int) -> int:
    """How many triplets there are of classes of given sizes."""
    return int(class_sizes @ triplets_per_row(class_sizes, n_targets, n_impostors))


def triplets_per_row(class_sizes: np.ndarray, n_targets: int, n_impostors: int) -> np.ndarray:
    """(n_classes,) how many triplets an instance of each class has."""
    targets = np.clip(class_sizes - 1, 0, n_targets)
    return targets * np.minimum(class_sizes.sum() - class_sizes, n_impostors)


def check_targets(y: np.ndarray) -> None:
    """Refuse class codes (n,) of which none occurs twice."""
    check_class_sizes(np.bincount(y))


def check_class_sizes(sizes: np.ndarray) -> None:
    """Refuse data in which no class has two members."""
    if sizes.max() < 2:
        raise ValueError(
            "every class has a single member, so no instance has a same-class neighbour to learn "
            "from; give at least one class two or more rows"
        )
