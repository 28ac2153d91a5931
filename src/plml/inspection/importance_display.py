"""Where in the data which feature matters."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from plml.inspection.style import colored_panels, wrapped
from plml.inspection.views import View, training_sample

#: Local shares are compared with the average up to this factor; beyond it the colour is full.
_FACTOR = 2.0


@dataclass
class ImportanceDisplay:
    """The data once per feature, coloured by how much it matters there, against the average metric.

    Shown are the features whose importance changes most over the data.

    Attributes
    ----------
    figure_, axes_ : after ``plot``
    """

    points: np.ndarray  # (n, 2)
    importance: np.ndarray  # (n, k) local shares of the features shown
    average: np.ndarray  # (k,) shares under the average metric
    names: list[str]  # (k,)
    view: View

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_features: int = 6,
        n_points: int = 2000,
        random_state: int = 0,
        **options: Any,
    ) -> Self:
        """Draw the importance of features at training points of a fitted ``PLML`` and its kin.

        Parameters
        ----------
        estimator : fitted
        n_features : features shown
        n_points : training points shown
        random_state : of their sample
        options : of ``plot``
        """
        X, _, view, rows = training_sample(estimator, n_points, random_state)
        if not hasattr(estimator, "local_importance"):
            raise ValueError(f"{type(estimator).__name__} has no basis metrics to compare")
        importance, average = estimator.local_importance()[rows], estimator.average_importance()
        top = np.argsort(-importance.std(axis=0), kind="stable")[:n_features]
        names = getattr(estimator, "feature_names_in_", [f"x{f}" for f in range(X.shape[1])])
        return cls(
            points=view.points(X[rows]),
            importance=importance[:, top],
            average=average[top],
            names=[str(names[f]) for f in top],
            view=view,
        ).plot(**options)

    def plot(self, ax: Any = None, n_columns: int = 3) -> Self:
        """Draw.

        Parameters
        ----------
        ax : as many matplotlib axes as there are features; by default new ones
        n_columns : of a new figure
        """
        safe = np.where(self.average > 0.0, self.average, 1.0)
        ratio = np.log2(np.maximum(self.importance / safe, 2.0**-10))
        limit = np.log2(_FACTOR)
        colors = {"cmap": "PuOr_r", "vmin": -limit, "vmax": limit}
        self.figure_, self.axes_, picture = colored_panels(
            ax, self.points, ratio, n_columns, 2.5, s=6, **colors
        )
        panels = self.axes_[: len(self.names)]
        for panel, name, share in zip(panels, wrapped(self.names), self.average, strict=True):
            panel.set_title(f"{name}\n{share:.1%} on average", fontsize=9)
            panel.set_facecolor("0.93")
        bar = self.figure_.colorbar(
            picture, ax=list(panels), shrink=0.6, ticks=[-limit, 0.0, limit], extend="both"
        )
        bar.ax.set_yticklabels(["half the average", "average", "twice the average"])
        return self
