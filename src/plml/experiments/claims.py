"""The paper's claims, each with the evidence that a study found."""

from collections.abc import Mapping
from typing import NamedTuple

from plml.experiments import paper
from plml.experiments.figures import Curve
from plml.experiments.statistics import mcnemar
from plml.experiments.tables import Table

_LOCAL_BASELINES = ("CBLML", "LMNNMM", "GLML")


class Claim(NamedTuple):
    """A sentence of the paper, whether it holds here, and what was found."""

    sentence: str
    holds: bool | None  # None: not everything it needs was run
    evidence: str


def claims(table: Table | None, curves: Mapping[tuple[str, str], Curve]) -> list[Claim]:
    """All three."""
    found = [] if table is None else [highest_total(table), beats_local_baselines(table)]
    return [*found, does_not_overfit(curves)] if curves else found


def highest_total(table: Table) -> Claim:
    """The ranking over all data sets."""
    sentence = "PLML has the highest total score."
    totals = {method: table.total(method) for method in table.methods}
    known = {method: total for method, total in totals.items() if total is not None}
    order = sorted(known, key=lambda method: -known[method])
    evidence = ", ".join(f"{paper.title(method)} {known[method]:g}" for method in order)
    if "PLML" not in known or len(known) < 2 or not table.complete:
        return Claim(sentence, None, evidence)  # a missing method would have moved the scores
    best_other = max(total for method, total in known.items() if method != "PLML")
    return Claim(sentence, known["PLML"] > best_other, evidence)


def beats_local_baselines(table: Table) -> Claim:
    """McNemar's test against every other local method on every data set."""
    sentence = (
        "PLML is significantly better than CBLML, LMNN-MM and GLML on every data set "
        "(McNemar, p < 0.05)."
    )
    outcomes: list[str] = []
    exceptions: list[str] = []
    for dataset in table.datasets:
        ours = table.get(dataset, "PLML")
        for method in _LOCAL_BASELINES:
            other = table.get(dataset, method)
            if ours is None or other is None:
                continue
            test = mcnemar(ours.correct, other.correct)
            outcomes.append(test.sign())
            if test.sign() != "+":
                exceptions.append(
                    f"{paper.title(method)} on {dataset.capitalize()} ({ours.accuracy:.2f} against "
                    f"{other.accuracy:.2f}, p = {test.p_value:.2g})"
                )
    if not outcomes:
        return Claim(sentence, None, "")
    evidence = f"significantly better in {outcomes.count('+')} of {len(outcomes)} comparisons"
    if exceptions:
        evidence += "; not against " + ", ".join(exceptions)
    return Claim(sentence, not exceptions, evidence)


def does_not_overfit(curves: Mapping[tuple[str, str], Curve]) -> Claim:
    """The fall from the best number of bases to the largest, for both methods."""
    sentence = "PLML does not overfit as the number of basis metrics grows, while CBLML does."
    falls: dict[str, dict[str, Curve]] = {"PLML": {}, "CBLML": {}}
    for (dataset, method), curve in curves.items():
        if curve.n_bases[-1] == paper.FIGURE_2[-1]:
            falls[method][dataset] = curve
    if not falls["PLML"] or not falls["CBLML"]:
        return Claim(sentence, None, "")
    parts = []
    for method, by_dataset in falls.items():
        listed = ", ".join(
            f"{name.capitalize()} {curve.fall:.2f}{'*' if curve.falls_significantly else ''}"
            for name, curve in by_dataset.items()
        )
        parts.append(f"{method}: {listed}")
    holds = not any(c.falls_significantly for c in falls["PLML"].values()) and any(
        c.falls_significantly for c in falls["CBLML"].values()
    )
    largest = paper.FIGURE_2[-1]
    evidence = f"points below the best number of bases at {largest} (* significant): "
    return Claim(sentence, holds, evidence + "; ".join(parts))
