"""The race behind ``plml bench``: time of both stages to a certified gap, solver by solver."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from plml.backend.threads import thread_team
from plml.install import install
from plml.io.files import write_atomically
from plml.ops.pairs import PairOperator
from plml.stages.anchors import kmeans_anchors
from plml.stages.graph import SCALE_NEIGHBOR, graph_laplacian, similarity_graph
from plml.stages.metrics import MetricsDual, learn_metrics
from plml.stages.neighbors import ExactNeighbors, euclidean_neighbors
from plml.stages.triplets import Triplets, neighbor_triplets
from plml.stages.weights import WeightProblem, learn_weights
from plml_study import datasets, protocols
from plml_study.judge import judge_metrics, judge_weights
from plml_study.lbfgsb import lbfgsb
from plml_study.records import provenance

DATASETS = ("pendigits", "optdigits", "letter", "usps", "isolet")
REGULARIZATIONS = (0.1, 1.0, 10.0)
SOLVERS = ("fista", "lbfgsb", "auto")
TOL = 1e-3
#: Enough for the paper's algorithm to close the gap nearly everywhere.
MAX_ITER = 5000
N_BASES = 20
LOCALITY, SMOOTHNESS, PULL = 1.0, 100.0, 1.0


class Prepared(NamedTuple):
    """What every solver is given: data, graph, anchors and triplets."""

    X: np.ndarray
    S: Any
    anchors: np.ndarray
    problem: WeightProblem
    triplets: Triplets


def prepare(name: str, data_dir: str | None, seed: int = 0) -> Prepared:
    """The first training part of a data set under the paper's protocol."""
    dataset = datasets.load(name, data_dir)
    X, y, _, _ = protocols.prepared_split(dataset, *next(protocols.splits(dataset, seed)))
    codes = np.unique(y, return_inverse=True)[1]
    S = similarity_graph(*euclidean_neighbors(X, SCALE_NEIGHBOR), 6)
    anchors = kmeans_anchors(X, N_BASES, check_random_state(seed)).centers
    problem = WeightProblem(X, anchors, LOCALITY, SMOOTHNESS, graph_laplacian(S))
    return Prepared(X, S, anchors, problem, neighbor_triplets(ExactNeighbors(X, codes), 3, 3))


def race(
    prepared: Prepared, solver: str, regularization: float, weights: np.ndarray
) -> dict[str, Any]:
    """One solver on one problem: seconds of each stage, and what the judge says of the result.

    Stage 2 is given the same weights whoever solves it, so that all solve the same problem.
    """
    start = perf_counter()
    stage1 = "fista" if solver == "fista" else "auto"
    solution = learn_weights(prepared.problem, solver=stage1, tol=TOL, max_iter=MAX_ITER)
    first = perf_counter()
    M, gamma, n_iter = _stage2(prepared, solver, regularization, weights)
    second = perf_counter()
    of_weights = judge_weights(
        prepared.X, prepared.anchors, solution.x, prepared.S, LOCALITY, SMOOTHNESS
    )
    of_metrics = judge_metrics(
        prepared.X, weights, prepared.triplets, M, gamma, regularization, PULL
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
    prepared: Prepared, solver: str, regularization: float, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    X, triplets = prepared.X, prepared.triplets
    if solver == "lbfgsb":  # SciPy's, from a cold start
        with thread_team() as threads:
            pairs = PairOperator(X - X.mean(axis=0), weights, triplets.pairs, threads)
            dual = MetricsDual(pairs, triplets, regularization, PULL)
            zero = np.zeros(len(triplets.target))
            solution = lbfgsb(dual, zero, bounds=(0.0, 1.0), tol=TOL, max_iter=MAX_ITER)
            return dual.metrics(solution.x), solution.x, solution.n_iter
    metrics = learn_metrics(
        X, weights, triplets, regularization, PULL, solver=solver, tol=TOL, max_iter=MAX_ITER
    )
    return metrics.M, metrics.gamma, metrics.n_iter


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
    for name, regularization, solver, run in _runs(names, regularizations, solvers, data_dir):
        report(f"{name}, regularization {regularization:g}, {solver}", len(rows) / total)
        rows.append({"dataset": name, **run()})
        if out is not None:
            content = {"tol": TOL, "runs": rows, **provenance()}
            write_atomically(out, json.dumps(content, indent=1) + "\n")
    return rows


def _runs(
    names: Sequence[str],
    regularizations: Sequence[float],
    solvers: Sequence[str],
    data_dir: str | None,
) -> Iterator[tuple[str, float, str, Callable[[], dict[str, Any]]]]:
    for name in names:
        prepared = prepare(name, data_dir)
        solution = learn_weights(prepared.problem, solver="auto", tol=TOL, max_iter=MAX_ITER)
        for regularization in regularizations:
            for solver in solvers:
                run = partial(race, prepared, solver, regularization, solution.x)
                yield name, regularization, solver, run


def format_rows(rows: list[dict[str, Any]]) -> str:
    """The race as a table, with the ratio to the paper's algorithm in the same run."""
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
        ratio = base / row["seconds"] if base else float("nan")
        ratios.setdefault(row["solver"], []).append(ratio)
        lines.append(
            f"{row['dataset']:<11}{row['regularization']:>8g}  {row['solver']:<8}"
            f"{row['weights_seconds']:>10.2f}{row['metrics_seconds']:>10.2f}{row['seconds']:>9.2f}"
            f"{row['weights_gap']:>9.1e}{row['metrics_gap']:>9.1e}{ratio:>9.1f}x"
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
        from plml_study.race_picture import draw_race

        figure = draw_race(rows)
    except ImportError:
        print(f"no picture: {install('plots')}")
        return
    write_figure(figure, path)
