"""Pictures of fitted models, in scikit-learn's manner: ``from_estimator``, then ``plot``."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from plml.inspection.style import (
    GREY,
    PALETTE,
    SHAPES,
    axes_for,
    class_marks,
    clean,
    colored_panels,
    label_panels,
    number,
)
from plml.inspection.views import (
    View,
    check_fitted,
    ellipse,
    learner_of,
    sample_rows,
    training_sample,
)

#: Classes beyond which two would look the same, and no legend is drawn.
_MOST_NAMED = len(PALETTE) * len(SHAPES)


@dataclass(repr=False)
class LocalMetricDisplay:
    """Ellipses of equal local distance over a two-dimensional view of the training data.

    They are long in directions to which the metric is blind, and short in those that distinguish
    the classes. With more than two features the view is spanned by two principal components, and
    the ellipses are those of moves within it.

    Attributes
    ----------
    figure_, ax_ : the figure and its axes, after ``plot``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.inspection import LocalMetricDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=4, random_state=0).fit(X, y)
    >>> display = LocalMetricDisplay.from_estimator(model, n_points=20)
    >>> display.figure_.savefig("metrics.png")
    """

    points: np.ndarray  # (n, 2) all training points
    codes: np.ndarray  # (n,) classes of these
    classes: np.ndarray
    centers: np.ndarray  # (k, 2) where the metric is shown
    center_codes: np.ndarray
    metrics: np.ndarray  # (k, 2, 2)
    view: View

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, n_points: int = 60, random_state: int = 0, **options: Any
    ) -> Self:
        """Draw the metrics of a fitted estimator at some of its training points.

        Parameters
        ----------
        estimator : any fitted nearest-neighbour estimator of this library
        n_points : how many metrics to draw
        random_state : seeds the sample of points
        options : passed to ``plot``
        """
        X, codes, view, rows = training_sample(estimator, n_points, random_state)
        return cls(
            points=view.points(X),
            codes=codes,
            classes=estimator.classes_,
            centers=view.points(X[rows]),
            center_codes=codes[rows],
            metrics=view.metrics(learner_of(estimator).training_metrics(rows)),
            view=view,
        ).plot(**options)

    def plot(self, ax: Any = None, scale: float | None = None) -> Self:
        """Draw the ellipses.

        Parameters
        ----------
        ax : matplotlib axes; by default new ones
        scale : local distance of an ellipse from its centre; by default a readable one
        """
        self.figure_, grid = axes_for(ax, (1, 1), (6.4, 5.2))
        self.ax_ = grid[0, 0]
        marks = class_marks(len(self.classes))
        shown = sample_rows(len(self.points), 3000, 0)
        for code, (label, (color, shape)) in enumerate(zip(self.classes, marks, strict=True)):
            look = {"s": 6 if shape == "circle" else 10, "marker": SHAPES[shape], "color": color}
            mine = shown[self.codes[shown] == code]
            self.ax_.scatter(*self.points[mine].T, alpha=0.35, lw=0, label=str(label), **look)
        self._draw_ellipses(scale, [marks[code][0] for code in self.center_codes])
        self.ax_.set(xlabel=self.view.labels[0], ylabel=self.view.labels[1], aspect="equal")
        self.ax_.set_title(
            "Which directions separate the classes, and where?\n(the short axes of the ellipses)",
            loc="left",
            fontsize=10,
        )
        clean(self.ax_)
        if len(self.classes) <= _MOST_NAMED:
            self._draw_legend()
        return self

    def _draw_legend(self) -> None:
        columns = -(-len(self.classes) // len(PALETTE))  # one per shape
        place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "ncols": columns}
        legend = self.ax_.legend(title="class", frameon=False, markerscale=2.5, **place)
        for mark in legend.legend_handles:
            mark.set_alpha(1.0)

    def _draw_ellipses(self, scale: float | None, colors: list[Any]) -> None:
        from matplotlib.collections import EllipseCollection

        widths, heights, angles = np.array([ellipse(M) for M in self.metrics]).T
        extent = np.ptp(self.points, axis=0).max() or 1.0
        if scale is None:
            scale = 0.05 * extent / float(np.median(np.sqrt(widths * heights)))
        widths, heights = (np.minimum(scale * size, 0.25 * extent) for size in (widths, heights))
        reach = 0.5 * np.maximum(widths, heights)[:, None]
        self.ax_.update_datalim(np.concatenate([self.centers - reach, self.centers + reach]))
        self.ax_.autoscale_view()
        ellipses = EllipseCollection(
            widths,
            heights,
            angles,
            units="xy",
            offsets=self.centers,
            transOffset=self.ax_.transData,
            facecolors="none",
            edgecolors=colors,
            linewidths=1.3,
        )
        self.ax_.add_collection(ellipses)


@dataclass(repr=False)
class WeightsDisplay:
    """Where each basis metric counts: one panel per basis metric, coloured by its weight.

    Attributes
    ----------
    figure_, axes_ : the figure and its axes, after ``plot``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.inspection import WeightsDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=4, random_state=0).fit(X, y)
    >>> display = WeightsDisplay.from_estimator(model)
    >>> display.figure_.savefig("weights.png")
    """

    points: np.ndarray  # (n, 2)
    weights: np.ndarray  # (n, m)
    anchors: np.ndarray | None  # (m, 2)
    view: View

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, n_points: int = 2000, random_state: int = 0, **options: Any
    ) -> Self:
        """Draw the weights of a fitted ``PLML``, ``PLMLCV`` or ``CBLML``.

        Parameters
        ----------
        estimator : a fitted estimator of this library
        n_points : training points shown
        random_state : seeds the sample of points
        options : passed to ``plot``
        """
        X, _, view, rows = training_sample(estimator, n_points, random_state)
        learner = learner_of(estimator)
        if not hasattr(learner, "anchors_"):
            raise ValueError(f"{type(learner).__name__} has no basis metrics that share the data")
        anchors = view.points(learner.anchors_)
        display = cls(view.points(X[rows]), learner.local_weights()[rows], anchors, view)
        return display.plot(**options)

    def plot(self, ax: Any = None, n_columns: int = 5) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : as many matplotlib axes as there are bases; by default new ones
        n_columns : columns of a new figure
        """
        self.figure_, self.axes_, picture = colored_panels(
            ax, self.points, self.weights, n_columns, 1.9, s=5, cmap="viridis", vmin=0.0, vmax=1.0
        )
        shares = self.weights.mean(axis=0)
        star = {"ms": 11, "mfc": PALETTE[1], "mec": "white", "mew": 0.8, "ls": "none"}
        for b, share in enumerate(shares):
            self.axes_[b].set_title(f"basis {b}: {share:.0%}", fontsize=9)
            if self.anchors is not None:
                (anchor,) = self.axes_[b].plot(*self.anchors[b], "*", **star)
        panels = list(self.axes_[: len(shares)])
        self.figure_.colorbar(picture, ax=panels, label="weight of the basis metric", shrink=0.6)
        label_panels(self.figure_ if ax is None else None, panels, self.view.labels)
        if ax is None:
            self.figure_.suptitle("Where does each basis metric count?", x=0.02, ha="left")
            if self.anchors is not None:
                self.figure_.legend(
                    [anchor], ["its anchor"], loc="outside lower left", frameon=False, fontsize=9
                )
        return self


