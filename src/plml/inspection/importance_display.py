"""Where in the data which feature matters."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from plml.inspection.style import colored_panels, label_panels, wrapped
from plml.inspection.views import View, training_sample, training_table

#: Shares above this quantile have the full colour.
_FULL = 0.98


@dataclass(repr=False)
class ImportanceDisplay:
    """Where each feature matters: one panel per feature, coloured by its local importance.

    The panels show the features with the largest importance over all training rows.

    Attributes
    ----------
    figure_, axes_ : the figure and its axes, after ``plot``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.inspection import ImportanceDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=4, random_state=0).fit(X, y)
    >>> display = ImportanceDisplay.from_estimator(model)
    >>> display.figure_.savefig("importance.png")
    """

    points: np.ndarray  # (n, 2)
    importance: np.ndarray  # (n, k) local shares of the features shown
    average: np.ndarray  # (k,) shares over all training rows
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
        """Draw the importance of features at training points of a fitted estimator.

        Parameters
        ----------
        estimator : a fitted estimator of this library
        n_features : features shown
        n_points : training points shown
        random_state : seeds the sample of points
        options : passed to ``plot``
        """
        X, _, view, rows = training_sample(estimator, n_points, random_state)
        importance = estimator.local_importance(training_table(estimator, rows))
        average = estimator.average_importance()
        top = np.argsort(-average, kind="stable")[:n_features]
        names = getattr(estimator, "feature_names_in_", [f"x{f}" for f in range(len(average))])
        return cls(
            points=view.points(X[rows]),
            importance=importance[:, top],
            average=average[top],
            names=[str(names[f]) for f in top],
            view=view,
        ).plot(**options)

    def plot(self, ax: Any = None, n_columns: int = 3) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : as many matplotlib axes as there are features; by default new ones
        n_columns : columns of a new figure
        """
        largest = float(np.quantile(self.importance, _FULL)) or 1.0
        colors = {"cmap": "viridis", "vmin": 0.0, "vmax": largest}
        self.figure_, self.axes_, picture = colored_panels(
            ax, self.points, self.importance, n_columns, 2.5, s=8, **colors
        )
        panels = list(self.axes_[: len(self.names)])
        for panel, name, share in zip(panels, wrapped(self.names), self.average, strict=True):
            panel.set_title(f"{name}\n{share:.0%} overall", fontsize=9)
        label_panels(self.figure_ if ax is None else None, panels, self.view.labels)
        bar = self.figure_.colorbar(picture, ax=panels, shrink=0.6, extend="max")
        bar.set_label("share in what\nsets the classes apart")
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        if ax is None:
            self.figure_.suptitle("Which features matter, and where?", x=0.02, ha="left")
        return self
