"""A scorecard in words, and as small tables."""

from html import escape
from typing import TYPE_CHECKING, Any

from plml.evaluation.rivals import LARGEST, TUNED, TUNING
from plml.wording import counted

if TYPE_CHECKING:
    from plml.evaluation.scorecard import Figures, Scorecard

_OPENINGS = {
    "+": "The {judged} helps",
    "-": "The {judged} does harm",
    "=": "These rows do not show that the {judged} helps",
}
#: Where more of the rows than this were learned from, it is said.
_MOSTLY = 0.5
_HEADINGS = ("accuracy", "95% interval", "balanced", "log-loss")
_OF_POSITIVE = ("precision", "recall", "ROC AUC", "avg. precision")


def verdict(card: "Scorecard") -> str:
    """Against the most accurate rival that looks at the rows; and against one answer for all."""
    sentences = []
    looking = [name for name in card.rivals if name != LARGEST]
    if looking:
        best = max(looking, key=lambda name: card.figures[name].accuracy)
        sentences.append(_against(card, best))
    if (card.labels == card.labels[0]).all():
        sentences.append(
            f"All rows are of class {str(card.labels[0])!r}: of other classes these figures say "
            "nothing."
        )
    elif LARGEST in card.rivals and card.compared_with(LARGEST).sign() != "+":
        sentences.append(_against_one_answer(card))
    if card.n_known > _MOSTLY * len(card.labels):
        sentences.append(
            f"But most of the rows are the same as cases of {_model(card)}: unless new rows are, "
            "too, these figures say nothing of them."
        )
    return " ".join(sentences)


def _against(card: "Scorecard", rival: str) -> str:
    found, (gain, low, high) = card.compared_with(rival), card.gain_over(rival)
    more, sign = found.only_first - found.only_second, found.sign()
    rows = counted(len(card.labels), "row")
    opening = _OPENINGS[sign].format(judged=card.judged)
    interval = f"95% interval {_points(low)} to {_points(high)}"
    if not more:
        as_many = f"it gets as many of the {rows} right as {rival}"
        return f"{opening}: {as_many} ({interval} points)."
    return (
        f"{opening}: it gets {abs(more)} {'more' if more > 0 else 'fewer'} of the {rows} right "
        f"than {rival}, {_points(gain)} points ({interval}, McNemar's p = "
        f"{_p_value(found.p_value)}), which {'may be' if sign == '=' else 'is more than'} chance."
    )


def _against_one_answer(card: "Scorecard") -> str:
    mine, theirs = card.figures[card.judged], card.figures[LARGEST]
    several = card.largest is None
    answer = "the largest class of each fold" if several else repr(str(card.largest))
    return (
        f"It is not better than no model at all: always answering {answer} is right "
        f"on {theirs.accuracy:.1%} of the rows, the {card.judged} on {mine.accuracy:.1%}; by "
        f"balanced accuracy it is {theirs.balanced_accuracy:.1%} against "
        f"{mine.balanced_accuracy:.1%}."
    )


def as_text(card: "Scorecard") -> str:
    """The figures of all methods, and the verdict."""
    lines = aligned(table_of(card))
    return "\n".join([title_of(card), *lines, *_footnotes(card), card.verdict])


def aligned(cells: list[list[str]]) -> list[str]:
    """The lines of a table: names on the left, all else on the right of its column."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in cells
    ]


def as_html(card: "Scorecard") -> str:
    """The same as a table, with the confusion matrix."""
    return (
        f"<p>{escape(title_of(card))}</p>{figures_html(card)}"
        f"{''.join(f'<p>{escape(text)}</p>' for text in (*_footnotes(card), card.verdict))}"
        f"<p>{escape(card.judged)}: rows are true classes, columns are predicted ones</p>"
        f"{confusion_html(card)}"
    )


def _footnotes(card: "Scorecard") -> list[str]:
    """What the names of the methods do not say."""
    return [TUNING] * (TUNED in card.figures)


def figures_html(card: "Scorecard") -> str:
    """The figures of all methods as a table."""
    head, *rows = table_of(card)
    return html_table(head, [[cell(row[0], "th"), *map(cell, row[1:])] for row in rows])


def confusion_html(card: "Scorecard") -> str:
    """The confusion matrix; the darker a cell, the larger its share of the true class."""
    names, matrix = card.confusion
    shares = matrix / matrix.sum(axis=1, keepdims=True).clip(1)
    rows = [
        [cell(str(name), "th"), *(_shaded(n, share) for n, share in zip(line, part, strict=True))]
        for name, line, part in zip(names, matrix, shares, strict=True)
    ]
    return html_table(["", *(str(name) for name in names)], rows)


def table_of(card: "Scorecard") -> list[list[str]]:
    """A heading and a line for every method, as texts."""
    headings = ["", *_HEADINGS, *(_OF_POSITIVE if card.positive is not None else ())]
    lines = [_line(card, name, figures) for name, figures in card.figures.items()]
    return [headings, *lines]


def _line(card: "Scorecard", name: str, figures: "Figures") -> list[str]:
    line = [
        shown_name(card, name),
        f"{figures.accuracy:.1%}",
        f"{100 * figures.low:.1f} to {figures.high:.1%}",
        f"{figures.balanced_accuracy:.1%}",
        f"{figures.log_loss:.3f}",
    ]
    if card.positive is not None:
        line += [share_text(figures.precision), share_text(figures.recall)]
        line += [_number(figures.roc_auc), _number(figures.average_precision)]
    return line


def shown_name(card: "Scorecard", name: str) -> str:
    """A method as tables call it."""
    return name if name != LARGEST or card.largest is None else f"always {str(card.largest)!r}"


def title_of(card: "Scorecard") -> str:
    """How many rows, and where they are from."""
    text = f"{counted(len(card.labels), 'row')}{f' {card.source}' if card.source else ''}"
    if card.positive is not None:
        text += f", {int((card.labels == card.positive).sum())} of them {str(card.positive)!r}"
    if card.n_known:
        are = "is the same as a case" if card.n_known == 1 else "are the same as cases"
        text += f"; {card.n_known} {are} of {_model(card)}"
    return text


def _model(card: "Scorecard") -> str:
    """What predicted the rows."""
    return "the model" if card.folds is None else "that fit"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _p_value(p: float) -> str:
    return "1" if p > 0.995 else f"{p:.2g}"


def share_text(value: float | None) -> str:
    """A share, or a dash for one that is not defined: None, or not a number."""
    return "-" if value is None or value != value else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def cell(text: str, tag: str = "td", style: str = "") -> str:
    """A cell of a table."""
    style = f' style="{style}"' if style else ""
    return f"<{tag}{style}>{escape(text)}</{tag}>"


def _shaded(count: Any, share: float) -> str:
    style = f"background:rgba(0,114,178,{0.55 * share:.2f})" if count else ""
    return cell(str(int(count)), style=style)


def html_table(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells below headings."""
    heading = "".join(cell(text, "th") for text in head)
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"