@dataclass(repr=False)
class ConvergenceDisplay:
    """Value and certified gap of both stages over iterations or time.

    Attributes
    ----------
    figure_, axes_ : the figure and its axes, after ``plot``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.inspection import ConvergenceDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=4, random_state=0).fit(X, y)
    >>> display = ConvergenceDisplay.from_estimator(model)
    >>> display.figure_.savefig("convergence.png")
    """

    history: dict[str, dict[str, np.ndarray]]
    tol: float

    @classmethod
    def from_estimator(cls, estimator: Any, **options: Any) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : a fitted estimator that has ``history_``
        options : passed to ``plot``
        """
        check_fitted(estimator)
        learner = learner_of(estimator)
        if not hasattr(learner, "history_"):
            raise ValueError(f"{type(learner).__name__} keeps no history of its fit")
        history = learner.history_
        stages = {name: history[name] for name in ("weights", "metrics") if name in history}
        return cls(stages, learner.tol).plot(**options)

    def plot(self, ax: Any = None, over: str = "iteration") -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : two matplotlib axes per stage, values first; by default new ones
        over : "iteration" or "seconds"
        """
        if over not in ("iteration", "seconds"):
            raise ValueError(f'over must be "iteration" or "seconds", got {over!r}')
        names = list(self.history)
        size = (3.6 * len(names) + 0.4, 4.6)
        self.figure_, self.axes_ = axes_for(ax, (2, len(names)), size)
        titles = {"weights": "stage 1: weights", "metrics": "stage 2: metrics"}
        for column, name in enumerate(names):
            history = self.history[name]
            x = history[over]
            value, gap = self.axes_[:, column]
            value.plot(x, history["value"], color=PALETTE[0], lw=1.8)
            value.set_title(titles.get(name, name), loc="left", fontsize=10)
            value.set_ylabel("objective" if name == "weights" else "negative dual")
            gap.plot(x, history["gap"], color=PALETTE[1], lw=1.8)
            gap.axhline(self.tol, color=GREY, lw=1, ls="--")
            label, place = f"tol {number(self.tol)}", gap.get_yaxis_transform()
            gap.text(0.02, self.tol, label, transform=place, va="bottom", color="0.33", fontsize=8)
            if (history["gap"] > 0).any():
                gap.set_yscale("log")
            gap.set(xlabel=over, ylabel="relative gap")
            if over == "iteration":
                for panel in (value, gap):
                    panel.xaxis.get_major_locator().set_params(integer=True)
            for panel in (value, gap):
                clean(panel)
        if ax is None:
            question = "Did both stages converge?" if len(names) > 1 else "Did it converge?"
            self.figure_.suptitle(question, x=0.02, ha="left")
        return self
