"""Probabilities from the shares of the votes.

    p_c = (1 - floor) r_c / sum_c r_c + floor / C,      r_c = (s_c + smoothing / C)^power

keeps the order of the classes. Few neighbours leave shares of zero and one behind: the smoothing
says how far these can be trusted, the power how far the others can. The floor is what n rows cannot
exclude, 1 / (n + 1).
"""

import numpy as np
from scipy.optimize import minimize

#: Where the two numbers are looked for.
_SMOOTHINGS = (1e-4, 1e1)
_POWERS = (0.1, 10.0)


def calibrated(shares: np.ndarray, smoothing: float, power: float, floor: float) -> np.ndarray:
    """(q, n_classes) probabilities from (q, n_classes) shares."""
    n_classes = shares.shape[1]
    logs = power * np.log(shares + smoothing / n_classes)
    r = np.exp(logs - logs.max(axis=1, keepdims=True))
    return (1.0 - floor) * r / r.sum(axis=1, keepdims=True) + floor / n_classes


def calibration(
    shares: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray | None = None
) -> tuple[float, float, float]:
    """The smoothing and the power with the least log-loss on held-out rows, and the floor.

    Parameters
    ----------
    shares : (n, n_classes) array
    codes : (n,) their classes
    sample_weight : (n,) how many rows each one stands for, one by default
    """
    n = len(codes) if sample_weight is None else float(sample_weight.sum())
    rows, floor = np.arange(len(codes)), 1.0 / (n + 1.0)

    def loss(logs: np.ndarray) -> float:
        smoothing, power = np.exp(logs)
        p = calibrated(shares, smoothing, power, floor)
        return -float(np.average(np.log(p[rows, codes]), weights=sample_weight))

    bounds = np.log([_SMOOTHINGS, _POWERS])
    start = np.log([0.1, 1.0])
    smoothing, power = np.exp(minimize(loss, start, method="L-BFGS-B", bounds=bounds).x)
    return float(smoothing), float(power), floor
