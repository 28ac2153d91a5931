"""Pictures of fitted models, in scikit-learn's manner: ``from_estimator``, then ``plot``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plml.inspection.style import (
    PALETTE,
    axes_for,
    bar_rows,
    class_colors,
    clean,
    colored_panels,
    label_outer,
    number,
    wrapped,
)
from plml.inspection.views import View, check_fitted, ellipse, sample_rows, training_sample

if TYPE_CHECKING:
    from plml.inspection.explanation import Explanation


@dataclass
class LocalMetricDisplay:
    """Ellipses of equal local distance over a two-dimensional view of the training data.

    Long where the metric does not look, short across the directions that tell classes apart. With
    more than two features the view is that of the principal components, and the ellipses are those
    of moves within it.

    Attributes
    ----------
    figure_, ax_ : after ``plot``
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
        random_state : of the sample of points
        options : of ``plot``
        """
        X, codes, view, rows = training_sample(estimator, n_points, random_state)
        return cls(
            points=view.points(X),
            codes=codes,
            classes=estimator.classes_,
            centers=view.points(X[rows]),
            center_codes=codes[rows],
            metrics=view.metrics(estimator.training_metrics(rows)),
            view=view,
        ).plot(**options)

    def plot(self, ax: Any = None, scale: float | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes; by default new ones
        scale : local distance of an ellipse from its centre; by default a readable one
        """
        self.figure_, grid = axes_for(ax, (1, 1), (6.4, 5.2))
        self.ax_ = grid[0, 0]
        colors = class_colors(len(self.classes))
        shown = sample_rows(len(self.points), 3000, 0)
        for code, label in enumerate(self.classes):
            mine = shown[self.codes[shown] == code]
            self.ax_.scatter(
                *self.points[mine].T, s=6, color=colors[code], alpha=0.35, lw=0, label=str(label)
            )
        self._draw_ellipses(scale, [colors[code] for code in self.center_codes])
        self.ax_.set(xlabel=self.view.labels[0], ylabel=self.view.labels[1], aspect="equal")
        self.ax_.set_title(
            "Which way does the metric look, and where?\n(short axes: that way counts)",
            loc="left",
            fontsize=10,
        )
        clean(self.ax_)
        if len(self.classes) <= len(PALETTE):
            place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            self.ax_.legend(title="class", frameon=False, markerscale=3, **place)
        return self

    def _draw_ellipses(self, scale: float | None, colors: list[Any]) -> None:
        from matplotlib.collections import EllipseCollection

        widths, heights, angles = np.array([ellipse(M) for M in self.metrics]).T
        extent = np.ptp(self.points, axis=0).max() or 1.0
        if scale is None:
            scale = 0.05 * extent / float(np.median(np.sqrt(widths * heights)))
        ellipses = EllipseCollection(
            np.minimum(scale * widths, 0.25 * extent),
            np.minimum(scale * heights, 0.25 * extent),
            angles,
            units="xy",
            offsets=self.centers,
            transOffset=self.ax_.transData,
            facecolors="none",
            edgecolors=colors,
            linewidths=1.3,
        )
        self.ax_.add_collection(ellipses)


