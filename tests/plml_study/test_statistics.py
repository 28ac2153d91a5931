from math import comb

import numpy as np
import pytest

from plml_study.statistics import (
    accuracy_interval,
    mcnemar,
    not_worse_than_best,
    ranking,
)


def outcomes(only_first, only_second, both=5, neither=2):
    first = [1] * only_first + [0] * only_second + [1] * both + [0] * neither
    second = [0] * only_first + [1] * only_second + [1] * both + [0] * neither
    return np.array(first, dtype=bool), np.array(second, dtype=bool)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (5, 1), (12, 3), (10, 10), (0, 30), (25, 24)])
def test_few_disagreements_are_tested_exactly(b, c):
    n = b + c
    # Both tails of a fair coin, added up.
    tail = sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n
    expected = 1.0 if b == c else min(1.0, 2 * tail)
    test = mcnemar(*outcomes(b, c))
    assert (test.only_first, test.only_second) == (b, c)
    assert test.p_value == pytest.approx(expected)


def test_many_disagreements_agree_with_a_simulation(rng):
    test = mcnemar(*outcomes(90, 60))
    heads = rng.binomial(150, 0.5, size=200_000)
    assert test.p_value == pytest.approx(np.mean(np.abs(heads - 75) >= 15), abs=2e-3)
    assert test.sign() == "+"
    assert mcnemar(*outcomes(60, 90)).sign() == "-"


def test_different_rows_cannot_be_compared():
    with pytest.raises(ValueError, match="same rows"):
        mcnemar(np.ones(3), np.ones(4))


def test_ranking_gives_one_half_or_no_point_per_pair():
    n = 200
    good, bad = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    middle = np.arange(n) < 120
    nearly = np.arange(n) < 118
    points = ranking({"good": good, "middle": middle, "nearly": nearly, "bad": bad})
    assert points == {"good": 3.0, "middle": 1.5, "nearly": 1.5, "bad": 0.0}
    assert sum(points.values()) == 6  # of four methods
    assert not_worse_than_best({"middle": middle, "nearly": nearly, "bad": bad}) == {
        "middle",
        "nearly",
    }


def test_interval_holds_the_accuracy_as_often_as_it_says():
    n, p = 40, 0.9
    covered = 0.0
    for k in range(n + 1):
        low, high = accuracy_interval(k, n)
        if low <= p <= high:
            covered += comb(n, k) * p**k * (1 - p) ** (n - k)
    assert 0.93 <= covered <= 0.99
    for k in (0, n):
        low, high = accuracy_interval(k, n)
        assert 0 <= low < high <= 1
