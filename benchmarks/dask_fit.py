"""The fit on two Dask workers against the fit on one machine.

    python benchmarks/dask_fit.py [--out results/dask.json] same letter mnist [--tol 1e-5]
    python benchmarks/dask_fit.py overhead [--rows 200000 400000]
    python benchmarks/dask_fit.py bytes [--sizes 12500 25000 50000]
    python benchmarks/dask_fit.py landmarks mnist [--numbers 30000 15000 7500]
    python benchmarks/dask_fit.py --out results/dask.json model

``same``: with exact neighbours the objective and the predictions of the two, at a gap of 1e-5; with
the distributed graph (nearest cells) the accuracy, at the default gap. ``overhead``: seconds of
both on a mixture of Gaussians that is in memory, one after the other on the same two cores.
``bytes``: what workers send in an iteration of stage 2, at several sizes. ``landmarks``: what
stage 1 loses when it is learned on some of the rows. ``model``: what these measurements predict for
10^8 rows, 256 features and 100 workers.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from sklearn.preprocessing import StandardScaler

import synthetic
from plml import PLML
from plml.dask import fit
from plml.dask.fitting import fit_on_cluster
from plml.dask.landmarks import FEWEST_LANDMARKS, MOST_LANDMARKS
from plml.io.files import write_atomically
from plml.stages.graph import graph_laplacian, n_nearest, similarity_graph
from plml.stages.neighbors import ExactNeighbors
from plml.stages.pipeline import METRICS, Settings, SmoothWeighting
from plml.stages.run import Run
from plml.stages.weights import WeightProblem, row_terms
from plml_study import datasets
from plml_study.records import provenance
from raw_mnist import raw_mnist
from stopwatch import seconds_of


@contextmanager
def two_workers():
    """One thread each."""
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        yield client


def blocks(X: np.ndarray, y: np.ndarray, n: int = 4) -> tuple[Any, Any]:
    """Dask arrays whose blocks are on the workers."""
    rows = -(-len(X) // n)
    arrays = da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)
    return tuple(array.persist() for array in arrays)


def split(name: str) -> tuple[np.ndarray, ...]:
    """Training and test part."""
    if name == "mnist":
        return raw_mnist(None)
    data = datasets.load(name)
    order = np.random.default_rng(0).permutation(len(data.X))
    train, test = order[: 4 * len(order) // 5], order[4 * len(order) // 5 :]
    scaler = StandardScaler().fit(data.X[train])
    X, Q = (scaler.transform(data.X[rows]) for rows in (train, test))
    return X, data.y[train], Q, data.y[test]


def same(name: str, tol: float) -> dict[str, Any]:
    """Both fits with the same graph, and the distributed one with its own."""
    X, y, Q, labels = split(name)
    exact = {"rescale": False, "random_state": 0, "neighbor_search": "exact", "max_iter": 5000}
    here_seconds, here = seconds_of(lambda: PLML(tol=tol, **exact).fit(X, y))
    usual = PLML(**exact).fit(X, y)
    with two_workers():
        there_seconds, there = seconds_of(lambda: PLML(tol=tol, **exact).fit(*blocks(X, y)))
        agree = float(np.mean(here.predict(Q) == there.predict(Q)))
        weights = float(np.abs(here.weights_ - there.weights_.compute()).max())
        cells = PLML(rescale=False, random_state=0, neighbor_search="approximate").fit(
            *blocks(X, y)
        )
        accuracies = [float(np.mean(model.predict(Q) == labels)) for model in (usual, cells)]
    return {
        "rows": len(X),
        "features": X.shape[1],
        "tol": tol,
        "objectives": [here.objective_, there.objective_],
        "relative_difference": abs(here.objective_ - there.objective_) / here.objective_,
        "gaps": [[m.weights_gap_, m.dual_gap_] for m in (here, there)],
        "iterations": [[m.weights_n_iter_, m.n_iter_] for m in (here, there)],
        "largest_difference_of_weights": weights,
        "same_predictions": agree,
        "seconds": [here_seconds, there_seconds],
        "accuracy_exact_graph_one_machine": accuracies[0],
        "accuracy_distributed_graph": accuracies[1],
        "recall_distributed_graph": cells.neighbor_recall_,
    }


def on_landmarks(name: str, numbers: list[int]) -> list[dict[str, Any]]:
    """Equation 4 on all rows, and the model, with weights learned on fewer and fewer of them."""
    X, y, Q, labels = split(name)
    neighbors = ExactNeighbors(X, y)
    everything: Any = None
    found = []
    with two_workers():
        for n_landmarks in (len(X), *numbers):
            model = PLML(rescale=False, random_state=0, neighbor_search="exact")
            seconds, _ = seconds_of(
                lambda model=model, n=n_landmarks: fit(model, *blocks(X, y), n_landmarks=n)
            )
            weights, predictions = model.weights_.compute(), model.predict(Q)
            if everything is None:
                squared, near = neighbors.graph(n_nearest(model.n_graph_neighbors))
                L = graph_laplacian(similarity_graph(squared, near, model.n_graph_neighbors))
                terms = row_terms(X, model.anchors_, model.locality)
                problem = WeightProblem(terms, model.anchors_, model.smoothness, L)
                everything = problem.evaluate(weights).value, weights, predictions
            found.append(
                {
                    "landmarks": n_landmarks,
                    "excess_of_equation_4": float(
                        problem.evaluate(weights).value / everything[0] - 1.0
                    ),
                    "mean_difference_of_weights": float(
                        np.abs(weights - everything[1]).sum(axis=1).mean()
                    ),
                    "objective": model.objective_,
                    "accuracy": float(np.mean(predictions == labels)),
                    "same_predictions": float(np.mean(predictions == everything[2])),
                    "stage_1_seconds": float(model.history_["weights"]["seconds"][-1]),
                    "seconds": seconds,
                }
            )
            print(json.dumps(found[-1]), flush=True)
    return found


def mixture_model(n: int) -> PLML:
    """As in benchmarks/growth.py: the penalty grows with the rows, so sizes are alike."""
    return PLML(
        regularization=n / 10_000, rescale=False, neighbor_search="approximate", random_state=0
    )


def overhead(n: int) -> dict[str, Any]:
    """Seconds of both; where the workers would learn the weights on landmarks, also on all rows."""
    X, y = synthetic.mixture(n)
    here_seconds, here = seconds_of(lambda: mixture_model(n).fit(X, y))
    on_all_rows = {}
    with two_workers():
        parts = blocks(X, y)
        there_seconds, there = seconds_of(lambda: mixture_model(n).fit(*parts))
        stages = {name: float(history["seconds"][-1]) for name, history in there.history_.items()}
        if n > MOST_LANDMARKS:
            seconds, _ = seconds_of(lambda: fit(mixture_model(n), *parts, n_landmarks=n))
            on_all_rows = {"seconds_all_rows": seconds, "ratio_all_rows": seconds / here_seconds}
    return {
        "rows": n,
        "features": X.shape[1],
        "landmarks": min(n, MOST_LANDMARKS),
        "seconds": [here_seconds, there_seconds],
        "ratio": there_seconds / here_seconds,
        **on_all_rows,
        "solver_seconds_one_machine": {
            name: float(history["seconds"][-1]) for name, history in here.history_.items()
        },
        "solver_seconds_distributed": stages,
        "iterations": [[m.weights_n_iter_, m.n_iter_] for m in (here, there)],
        "objectives": [here.objective_, there.objective_],
        "recall": [here.neighbor_recall_, there.neighbor_recall_],
    }


class Traffic:
    """Bytes that workers have sent at the certified iterations of a stage."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: dict[str, list[tuple[int, int, float]]] = {}

    @contextmanager
    def observe(self, stage: str, show: Callable[[Any], bool]) -> Iterator[Callable[[Any], bool]]:
        """The callback of a solver, as ``Run`` wants it."""
        yield lambda record: (self.note(stage, record.iteration), show(record))[1]

    def note(self, stage: str, iteration: int) -> None:
        """What has been sent so far."""
        sent = self.client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        entry = (iteration, sum(sent.values()), perf_counter())
        self.seen.setdefault(stage, []).append(entry)

    def per_iteration(self, stage: str) -> dict[str, float]:
        """Between the first and the last look."""
        (first, bytes_before, begun), (last, bytes_after, ended) = (
            self.seen[stage][number] for number in (1, -1)
        )
        n = max(last - first, 1)
        return {"bytes": (bytes_after - bytes_before) / n, "seconds": (ended - begun) / n}


