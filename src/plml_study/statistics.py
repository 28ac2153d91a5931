"""Comparing classifiers on the same test rows: McNemar's test, ranking, intervals."""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, chi2

SIGNIFICANCE = 0.05
#: Below so many disagreements the test is exact; above, the corrected chi-squared is as good.
_EXACT_BELOW = 50


class Comparison(NamedTuple):
    """Two classifiers on the same rows."""

    only_first: int  # rows that only the first gets right
    only_second: int
    p_value: float

    def sign(self) -> str:
        """``"+"`` where the first is significantly better, ``"-"`` where worse, else ``"="``."""
        if self.p_value >= SIGNIFICANCE:
            return "="
        return "+" if self.only_first > self.only_second else "-"


def mcnemar(first: np.ndarray, second: np.ndarray) -> Comparison:
    """McNemar's two-sided test that two classifiers are right equally often.

    Exact (binomial) for few disagreements, chi-squared with continuity correction for many. The
    arrays, (n,) booleans, are true where a classifier is right.
    """
    first, second = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"McNemar's test compares the same rows: got shapes {first.shape} and {second.shape}"
        )
    b, c = int((first & ~second).sum()), int((~first & second).sum())
    if b + c == 0:
        return Comparison(b, c, 1.0)
    if b + c < _EXACT_BELOW:
        return Comparison(b, c, float(binomtest(b, b + c).pvalue))
    statistic = max(abs(b - c) - 1, 0) ** 2 / (b + c)
    return Comparison(b, c, float(chi2.sf(statistic, 1)))


def ranking(correct: Mapping[str, np.ndarray]) -> dict[str, float]:
    """One point per method that is significantly worse, half a point per method no different.

    ``correct`` are (n,) booleans of every method, all over the same rows.
    """
    points = dict.fromkeys(correct, 0.0)
    for first, second in combinations(correct, 2):
        sign = mcnemar(correct[first], correct[second]).sign()
        points[first] += {"+": 1.0, "=": 0.5, "-": 0.0}[sign]
        points[second] += {"+": 0.0, "=": 0.5, "-": 1.0}[sign]
    return points


def not_worse_than_best(correct: Mapping[str, np.ndarray]) -> set[str]:
    """The methods that do not differ significantly from the most accurate one."""
    best = max(correct, key=lambda method: int(np.sum(correct[method])))
    return {
        method
        for method in correct
        if method == best or mcnemar(correct[best], correct[method]).sign() == "="
    }


def accuracy_interval(n_correct: int, n_rows: int) -> tuple[float, float]:
    """Wilson's 95% confidence interval of an accuracy."""
    interval = binomtest(n_correct, n_rows).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)
