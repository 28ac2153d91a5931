"""Pictures of fitted models, in scikit-learn's manner: ``from_estimator``, then ``plot``."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import on_host
from plml.inspection.style import PALETTE, axes_for, class_colors, clean, number, wrapped
from plml.inspection.views import View, ellipse

if TYPE_CHECKING:
    from plml.inspection.explanation import Explanation


def sample_rows(n: int, size: int, random_state: int) -> np.ndarray:
    """Some of n rows, in their order."""
    rng = np.random.default_rng(random_state)
    return np.sort(rng.choice(n, min(size, n), replace=False))


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
    figure_: Any = field(default=None, init=False)
    ax_: Any = field(default=None, init=False)

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
        estimator = fitted_estimator(estimator)
        X, codes = estimator._fit_X, estimator._fit_codes
        view = View.of(X, getattr(estimator, "feature_names_in_", None))
        chosen = sample_rows(len(X), n_points, random_state)
        with estimator._run().limits():
            metrics = view.metrics(on_host(estimator._metric.matrix(X[chosen])))
        centers = view.points(X[chosen])
        display = cls(
            view.points(X), codes, estimator.classes_, centers, codes[chosen], metrics, view
        )
        return display.plot(**options)

    def plot(self, ax: Any = None, scale: float | None = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes; by default new ones
        scale : local distance of an ellipse from its centre; by default a readable one
        """
        from matplotlib.collections import EllipseCollection

        self.figure_, grid = axes_for(ax, (1, 1), (6.4, 5.2))
        self.ax_ = grid[0, 0]
        colors = np.array(class_colors(len(self.classes)), dtype=object)
        shown = sample_rows(len(self.points), 3000, 0)
        for code, label in enumerate(self.classes):
            mine = shown[self.codes[shown] == code]
            self.ax_.scatter(
                *self.points[mine].T, s=6, color=colors[code], alpha=0.35, lw=0, label=str(label)
            )
        widths, heights, angles = np.array([ellipse(M) for M in self.metrics]).T
        extent = np.ptp(self.points, axis=0).max() or 1.0
        if scale is None:
            scale = 0.05 * extent / float(np.median(np.sqrt(widths * heights)))
        limit = 0.25 * extent
        self.ax_.add_collection(
            EllipseCollection(
                np.minimum(scale * widths, limit),
                np.minimum(scale * heights, limit),
                angles,
                units="xy",
                offsets=self.centers,
                transOffset=self.ax_.transData,
                facecolors="none",
                edgecolors=[colors[code] for code in self.center_codes],
                linewidths=1.3,
            )
        )
        self.ax_.set(xlabel=self.view.labels[0], ylabel=self.view.labels[1], aspect="equal")
        self.ax_.set_title("points at the same local distance from their centre", loc="left")
        clean(self.ax_)
        if len(self.classes) <= len(PALETTE):
            self.ax_.legend(
                title="class",
                loc="center left",
                bbox_to_anchor=(1.0, 0.5),
                frameon=False,
                markerscale=3,
            )
        return self


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
    figure_: Any = field(default=None, init=False)
    axes_: Any = field(default=None, init=False)

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
        estimator = fitted_estimator(estimator)
        if not hasattr(estimator, "anchors_"):
            raise ValueError(f"{type(estimator).__name__} has no basis metrics that share the data")
        X = estimator._fit_X
        view = View.of(X, getattr(estimator, "feature_names_in_", None))
        chosen = sample_rows(len(X), n_points, random_state)
        anchors = view.points(estimator.anchors_)
        display = cls(view.points(X[chosen]), estimator.weights_[chosen], anchors, view)
        return display.plot(**options)

    def plot(self, ax: Any = None, n_columns: int = 5) -> Self:
        """Draw.

        Parameters
        ----------
        ax : as many matplotlib axes as there are bases; by default new ones
        n_columns : of a new figure
        """
        m = self.weights.shape[1]
        n_columns = min(n_columns, m)
        n_rows = -(-m // n_columns)
        if ax is not None:
            n_rows, n_columns = 1, m
        size = (1.9 * n_columns + 0.8, 1.9 * n_rows + 0.3)
        self.figure_, grid = axes_for(ax, (n_rows, n_columns), size)
        self.axes_ = grid.ravel()
        for panel in self.axes_[m:]:
            panel.set_visible(False)
        for b, panel in enumerate(self.axes_[:m]):
            order = np.argsort(self.weights[:, b])
            picture = panel.scatter(
                *self.points[order].T,
                s=5,
                c=self.weights[order, b],
                cmap="viridis",
                vmin=0.0,
                vmax=1.0,
                lw=0,
                rasterized=True,
            )
            if self.anchors is not None:
                panel.plot(*self.anchors[b], "*", ms=11, mfc=PALETTE[1], mec="white", mew=0.8)
            panel.set(xticks=[], yticks=[], aspect="equal")
            panel.set_title(f"basis {b}: {self.weights[:, b].mean():.0%}", fontsize=9)
            panel.spines[:].set_visible(False)
        self.figure_.colorbar(picture, ax=list(self.axes_[:m]), label="weight", shrink=0.6)
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
    figure_: Any = field(default=None, init=False)
    axes_: Any = field(default=None, init=False)

    @classmethod
    def from_estimator(cls, estimator: Any, **options: Any) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted, with ``history_``
        options : of ``plot``
        """
        estimator = fitted_estimator(estimator)
        if not hasattr(estimator, "history_"):
            raise ValueError(f"{type(estimator).__name__} keeps no history of its fit")
        stages = {
            name: estimator.history_[name]
            for name in ("weights", "metrics")
            if name in estimator.history_
        }
        return cls(stages, estimator.tol).plot(**options)

    def plot(self, ax: Any = None, over: str = "iteration") -> Self:
        """Draw.

        Parameters
        ----------
        ax : two matplotlib axes a stage, values first; by default new ones
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
            value.set_title(titles.get(name, name), loc="left")
            value.set_ylabel("objective" if name == "weights" else "negative dual")
            gap.plot(x, history["gap"], color=PALETTE[1], lw=1.8)
            gap.axhline(self.tol, color=PALETTE[7], lw=1, ls="--")
            gap.annotate(
                f"tol {number(self.tol)}",
                (0.02, self.tol),
                xycoords=("axes fraction", "data"),
                ha="left",
                va="bottom",
                color="#555555",
                fontsize=8,
            )
            if (history["gap"] > 0).any():
                gap.set_yscale("log")
            gap.set(xlabel=over, ylabel="relative gap")
            for panel in (value, gap):
                clean(panel)
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
    figure_: Any = field(default=None, init=False)
    axes_: Any = field(default=None, init=False)

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
        ax : matplotlib axes, one for the query and one a neighbour; by default new ones
        n_features : how many to list where they are not pixels: those that matter most here
        """
        found = self.explanation
        _check_query(found, self.query)
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
        height = 2.3 if self.image_shape else 0.9 + 0.26 * min(n_features, len(rows[0]))
        self.figure_, grid = axes_for(ax, (1, k + 1), (1.7 * (k + 1), height))
        self.axes_ = grid[0]
        if self.image_shape is not None:
            self._draw_images(rows)
        else:
            self._draw_values(rows, n_features)
        for panel, title in zip(self.axes_, titles, strict=True):
            panel.set_title(title, fontsize=9)
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
        places = np.arange(len(top))
        low, high = np.min([row[top] for row in rows]), np.max([row[top] for row in rows])
        for position, (panel, row) in enumerate(zip(self.axes_, rows, strict=True)):
            panel.barh(places, row[top], color=PALETTE[1] if position == 0 else PALETTE[0])
            panel.set(ylim=(len(top) - 0.5, -0.5), xlim=(min(low, 0.0), max(high, 0.0)))
            names = wrapped(found.feature_names[top].tolist()) if position == 0 else []
            panel.set_yticks(places, names)
            panel.tick_params(axis="y", length=0)
            clean(panel)


@dataclass
class ExplanationDisplay:
    """Which features made the nearest case near, and which ones the metric looks at here.

    The features that matter most come first. Left: the parts of the squared local distance to a
    neighbour; they add up to it. Right: the
    share of each feature in the metric at the query, next to its share on average over the data.

    Attributes
    ----------
    figure_, axes_ : after ``plot``
    """

    explanation: "Explanation"
    query: int = 0
    figure_: Any = field(default=None, init=False)
    axes_: Any = field(default=None, init=False)

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

    def plot(self, ax: Any = None, rank: int = 1, n_features: int = 10) -> Self:
        """Draw.

        Parameters
        ----------
        ax : two matplotlib axes; by default new ones
        rank : which neighbour, 1 is the nearest
        n_features : those that matter most
        """
        found = self.explanation
        _check_query(found, self.query)
        if not 1 <= rank <= found.neighbors.shape[1]:
            raise ValueError(f"rank must be between 1 and {found.neighbors.shape[1]}, got {rank}")
        parts = found.contributions[self.query, rank - 1]
        here, everywhere = found.importance[self.query], found.global_importance
        weight = np.abs(parts) / (np.abs(parts).sum() or 1.0) + here
        top = np.argsort(-weight, kind="stable")[:n_features]
        names = wrapped(found.feature_names[top].tolist())
        shown = np.array([values[top] for values in (parts, here, everywhere)])
        if len(top) < len(parts):  # so that what is drawn adds up
            rest = [[values.sum() - values[top].sum()] for values in (parts, here, everywhere)]
            shown = np.concatenate([shown, rest], axis=1)
            names.append(f"the other {len(parts) - len(top)}")
        parts, here, everywhere = shown
        places = np.arange(len(names))
        size = (8.2, 1.3 + 0.28 * len(names))
        self.figure_, grid = axes_for(ax, (1, 2), size)
        self.axes_ = grid[0]
        left, right = self.axes_
        left.barh(places, parts, color=np.where(parts < 0, PALETTE[2], PALETTE[1]))
        left.axvline(0.0, color="#555555", lw=0.8)
        distance = found.squared_distances[self.query, rank - 1]
        left.set_title(
            f"predicted {found.predictions[self.query]}; near row "
            f"{found.neighbors[self.query, rank - 1]} ({found.labels[self.query, rank - 1]}), "
            f"d² = {number(distance)}",
            fontsize=9,
            loc="left",
        )
        left.set(xlabel="part of the squared distance")
        left.set_yticks(places, names)
        right.barh(places - 0.2, here, 0.4, color=PALETTE[0], label="here")
        right.barh(places + 0.2, everywhere, 0.4, color=PALETTE[7], label="on average")
        right.set(xlabel="share of the metric")
        right.set_yticks(places, [])
        right.legend(frameon=False, fontsize=8)
        for panel in self.axes_:
            panel.set_ylim(len(names) - 0.5, -0.5)
            panel.tick_params(axis="y", length=0)
            clean(panel)
        return self


def _one_of(X: Any, query: int) -> Any:
    """One row of the queries, as a table of one row."""
    if not 0 <= query < len(X):
        raise ValueError(f"query must be between 0 and {len(X) - 1}, got {query}")
    return X.iloc[[query]] if hasattr(X, "iloc") else np.asarray(X)[[query]]


def fitted_estimator(model: Any) -> Any:
    """A fitted estimator; a pipeline is told which of its steps is meant."""
    if hasattr(model, "steps"):
        raise ValueError("give the last step of the pipeline, model[-1], and the data it sees")
    check_is_fitted(model)
    return model


def _check_query(explanation: "Explanation", query: int) -> None:
    if not 0 <= query < len(explanation):
        raise ValueError(f"query must be between 0 and {len(explanation) - 1}, got {query}")
