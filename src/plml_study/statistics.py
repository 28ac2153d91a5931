"""Comparing classifiers on the same test rows: McNemar's test, ranking, intervals."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from plml.evaluation.paired import accuracy_interval, mcnemar

__all__ = ["accuracy_interval", "mcnemar", "not_worse_than_best", "ranking"]


def ranking(correct: Mapping[str, np.ndarray]) -> dict[str, float]:
    """One point per method that is significantly worse, half a point per method no different.

    ``correct`` are (n,) booleans of every method, all over the same rows.

    Examples
    --------
    >>> import numpy as np
    >>> from plml_study.statistics import ranking
    >>> ranking({"good": np.ones(20, bool), "bad": np.arange(20) < 10, "fair": np.arange(20) < 16})
    {'good': 1.5, 'bad': 0.0, 'fair': 1.5}
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
