"""Pictures of the benchmarks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from plml_study.paper_pictures import theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STAGE_COLORS = {
    "graph": "#999999",
    "anchors": "#56b4e9",
    "weights": "#009e73",
    "triplets": "#cc79a7",
    "metrics": "#d55e00",
}
_SOLVER_COLORS = {"fista": "#999999", "lbfgsb": "#56b4e9", "auto": "#d55e00"}
_TITLES = {"n": "rows", "d": "features", "m": "basis metrics"}


def draw_growth(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """Seconds of every stage and of the whole fit over the size, both axes logarithmic.

    Parameters
    ----------
    curves : "n", "d" or "m" -> fits, each with that size, ``stages`` and ``fit_seconds``
    """
    from matplotlib.figure import Figure

    with theme(dark=False):
        figure = Figure(figsize=(3.6 * len(curves), 3.2), layout="constrained")
        axes = figure.subplots(1, len(curves), squeeze=False)[0]
        for ax, (over, rows) in zip(axes, curves.items(), strict=True):
            sizes = [row[over] for row in rows]
            for stage, color in _STAGE_COLORS.items():
                seconds = [row["stages"][stage] for row in rows]
                ax.plot(sizes, seconds, color=color, marker="o", ms=3, label=stage)
            whole = [row["fit_seconds"] for row in rows]
            ax.plot(sizes, whole, color="black", marker="s", ms=4, lw=2, label="whole fit")
            ax.set(xscale="log", yscale="log", xlabel=_TITLES[over])
            ax.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
            ax.minorticks_off()
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("seconds")
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=6,
            frameon=False,
        )
        return figure


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
