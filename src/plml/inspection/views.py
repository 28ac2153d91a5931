"""Two-dimensional views of data and of the metrics at its points."""

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.ops.projections import psd_factor


class View(NamedTuple):
    """A plane to look at: points are (x - origin) @ axes.T."""

    origin: np.ndarray  # (d,)
    axes: np.ndarray  # (2, d), orthonormal
    labels: tuple[str, str]

    @classmethod
    def of(cls, X: np.ndarray, names: np.ndarray | None = None) -> Self:
        """The features themselves where there are two, else the leading principal components."""
        d = X.shape[1]
        if d == 1:
            raise ValueError("a two-dimensional view needs at least two features, got one")
        if d == 2:
            first, second = ("x0", "x1") if names is None else (str(names[0]), str(names[1]))
            return cls(np.zeros(2), np.eye(2), (first, second))
        origin = X.mean(axis=0, dtype=np.float64)
        covariance = np.cov((X - origin).T)
        axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :2].T
        signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
        labels = ("first principal component", "second principal component")
        return cls(origin, axes * signs[:, None], labels)

    def points(self, X: np.ndarray) -> np.ndarray:
        """(n, d) points in the coordinates of the plane, (n, 2)."""
        return (X - self.origin) @ self.axes.T

    def metrics(self, M: np.ndarray) -> np.ndarray:
        """The metrics of moves within the plane, (n, 2, 2)."""
        return self.axes @ M @ self.axes.T


def training_sample(
    estimator: Any, n_points: int, random_state: int
) -> tuple[np.ndarray, np.ndarray, View, np.ndarray]:
    """Training rows of a fitted estimator, their classes, a view, and some rows to show."""
    check_fitted(estimator)
    X, codes = estimator.training_cases()
    view = View.of(X, getattr(estimator, "feature_names_in_", None))
    return X, codes, view, sample_rows(len(X), n_points, random_state)


def training_table(estimator: Any, rows: np.ndarray) -> Any:
    """Some training rows as the estimator takes queries, with names where it was given names."""
    known = hasattr(estimator, "training_values")
    values = (estimator.training_values() if known else estimator.training_cases()[0])[rows]
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return np.asarray(values, dtype=np.float64) if known else values
    import pandas as pd

    return pd.DataFrame(values, columns=names).infer_objects()


def sample_rows(n: int, size: int, random_state: int) -> np.ndarray:
    """Some of n rows, in their order."""
    rng = np.random.default_rng(random_state)
    return np.sort(rng.choice(n, min(size, n), replace=False))


def check_fitted(model: Any) -> None:
    """Refuse an estimator that is not fitted; of a pipeline, say which step is meant."""
    if hasattr(model, "steps"):
        raise ValueError("give the last step of the pipeline, model[-1], and the data it sees")
    check_is_fitted(model)


def ellipse(M: np.ndarray) -> tuple[float, float, float]:
    """Width, height and angle in degrees of {z: z^T M z = 1} for a positive (2, 2) M.

    Directions that the metric does not see would be endless; they are cut at a hundred times the
    shortest axis.
    """
    L = psd_factor(M)
    stretch = np.linalg.norm(L, axis=1)
    largest = stretch[0] if stretch[0] > 0.0 else 1.0
    second = max(stretch[1] if len(stretch) > 1 else 0.0, 0.01 * largest)
    direction = L[0] / largest
    return 2.0 / largest, 2.0 / second, float(np.degrees(np.arctan2(direction[1], direction[0])))
