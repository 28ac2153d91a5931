"""Pictures of a scorecard: accuracies with their intervals, ROC and precision-recall curves."""

from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics import precision_recall_curve, roc_curve

from plml.evaluation.rivals import LARGEST
from plml.evaluation.scorecard import Scorecard
from plml.evaluation.scorecard_text import shown_name
from plml.inspection.style import PALETTE, bar_rows, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def accuracy_figure(card: Scorecard) -> "Figure":
    """A dot and an interval for every method; the judged one in colour.

    Parameters
    ----------
    card : a scorecard
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.8 + 0.4 * len(card.figures)), layout="constrained")
    ax = figure.subplots()
    bar_rows(ax, len(card.figures), [shown_name(card, name) for name in card.figures])
    for place, (name, found) in enumerate(card.figures.items()):
        color = PALETTE[0] if name == card.judged else "#777777"
        ax.plot([100 * found.low, 100 * found.high], [place, place], color=color, lw=2.5)
        ax.plot([100 * found.accuracy], [place], "o", color=color, ms=8)
    ax.set_xlabel("accuracy and its 95% interval (%)")
    ax.grid(axis="x", color="#dddddd", lw=0.6)
    ax.set_axisbelow(True)
    return figure


def curves_figure(card: Scorecard) -> "Figure":
    """ROC and precision-recall curves of the positive class, for every method.

    Parameters
    ----------
    card : a scorecard with a positive class, and rows of both classes
    """
    from matplotlib.figure import Figure

    truth = card.ranked(card.judged)[0]
    if truth.all() or not truth.any():
        raise ValueError(
            f"all rows are of one class, so there is no ROC curve of {str(card.positive)!r}; give "
            "rows of both classes"
        )
    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    drawn = [name for name in card.shares if name != LARGEST]
    for place, name in enumerate(drawn):
        look = {"color": PALETTE[place], "lw": 2.4 if name == card.judged else 1.3}
        wrong, found, _ = roc_curve(*card.ranked(name))
        label = f"{name}, {card.figures[name].roc_auc:.3f}"
        left.plot(wrong, found, label=label, **look)
        precision, recall, _ = precision_recall_curve(*card.ranked(name))
        precision[-1] = precision[-2]  # not scikit-learn's 1, which no threshold gives
        label = f"{name}, {card.figures[name].average_precision:.3f}"
        right.plot(recall, precision, drawstyle="steps-post", label=label, **look)
    _finish(left, "false alarms (share of the others)", "found (recall)", "ROC, area below it")
    _finish(right, "found (recall)", "precision", "Precision and recall, average precision")
    left.plot([0, 1], [0, 1], ":", color="#777777", lw=1)
    right.axhline(float(np.mean(truth)), ls=":", color="#777777", lw=1)
    return figure


def _finish(ax: "Axes", x: str, y: str, title: str) -> None:
    ax.set(xlabel=x, ylabel=y, xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    ax.set_title(title, loc="left", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    clean(ax)
