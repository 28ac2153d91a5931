import numpy as np
import pytest

from plml.ops.reduction import EuclideanReduction


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_identity_and_the_order(rng, dtype):
    V, Q = (rng.normal(size=(n, 4)).astype(dtype) for n in (30, 7))
    reduction = EuclideanReduction().fit(V)
    stored, asked = reduction.index_vectors(V), reduction.query_vectors(Q)
    assert reduction.radius_ == pytest.approx(np.linalg.norm(V.astype(float), axis=1).max())
    assert stored.dtype == asked.dtype == dtype
    assert stored.shape == (30, 5)
    np.testing.assert_array_equal(stored[:, :4], V)
    np.testing.assert_array_equal(asked, np.column_stack([Q, np.zeros(7)]))
    squared = ((asked[:, None, :].astype(float) - stored) ** 2).sum(axis=2)
    squares = (Q.astype(float) ** 2).sum(axis=1)[:, None]
    expected = squares + reduction.radius_**2 - 2 * Q.astype(float) @ V.T.astype(float)
    np.testing.assert_allclose(squared, expected, rtol=1e-5)
    np.testing.assert_array_equal(squared.argmin(axis=1), (Q @ V.T).argmax(axis=1))


def test_vectors_longer_than_those_of_fit(rng):
    V = rng.normal(size=(20, 3))
    reduction = EuclideanReduction().fit(V)
    longest = np.linalg.norm(V, axis=1).argmax()
    for factor, fine in ((1.0 + 1e-8, True), (1.0 + 1e-6, False)):
        more = np.vstack([V[:2], factor * V[longest]])
        if fine:
            assert reduction.index_vectors(more)[2, 3] == 0.0
        else:
            with pytest.raises(ValueError, match="row 2 is longer than the vectors of fit"):
                reduction.index_vectors(more)


def test_bad_vectors(rng):
    V = rng.normal(size=(5, 3))
    with pytest.raises(ValueError, match="fit the reduction on the index vectors first"):
        EuclideanReduction().index_vectors(V)
    for bad in (np.full((3, 2), np.nan), V[0]):
        for method in ("fit", "query_vectors"):
            with pytest.raises(ValueError, match=r"NaN|Expected 2D"):
                getattr(EuclideanReduction(), method)(bad)
    whole = EuclideanReduction().fit([[1, 2], [3, 4]])
    np.testing.assert_allclose(whole.index_vectors([[1, 2]]), [[1, 2, np.sqrt(20)]])
