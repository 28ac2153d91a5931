"""How the time of a fit grows with rows, features and basis metrics.

    python benchmarks/growth.py [--over n d m] [--out results/growth.json]

A mixture of Gaussians, a gap of 1e-3, approximate neighbours throughout. The loss is a sum over the
rows, so the penalty grows with them (regularization n / 10,000): every size is the same problem.
Prints the fitted exponents; writes the curves and a picture of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import synthetic
from plml import PLML
from plml.io.files import write_atomically
from plml.stages.pipeline import ANCHORS, METRICS, NEIGHBORS, TRIPLETS, WEIGHTS
from plml_study.paper_pictures import theme
from plml_study.records import provenance
from stopwatch import seconds_of, stage_seconds

SIZES = {
    "n": (10_000, 20_000, 50_000, 100_000, 200_000),
    "d": (16, 32, 64, 128, 256),
    "m": (5, 10, 20, 40),
}
FIXED = {"n": 10_000, "d": 154, "m": 20}
TITLES = {"n": "rows", "d": "features", "m": "basis metrics"}
STAGE_COLORS = {
    NEIGHBORS: "#999999",
    ANCHORS: "#56b4e9",
    WEIGHTS: "#009e73",
    TRIPLETS: "#cc79a7",
    METRICS: "#d55e00",
}


def measure(n: int, d: int, m: int) -> dict[str, Any]:
    """One fit."""
    X, y = synthetic.mixture(n, d)
    model = PLML(
        n_bases=m,
        rescale=False,
        regularization=n / 10_000,
        tol=1e-3,
        neighbor_search="approximate",
        random_state=0,
    )
    with stage_seconds() as times:
        seconds, _ = seconds_of(lambda: model.fit(X, y))
    stages = {name: sum(values) for name, values in times.items()}
    return {
        "n": n,
        "d": d,
        "m": m,
        "fit_seconds": seconds,
        "learning_seconds": stages[WEIGHTS] + stages[METRICS],
        "stages": stages,
        "iterations": [model.weights_n_iter_, model.n_iter_],
        "gaps": [model.weights_gap_, model.dual_gap_],
        "recall": model.neighbor_recall_,
    }


def exponent(rows: list[dict[str, Any]], over: str, what: str) -> float:
    """The slope of log seconds over log size."""
    x, y = (np.log([row[name] for row in rows]) for name in (over, what))
    return float(np.polyfit(x, y, 1)[0])


def draw_growth(curves: dict[str, list[dict[str, Any]]]) -> Figure:
    """Seconds of every stage and of the whole fit over the size, both axes logarithmic.

    Parameters
    ----------
    curves : "n", "d" or "m" -> fits, each with that size, ``stages`` and ``fit_seconds``
    """
    with theme(dark=False):
        figure = Figure(figsize=(3.6 * len(curves), 3.2), layout="constrained")
        axes = figure.subplots(1, len(curves), squeeze=False)[0]
        for ax, (over, rows) in zip(axes, curves.items(), strict=True):
            sizes = [row[over] for row in rows]
            for stage, color in STAGE_COLORS.items():
                seconds = [row["stages"][stage] for row in rows]
                ax.plot(sizes, seconds, color=color, marker="o", ms=3, label=stage)
            whole = [row["fit_seconds"] for row in rows]
            ax.plot(sizes, whole, color="black", marker="s", ms=4, lw=2, label="whole fit")
            ax.set(xscale="log", yscale="log", xlabel=TITLES[over])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--over", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--most", type=float, default=np.inf, help="largest size")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"curves": {}, "exponents": {}}
    for over in options.over:
        rows = found["curves"].setdefault(over, [])
        for size in (size for size in SIZES[over] if size <= options.most):
            rows.append(measure(**{**FIXED, over: size}))
            print(json.dumps(rows[-1]), flush=True)
        found["exponents"][over] = {
            what: exponent(rows, over, what) for what in ("learning_seconds", "fit_seconds")
        }
        print(f"exponents over {over}: {found['exponents'][over]}", flush=True)
        if options.out is not None:
            content = json.dumps({**found, **provenance()}, indent=1) + "\n"
            write_atomically(options.out, content)
    if options.out is not None:
        draw_growth(found["curves"]).savefig(
            options.out.with_suffix(".png"), dpi=150, facecolor="white"
        )


if __name__ == "__main__":
    main()