@dataclass
class WeightsDisplay:
    """How the basis metrics share the data: one panel per basis, coloured by its weight.

    Attributes
    ----------
    figure_, axes_ : after ``plot``
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
        estimator : fitted
        n_points : training points shown
        random_state : of their sample
        options : of ``plot``
        """
        X, _, view, rows = training_sample(estimator, n_points, random_state)
        if not hasattr(estimator, "anchors_"):
            raise ValueError(f"{type(estimator).__name__} has no basis metrics that share the data")
        anchors = view.points(estimator.anchors_)
        display = cls(view.points(X[rows]), estimator.weights_[rows], anchors, view)
        return display.plot(**options)

    def plot(self, ax: Any = None, n_columns: int = 5) -> Self:
        """Draw.

        Parameters
        ----------
        ax : as many matplotlib axes as there are bases; by default new ones
        n_columns : of a new figure
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
        label_outer(panels, self.view.labels, n_columns if ax is None else len(panels))
        if ax is None:
            self.figure_.suptitle("Where does each basis metric count?", x=0.02, ha="left")
            if self.anchors is not None:
                self.figure_.legend(
                    [anchor], ["its anchor"], loc="outside lower left", frameon=False, fontsize=9
                )
        return self


@dataclass
class ConvergenceDisplay:
    """Value and certified gap of both stages over iterations or time.

    Attributes
    ----------
    figure_, axes_ : after ``plot``
    """

    history: dict[str, dict[str, np.ndarray]]
    tol: float

    @classmethod
    def from_estimator(cls, estimator: Any, **options: Any) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted, with ``history_``
        options : of ``plot``
        """
        check_fitted(estimator)
        if not hasattr(estimator, "history_"):
            raise ValueError(f"{type(estimator).__name__} keeps no history of its fit")
        history = estimator.history_
        stages = {name: history[name] for name in ("weights", "metrics") if name in history}
        return cls(stages, estimator.tol).plot(**options)

    def plot(self, ax: Any = None, over: str = "iteration") -> Self:
        """Draw.

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
            gap.axhline(self.tol, color=PALETTE[7], lw=1, ls="--")
            label, place = f"tol {number(self.tol)}", gap.get_yaxis_transform()
            gap.text(0.02, self.tol, label, transform=place, va="bottom", color="0.33", fontsize=8)
            if (history["gap"] > 0).any():
                gap.set_yscale("log")
            gap.set(xlabel=over, ylabel="relative gap")
            for panel in (value, gap):
                clean(panel)
        if ax is None:
            self.figure_.suptitle("Did both stages converge?", x=0.02, ha="left")
        return self


@dataclass
class NeighborsDisplay:
    """A query and its nearest training cases, as images where the features are pixels.

    Attributes
    ----------
    figure_, axes_ : after ``plot``
    """

    explanation: "Explanation"
    query: int = 0
    image_shape: tuple[int, int] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        query: int = 0,
        n_neighbors: int = 5,
        image_shape: tuple[int, int] | None = None,
        **options: Any,
    ) -> Self:
        """Draw the neighbours of one of the queries.

        Parameters
        ----------
        estimator : fitted, with ``explain``
        X : (q, d) queries
        query : which one
        n_neighbors : how many cases
        image_shape : rows and columns of pixels, where the features are these
        options : of ``plot``
        """
        explanation = estimator.explain(_one_of(X, query), n_neighbors)
        return cls(explanation, 0, image_shape).plot(**options)

    def plot(self, ax: Any = None, n_features: int = 10) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes, one for the query and one per neighbour; by default new ones
        n_features : how many to list where they are not pixels: those that matter most here
        """
        found = self.explanation
        _check_query(len(found), self.query)
        k = found.neighbors.shape[1]
        rows = [found.queries[self.query], *found.neighbor_values[self.query]]
        distances = np.sqrt(found.squared_distances[self.query])
        titles = [f"query\npredicted {found.predictions[self.query]}"]
        titles += [
            f"row {row}: {label}\nd = {number(distance)}"
            for row, label, distance in zip(
                found.neighbors[self.query], found.labels[self.query], distances, strict=True
            )
        ]
        height = 2.6 if self.image_shape else 1.2 + 0.26 * min(n_features, len(rows[0]))
        self.figure_, grid = axes_for(ax, (1, k + 1), (1.7 * (k + 1), height))
        self.axes_ = grid[0]
        if self.image_shape is not None:
            self._draw_images(rows)
        else:
            self._draw_values(rows, n_features)
        for panel, title in zip(self.axes_, titles, strict=True):
            panel.set_title(title, fontsize=9)
        if ax is None:
            self.figure_.suptitle("Which cases are nearest?", x=0.02, ha="left")
        return self

    def _draw_images(self, rows: list[np.ndarray]) -> None:
        height, width = self.image_shape or (0, 0)
        if height * width != len(rows[0]):
            raise ValueError(
                f"image_shape={self.image_shape} has {height * width} pixels, but there are "
                f"{len(rows[0])} features"
            )
        low, high = np.min(rows), np.max(rows)
        for panel, row in zip(self.axes_, rows, strict=True):
            panel.imshow(row.reshape(height, width), cmap="gray_r", vmin=low, vmax=high)
            panel.set(xticks=[], yticks=[])

    def _draw_values(self, rows: list[np.ndarray], n_features: int) -> None:
        found = self.explanation
        top = np.argsort(-found.importance[self.query], kind="stable")[:n_features]
        values = np.array(rows)[:, top]
        limits = min(values.min(), 0.0), max(values.max(), 0.0)
        for position, (panel, row) in enumerate(zip(self.axes_, values, strict=True)):
            panel.barh(np.arange(len(top)), row, color=PALETTE[1] if position == 0 else PALETTE[0])
            panel.set_xlim(limits)
            bar_rows(panel, len(top), wrapped(found.feature_names[top]) if position == 0 else ())


