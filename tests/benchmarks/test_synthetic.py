import numpy as np
import pytest

import synthetic
from plml.stages.neighbors import euclidean_neighbors


def test_mixture_is_reproducible_and_learnable():
    X, y = synthetic.mixture(600, 20, n_classes=3, seed=1)
    again, _ = synthetic.mixture(600, 20, n_classes=3, seed=1)
    np.testing.assert_array_equal(X, again)
    assert X.dtype == np.float32
    assert np.mean(np.sum(X**2, axis=1)) == pytest.approx(1.0, rel=1e-3)
    _, nearest = euclidean_neighbors(X, 1)
    assert np.mean(y[nearest[:, 0]] == y) > 0.6
