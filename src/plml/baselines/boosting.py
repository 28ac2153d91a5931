"""BoostMetric (Shen, Kim, Wang, van den Hengel, JMLR 2012): a metric from rank-one weak learners.

    min_{M >= 0} log sum_ijk exp(-(d^2(x_i, x_k) - d^2(x_i, x_j))) + trace_weight tr(M)

with M = sum_t w_t v_t v_t^T, w >= 0 and unit vectors v_t: trace-one matrices of rank one. With
sample weights the term of a triplet is multiplied with the weight of instance i, which is the same
as less margin, by its logarithm.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp, softmax

from plml.backend.threads import one_blas_thread, thread_team
from plml.ops.pairs import PairOperator
from plml.solvers.problem import Iteration, Monitor
from plml.stages.triplets import Triplets

_LARGEST_WEIGHT = 2.0**40
#: Brent's method needs at most the square of the bisections, of which there are 52.
_MOST_STEPS_OF_BRENT = 52**2


class Boosted(NamedTuple):
    """A metric (d, d) with its objective.

    ``excess`` is how much the best weak learner still exceeds the trace weight, relative to it:
    zero at the optimum.
    """

    M: np.ndarray
    objective: float
    excess: float
    n_iter: int
    history: tuple[Iteration, ...]


class BoostState(NamedTuple):
    """The weak learners so far."""

    vectors: np.ndarray  # (t, d), unit rows
    weights: np.ndarray  # (t,)
    features: np.ndarray  # (t, n_pairs), squared projected differences of the pairs


def learn_boosted_metric(
    X: np.ndarray,
    triplets: Triplets,
    *,
    trace_weight: float,
    update: str,
    max_iter: int,
    monitor: Monitor,
    sample_weight: np.ndarray | None = None,
) -> Boosted:
    """Add the leading eigenvector of sum_ijk u_ijk C_ijk as a weak learner, round by round.

    ``update="stage-wise"`` sets the weight of a weak learner once, when it is added;
    ``"totally-corrective"`` optimises all weights again in every round. The sample weights are an
    (n,) array.
    """
    correct: Any = _stage_wise if update == "stage-wise" else _totally_corrective
    counted: Any = 0.0
    if sample_weight is not None:
        counted = np.log(sample_weight)[triplets.pairs[triplets.target, 0]]
    no_features = np.empty((0, len(triplets.pairs)), dtype=X.dtype)
    state = BoostState(np.empty((0, X.shape[1])), np.empty(0), no_features)
    with thread_team() as threads:
        operator = PairOperator(X, np.ones((len(X), 1), dtype=X.dtype), triplets.pairs, threads)
        for iteration in range(max_iter + 1):
            margins = _margins(state.weights @ state.features, triplets) - counted
            objective = float(logsumexp(-margins) + trace_weight * state.weights.sum())
            u = softmax(-margins)
            eigenvalues, vectors = np.linalg.eigh(operator.scatter(_pair_weights(u, triplets))[0])
            excess = max(float(eigenvalues[-1]) / trace_weight - 1.0, 0.0)
            if monitor.done(iteration, objective, excess) or iteration == max_iter:
                break
            grown = _add(state, X, triplets, vectors[:, -1])
            state = correct(grown, u, triplets, trace_weight, counted)
    M = (state.vectors.T * state.weights) @ state.vectors
    return Boosted(M, objective, excess, iteration, tuple(monitor.history))


def _add(state: BoostState, X: np.ndarray, triplets: Triplets, vector: np.ndarray) -> BoostState:
    projected = X @ vector.astype(X.dtype)
    i, j = triplets.pairs.T
    feature = (projected[i] - projected[j]) ** 2
    return BoostState(
        np.vstack([state.vectors, vector]),
        np.append(state.weights, 0.0),
        np.vstack([state.features, feature[None]]),
    )


def _stage_wise(
    state: BoostState, u: np.ndarray, triplets: Triplets, trace_weight: float, counted: Any
) -> BoostState:
    """The last weight at the zero of the derivative of log sum u exp(-w h) + trace_weight w."""
    h = _margins(state.features[-1], triplets)

    def slope(w: float) -> float:
        return trace_weight - float(softmax(np.log(np.maximum(u, 1e-300)) - w * h) @ h)

    if slope(0.0) >= 0:  # trace_weight - largest, up to rounding
        return state
    # If the learner satisfies every triplet, the slope never turns positive, and the weight, which
    # could grow without bound, is cut.
    lower, upper = 0.0, 1.0
    while slope(upper) < 0 and upper < _LARGEST_WEIGHT:
        lower, upper = upper, 2.0 * upper
    weight = upper
    if slope(upper) > 0:
        weight = brentq(slope, lower, upper, maxiter=_MOST_STEPS_OF_BRENT)
    return state._replace(weights=np.append(state.weights[:-1], weight))


def _totally_corrective(
    state: BoostState, u: np.ndarray, triplets: Triplets, trace_weight: float, counted: Any
) -> BoostState:
    """All weights by L-BFGS-B; weak learners that end at zero are dropped."""

    def value_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = _margins(w @ state.features, triplets) - counted
        pushed = _pair_weights(softmax(-margins), triplets)
        value = logsumexp(-margins) + trace_weight * w.sum()
        return float(value), trace_weight - state.features @ pushed

    with one_blas_thread(of="scipy"):
        weights = minimize(
            value_and_gradient,
            state.weights,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * len(state.weights),
            options={"ftol": 1e-12, "gtol": 1e-8 * trace_weight, "maxiter": 200},
        ).x
    used = weights > 0
    return BoostState(state.vectors[used], weights[used], state.features[used])


def _margins(d2: np.ndarray, triplets: Triplets) -> np.ndarray:
    return (d2[triplets.impostor] - d2[triplets.target]).astype(np.float64, copy=False)


def _pair_weights(u: np.ndarray, triplets: Triplets) -> np.ndarray:
    n_pairs = len(triplets.pairs)
    return np.bincount(triplets.impostor, u, n_pairs) - np.bincount(triplets.target, u, n_pairs)