@dataclass
class ExplanationDisplay:
    """Why this class and not another, and what sets the classes apart here and overall.

    Left: the parts of the features in the margin, the squared distance to the nearest case of the
    rival less that to the nearest case of the predicted class; they add up to it. Given a ``rank``,
    the parts of the squared distance to that neighbour instead. Right: the share of each feature in
    what sets the classes apart near the query, next to its share over all training rows.

    Attributes
    ----------
    figure_, axes_ : after ``plot``
    """

    explanation: "Explanation"
    query: int = 0

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        query: int = 0,
        n_neighbors: int | None = None,
        **options: Any,
    ) -> Self:
        """Explain one of the queries.

        Parameters
        ----------
        estimator : fitted, with ``explain``
        X : (q, d) queries
        query : which one
        n_neighbors : neighbours found; see ``rank`` of ``plot``
        options : of ``plot``
        """
        return cls(estimator.explain(_one_of(X, query), n_neighbors)).plot(**options)

    def plot(self, ax: Any = None, rank: int | None = None, n_features: int = 10) -> Self:
        """Draw.

        Parameters
        ----------
        ax : two matplotlib axes; by default new ones
        rank : the neighbour to compare with, 1 is the nearest; by default the case for and the case
            against
        n_features : those that matter most
        """
        found, query = self.explanation, self.query
        _check_query(len(found), query)
        n_listed = found.neighbors.shape[1]
        if rank is not None and not 1 <= rank <= n_listed:
            raise ValueError(f"rank must be between 1 and {n_listed}, got {rank}")
        parts = found.contrasts[query] if rank is None else found.likeness[query, rank - 1]
        names, (parts, here, overall) = self._leading(parts, n_features)
        places = np.arange(len(names))
        self.figure_, grid = axes_for(ax, (1, 2), (9.0, 1.9 + 0.28 * len(names)))
        self.axes_ = left, right = grid[0]
        left.barh(places, parts, color=np.where(parts < 0, PALETTE[1], PALETTE[0]))
        left.axvline(0.0, color="#555555", lw=0.8)
        title, label = self._question(rank)
        left.set_title(title, fontsize=10, loc="left")
        left.set_xlabel(label, fontsize=9)
        bar_rows(left, len(names), names)
        right.barh(places - 0.2, here, 0.4, color=PALETTE[0], label="near here")
        right.barh(places + 0.2, overall, 0.4, color=PALETTE[7], label="overall")
        right.set_title("What sets the classes apart?", fontsize=10, loc="left")
        right.set_xlabel("share", fontsize=9)
        right.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        bar_rows(right, len(names))
        below = {"loc": "upper right", "bbox_to_anchor": (1.0, -0.12), "ncols": 2}
        right.legend(frameon=False, fontsize=8, **below)
        return self

    def _question(self, rank: int | None) -> tuple[str, str]:
        """The title and the label of the axis on the left."""
        found, query = self.explanation, self.query
        if rank is None:
            prediction, rival = found.predictions[query], found.rivals[query]
            rows = found.cases_for[query], found.cases_against[query]
            label = (
                f"part of the margin {number(found.margins[query])}: row {rows[1]} ({rival}) is "
                f"farther\nthan row {rows[0]} ({prediction}) by this much, squared"
            )
            return f"Why {prediction} and not {rival}?", label
        case = query, rank - 1
        row, label = found.neighbors[case], found.labels[case]
        distance = number(found.squared_distances[case])
        return f"What sets row {row} ({label}) apart?", f"part of the squared distance {distance}"

    def _leading(self, parts: np.ndarray, n_features: int) -> tuple[list[str], np.ndarray]:
        """Names of the features that matter most, with their values; then of the rest."""
        found = self.explanation
        values = np.array([parts, found.importance[self.query], found.global_importance])
        order = np.argsort(-np.abs(parts), kind="stable")
        top, rest = order[:n_features], order[n_features:]
        names, shown = wrapped(found.feature_names[top]), values[:, top]
        if not len(rest):
            return names, shown
        # So that what is drawn adds up.
        others = values[:, rest].sum(axis=1, keepdims=True)
        return [*names, f"the other {len(rest)}"], np.concatenate([shown, others], axis=1)


def _one_of(X: Any, query: int) -> Any:
    """One row of the queries, as a table of one row."""
    _check_query(len(X), query)
    return X.iloc[[query]] if hasattr(X, "iloc") else np.asarray(X)[[query]]


def _check_query(n_queries: int, query: int) -> None:
    if not 0 <= query < n_queries:
        raise ValueError(f"query must be between 0 and {n_queries - 1}, got {query}")
