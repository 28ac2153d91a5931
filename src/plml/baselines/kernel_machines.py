"""Support vector machines, one class against the rest, over shared kernel values."""

from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics.pairwise import pairwise_distances_chunked, pairwise_kernels
from sklearn.svm import SVC

_GRAM_BYTES = 2**30
_CACHE_MEGABYTES = 1000


class KernelOver:
    """A kernel over fixed points, with the Gram matrix where it fits into memory.

    SVC would compute the same kernel values once for every class, C and fold.
    """

    def __init__(self, X: np.ndarray, parameters: dict[str, Any]) -> None:
        self.X = X
        self.parameters = parameters
        fits = 8 * len(X) ** 2 <= _GRAM_BYTES
        self.gram = kernel_values(parameters, X, X) if fits else None

    def inputs(self, rows: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """What SVC is trained on for the given rows, and the kernel it is told."""
        if self.gram is None:
            return self.X[rows], self.parameters
        return self.gram[np.ix_(rows, rows)], {"kernel": "precomputed"}

    def between(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Kernel values of rows against other rows."""
        if self.gram is None:
            return kernel_values(self.parameters, self.X[rows], self.X[others])
        return self.gram[np.ix_(rows, others)]


class Machines(NamedTuple):
    """One binary machine per class, as coefficients of the support vectors of all."""

    support: np.ndarray  # (s,) training rows
    coefficients: np.ndarray  # (s, n_classes)
    intercepts: np.ndarray  # (n_classes,)
    n_iter: int

    def decide(self, values: np.ndarray) -> np.ndarray:
        """Kernel values against the support vectors -> decision values."""
        return values @ self.coefficients + self.intercepts


def train_machines(
    kernel: KernelOver,
    rows: np.ndarray,
    y: np.ndarray,
    C: float,
    n_classes: int,
    max_iter: int,
    n_jobs: int | None = None,
    sample_weight: np.ndarray | None = None,
) -> Machines:
    """Every class of the given rows against the rest; C times its weight for a row.

    The sample weights are those of all rows of the kernel, (n,).
    """
    inputs, parameters = kernel.inputs(rows)
    counted = None if sample_weight is None else sample_weight[rows]

    def binary(label: int) -> tuple[np.ndarray, np.ndarray, float, int]:
        inside = y[rows] == label
        if inside.all() or not inside.any():
            return np.empty(0, dtype=int), np.empty(0), 1.0 if inside.all() else -1.0, 1
        svc = SVC(C=C, cache_size=_CACHE_MEGABYTES, max_iter=max_iter, **parameters)
        svc.fit(inputs, inside, sample_weight=counted)
        return svc.support_, svc.dual_coef_[0], float(svc.intercept_[0]), int(svc.n_iter_[0])

    supports, values, intercepts, iterations = zip(
        *Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(binary)(label) for label in range(n_classes)
        ),
        strict=True,
    )
    used = np.unique(np.concatenate(supports))
    coefficients = np.zeros((len(used), n_classes))
    for label, (support, value) in enumerate(zip(supports, values, strict=True)):
        coefficients[np.searchsorted(used, support), label] = value
    return Machines(rows[used], coefficients, np.array(intercepts), max(*iterations, 1))


def held_out_decisions(
    kernel: KernelOver,
    train: np.ndarray,
    test: np.ndarray,
    y: np.ndarray,
    C: float,
    n_classes: int,
    max_iter: int,
    sample_weight: np.ndarray | None = None,
) -> np.ndarray:
    """Decision values of the rows that are tested."""
    machines = train_machines(kernel, train, y, C, n_classes, max_iter, None, sample_weight)
    return machines.decide(kernel.between(test, machines.support))


def kernel_values(parameters: dict[str, Any], A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Kernel values (len(A), len(B))."""
    if len(B) == 0:
        return np.empty((len(A), 0))
    options = {name: value for name, value in parameters.items() if name != "kernel"}
    if parameters["kernel"] == "rbf":  # of differences alone, which are exact near the origin
        center = B.mean(axis=0)
        A, B = A - center, B - center
    return pairwise_kernels(A, B, metric=parameters["kernel"], **options)


def mean_pairwise_distance(X: np.ndarray, sample_weight: np.ndarray | None = None) -> float:
    """The mean Euclidean distance of all pairs of rows; one where all rows are equal.

    A row of weight two has a pair with itself, of distance zero, as two equal rows have; the pairs
    of weights below one are those of different rows.
    """
    n = len(X)
    centered = X - X.mean(axis=0)
    blocks = pairwise_distances_chunked(centered)
    if sample_weight is None:
        return sum(float(block.sum()) for block in blocks) / (n * (n - 1)) or 1.0
    sums = np.concatenate([block @ sample_weight for block in blocks])
    everything = sample_weight.sum()
    itself = min(everything, sample_weight @ sample_weight)
    return float(sample_weight @ sums / (everything**2 - itself)) or 1.0


def fit_temperature(
    decisions: np.ndarray, truth: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """argmin_t of the log loss of softmax(decisions / t), weighted if asked for."""
    rows = np.arange(len(truth))

    def log_loss(log_t: float) -> float:
        losses = -log_softmax(decisions / np.exp(log_t), axis=1)[rows, truth]
        return float(np.average(losses, weights=sample_weight))

    return float(np.exp(minimize_scalar(log_loss, bounds=(-6.0, 6.0), method="bounded").x))
