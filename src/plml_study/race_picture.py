"""The picture of ``plml bench``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plml_study.paper_pictures import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SOLVER_COLORS = {"fista": "#999999", "lbfgsb": "#56b4e9", "auto": "#d55e00"}


def draw_race(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Seconds of both stages to the certified gap, solver by solver, on every problem.

    Parameters
    ----------
    rows : runs of the race, each with ``dataset``, ``regularization``, ``solver``, ``seconds``
    """
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys((row["dataset"], row["regularization"]) for row in rows))
    solvers = [solver for solver in _SOLVER_COLORS if any(r["solver"] == solver for r in rows)]
    with theme(dark=False):
        figure = Figure(figsize=(1.8 + 0.55 * len(problems), 3.4), layout="constrained")
        ax = figure.subplots()
        width = 0.8 / len(solvers)
        for number, solver in enumerate(solvers):
            seconds = {
                (r["dataset"], r["regularization"]): r["seconds"]
                for r in rows
                if r["solver"] == solver
            }
            places = np.arange(len(problems)) + width * (number - 0.5 * (len(solvers) - 1))
            heights = [seconds.get(problem, np.nan) for problem in problems]
            ax.bar(places, heights, width, color=_SOLVER_COLORS[solver], label=solver)
        labels = [f"{dataset}\n{regularization:g}" for dataset, regularization in problems]
        ax.set_xticks(range(len(problems)), labels, rotation=60)
        ax.set(yscale="log", ylabel="seconds to a gap of 0.001")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, ncols=3, loc="upper left")
        return figure