def traffic(n: int) -> dict[str, Any]:
    """Of one fit."""
    X, y = synthetic.mixture(n)
    with two_workers() as client:
        watch = Traffic(client)
        fitted = fit_on_cluster(
            *blocks(X, y),
            SmoothWeighting(random_state=0),
            Settings(regularization=n / 10_000),
            Run(observe=watch.observe),
            neighbor_search="approximate",
        )
        m, d = len(fitted.learned.metrics.M), X.shape[1]
    return {
        "rows": n,
        "features": d,
        "stage_2": watch.per_iteration(METRICS),
        "m_d_d_float64_bytes": 8 * m * d * d,
    }


#: Assumptions of the prediction.
WORKERS, CORES, NETWORK, TASK = 100, 16, 1.25e9, 1e-3  # bytes and tasks per second
SHARDS = 4 * WORKERS
ROWS, FEATURES, BASES = 10**8, 256, 20
#: Rows of the overhead run that the seconds are from; stage 1 is on all of them.
BASIS = 200_000
#: Bytes of a row in stage 2 besides its features: six pairs and nine triplets with their places in
#: the operator, gammas and gradients of two points in float64, ten pairs of vectors in float32.
ROW_BYTES = 6 * 64 + 9 * 24 + 4 * 9 * 8 + 20 * 9 * 4
HALO = 1.3  # rows of a shard with those that it reads of others, more where shards are small
LANDMARK_SHARDS = MOST_LANDMARKS // FEWEST_LANDMARKS
#: Neighbours of a landmark, squared distance and number each, and what else goes to the driver.
LANDMARK_BYTES = 16 * 7 + 8 * (BASES + 2)
#: Sums that a task adds up.
FAN = 8


