"""Two-dimensional views of data and of the metrics at its points."""

from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.metric.feature_split import spread_of
from plml.ops.projections import psd_factor

#: A picture that is so many times as long as it is wide would be a line.
_FLAT = 10.0


class View(NamedTuple):
    """A plane to look at: points are (x - origin) / scale @ axes.T."""

    origin: np.ndarray  # (d,)
    axes: np.ndarray  # (2, d), orthonormal
    labels: tuple[str, str]
    scale: np.ndarray  # (d,) ones, unless the units of the features are too different

    @classmethod
    def of(cls, X: np.ndarray, names: np.ndarray | None = None) -> Self:
        """The features themselves where there are two, else the leading principal components.

        In standard deviations where the picture would be a line otherwise.
        """
        d = X.shape[1]
        if d == 1:
            raise ValueError("a two-dimensional view needs at least two features, got one")
        if d == 2:
            first, second = ("x0", "x1") if names is None else (str(names[0]), str(names[1]))
            spread, eye = spread_of(X), np.eye(2)
            if spread.max() <= _FLAT * spread.min():
                return cls(np.zeros(2), eye, (first, second), np.ones(2))
            labels = (f"{first} (in standard deviations)", f"{second} (in standard deviations)")
            return cls(np.zeros(2), eye, labels, spread)
        origin, scale = X.mean(axis=0, dtype=np.float64), np.ones(d)
        sizes, axes = _components(X - origin)
        words = "principal component"
        if sizes[0] > _FLAT * sizes[1]:
            scale, words = spread_of(X), "principal component (standardised)"
            _, axes = _components((X - origin) / scale)
        return cls(origin, axes, (f"first {words}", f"second {words}"), scale)

    def points(self, X: np.ndarray) -> np.ndarray:
        """(n, d) points in the coordinates of the plane, (n, 2)."""
        return (X - self.origin) / self.scale @ self.axes.T

    def metrics(self, M: np.ndarray) -> np.ndarray:
        """The metrics of moves within the plane, (n, 2, 2)."""
        moves = self.axes * self.scale
        return moves @ M @ moves.T


def _components(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations along the two leading components, and these, of rows about their mean."""
    values, vectors = np.linalg.eigh(np.cov(X.T))
    axes = vectors[:, ::-1][:, :2].T
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    return np.sqrt(np.maximum(values[::-1][:2], 0.0)), axes * signs[:, None]


def training_sample(
    estimator: Any, n_points: int, random_state: int
) -> tuple[np.ndarray, np.ndarray, View, np.ndarray]:
    """Training rows of a fitted estimator, their classes, a view, and some rows to show.

    The rows are those that its metric is of: encoded ones, where it encodes them itself.
    """
    check_fitted(estimator)
    X, codes = learner_of(estimator).training_cases()
    names = getattr(estimator, "feature_names_in_", None)
    if hasattr(estimator, "encoder_"):
        names = estimator.encoder_.get_feature_names_out()
    return X, codes, View.of(X, names), sample_rows(len(X), n_points, random_state)


def learner_of(estimator: Any) -> Any:
    """The estimator that has the metric: of ``AutoPLML`` its ``model_``."""
    return estimator.model_ if hasattr(estimator, "encoder_") else estimator


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
