"""The race behind ``plml bench``: time of both stages to a certified gap, solver by solver."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from plml.backend.threads import thread_team
from plml.install import install
from plml.io.files import write_atomically
from plml.ops.pairs import PairOperator
from plml.solvers.problem import NO_CHECKPOINT
from plml.stages.graph import similarity_graph
from plml.stages.metrics import MetricsDual
from plml.stages.one_machine import OneMachine
from plml.stages.pipeline import Prepared, Settings, SmoothWeighting, Weights, learn_metrics_of
from plml.stages.run import Run
from plml.stages.triplets import Triplets
from plml.stages.weights import WeightProblem, learn_weights
from plml_study import datasets, protocols
from plml_study.judge import judge_metrics, judge_weights
from plml_study.lbfgsb import lbfgsb
from plml_study.paper_pictures import theme
from plml_study.records import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("pendigits", "optdigits", "letter", "usps", "isolet")
REGULARIZATIONS = (0.1, 1.0, 10.0)
#: Solvers, with their colours in the picture.
_COLORS = {"fista": "#999999", "lbfgsb": "#56b4e9", "auto": "#d55e00"}
SOLVERS = tuple(_COLORS)
TOL = 1e-3
#: Enough for the paper's algorithm to close the gap nearly everywhere.
MAX_ITER = 5000
N_BASES = 20
#: Of stage 2, in the solvers of the library; the paper's values.
SETTINGS = Settings(tol=TOL, max_iter=MAX_ITER)


class RaceProblem(NamedTuple):
    """What every solver is given: the data, and what the pipeline makes of it before a solver."""

    stages: OneMachine
    weighting: SmoothWeighting
    S: Any  # (n, n) sparse similarities
    anchors: np.ndarray
    stage_1: WeightProblem
    triplets: Triplets


def prepare(name: str, data_dir: str | None) -> RaceProblem:
    """The first training part of a data set under the paper's protocol."""
    dataset = datasets.load(name, data_dir)
    X, y, _, _ = protocols.prepared_split(dataset, *next(protocols.splits(dataset)))
    stages = OneMachine(X, np.unique(y, return_inverse=True)[1], "exact")
    weighting = SmoothWeighting(N_BASES, random_state=0)
    graph = stages.graph(weighting.n_graph_neighbors, NO_CHECKPOINT)
    anchors, _ = stages.anchors(weighting.n_bases, weighting.random_state, NO_CHECKPOINT)
    return RaceProblem(
        stages,
        weighting,
        similarity_graph(*graph, weighting.n_graph_neighbors),
        anchors,
        stages.weight_problem(graph, anchors, weighting),
        stages.triplets(SETTINGS.n_targets, SETTINGS.n_impostors, NO_CHECKPOINT),
    )


def race(
    problem: RaceProblem, solver: str, regularization: float, weights: np.ndarray
) -> dict[str, Any]:
    """One solver on one problem: seconds of each stage, and what the judge says of the result.

    Stage 2 is given the same weights whoever solves it, so that all solve the same problem.
    """
    start = perf_counter()
    stage1 = "fista" if solver == "fista" else "auto"
    solution = learn_weights(problem.stage_1, solver=stage1, tol=TOL, max_iter=MAX_ITER)
    first = perf_counter()
    M, gamma, n_iter = _stage2(problem, solver, regularization, weights)
    second = perf_counter()
    X, weighting = problem.stages.X, problem.weighting
    of_weights = judge_weights(
        X, problem.anchors, solution.x, problem.S, weighting.locality, weighting.smoothness
    )
    of_metrics = judge_metrics(
        X, weights, problem.triplets, M, gamma, regularization, SETTINGS.pull
    )
    return {
        "solver": solver,
        "regularization": regularization,
        "weights_seconds": first - start,
        "metrics_seconds": second - first,
        "seconds": second - start,
        "weights_iterations": solution.n_iter,
        "metrics_iterations": n_iter,
        "weights_objective": of_weights.objective,
        "weights_gap": of_weights.gap,
        "metrics_objective": of_metrics.objective,
        "metrics_gap": of_metrics.gap,
    }


