"""An explanation in words, and as a small table with bars."""

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from plml.inspection.explanation import Ballot, Explanation

#: Shares that differ by less are a tie.
_TIE = 1e-9
#: Parts that are smaller, relative to the distances, are no more than rounding.
_ROUNDING = 1e-9
#: Style of an explanation in a notebook.
_BOX = "font-family:sans-serif;font-size:13px;margin:6px 0"
#: Longest text of a value.
_WIDTH = 16
#: How numbers begin.
_FIGURES = set("0123456789.+-")
#: Classes of which a vote is told.
_LISTED = 5


def short(value: Any, width: int = _WIDTH) -> str:
    """A value as it was in the table: integers as integers, no exponents, no rounding noise.

    Parameters
    ----------
    value : of any type
    width : of the longest text
    """
    if value is None:
        return "(unknown)"
    if isinstance(value, float | np.floating) and np.isnan(value):
        return "(missing)"
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        if number.is_integer() and abs(number) < 1e15:
            return str(int(number))
        if 1e-4 <= abs(number) < 9e4:
            return f"{number:.5g}"  # no exponent here
        if 9e4 <= abs(number) < 1e15:
            return f"{number:.0f}"  # with all digits before the point
        return f"{number:.4g}"
    text = str(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def percent(share: float) -> str:
    """A share in percent; all and nothing are said of nothing else."""
    text = f"{share:.0%}"
    if text == "100%" and share < 1.0 - _TIE:
        return ">99%"
    return "<1%" if text == "0%" and share > _TIE else text


def named_text(what: str, name: Any = None) -> str:
    """A row or a case, with its name where it has one."""
    return what if name is None else f"{what} [{short(name)}]"


def case_text(found: "Explanation", row: int) -> str:
    """A stored case by its number, and by its name where it has one."""
    return named_text(f"case {row}", None if found.row_names is None else found.row_names[row])


def vote_text(ballot: "Ballot", classes: np.ndarray, query: int) -> str:
    """Who voted for what, and what came of it."""
    counts, shares = ballot.counts[query], ballot.shares[query]
    order = np.argsort(-shares, kind="stable")
    tied = [str(classes[c]) for c in order if shares[order[0]] - shares[c] <= _TIE]
    if ballot.how == "energy":
        text = f"energies give {classes[order[0]]} {percent(shares[order[0]])}"
    else:
        there = [c for c in np.argsort(-counts, kind="stable") if counts[c]]
        most, others = there[0], there[1:]
        noun = "neighbour" if ballot.n_neighbors == 1 else "neighbours"
        are = {c: " is " if counts[c] == 1 else " are " for c in there}
        numbered = any(str(classes[c])[:1] in _FIGURES for c in there)  # "1 3" would be read as 13
        first = f"{counts[most]} of {ballot.n_neighbors} {noun}{are[most]}{classes[most]}"
        more = [f"{counts[c]}{are[c] if numbered else ' '}{classes[c]}" for c in others]
        text = _few([first, *more])
        by = {"distance": ["their nearness"], "linear": ["the trend among them"]}
        reasons = by.get(ballot.how, []) + ["their weights"] * ballot.weighted
        if reasons and others:
            has = " has " if numbered else " "
            told = [f"{classes[order[0]]} has {percent(shares[order[0]])}"]
            told += [f"{classes[c]}{has}{percent(shares[c])}" for c in order[1:] if counts[c]]
            text += f"; weighed by {' and '.join(reasons)}, {_few(told)}"
    if len(tied) > 1:
        text += f"; a tie between {' and '.join(tied)}"
    return text


def _few(parts: list[str]) -> str:
    """The first of some parts of a sentence, with dots for the others."""
    return ", ".join(parts[:_LISTED]) + (", ..." if len(parts) > _LISTED else "")


def leading(parts: np.ndarray, n_features: int) -> tuple[np.ndarray, float | None]:
    """The features with the largest parts, and the sum of the others if there are any."""
    order = np.argsort(-np.abs(parts), kind="stable")
    rest = order[n_features:]
    return order[:n_features], float(parts[rest].sum()) if len(rest) else None


def as_text(found: "Explanation", query: int, n_cases: int = 5, n_features: int = 8) -> str:
    """The vote, the contrast and the nearest cases of one query."""
    i, prediction = query, found.predictions[query]
    who = "" if found.query_names is None else f"row {found.query_names[i]}: "
    first = f"{who}predicted {prediction}, probability {percent(found.top_probability(i))}"
    lines = [first, "", "The vote"]
    several = len(found.ballots) > 1
    for ballot in found.ballots:
        share = f"{ballot.weight:.0%}: " if several else ""
        lines.append(f"  {share}{vote_text(ballot, found.classes, i)}")
    lines += ["", *_contrast_lines(found, i, n_features), "", "Nearest cases"]
    for j in range(min(n_cases, found.neighbors.shape[1])):
        lines += _case_lines(found, i, j)
    return "\n".join(lines)


def _contrast_lines(found: "Explanation", i: int, n_features: int) -> list[str]:
    prediction, rival, parts = found.predictions[i], found.rivals[i], found.contrasts[i]
    top, rest = leading(parts, n_features)
    title = f"Why {prediction} and not {rival}"
    if not np.isfinite(found.margins[i]):
        return [title, f"  {_nothing_to_compare(found, i)}"]
    if found.margins[i] < 0:
        title += f" ({_against(found, i)})"
    width = max([12, *(len(str(found.feature_names[f])) for f in top)]) + 2
    cases = (found.cases_for[i], found.cases_against[i])
    head = [short(f"case {row}") for row in cases]
    classes = [short(str(label), _WIDTH - 1) for label in (prediction, rival)]  # in parentheses
    scale = _scale(found, i)
    lines = [
        title,
        f"  {'':<{width}}{'here':>17}{head[0]:>18}{head[1]:>18}{'for ' + classes[0]:>20}",
        f"  {'':<{width}}{'':>17}{'(' + classes[0] + ')':>18}{'(' + classes[1] + ')':>18}",
    ]
    if found.row_names is not None:
        names = [short(found.row_names[row]) for row in cases]
        lines.insert(2, f"  {'':<{width}}{'':>17}{names[0]:>18}{names[1]:>18}")
    for f in top:
        values = (found.queries[i, f], found.for_values[i, f], found.against_values[i, f])
        here, there, other = (short(value) for value in values)
        name, part = str(found.feature_names[f]), _signed(parts[f], scale)
        lines.append(f"  {name:<{width}}{here:>17}{there:>18}{other:>18}{part:>20}")
    if rest is not None:
        lines.append(f"  {'all others':<{width}}{'':>17}{'':>18}{'':>18}{_signed(rest, scale):>20}")
    lines.append(
        f"  {'squared distances':<{width}}{'':>17}"
        f"{found.for_squared[i]:>18.3g}{found.against_squared[i]:>18.3g}{found.margins[i]:>+20.3g}"
    )
    return lines


def _against(found: "Explanation", i: int) -> str:
    """What is said of a margin below zero."""
    prediction, rival = found.predictions[i], found.rivals[i]
    return f"the nearest {rival} is nearer than the nearest {prediction}: the vote decides"


def _nothing_to_compare(found: "Explanation", i: int) -> str:
    """Where one of the two classes has no case but the row itself."""
    lonely = found.rivals[i] if found.cases_against[i] < 0 else found.predictions[i]
    return f"there is no other case of {lonely} to compare with"


def _scale(found: "Explanation", i: int) -> float:
    """The size of the distances that a contrast is a difference of."""
    return float(max(found.for_squared[i], found.against_squared[i]))


def _signed(part: float, scale: float) -> str:
    """A part of a contrast; what rounding may have left is nothing."""
    return f"{part:+.3g}" if abs(part) > _ROUNDING * scale else "0"


def _case_lines(found: "Explanation", i: int, j: int) -> list[str]:
    squared, parts = found.squared_distances[i, j], found.likeness[i, j]
    name = case_text(found, found.neighbors[i, j])
    title = f"  {name} ({found.labels[i, j]}), distance {squared**0.5:.3g}"
    if squared <= 0.0 or not parts.sum() > 0.0:
        return [f"{title}: nothing sets them apart"]
    top, _ = leading(parts, 3)
    apart = ", ".join(
        f"{found.feature_names[f]} {short(found.queries[i, f])} / "
        f"{short(found.neighbor_values[i, j, f])} ({parts[f] / parts.sum():.0%})"
        for f in top
        if parts[f] > 0.005 * parts.sum()
    )
    return [f"{title}; apart by {apart}"]


def as_html(found: "Explanation", query: int, n_features: int = 8) -> str:
    """A small table: the vote in a line, the contrast with bars."""
    i = query
    head = _html_head(found, i)
    if not np.isfinite(found.margins[i]):
        return f"<div style='{_BOX}'>{head}<br>{escape(_nothing_to_compare(found, i))}</div>"
    top, rest = leading(found.contrasts[i], n_features)
    largest, scale = float(np.abs(found.contrasts[i]).max()) or 1.0, _scale(found, i)
    rows = [
        _bar_row(
            str(found.feature_names[f]),
            [found.queries[i, f], found.for_values[i, f], found.against_values[i, f]],
            float(found.contrasts[i, f]),
            largest,
            scale,
        )
        for f in top
    ]
    if rest is not None:
        rows.append(_bar_row("all others", ["", "", ""], rest, max(largest, abs(rest)), scale))
    prediction, rival = escape(str(found.predictions[i])), escape(str(found.rivals[i]))
    names = "".join(
        f"<th style='text-align:right;padding:2px 8px'>{name}</th>"
        for name in (
            "here",
            f"{escape(case_text(found, found.cases_for[i]))}<br>({prediction})",
            f"{escape(case_text(found, found.cases_against[i]))}<br>({rival})",
        )
    )
    return (
        f"<div style='{_BOX}'>{head}<table style='border-collapse:collapse;margin-top:4px'>"
        f"<tr><th></th>{names}<th style='text-align:left;padding:2px 8px'>"
        f"for {prediction}, against {rival}</th></tr>{''.join(rows)}"
        f"<tr><td></td><td></td><td></td><td></td><td style='padding:2px 8px'>margin "
        f"{found.margins[i]:+.3g}</td></tr></table></div>"
    )


def _html_head(found: "Explanation", i: int) -> str:
    """What is predicted, and the votes."""
    several = len(found.ballots) > 1
    votes = "<br>".join(
        f"{ballot.weight:.0%}: " * several + escape(vote_text(ballot, found.classes, i))
        for ballot in found.ballots
    )
    who = "" if found.query_names is None else escape(f"row {found.query_names[i]}: ")
    against = "<br>" + escape(_against(found, i)) if found.margins[i] < 0 else ""
    probability = escape(percent(found.top_probability(i)))
    prediction = escape(str(found.predictions[i]))
    return f"{who}<b>{prediction}</b>, probability {probability}<br>{votes}{against}"


def _bar_row(name: str, values: list[Any], part: float, largest: float, scale: float) -> str:
    cells = "".join(
        f"<td style='text-align:right;padding:2px 8px'>{escape(short(v)) if v != '' else ''}</td>"
        for v in values
    )
    color = "#0072b2" if part >= 0 else "#d55e00"
    width = round(120 * abs(part) / largest)
    return (
        f"<tr><td style='padding:2px 8px'>{escape(name)}</td>{cells}"
        "<td style='padding:2px 8px'><span style='display:inline-block;height:10px;"
        f"width:{width}px;background:{color}'></span> {_signed(part, scale)}</td></tr>"
    )
