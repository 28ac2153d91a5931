"""What ``explain`` returns: a prediction, the cases that made it, and why these are near."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.inspection.displays import ExplanationDisplay
from plml.metric.feature_split import leading_directions
from plml.ops.distances import combine_bases

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Explanation:
    """Predictions with their nearest training cases, split over the features.

    Attributes
    ----------
    predictions : (q,) predicted classes
    neighbors : (q, k) numbers of the nearest training rows under the local metric
    labels : (q, k) their classes
    squared_distances : (q, k) squared local distances
    contributions : (q, k, d) parts of the squared distances, one per feature; they sum to them
    queries : (q, d) the points explained
    neighbor_values : (q, k, d) the training rows
    importance : (q, d) share of each feature in the local metric, in units of its spread
    global_importance : (d,) the same for the mean of the metrics over the training rows
    weights : (q, m) of the basis metrics at the queries
    basis_metrics : (m, d, d)
    feature_names : (d,) names
    """

    predictions: np.ndarray
    neighbors: np.ndarray
    labels: np.ndarray
    squared_distances: np.ndarray
    contributions: np.ndarray
    queries: np.ndarray
    neighbor_values: np.ndarray
    importance: np.ndarray
    global_importance: np.ndarray
    weights: np.ndarray
    basis_metrics: np.ndarray
    feature_names: np.ndarray

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def metrics(self) -> np.ndarray:
        """The local metrics, (q, d, d); made when they are asked for."""
        return combine_bases(self.weights, self.basis_metrics)

    def to_frame(self) -> "pd.DataFrame":
        """One row per query, neighbour and feature: who is near, and which feature made it so."""
        q, k, _ = shape = self.contributions.shape
        return _tidy(
            shape,
            query=np.arange(q)[:, None, None],
            prediction=self.predictions[:, None, None],
            rank=np.arange(1, k + 1)[:, None],
            training_row=self.neighbors[:, :, None],
            label=self.labels[:, :, None],
            squared_distance=self.squared_distances[:, :, None],
            feature=self.feature_names,
            value=self.queries[:, None, :],
            neighbor_value=self.neighbor_values,
            contribution=self.contributions,
        )

    def importance_frame(self) -> "pd.DataFrame":
        """One row per query and feature: its share in the metric here, on average, the ratio."""
        average = np.broadcast_to(self.global_importance, self.importance.shape)
        nothing = np.full(self.importance.shape, np.nan)
        return _tidy(
            self.importance.shape,
            query=np.arange(len(self))[:, None],
            feature=self.feature_names,
            importance=self.importance,
            global_importance=average,
            ratio=np.divide(self.importance, average, out=nothing, where=average > 0.0),
        )

    def directions_frame(self, n_directions: int = 3) -> "pd.DataFrame":
        """One row per query, direction and feature: the leading eigenvectors of the local metrics.

        Parameters
        ----------
        n_directions : how many of each metric
        """
        if not 1 <= n_directions <= len(self.feature_names):
            raise ValueError(
                f"n_directions must be between 1 and {len(self.feature_names)}, got {n_directions}"
            )
        eigenvalues, vectors = leading_directions(self.metrics, n_directions)
        q, k, _ = vectors.shape
        return _tidy(
            vectors.shape,
            query=np.arange(q)[:, None, None],
            direction=np.arange(1, k + 1)[:, None],
            eigenvalue=eigenvalues[:, :, None],
            feature=self.feature_names,
            loading=vectors,
        )

    def plot(self, query: int = 0, **options: Any) -> Any:
        """An ``ExplanationDisplay`` of one query."""
        return ExplanationDisplay(self, query).plot(**options)


def _tidy(shape: tuple[int, ...], **columns: Any) -> "pd.DataFrame":
    """One row per entry of an array of that shape, to which the columns are broadcast."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("tables of explanations need pandas: pip install pandas") from None
    return pd.DataFrame({name: np.broadcast_to(c, shape).ravel() for name, c in columns.items()})
