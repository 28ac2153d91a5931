"""The fit on two Dask workers against the fit on one machine.

    python benchmarks/dask_fit.py [--out results/dask.json] same letter mnist [--tol 1e-5]
    python benchmarks/dask_fit.py overhead [--rows 200000]
    python benchmarks/dask_fit.py bytes [--sizes 12500 25000 50000]
    python benchmarks/dask_fit.py --out results/dask.json model

``same``: with exact neighbours the objective and the predictions of the two, at a gap of 1e-5; with
the distributed graph (nearest cells) the accuracy, at the default gap. ``overhead``: seconds of
both on a mixture of Gaussians that is in memory, one after the other on the same two cores.
``bytes``: what an iteration of stage 1 and of stage 2 moves between the workers, at several sizes.
``model``: what these measurements predict for 10^8 rows, 256 features and 100 workers.
"""

import argparse
import json
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from sklearn.preprocessing import StandardScaler

from plml import PLML
from plml.experiments import datasets, protocols, synthetic
from plml.experiments.records import provenance
from plml.experiments.stopwatch import seconds_of
from plml.files import write_atomically


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
        return protocols.raw_mnist(None)
    data = datasets.load(name)
    order = np.random.default_rng(0).permutation(len(data.X))
    train, test = order[: 4 * len(order) // 5], order[4 * len(order) // 5 :]
    scaler = StandardScaler().fit(data.X[train])
    X, Q = (scaler.transform(data.X[rows]) for rows in (train, test))
    return X, data.y[train], Q, data.y[test]


def same(name: str, tol: float) -> dict[str, Any]:
    """Both fits with the same graph, and the distributed one with its own."""
    X, y, Q, labels = split(name)
    exact = {"random_state": 0, "neighbor_search": "exact", "max_iter": 5000}
    here_seconds, here = seconds_of(lambda: PLML(tol=tol, **exact).fit(X, y))
    usual = PLML(**exact).fit(X, y)
    with two_workers():
        there_seconds, there = seconds_of(lambda: PLML(tol=tol, **exact).fit(*blocks(X, y)))
        agree = float(np.mean(here.predict(Q) == there.predict(Q)))
        weights = float(np.abs(here.weights_ - there.weights_.compute()).max())
        cells = PLML(random_state=0, neighbor_search="approximate").fit(*blocks(X, y))
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


def mixture_model(n: int) -> PLML:
    """As in benchmarks/growth.py: the penalty grows with the rows, so sizes are alike."""
    return PLML(regularization=n / 10_000, neighbor_search="approximate", random_state=0)


def overhead(n: int) -> dict[str, Any]:
    """Seconds of both."""
    X, y = synthetic.mixture(n)
    here_seconds, here = seconds_of(lambda: mixture_model(n).fit(X, y))
    with two_workers():
        parts = blocks(X, y)
        there_seconds, there = seconds_of(lambda: mixture_model(n).fit(*parts))
        stages = {name: float(its["seconds"][-1]) for name, its in there.history_.items()}
    return {
        "rows": n,
        "features": X.shape[1],
        "seconds": [here_seconds, there_seconds],
        "ratio": there_seconds / here_seconds,
        "solver_seconds_one_machine": {
            name: float(its["seconds"][-1]) for name, its in here.history_.items()
        },
        "solver_seconds_distributed": stages,
        "iterations": [[m.weights_n_iter_, m.n_iter_] for m in (here, there)],
        "objectives": [here.objective_, there.objective_],
        "recall": [here.neighbor_recall_, there.neighbor_recall_],
    }


class Traffic:
    """Bytes between workers at the certified iterations of a stage."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: dict[str, list[tuple[int, int, float]]] = {}

    def note(self, stage: str, iteration: int) -> None:
        """What has been moved so far."""
        moved = self.client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        entry = (iteration, sum(moved.values()), perf_counter())
        self.seen.setdefault(stage, []).append(entry)

    def an_iteration(self, stage: str) -> dict[str, float]:
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
        model, stage = mixture_model(n), PLML._stage

        @contextmanager
        def watched(self: PLML, name: str, tol: float):
            with stage(self, name, tol) as callback:
                yield lambda r: (watch.note(name, r.iteration), callback(r))[1]

        PLML._stage = watched
        try:
            model.fit(*blocks(X, y))
        finally:
            PLML._stage = stage
    m, d = len(model.basis_metrics_), X.shape[1]
    return {
        "rows": n,
        "features": d,
        "stage_1": watch.an_iteration("stage 1, weights"),
        "stage_2": watch.an_iteration("stage 2, metrics"),
        "m_d_d_float64_bytes": 8 * m * d * d,
    }


#: Assumptions of the prediction.
WORKERS, CORES, NETWORK, TASK = 100, 16, 1.25e9, 1e-3  # bytes and tasks a second
SHARDS = 4 * WORKERS
ROWS, FEATURES, BASES = 10**8, 256, 20
#: Bytes of a row in stage 2 beside its features: six pairs and nine triplets with their places in
#: the operator, gammas and gradients of two points in float64, ten pairs of vectors in float32.
ROW_BYTES = 6 * 64 + 9 * 24 + 4 * 9 * 8 + 20 * 9 * 4
HALO = 1.3  # rows of a shard with those that it reads of others, measured on the mixture


def predicted(known: dict[str, Any]) -> dict[str, Any]:
    """Seconds, bytes and memory of a fit of ROWS x FEATURES on WORKERS.

    Core seconds a row and iteration are those measured; products grow with d^2, searches with
    d sqrt(n), the rest not at all. Messages take the network's time for their bytes and the
    scheduler's for their number.
    """
    run, sizes = known["overhead"], known["bytes"]
    n, d = run["rows"], run["features"]
    n_weights, n_metrics = run["iterations"][1]
    seconds = run["solver_seconds_distributed"]
    rest = run["seconds"][1] - sum(seconds.values())
    a_row = {name: 2.0 * value / n for name, value in (*seconds.items(), ("search", rest))}
    cores = WORKERS * CORES
    wide = FEATURES / d
    border = sizes[-1]["stage_1"]["bytes"] / sizes[-1]["rows"] * ROWS / WORKERS
    sums = 8.0 * BASES * FEATURES**2
    weights = a_row["weights"] / n_weights * ROWS / cores + border / NETWORK + 3 * SHARDS * TASK
    metrics = a_row["metrics"] / n_metrics * wide**2 * ROWS / cores
    metrics += 2 * np.log2(WORKERS) * sums / NETWORK + 7 * SHARDS * TASK
    search = a_row["search"] * wide * np.sqrt(ROWS / n) * ROWS / cores
    return {
        "search_seconds": search,
        "stage_1_seconds_an_iteration": weights,
        "stage_1_megabytes_a_worker_and_iteration": border / 1e6,
        "stage_2_seconds_an_evaluation": metrics,
        "stage_2_megabytes_a_sum": sums / 1e6,
        "gigabytes_a_worker": HALO * ROWS / WORKERS * (4 * FEATURES + ROW_BYTES) / 1e9,
        "iterations": [n_weights, n_metrics],
        "fit_hours": (search + n_weights * weights + n_metrics * metrics) / 3600,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    what = parser.add_subparsers(dest="what", required=True)
    command = what.add_parser("same")
    command.add_argument("names", nargs="+")
    command.add_argument("--tol", type=float, default=1e-5)
    what.add_parser("overhead").add_argument("--rows", type=int, default=200_000)
    command = what.add_parser("bytes")
    command.add_argument("--sizes", type=int, nargs="+", default=[12_500, 25_000, 50_000])
    what.add_parser("model")
    options = parser.parse_args()
    if options.what == "same":
        found: Any = {name: same(name, options.tol) for name in options.names}
    elif options.what == "overhead":
        found = overhead(options.rows)
    elif options.what == "model":
        found = predicted(json.loads(options.out.read_text()))
    else:
        found = [traffic(n) for n in options.sizes]
    print(json.dumps(found, indent=1))
    if options.out is not None:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        known[options.what] = (
            {**known.get("same", {}), **found} if options.what == "same" else found
        )
        known[f"{options.what}_provenance"] = provenance()
        write_atomically(options.out, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
