"""The paper's claims, each with the evidence that a study found."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plml_study import paper
from plml_study.figures import Curve
from plml_study.result_tables import ResultTable
from plml_study.statistics import mcnemar

_LOCAL_BASELINES = ("CBLML", "LMNNMM", "GLML")


class Claim(NamedTuple):
    """A sentence of the paper, whether it holds here, and what was found."""

    sentence: str
    holds: bool | None  # None: not everything it needs was run
    evidence: str


def claims(table: ResultTable | None, curves: Mapping[tuple[str, str], Curve]) -> list[Claim]:
    """The three claims of the paper, where there is a table and there are curves to judge by."""
    found = [] if table is None else [highest_total(table), beats_local_baselines(table)]
    return [*found, does_not_overfit(curves)] if curves else found


def highest_total(table: ResultTable, datasets: Sequence[str] = paper.DATASETS) -> Claim:
    """The ranking over all data sets."""
    sentence = "PLML has the highest total score."
    totals = {method: table.total(method) for method in table.methods}
    known = {method: total for method, total in totals.items() if total is not None}
    order = sorted(known, key=lambda method: -known[method])
    evidence = ", ".join(f"{paper.title(method)} {known[method]:g}" for method in order)
    whole = set(table.methods) >= set(paper.METHODS) and set(table.datasets) >= set(datasets)
    if not whole or not table.complete:
        return Claim(sentence, None, evidence)  # a missing method would have moved the scores
    best_other = max(total for method, total in known.items() if method != "PLML")
    return Claim(sentence, known["PLML"] > best_other, evidence)


def beats_local_baselines(table: ResultTable, datasets: Sequence[str] = paper.DATASETS) -> Claim:
    """McNemar's test against every other local method on every data set."""
    sentence = (
        "PLML is significantly better than CBLML, LMNN-MM and GLML on every data set "
        "(McNemar, p < 0.05)."
    )
    outcomes: list[str] = []
    exceptions: dict[str, list[str]] = {"=": [], "-": []}
    for dataset in datasets:
        ours = table.get(dataset, "PLML")
        for method in _LOCAL_BASELINES:
            other = table.get(dataset, method)
            if ours is None or other is None:
                continue
            test = mcnemar(ours.correct, other.correct)
            outcomes.append(test.sign())
            if test.sign() != "+":
                name = f"{paper.title(method)} on {paper.dataset_title(dataset)}"
                figures = f"{ours.accuracy:.2f} against {other.accuracy:.2f}"
                exceptions[test.sign()].append(f"{name} ({figures}, p = {test.p_value:.2g})")
    if not outcomes:
        return Claim(sentence, None, "")
    evidence = f"significantly better in {outcomes.count('+')} of {len(outcomes)} comparisons"
    for sign, words in {"=": "no different from", "-": "worse than"}.items():
        if exceptions[sign]:
            evidence += f"; {words} " + ", ".join(exceptions[sign])
    if len(outcomes) < len(datasets) * len(_LOCAL_BASELINES):
        return Claim(sentence, None, evidence)
    return Claim(sentence, outcomes.count("+") == len(outcomes), evidence)


def does_not_overfit(
    curves: Mapping[tuple[str, str], Curve], datasets: Sequence[str] = paper.DATASETS
) -> Claim:
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
            f"{paper.dataset_title(name)} {curve.fall:.2f}" + "*" * curve.falls_significantly
            for name, curve in by_dataset.items()
        )
        parts.append(f"{method}: {listed}")
    holds: bool | None = not any(c.falls_significantly for c in falls["PLML"].values()) and any(
        c.falls_significantly for c in falls["CBLML"].values()
    )
    if any(set(by_dataset) < set(datasets) for by_dataset in falls.values()):
        holds = None
    largest = paper.FIGURE_2[-1]
    evidence = f"points below the best number of bases at {largest} (* significant): "
    return Claim(sentence, holds, evidence + "; ".join(parts))