def _stage2(
    problem: RaceProblem, solver: str, regularization: float, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    X, triplets = problem.stages.X, problem.triplets
    if solver != "lbfgsb":
        settings = replace(SETTINGS, regularization=regularization, solver=solver)
        prepared = Prepared(Weights(weights), triplets, {})
        metrics = learn_metrics_of(problem.stages, prepared, settings, Run())
        return metrics.M, metrics.gamma, metrics.n_iter
    with thread_team() as threads:  # SciPy on the same dual, from a cold start
        pairs = PairOperator(X - X.mean(axis=0), weights, triplets.pairs, threads)
        dual = MetricsDual(pairs, triplets, regularization, SETTINGS.pull)
        zero = np.zeros(len(triplets.target))
        solution = lbfgsb(dual, zero, bounds=(0.0, 1.0), tol=TOL, max_iter=MAX_ITER)
        return dual.metrics(solution.x), solution.x, solution.n_iter


def bench(
    names: Sequence[str],
    regularizations: Sequence[float],
    solvers: Sequence[str],
    data_dir: str | None,
    out: Path | None,
    report: Callable[[str, float], Any],
) -> list[dict[str, Any]]:
    """Every solver on every problem; what is there so far is written after each."""
    rows: list[dict[str, Any]] = []
    total = len(names) * len(regularizations) * len(solvers)
    for name in names:
        problem = prepare(name, data_dir)
        weights = learn_weights(problem.stage_1, solver="auto", tol=TOL, max_iter=MAX_ITER).x
        for regularization, solver in product(regularizations, solvers):
            report(f"{name}, regularization {regularization:g}, {solver}", len(rows) / total)
            rows.append({"dataset": name, **race(problem, solver, regularization, weights)})
            if out is not None:
                content = {"tol": TOL, "runs": rows, **provenance()}
                write_atomically(out, json.dumps(content, indent=1) + "\n")
    return rows


def format_rows(rows: list[dict[str, Any]]) -> str:
    """The race as a table, with the ratio to the paper's algorithm if it took part."""
    reference = {
        (row["dataset"], row["regularization"]): row["seconds"]
        for row in rows
        if row["solver"] == "fista"
    }
    head = f"{'data set':<11}{'alpha_1':>8}  {'solver':<8}{'stage 1 s':>10}{'stage 2 s':>10}"
    lines = [head + f"{'total s':>9}{'gap 1':>9}{'gap 2':>9}{'speed-up':>10}"]
    ratios: dict[str, list[float]] = {}
    for row in rows:
        base = reference.get((row["dataset"], row["regularization"]))
        if base and row["solver"] != "fista":
            ratios.setdefault(row["solver"], []).append(base / row["seconds"])
        lines.append(
            f"{row['dataset']:<11}{row['regularization']:>8g}  {row['solver']:<8}"
            f"{row['weights_seconds']:>10.2f}{row['metrics_seconds']:>10.2f}{row['seconds']:>9.2f}"
            f"{row['weights_gap']:>9.1e}{row['metrics_gap']:>9.1e}"
            + (f"{base / row['seconds']:>9.1f}x" if base else f"{'-':>10}")
        )
    for solver, values in ratios.items():
        mean = float(np.exp(np.mean(np.log(values))))
        lines.append(
            f"{solver}: {mean:.1f} times faster than fista (geometric mean), at least "
            f"{min(values):.1f}"
        )
    return "\n".join(lines)


def write_picture(rows: list[dict[str, Any]], path: Path) -> None:
    """The race as bars, where matplotlib is installed."""
    try:
        from plml.inspection.style import write_figure

        figure = draw_race(rows)
    except ImportError:
        print(f"no picture: {install('plots')}")
        return
    write_figure(figure, path)


def draw_race(rows: list[dict[str, Any]]) -> "Figure":
    """Seconds of both stages to the certified gap, solver by solver, on every problem."""
    from matplotlib.figure import Figure

    seconds: dict[str, dict[tuple[str, float], float]] = {}
    for row in rows:
        problem = row["dataset"], row["regularization"]
        seconds.setdefault(row["solver"], {})[problem] = row["seconds"]
    problems = list(dict.fromkeys(chain.from_iterable(seconds.values())))
    solvers = [solver for solver in _COLORS if solver in seconds]
    with theme(dark=False):
        figure = Figure(figsize=(1.8 + 0.55 * len(problems), 3.4), layout="constrained")
        ax = figure.subplots()
        width = 0.8 / len(solvers)
        for number, solver in enumerate(solvers):
            places = np.arange(len(problems)) + width * (number - 0.5 * (len(solvers) - 1))
            heights = [seconds[solver].get(problem, np.nan) for problem in problems]
            ax.bar(places, heights, width, color=_COLORS[solver], label=solver)
        labels = [f"{dataset}\n{regularization:g}" for dataset, regularization in problems]
        ax.set_xticks(range(len(problems)), labels, rotation=60)
        ax.set(yscale="log", ylabel="seconds to a gap of 0.001")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, ncols=3, loc="upper left")
        return figure
