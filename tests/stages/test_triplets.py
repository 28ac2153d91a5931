import numpy as np
import pytest

import judge
from plml.stages.neighbors import ExactNeighbors
from plml.stages.triplets import (
    check_targets,
    cross_triplets,
    n_triplets,
    neighbor_triplets,
)


def test_against_naive_neighbors(blobs):
    X, y = blobs
    targets, impostors = judge.triplet_lists(X, y, 3, 2)
    np.testing.assert_array_equal(ExactNeighbors(X, y).targets(3), targets)
    np.testing.assert_array_equal(ExactNeighbors(X, y).impostors(2), impostors)


def test_small_classes_use_what_they_have(rng):
    X = rng.normal(size=(8, 2))
    y = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    targets = ExactNeighbors(X, y).targets(3)
    assert (targets[:4] >= 0).all()
    assert (targets[4:, 0] == [5, 4, 7, 6]).all()
    assert (targets[4:, 1:] == -1).all()
    impostors = ExactNeighbors(X, y).impostors(5)
    assert (impostors[:4, 4] == -1).all()  # only four instances of other classes
    assert (impostors[4:] >= 0).all()


def test_every_target_meets_every_impostor(blobs):
    X, y = blobs
    targets, impostors = (
        ExactNeighbors(X, y).targets(3),
        ExactNeighbors(X, y).impostors(2),
    )
    targets[0, 1:] = -1
    targets[1] = -1
    triplets = cross_triplets(targets, impostors)
    found = {
        (int(i), int(triplets.pairs[t, 1]), int(triplets.pairs[k, 1]))
        for t, k, i in zip(
            triplets.target, triplets.impostor, triplets.pairs[triplets.target, 0], strict=True
        )
    }
    expected = {
        (i, int(j), int(k))
        for i in range(len(X))
        for j in targets[i]
        for k in impostors[i]
        if j >= 0
    }
    assert found == expected
    assert len(triplets.target) == len(expected)
    np.testing.assert_array_equal(
        triplets.pairs[triplets.target, 0], triplets.pairs[triplets.impostor, 0]
    )
    assert triplets.n_target_pairs == (targets >= 0).sum()
    assert (np.ptp(y[triplets.pairs[: triplets.n_target_pairs]], axis=1) == 0).all()
    assert (np.ptp(y[triplets.pairs[triplets.n_target_pairs :]], axis=1) > 0).all()


def test_no_class_with_two_members_is_refused():
    with pytest.raises(ValueError, match="every class has a single member"):
        check_targets(np.array([0, 1, 2]))
    check_targets(np.array([0, 1, 1]))


@pytest.mark.parametrize("sizes", [[5, 4, 1], [2, 9], [1, 1, 3]])
def test_the_number_of_triplets(rng, sizes):
    y = np.repeat(np.arange(len(sizes)), sizes)
    neighbors = ExactNeighbors(rng.normal(size=(len(y), 3)), y)
    found = neighbor_triplets(neighbors, 3, 2)
    assert n_triplets(np.bincount(y), 3, 2) == len(found.target)
