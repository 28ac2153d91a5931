"""One look for all pictures: colours that colour-blind readers tell apart, few lines."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plml.io.files import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's palette, the dark ones first.
PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#5d3a9b",
    "#999999",
    "#000000",
    "#f0e442",
)


def class_colors(n_classes: int) -> list[Any]:
    """One colour per class; beyond the palette they come from a colour map."""
    if n_classes <= len(PALETTE):
        return list(PALETTE[:n_classes])
    from matplotlib import colormaps

    return [colormaps["turbo"](value) for value in np.linspace(0.05, 0.95, n_classes)]


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


def label_outer(panels: Sequence["Axes"], labels: tuple[str, str], n_columns: int) -> None:
    """Name the axes of panels in rows, below the lowest and left of the first ones."""
    for i, panel in enumerate(panels):
        if i + n_columns >= len(panels):
            panel.set_xlabel(labels[0], fontsize=8)
        if i % n_columns == 0:
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
    """Names of bounded length."""
    texts = (str(name) for name in names)
    return [text if len(text) <= width else text[: width - 1] + "…" for text in texts]
