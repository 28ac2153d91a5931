"""Where the time of a fit goes, stage by stage, and how fast the machine could be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import plml.estimators._smooth as smooth

import plml.estimators._large_margin as large_margin
from plml.backend.arrays import Array, to_device

#: Where a stage enters: its name, and the function of the module that calls it.
STAGES = {
    "graph": (smooth, "find_graph"),
    "laplacian": (smooth, "similarity_graph"),
    "anchors": (smooth, "kmeans_anchors"),
    "weights": (smooth, "learn_weights"),
    "triplets": (large_margin, "neighbor_triplets"),
    "metrics": (large_margin, "learn_metrics"),
}


def seconds_of(function: Callable[[], Any], device: str = "cpu") -> tuple[float, Any]:
    """How long a call takes, all its work on the device included, and its result."""
    _wait(device)
    start = perf_counter()
    result = function()
    _wait(device)
    return perf_counter() - start, result


@contextmanager
def stage_seconds(device: str = "cpu") -> Iterator[dict[str, list[float]]]:
    """Seconds of every stage of the fits inside, one number a call."""
    times: dict[str, list[float]] = {name: [] for name in STAGES}
    originals = {name: getattr(*place) for name, place in STAGES.items()}

    def timed(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seconds, result = seconds_of(lambda: originals[name](*arguments, **options), device)
            times[name].append(seconds)
            return result

        return call

    for name, (module, attribute) in STAGES.items():
        setattr(module, attribute, timed(name))
    try:
        yield times
    finally:
        for name, (module, attribute) in STAGES.items():
            setattr(module, attribute, originals[name])


def product_rate(a: Array, b: Array, device: str = "cpu") -> float:
    """Flops a second of a matrix product, the best of many."""
    seconds = min(seconds_of(lambda: a @ b, device)[0] for _ in range(20))
    return 2.0 * a.shape[0] * a.shape[1] * b.shape[1] / seconds


def single_precision_rate(device: str = "cpu", size: int = 2048) -> float:
    """Flops a second of a large square product in float32: what the machine can do."""
    a = to_device(np.random.default_rng(0).normal(size=(size, size)).astype(np.float32), device)
    return product_rate(a, a, device)


def _wait(device: str) -> None:
    """Until a GPU has done what it was told."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()
