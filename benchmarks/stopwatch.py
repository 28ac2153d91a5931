"""Where the time of a fit goes, stage by stage, and how fast the machine could be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from plml.backend.arrays import Array, to_device
from plml.backend.progress import observed
from plml.stages.pipeline import ANCHORS, METRICS, NEIGHBORS, TRIPLETS, WEIGHTS

STAGES = (NEIGHBORS, ANCHORS, WEIGHTS, TRIPLETS, METRICS)


def seconds_of(function: Callable[[], Any], device: str = "cpu") -> tuple[float, Any]:
    """How long a call takes, all its work on the device included, and its result."""
    _wait(device)
    start = perf_counter()
    result = function()
    _wait(device)
    return perf_counter() - start, result


@contextmanager
def stage_seconds(device: str = "cpu") -> Iterator[dict[str, list[float]]]:
    """Seconds of every stage of the pipeline in the fits inside, one number per run of it."""
    times: dict[str, list[float]] = {name: [] for name in STAGES}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        _wait(device)
        start = perf_counter()
        yield
        _wait(device)
        if name in times:
            times[name].append(perf_counter() - start)

    with observed(timed):
        yield times


def product_rate(a: Array, b: Array, device: str = "cpu") -> float:
    """Flops per second of a matrix product, the best of many."""
    seconds = min(seconds_of(lambda: a @ b, device)[0] for _ in range(20))
    return 2.0 * a.shape[0] * a.shape[1] * b.shape[1] / seconds


def single_precision_rate(device: str = "cpu", size: int = 2048) -> float:
    """Flops per second of a large square product in float32: what the machine can do."""
    a = to_device(np.random.default_rng(0).normal(size=(size, size)).astype(np.float32), device)
    return product_rate(a, a, device)


def _wait(device: str) -> None:
    """Until a GPU has done what it was told."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()
