"""A scorecard as one HTML page that needs no network."""

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics import precision_recall_fscore_support

from plml.evaluation.evaluation_pictures import accuracy_figure, curves_figure
from plml.evaluation.scorecard import Scorecard
from plml.evaluation.scorecard_text import (
    cell,
    confusion_html,
    figures_html,
    html_table,
    share_text,
    title_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 64rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { background: #f2f6fa; border-left: 4px solid #0072b2; padding: .7rem 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
tbody th, thead th:first-child { text-align: left; font-weight: 600; }
img { max-width: 100%; height: auto; } .note { color: #555; font-size: .9rem; }
"""
_NOTE = (
    "Intervals of accuracies are Wilson's at 95%. Balanced accuracy is the mean over classes of "
    "the share that is found; log-loss is smaller for better probabilities. All methods learned "
    "from the same training rows; the tuned neighbours were chosen by cross-validation on these."
)


def report(card: Scorecard, title: str = "Evaluation") -> str:
    """The page: verdict, figures, every class, the confusion matrix, pictures.

    Parameters
    ----------
    card : a scorecard
    title : of the page
    """
    sections = [
        ("Figures", f"{_scrolling(figures_html(card))}<p class='note'>{escape(_NOTE)}</p>"),
        ("Accuracies", _image(accuracy_figure(card), "accuracy of every method with its interval")),
        ("Every class", _scrolling(_classes_html(card))),
        ("Confusion: true classes in rows, predicted in columns", _scrolling(confusion_html(card))),
    ]
    if card.positive is not None and 0 < card.ranked(card.judged)[0].sum() < len(card.labels):
        words = f"ROC and precision-recall curves of {card.positive}"
        picture = _image(curves_figure(card), words)
        sections.insert(2, (f"Positive class: {card.positive}", picture))
    body = "".join(f"<h2>{escape(head)}</h2>{content}" for head, content in sections)
    return (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(title_of(card))}</p>"
        f"<p class='verdict'>{escape(card.verdict)}</p>{body}</body></html>"
    )


def _classes_html(card: Scorecard) -> str:
    """Precision, recall and rows of every class, of the judged method."""
    names, _ = card.confusion
    parts = precision_recall_fscore_support(
        card.labels, card.predictions[card.judged], labels=names, zero_division=np.nan
    )
    rows = [
        [cell(str(name), "th"), *map(cell, map(share_text, values)), cell(str(n_rows))]
        for name, *values, n_rows in zip(names, *parts, strict=True)
    ]
    return html_table(["", "precision", "recall", "F1", "rows"], rows)


def _scrolling(table: str) -> str:
    return f"<div class='scroll'>{table}</div>"


def _image(figure: "Figure", words: str) -> str:
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=150, facecolor="white")
    content = b64encode(stream.getvalue()).decode("ascii")
    width = round(96 * figure.get_figwidth())
    return f"<img width='{width}' alt='{escape(words)}' src='data:image/png;base64,{content}'>"
