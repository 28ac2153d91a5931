"""Where in the data which feature matters."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from plml.inspection.displays import fitted_estimator, sample_rows
from plml.inspection.style import axes_for, wrapped
from plml.inspection.views import View

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
    figure_: Any = field(default=None, init=False)
    axes_: Any = field(default=None, init=False)

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
        estimator = fitted_estimator(estimator)
        if not hasattr(estimator, "local_importance"):
            raise ValueError(f"{type(estimator).__name__} has no basis metrics to compare")
        X = estimator._fit_X
        names = getattr(estimator, "feature_names_in_", None)
        view = View.of(X, names)
        rows = sample_rows(len(X), n_points, random_state)
        importance, average = estimator.local_importance()[rows], estimator.average_importance()
        shown = np.argsort(-importance.std(axis=0), kind="stable")[:n_features]
        return cls(
            points=view.points(X[rows]),
            importance=importance[:, shown],
            average=average[shown],
            names=[f"x{f}" if names is None else str(names[f]) for f in shown],
            view=view,
        ).plot(**options)

    def plot(self, ax: Any = None, n_columns: int = 3) -> Self:
        """Draw.

        Parameters
        ----------
        ax : as many matplotlib axes as there are features; by default new ones
        n_columns : of a new figure
        """
        k = len(self.names)
        n_columns = min(n_columns, k)
        shape = (1, k) if ax is not None else (-(-k // n_columns), n_columns)
        self.figure_, grid = axes_for(ax, shape, (2.5 * shape[1] + 0.9, 2.5 * shape[0] + 0.3))
        self.axes_ = grid.ravel()
        for panel in self.axes_[k:]:
            panel.set_visible(False)
        safe = np.where(self.average > 0.0, self.average, 1.0)
        ratio = np.log2(np.maximum(self.importance / safe, 2.0**-10))
        limit = np.log2(_FACTOR)
        for f, panel in enumerate(self.axes_[:k]):
            order = np.argsort(np.abs(ratio[:, f]))
            picture = panel.scatter(
                *self.points[order].T,
                s=6,
                c=ratio[order, f],
                cmap="PuOr_r",
                vmin=-limit,
                vmax=limit,
                lw=0,
                rasterized=True,
            )
            panel.set(xticks=[], yticks=[], aspect="equal", facecolor="0.93")
            title = f"{wrapped([self.names[f]])[0]}\n{self.average[f]:.1%} on average"
            panel.set_title(title, fontsize=9)
            panel.spines[:].set_visible(False)
        bar = self.figure_.colorbar(
            picture, ax=list(self.axes_[:k]), shrink=0.6, ticks=[-limit, 0.0, limit], extend="both"
        )
        bar.ax.set_yticklabels(["half the average", "average", "twice the average"])
        return self
