"""Figures 1 and 2 of the paper as arrays; ``plml_study.paper_pictures`` draws them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from plml_study.records import Store, Task, pooled
from plml_study.statistics import mcnemar

#: Points per class at which Figure 1 shows the metric.
POINTS_PER_CLASS = 60


def sampled_metrics(model: Any, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, Any]:
    """Local metrics of a fitted model at a few of its training points of every class.

    The same seed gives the same points for every method.
    """
    rng = check_random_state(seed)
    chosen = np.concatenate(
        [
            rng.choice(members, min(POINTS_PER_CLASS, len(members)), replace=False)
            for members in (np.flatnonzero(y == label) for label in np.unique(y))
        ]
    )
    estimator = getattr(model, "estimator_", model)
    metrics = estimator.get_mahalanobis_matrix(X[chosen])
    return {
        "points": X[chosen].round(4).tolist(),
        "labels": [str(label) for label in y[chosen]],
        "metrics": np.asarray(metrics, dtype=float).tolist(),
    }


class Curve(NamedTuple):
    """A method's accuracy on a data set over the number of basis metrics."""

    n_bases: tuple[int, ...]
    correct: tuple[np.ndarray, ...]  # one (n_test,) boolean array per number of bases

    @property
    def accuracies(self) -> np.ndarray:
        """Accuracy in percent, one per number of bases."""
        return np.array([100.0 * c.mean() for c in self.correct])

    @property
    def fall(self) -> float:
        """How far, in points, the accuracy at the most bases lies below the best before it."""
        return float(self.accuracies.max() - self.accuracies[-1])

    @property
    def falls_significantly(self) -> bool:
        """Whether McNemar's test tells the best from the accuracy at the most bases."""
        best = int(self.accuracies.argmax())
        return mcnemar(self.correct[best], self.correct[-1]).sign() == "+"


def figure1_panels(store: Store, tasks: Iterable[Task]) -> dict[str, dict[str, Any]]:
    """Records of Figure 1 by method, those that are there."""
    found = {task.method: store.read(task) for task in tasks}
    return {method: record for method, record in found.items() if record is not None}


def figure2_curves(store: Store, tasks: Iterable[Task]) -> dict[tuple[str, str], Curve]:
    """Curves by data set and method, over the numbers of bases with all folds there."""
    folds: dict[tuple[str, str], dict[int, list[Task]]] = {}
    for task in tasks:
        by_bases = folds.setdefault((task.dataset, task.method), {})
        by_bases.setdefault(task.n_bases or 0, []).append(task)
    curves = {}
    for key, by_bases in folds.items():
        found = {m: store.read_all(tasks) for m, tasks in sorted(by_bases.items())}
        whole = {m: pooled(records) for m, records in found.items() if records}
        if whole:
            curves[key] = Curve(tuple(whole), tuple(whole.values()))
    return curves
