"""One look for all pictures: colours that colour-blind readers tell apart, few lines."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import cycle, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.io.files import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Most of Okabe and Ito's palette and two dark colours of Tol's. Any two are at least 17 units of
#: CIELAB apart, to readers without red or without green cones as well.
PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#332288",
    "#882255",
    "#000000",
    "#f0e442",
)
#: For what is no class: averages, limits.
GREY = "#999999"
#: Names of shapes in Bokeh, and what matplotlib calls them: one for each ten classes.
SHAPES = {"circle": "o", "square": "s", "triangle": "^", "inverted_triangle": "v", "plus": "P"}


def class_marks(n_classes: int) -> list[tuple[str, str]]:
    """A colour and a shape per class, no two the same up to 50 classes.

    Ten colours are told apart by colour-blind readers too; further classes have them again in
    another shape.
    """
    marks = cycle(product(SHAPES, PALETTE))
    return [(color, shape) for shape, color in islice(marks, n_classes)]


def clean(ax: "Axes") -> None:
    """Hide the upper and the right edge of the frame around a plot."""
    ax.spines[["top", "right"]].set_visible(False)


def axes_for(ax: Any, shape: tuple[int, int], size: tuple[float, float]) -> tuple["Figure", Any]:
    """A figure with new axes of that shape, or the one that the given axes belong to.

    Parameters
    ----------
    ax : None, axes, or as many axes as the shape asks for
    shape : rows and columns
    size : of a new figure, in inches
    """
    import matplotlib.pyplot as plt

    if ax is None:
        return plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    grid = np.asarray(ax, dtype=object).ravel()
    if len(grid) != shape[0] * shape[1]:
        raise ValueError(f"this picture needs {shape[0] * shape[1]} axes, got {len(grid)}")
    return grid[0].figure, grid.reshape(shape)


def colored_panels(
    ax: Any, points: np.ndarray, values: np.ndarray, n_columns: int, side: float, **scatter: Any
) -> tuple["Figure", np.ndarray, Any]:
    """One panel per column of the (n, k) values, which colour the points, the largest drawn last.

    Returns the figure, its panels and what a colour bar needs. A new figure has ``n_columns``
    panels in a row, each with sides of so many inches.
    """
    k = values.shape[1]
    columns = min(n_columns, k)
    shape = (-(-k // columns), columns) if ax is None else (1, k)
    figure, grid = axes_for(ax, shape, (side * shape[1] + 0.9, side * shape[0] + 0.3))
    panels = grid.ravel()
    for panel in panels[k:]:
        panel.set_visible(False)
    for panel, value in zip(panels[:k], values.T, strict=True):
        order = np.argsort(np.abs(value))
        scatter |= {"c": value[order], "lw": 0, "rasterized": True}
        picture = panel.scatter(*points[order].T, **scatter)
        panel.set(xticks=[], yticks=[], aspect="equal")
        panel.spines[:].set_visible(False)
    return figure, panels, picture


def label_panels(
    figure: "Figure | None", panels: Sequence["Axes"], labels: tuple[str, str]
) -> None:
    """Name the axes that panels have in common: once for a whole figure, else at every panel."""
    if figure is not None:
        figure.supxlabel(labels[0], fontsize=9)
        figure.supylabel(labels[1], fontsize=9)
        return
    for panel in panels:
        panel.set_xlabel(labels[0], fontsize=8)
        panel.set_ylabel(labels[1], fontsize=8)


def bar_rows(ax: "Axes", n_rows: int, names: Sequence[str] = ()) -> None:
    """Axes for horizontal bars, the first on top, named or not."""
    ax.set_yticks(np.arange(n_rows), names)
    ax.set_ylim(n_rows - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    clean(ax)


def write_figure(figure: "Figure", path: Path) -> None:
    """A picture in the format that the name says, PNG where it says none."""
    stream = BytesIO()
    kind = path.suffix[1:].lower() or "png"
    figure.savefig(stream, format=kind, dpi=150, facecolor="white")
    write(path, stream.getvalue())


def number(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:.3g}"


def wrapped(names: Iterable[Any], width: int = 28) -> list[str]:
    """Names of bounded length, cut in the middle: those of a table often differ at the end."""
    head, tail = width - 1 - width // 3, width // 3
    texts = (str(name) for name in names)
    return [text if len(text) <= width else f"{text[:head]}…{text[-tail:]}" for text in texts]
