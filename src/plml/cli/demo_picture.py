"""The picture of ``plml demo``: accuracies, and digits on which the metrics disagree."""

from pathlib import Path
from typing import Any

import numpy as np

from plml.cli.demo import DemoData, DemoRow
from plml.inspection.style import write_figure

_COLORS = ("#7f7f7f", "#56b4e9", "#d55e00")  # told apart by the colour-blind
_N_EXAMPLES = 6


def save_demo_figure(path: Path, data: DemoData, rows: list[DemoRow]) -> None:
    """Draw the comparison and write it to ``path``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.35))
    _draw_accuracies(panels[0, 0], rows)
    _draw_disagreements(panels[0, 1], data, rows)
    write_figure(figure, path)


def disagreements(data: DemoData, rows: list[DemoRow]) -> np.ndarray:
    """Test rows on which the last method differs from the first, those it gets right first."""
    first, last = rows[0].predictions, rows[-1].predictions
    differ = np.flatnonzero(first != last)
    return differ[np.argsort(last[differ] != data.y_test[differ], kind="stable")]


def _draw_accuracies(figure: Any, rows: list[DemoRow]) -> None:
    ax = figure.subplots()
    errors = [100 * (1 - row.accuracy) for row in rows]
    names = [row.method.replace(", ", "\n") for row in rows]
    bars = ax.bar(names, errors, color=_COLORS, width=0.6)
    ax.bar_label(bars, [f"{error:.1f}%" for error in errors], padding=2)
    ax.set_ylabel("test error (%)")
    ax.set_title("Nearest-neighbour error on digits", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_disagreements(figure: Any, data: DemoData, rows: list[DemoRow]) -> None:
    differ = disagreements(data, rows)
    n_right = [int((row.predictions == data.y_test)[differ].sum()) for row in (rows[0], rows[-1])]
    figure.suptitle(
        f"They disagree on {len(differ)} test digits: Euclidean is right on {n_right[0]}, PLML on "
        f"{n_right[1]}",
        fontsize=11,
    )
    chosen = differ[:_N_EXAMPLES]
    if len(chosen) == 0:
        return
    axes = figure.subplots(3, len(chosen), squeeze=False)
    titles = ("test digit", "Euclidean", "PLML")
    for column, query in enumerate(chosen):
        neighbors = rows[0].nearest[query], rows[-1].nearest[query]
        images = [data.test_images[query], *(data.train_images[j] for j in neighbors)]
        labels = [data.y_test[query], *(data.y_train[j] for j in neighbors)]
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            ax = axes[row, column]
            ax.imshow(image, cmap="gray_r")
            ax.set_xticks([])
            ax.set_yticks([])
            color = "#009e73" if label == labels[0] else "#d55e00"
            mark = "" if row == 0 else (" ✓" if label == labels[0] else " ✗")
            ax.set_xlabel(f"{label}{mark}", color="black" if row == 0 else color, labelpad=2)
            if column == 0:
                ax.set_ylabel(titles[row])
