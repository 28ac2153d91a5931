"""Pictures of predictions: the nearest cases, and why this class and not another."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plml.inspection.explanation_text import short
from plml.inspection.style import GREY, PALETTE, axes_for, bar_rows, number, wrapped
from plml.validation import taken

if TYPE_CHECKING:
    from plml.inspection.explanation import Explanation

#: Longest name of a class in a title.
_CLASS_WIDTH = 14
#: Longest number and class of a case in one line of a title.
_TITLE_WIDTH = 12


@dataclass(repr=False)
class NeighborsDisplay:
    """A query and its nearest training cases, as images where the features are pixels.

    Attributes
    ----------
    figure_, axes_ : the figure and its axes, after ``plot``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.inspection import NeighborsDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=4, random_state=0).fit(X, y)
    >>> display = NeighborsDisplay.from_estimator(model, X[70:71], n_neighbors=3)
    >>> display.figure_.savefig("neighbors.png")
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
        estimator : a fitted estimator that has ``explain``
        X : (q, d) queries
        query : the number of the query
        n_neighbors : how many cases
        image_shape : rows and columns of pixels, if the features are pixels
        options : passed to ``plot``
        """
        explanation = estimator.explain(_one_of(X, query), n_neighbors)
        return cls(explanation, 0, image_shape).plot(**options)

    def plot(self, ax: Any = None, n_features: int = 10) -> Self:
        """Draw the query and its neighbours.

        Parameters
        ----------
        ax : matplotlib axes, one for the query and one per neighbour; by default new ones
        n_features : how many features to list if they are not pixels: those that matter most here
        """
        found = self.explanation
        _check_query(len(found), self.query)
        k = found.neighbors.shape[1]
        rows = [found.queries[self.query], *found.neighbor_values[self.query]]
        distances = np.sqrt(found.squared_distances[self.query])
        predicted, *labels = map(
            _class_name, (found.predictions[self.query], *found.labels[self.query])
        )
        numbers = found.neighbors[self.query].tolist()
        is_wide = max(map(len, (predicted, *labels))) + len(str(max(numbers))) > _TITLE_WIDTH
        between = "\n" if is_wide else " "
        titles = [f"query\npredicted{between}{predicted}"]
        titles += [
            f"case {row}:{between}{label}\nd = {number(distance)}"
            for row, label, distance in zip(numbers, labels, distances, strict=True)
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
        """A bar per feature, in units of the largest value of that feature here, and the value."""
        found = self.explanation
        top = np.argsort(-found.importance[self.query], kind="stable")[:n_features]
        values = np.array(rows, dtype=object)[:, top]
        numbers = np.vectorize(_as_number, otypes=[float])(values)
        largest = np.abs(numbers).max(axis=0)
        lengths = numbers / np.where(largest > 0.0, largest, 1.0)
        limits = (-1.05 if lengths.min() < 0.0 else 0.0), 1.05
        for position, panel in enumerate(self.axes_):
            color = PALETTE[1] if position == 0 else PALETTE[0]
            panel.barh(np.arange(len(top)), lengths[position], color=color, alpha=0.35)
            for row, value in enumerate(values[position]):
                place = {"va": "center", "ha": "center", "fontsize": 8}
                panel.text(sum(limits) / 2.0, row, short(value), **place)
            panel.set(xlim=limits, xticks=[])
            bar_rows(panel, len(top), wrapped(found.feature_names[top]) if position == 0 else ())
            panel.spines[["left", "bottom"]].set_visible(False)
        middle = self.axes_[len(self.axes_) // 2]
        middle.set_xlabel("bars: relative to the largest of the feature here", fontsize=8)


def _as_number(value: Any) -> float:
    """How long the bar of a value is: words and gaps have none."""
    is_number = isinstance(value, int | float | np.number) and value == value
    return float(value) if is_number else 0.0


@dataclass(repr=False)
class ExplanationDisplay:
    """Why this class and not another, and what sets the classes apart here and overall.

    Left: the parts of the features in the margin, the squared distance to the nearest case of the
    runner-up minus that to the nearest case of the predicted class; they add up to it. Given a
    ``rank``, the parts of the squared distance to that neighbour instead. Right: the share of each
    feature in what sets the classes apart near the query, next to its share over all training rows.

    Attributes
    ----------
    figure_, axes_ : the figure and its axes, after ``plot``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> from plml.inspection import ExplanationDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=4, random_state=0).fit(X, y)
    >>> display = ExplanationDisplay.from_estimator(model, X[70:71])
    >>> display.figure_.savefig("explanation.png")
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
        estimator : a fitted estimator that has ``explain``
        X : (q, d) queries
        query : the number of the query
        n_neighbors : neighbours found; see ``rank`` of ``plot``
        options : passed to ``plot``
        """
        return cls(estimator.explain(_one_of(X, query), n_neighbors)).plot(**options)

    def plot(self, ax: Any = None, rank: int | None = None, n_features: int = 10) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : two matplotlib axes; by default new ones
        rank : the neighbour to compare with, 1 is the nearest; by default the case for and the case
            against
        n_features : how many features to show: those that matter most
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
        left.locator_params(axis="x", nbins=6)  # more would touch each other
        right.barh(places - 0.2, here, 0.4, color=PALETTE[0], label="near here")
        right.barh(places + 0.2, overall, 0.4, color=GREY, label="overall")
        right.set_title("What sets the classes apart?", fontsize=10, loc="left")
        right.set_xlabel("share", fontsize=9)
        right.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        bar_rows(right, len(names))
        below = {"loc": "upper right", "bbox_to_anchor": (1.0, 0.0), "borderaxespad": 4.5}
        right.legend(frameon=False, fontsize=8, ncols=2, **below)  # under the label of the axis
        return self

    def _question(self, rank: int | None) -> tuple[str, str]:
        """The title and the label of the axis on the left."""
        found, query = self.explanation, self.query
        if rank is None:
            prediction, rival = map(_class_name, (found.predictions[query], found.rivals[query]))
            rows = found.cases_for[query], found.cases_against[query]
            if min(rows) < 0:
                return f"Why {prediction} and not {rival}?", "no other case to compare with"
            label = (
                f"part of the margin {number(found.margins[query])}: case {rows[1]} ({rival}) is "
                f"farther\nthan case {rows[0]} ({prediction}) by this much, squared"
            )
            return f"Why {prediction} and not {rival}?", label
        case = query, rank - 1
        row, label = found.neighbors[case], _class_name(found.labels[case])
        distance = number(found.squared_distances[case])
        return f"What sets case {row} ({label}) apart?", f"part of the squared distance {distance}"

    def _leading(self, parts: np.ndarray, n_features: int) -> tuple[list[str], np.ndarray]:
        """Names of the features that matter most on either side, with their values; then the rest.

        In the order of the left side.
        """
        found = self.explanation
        values = np.array([parts, found.importance[self.query], found.global_importance])
        largest = np.abs(values).max(axis=1, keepdims=True)
        sizes = np.abs(values) / np.where(largest > 0.0, largest, 1.0)
        first = np.argsort(-sizes.max(axis=0), kind="stable")
        top, rest = first[:n_features], first[n_features:]
        top = top[np.argsort(-np.abs(parts[top]), kind="stable")]
        names, shown = wrapped(found.feature_names[top]), values[:, top]
        if not len(rest):
            return names, shown
        # So that what is drawn adds up.
        others = values[:, rest].sum(axis=1, keepdims=True)
        return [*names, f"the other {len(rest)}"], np.concatenate([shown, others], axis=1)


def _class_name(label: Any) -> str:
    return wrapped([label], _CLASS_WIDTH)[0]


def _one_of(X: Any, query: int) -> Any:
    """One row of the queries, as a table of one row."""
    _check_query(len(X), query)
    return taken(X, np.array([query]))


def _check_query(n_queries: int, query: int) -> None:
    if not 0 <= query < n_queries:
        raise ValueError(f"query must be between 0 and {n_queries - 1}, got {query}")
