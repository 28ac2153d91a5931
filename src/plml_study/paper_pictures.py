"""Figures 1 and 2 of the paper, drawn."""

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from plml_study import paper
from plml_study.figures import Curve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

#: Told apart by the colour-blind (Okabe and Ito), on white and on dark grey.
_CLASS_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
_METHOD_COLORS = {"PLML": "#d55e00", "CBLML": "#0072b2"}
_DARK_METHOD_COLORS = {"PLML": "#ff8c42", "CBLML": "#56b4e9"}
_AXIS_LENGTH = 0.22  # of the longer axis of an ellipse, in units of the data


@contextmanager
def theme(dark: bool) -> "Iterator[None]":
    """Text and lines for a light or a dark page; the page itself shines through."""
    import matplotlib as mpl

    ink = "#e6e6e6" if dark else "#222222"
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    settings: Any = dict.fromkeys(names, ink) | {
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "font.size": 9,
        "svg.hashsalt": "plml",
        "svg.fonttype": "path",
    }
    with mpl.rc_context(settings):
        yield


def draw_figure1(panels: Mapping[str, Mapping[str, Any]], dark: bool = False) -> "Figure":
    """Local metrics as the axes of their ellipses over the plane, one panel per method.

    A panel is a record with ``local_metrics`` and ``accuracy``.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with theme(dark):
        figure = Figure(figsize=(9, 7.6), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        labels: list[str] = []
        for ax, method in zip(axes.flat, ("LMNNMM", "CBLML", "GLML", "PLML"), strict=True):
            if method not in panels:
                ax.set_visible(False)
                continue
            labels = _draw_metrics(ax, panels[method]["local_metrics"], dark)
            theirs = paper.FIGURE_1[method]
            ours = panels[method]["accuracy"]
            ax.set_title(f"{paper.title(method)}: {ours:.2f}% (paper {theirs:.2f}%)")
        handles = [
            Line2D([], [], color=color, marker="o", linestyle="", label=f"digit {label}")
            for color, label in zip(_CLASS_COLORS, labels, strict=False)
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=4)
        figure.supxlabel("first principal component")
        figure.supylabel("second principal component")
        return figure


def _draw_metrics(ax: Any, sample: Mapping[str, Any], dark: bool) -> list[str]:
    from matplotlib.collections import LineCollection

    points, metrics = np.array(sample["points"]), np.array(sample["metrics"])
    labels = np.array(sample["labels"])
    names = sorted(set(labels.tolist()))
    for name, color in zip(names, _CLASS_COLORS, strict=False):
        mine = labels == name
        ax.scatter(*points[mine].T, s=42, color=color, alpha=0.45, linewidths=0)
    eigenvalues, vectors = np.linalg.eigh(metrics)
    lengths = np.sqrt(np.maximum(eigenvalues, 0.0))
    lengths /= np.maximum(lengths.max(axis=1, keepdims=True), 1e-300)
    # Column v of the vectors, as long as the metric stretches that direction.
    arms = 0.5 * _AXIS_LENGTH * np.swapaxes(vectors * lengths[:, None, :], 1, 2)
    segments = np.stack([points[:, None] - arms, points[:, None] + arms], axis=2).reshape(-1, 2, 2)
    ax.add_collection(
        LineCollection(segments.tolist(), colors="#e6e6e6" if dark else "black", linewidths=0.9)
    )
    ax.set_aspect("equal")
    ax.spines[["top", "right"]].set_visible(False)
    return names


def draw_figure2(curves: Mapping[tuple[str, str], Curve], dark: bool = False) -> "Figure":
    """Accuracy of PLML and CBLML over the number of basis metrics, one panel per data set."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(dataset for dataset, _ in curves))
    n_columns = min(3, len(names))
    n_rows = -(-len(names) // n_columns)
    colors = _DARK_METHOD_COLORS if dark else _METHOD_COLORS
    with theme(dark):
        figure = Figure(figsize=(3.1 * n_columns, 2.5 * n_rows + 0.4), layout="constrained")
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        for ax in axes.flat[len(names) :]:
            ax.set_visible(False)
        for ax, name in zip(axes.flat, names, strict=False):
            for method, color in colors.items():
                curve = curves.get((name, method))
                if curve is None:
                    continue
                marker = "o" if method == "PLML" else "s"
                ax.plot(
                    curve.n_bases, curve.accuracies, color=color, marker=marker, ms=4, label=method
                )
            ax.set_title(paper.dataset_title(name))
            ax.set_xticks(paper.FIGURE_2)
            ax.spines[["top", "right"]].set_visible(False)
        figure.legend(
            *axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=2
        )
        figure.supxlabel("number of basis metrics")
        figure.supylabel("accuracy (%)")
        return figure
