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
        q, k, d = self.contributions.shape
        return _pandas().DataFrame(
            {
                "query": np.repeat(np.arange(q), k * d),
                "prediction": np.repeat(self.predictions, k * d),
                "rank": np.tile(np.repeat(np.arange(1, k + 1), d), q),
                "training_row": np.repeat(self.neighbors.ravel(), d),
                "label": np.repeat(self.labels.ravel(), d),
                "squared_distance": np.repeat(self.squared_distances.ravel(), d),
                "feature": np.tile(self.feature_names, q * k),
                "value": np.repeat(self.queries, k, axis=0).ravel(),
                "neighbor_value": self.neighbor_values.ravel(),
                "contribution": self.contributions.ravel(),
            }
        )

    def importance_frame(self) -> "pd.DataFrame":
        """One row per query and feature: its share in the metric here, on average, the ratio."""
        q, d = self.importance.shape
        everywhere = np.tile(self.global_importance, q)
        here = self.importance.ravel()
        return _pandas().DataFrame(
            {
                "query": np.repeat(np.arange(q), d),
                "feature": np.tile(self.feature_names, q),
                "importance": here,
                "global_importance": everywhere,
                "ratio": np.divide(
                    here, everywhere, out=np.full(len(here), np.nan), where=everywhere > 0.0
                ),
            }
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
        q, k, d = vectors.shape
        return _pandas().DataFrame(
            {
                "query": np.repeat(np.arange(q), k * d),
                "direction": np.tile(np.repeat(np.arange(1, k + 1), d), q),
                "eigenvalue": np.repeat(eigenvalues.ravel(), d),
                "feature": np.tile(self.feature_names, q * k),
                "loading": vectors.ravel(),
            }
        )

    def plot(self, query: int = 0, **options: Any) -> Any:
        """An ``ExplanationDisplay`` of one query."""
        return ExplanationDisplay(self, query).plot(**options)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError("tables of explanations need pandas: pip install pandas") from None
    return pandas
