from math import comb

import numpy as np
import pytest
from scipy.stats import beta

from plml.evaluation.paired import difference_interval


def exact_p_value(b, c):
    """Both tails of a fair coin, added up."""
    n = b + c
    return min(1.0, 2 * sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n)


@pytest.mark.parametrize("n_rows", [30, 400])
def test_the_interval_and_the_exact_test_agree(n_rows):
    for b in range(13):
        for c in range(13):
            low, high = difference_interval(b, c, n_rows)
            assert low <= (b - c) / n_rows <= high
            assert (low > 0 or high < 0) <= (exact_p_value(b, c) < 0.05)
            assert difference_interval(c, b, n_rows) == pytest.approx((-high, -low))


@pytest.mark.parametrize(("b", "c", "n_rows"), [(86, 150, 1600), (9, 2, 40), (0, 6, 364)])
def test_the_interval_is_the_wider_of_two(b, c, n_rows):
    """Wald's of the differences with half a row added to each cell; Clopper and Pearson's."""
    values, counts = np.array([1, -1, 0]), np.array([b + 0.5, c + 0.5, n_rows - b - c + 1])
    mean = np.average(values, weights=counts)
    error = np.sqrt(np.average((values - mean) ** 2, weights=counts) / counts.sum())
    wald = mean + 1.959964 * np.array([-error, error])
    shares = np.array([beta.ppf(0.025, b, c + 1) if b else 0, beta.ppf(0.975, b + 1, c)])
    exact = (2 * shares - 1) * (b + c) / n_rows
    expected = min(wald[0], exact[0]), max(wald[1], exact[1])
    assert difference_interval(b, c, n_rows) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("chances", [(0.02, 0.02), (0.1, 0.02), (0.3, 0.01)])
def test_the_interval_holds_the_difference_as_often_as_it_says(rng, chances):
    n_rows = 120
    drawn = rng.multinomial(n_rows, [*chances, 1 - sum(chances)], size=4000)[:, :2]
    different, places = np.unique(drawn, axis=0, return_inverse=True)
    intervals = np.array([difference_interval(b, c, n_rows) for b, c in different.tolist()])
    found = intervals[places.ravel()]
    true = chances[0] - chances[1]
    covered = np.mean((found[:, 0] <= true) & (true <= found[:, 1]))
    assert 0.94 <= covered <= 0.995
    assert np.mean(found[:, 1] - found[:, 0]) < 0.25  # and it says something
