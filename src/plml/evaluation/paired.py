"""Two classifiers on the same rows: how often each is right, and whether they differ."""

from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, chi2, norm

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

    def gain(self, n_rows: int) -> tuple[float, float, float]:
        """How much more accurate the first is on so many rows, and the 95% interval of that."""
        interval = difference_interval(self.only_first, self.only_second, n_rows)
        return (self.only_first - self.only_second) / n_rows, *interval


def mcnemar(first: np.ndarray, second: np.ndarray) -> Comparison:
    """McNemar's two-sided test that two classifiers are right equally often.

    Exact (binomial) for few disagreements, chi-squared with continuity correction for many. The
    arrays, (n,) booleans, are true where a classifier is right.

    Parameters
    ----------
    first, second : (n,) arrays of bool
        Whether each of the two classifiers is right about a row.

    Returns
    -------
    Comparison
        ``only_first``, ``only_second``: rows that only one of them gets right; and ``p_value``.

    Examples
    --------
    >>> import numpy as np
    >>> from plml_study.statistics import mcnemar
    >>> comparison = mcnemar(np.ones(20, bool), np.arange(20) < 10)
    >>> comparison.only_first, round(comparison.p_value, 4), comparison.sign()
    (10, 0.002, '+')
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


def accuracy_interval(n_correct: int, n_rows: int) -> tuple[float, float]:
    """Wilson's 95% confidence interval of an accuracy."""
    interval = binomtest(n_correct, n_rows).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def difference_interval(only_first: int, only_second: int, n_rows: int) -> tuple[float, float]:
    """A 95% interval of the difference of two accuracies on the same rows.

    Agresti and Min's (Wald's, after half a row is added to each of the four ways in which two
    classifiers can be right and wrong), widened to what McNemar's exact test leaves possible, so
    that the interval and the test do not contradict each other.

    Parameters
    ----------
    only_first, only_second : rows that only one of them gets right
    n_rows : all rows
    """
    n, b, c = n_rows + 2.0, only_first + 0.5, only_second + 0.5
    center, width = (b - c) / n, norm.ppf(0.975) * np.sqrt(b + c - (b - c) ** 2 / n) / n
    low, high = max(center - width, -1.0), min(center + width, 1.0)
    disagreements = only_first + only_second
    if disagreements:
        share = binomtest(only_first, disagreements).proportion_ci(0.95, method="exact")
        low = min(low, (2 * share.low - 1) * disagreements / n_rows)
        high = max(high, (2 * share.high - 1) * disagreements / n_rows)
    return float(low), float(high)