def predicted(known: dict[str, Any]) -> dict[str, Any]:
    """Seconds, bytes and memory of a fit of ROWS x FEATURES on WORKERS.

    Core seconds per row and iteration are those measured; products grow with d^2, searches with
    d sqrt(n), the rest not at all. Messages take the network's time for their bytes and the
    scheduler's for their number. All rows are searched twice, among all and among the landmarks;
    in the worst case every shard looks into every other. Stage 1 is on the driver, which is a
    machine like the workers. A worker holds its rows in float32 with their weights, and both again
    with those it reads of others in the operator of stage 2.
    """
    run = known["overhead"][str(BASIS)]
    n, d = run["rows"], run["features"]
    n_weights, n_metrics = run["iterations"][1]
    seconds = run["solver_seconds_distributed"]
    rest = run["seconds"][1] - sum(seconds.values())
    a_row = {name: 2.0 * value / n for name, value in (*seconds.items(), ("search", rest))}
    cores = WORKERS * CORES
    wide = FEATURES / d
    sums = 8.0 * BASES * FEATURES**2
    weights = a_row["weights"] / n_weights * MOST_LANDMARKS / CORES
    to_driver = MOST_LANDMARKS * LANDMARK_BYTES
    extension = a_row["weights"] * ROWS / cores
    metrics = a_row["metrics"] / n_metrics * wide**2 * ROWS / cores
    levels = np.ceil(np.log(SHARDS) / np.log(FAN))
    metrics += (FAN * levels + 2 + np.log2(WORKERS)) * sums / NETWORK + 6.2 * SHARDS * TASK
    search = 2.0 * a_row["search"] * wide * np.sqrt(ROWS / n) * ROWS / cores
    search += 2 * SHARDS * (SHARDS + LANDMARK_SHARDS) * TASK
    a_copy = 4.0 * (FEATURES + BASES)
    whole = search + extension + n_weights * weights + to_driver / NETWORK + n_metrics * metrics
    return {
        "searches_seconds": search,
        "extension_seconds": extension,
        "stage_1_seconds_an_iteration": weights,
        "stage_1_megabytes_to_the_driver": to_driver / 1e6,
        "stage_2_seconds_an_evaluation": metrics,
        "stage_2_megabytes_a_sum": sums / 1e6,
        "gigabytes_a_worker": ROWS / WORKERS * (a_copy + HALO * (a_copy + ROW_BYTES)) / 1e9,
        "iterations": [n_weights, n_metrics],
        "fit_hours": whole / 3600,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    what = parser.add_subparsers(dest="what", required=True)
    command = what.add_parser("same")
    command.add_argument("names", nargs="+")
    command.add_argument("--tol", type=float, default=1e-5)
    command = what.add_parser("overhead")
    command.add_argument("--rows", type=int, nargs="+", default=[BASIS])
    command = what.add_parser("bytes")
    command.add_argument("--sizes", type=int, nargs="+", default=[12_500, 25_000, 50_000])
    command = what.add_parser("landmarks")
    command.add_argument("name")
    command.add_argument("--numbers", type=int, nargs="+", default=[30_000, 15_000, 7_500])
    what.add_parser("model")
    options = parser.parse_args()
    if options.what == "same":
        for name in options.names:
            keep(options, {name: same(name, options.tol)})
    elif options.what == "overhead":
        for n in options.rows:
            keep(options, {str(n): overhead(n)})
    elif options.what == "landmarks":
        keep(options, {options.name: on_landmarks(options.name, options.numbers)})
    elif options.what == "model":
        keep(options, predicted(json.loads(options.out.read_text())))
    else:
        found = []
        for n in options.sizes:
            found.append(traffic(n))
            keep(options, found)


def keep(options: argparse.Namespace, found: Any) -> None:
    """Print, and write where it was asked for; what is known of other data sets stays."""
    print(json.dumps(found, indent=1), flush=True)
    if options.out is None:
        return
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    origin = provenance()
    if options.what in ("same", "landmarks", "overhead"):
        new, found = found, {**known.get(options.what, {}), **found}
        origins = known.get(f"{options.what}_provenance", {})
        origin = {**origins, **dict.fromkeys(new, origin)}
    known |= {options.what: found, f"{options.what}_provenance": origin}
    write_atomically(options.out, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
