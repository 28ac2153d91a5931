"""Several settings that vote together, chosen for what they add to each other."""

from collections.abc import Callable
from typing import Any

import numpy as np

from plml.solvers.problem import Checkpointer, Solution, SolverCheckpoint

#: Seats of a committee; a setting may have several.
N_SEATS = 10
#: Kinds of metrics, as a reader knows them.
KINDS_IN_WORDS = {
    "prior": "metric of the prior",
    "one": "one metric",
    "local": "local metrics",
    "two-sided": "two-sided metrics",
}
#: Settings are left out whose accuracy is further below the best one's, in standard errors of the
#: difference.
_CLEARLY_WORSE = 1.5
#: Settings that may have a seat where every seat takes a score of all of them.
_MOST_SCORED = 32


def eligible(
    shares: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray | None = None
) -> np.ndarray:
    """Numbers of the settings that are not clearly less accurate than the most accurate one.

    Parameters
    ----------
    shares, codes, sample_weight : as in ``seats``
    """
    right = shares.argmax(axis=2) == codes
    best = right[np.average(right, axis=1, weights=sample_weight).argmax()]
    lost = best.astype(np.float32) - right
    mean = np.average(lost, axis=1, weights=sample_weight)
    if sample_weight is None:
        errors = lost.std(axis=1) / len(codes) ** 0.5
    else:
        spread = sample_weight * (lost - mean[:, None])
        errors = np.sqrt((spread**2).sum(axis=1)) / sample_weight.sum()
    return np.flatnonzero(mean <= _CLEARLY_WORSE * errors)


def seats_by_score(
    shares: np.ndarray, metric_of: np.ndarray, most: int, score: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """``seats`` that make the score of the average votes largest, whatever it is.

    Parameters
    ----------
    shares, metric_of, most : as in ``seats``
    score : from (n_settings, n_rows, n_classes) shares to (n_settings,) scores
    """
    able = np.argsort(-score(shares), kind="stable")[:_MOST_SCORED]
    taken, used, sums = np.zeros(len(shares), dtype=int), set[int](), np.zeros(shares.shape[1:])
    for seat in range(N_SEATS):
        if len(used) >= most:
            able = able[np.isin(metric_of[able], list(used))]
        best = able[score((sums + shares[able]) / (seat + 1)).argmax()]
        sums += shares[best]
        taken[best] += 1
        used.add(int(metric_of[best]))
    return taken


def seats(
    shares: np.ndarray,
    codes: np.ndarray,
    metric_of: np.ndarray,
    most: int,
    sample_weight: np.ndarray | None = None,
) -> np.ndarray:
    """How many of the seats each setting has, (n_settings,).

    Greedily, seat by seat: whatever makes the Brier score of the average votes smallest (ensemble
    selection: Caruana et al., ICML 2004).

    Parameters
    ----------
    shares : (n_settings, n_rows, n_classes) array, votes for rows that were held out
    codes : (n_rows,) their classes
    metric_of : (n_settings,) the metric of each setting
    most : how many different metrics there may be
    sample_weight : (n_rows,) how much the rows count, or None
    """
    n_settings, _, n_classes = shares.shape
    truth = np.eye(n_classes, dtype=shares.dtype)[codes]
    if sample_weight is not None:
        roots = np.sqrt(sample_weight / sample_weight.mean())[:, None]
        shares, truth = roots * shares, roots * truth
    flat = shares.reshape(n_settings, -1)
    products, hits = flat @ flat.T, flat @ truth.ravel()
    taken, used = np.zeros(n_settings, dtype=int), set[int]()
    for seat in range(N_SEATS):
        # |sum of the votes + those of one more|^2, and its product with the truth
        square = taken @ products @ taken + 2.0 * products @ taken + np.diag(products)
        score = square / (seat + 1) ** 2 - 2.0 * (taken @ hits + hits) / (seat + 1)
        if len(used) >= most:
            score = np.where(np.isin(metric_of, list(used)), score, np.inf)
        best = int(score.argmin())
        taken[best] += 1
        used.add(int(metric_of[best]))
    return taken


def in_words(member: dict[str, Any]) -> str:
    """A setting that votes, in one line."""
    kind = KINDS_IN_WORDS[member["metrics"]]
    learned = f", regularization {member['regularization']:g}" * (member["metrics"] != "prior")
    return (
        f"{member['weight']:.0%}: {kind} (prior {member['prior']!r}{learned}), "
        f"{member['n_neighbors']} neighbour{'s' * (member['n_neighbors'] > 1)}, "
        f"{member['vote']} vote"
    )


def metrics_of(settings: list[dict[str, Any]]) -> np.ndarray:
    """Numbers of the metrics of some settings; those with the same metric have the same."""
    known: dict[tuple[Any, ...], int] = {}
    return np.array([known.setdefault(_metric_of(one), len(known)) for one in settings])


def members(settings: list[dict[str, Any]], taken: np.ndarray) -> list[dict[str, Any]]:
    """The settings that have seats with their weights, by the weight of their metrics.

    Parameters
    ----------
    settings : that had a chance
    taken : (n_settings,) their seats
    """
    seated = [
        {**setting, "weight": float(count / taken.sum())}
        for setting, count in zip(settings, taken.tolist(), strict=True)
        if count
    ]
    weights: dict[tuple[Any, ...], float] = {}
    for member in seated:
        weights[_metric_of(member)] = weights.get(_metric_of(member), 0.0) + member["weight"]
    order = sorted(weights, key=lambda metric: -weights[metric])
    numbered = [{**member, "model": order.index(_metric_of(member))} for member in seated]
    return sorted(numbered, key=lambda member: (member["model"], -member["weight"]))


def _metric_of(setting: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(setting[name] for name in ("metrics", "prior", "pull", "regularization"))


class SharedPreparation(Checkpointer):
    """For fits to the same rows: neighbours, anchors and weights are computed once.

    Parameters
    ----------
    checkpoint : of all of them
    """

    def __init__(self, checkpoint: Checkpointer) -> None:
        self._checkpoint = checkpoint
        self._arrays: dict[str, tuple[Any, ...]] = {}
        self._solved: dict[str, _Remembered] = {}
        self._member = ""

    def of_member(self, number: int) -> "SharedPreparation":
        """The same, for the fit of one member."""
        self._member = f"member {number}, "
        return self

    def arrays(self, name: str, compute: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """As in ``Checkpointer``."""
        if name not in self._arrays:
            self._arrays[name] = self._checkpoint.arrays(name, compute)
        return self._arrays[name]

    def knows(self, name: str) -> bool:
        """As in ``Checkpointer``."""
        return name in self._arrays or self._checkpoint.knows(name)

    def solver(self, name: str) -> SolverCheckpoint:
        """As in ``Checkpointer``; the metrics of a member are its own."""
        if name.startswith("metrics"):
            return self._checkpoint.solver(self._member + name)
        if name not in self._solved:
            self._solved[name] = _Remembered(self._checkpoint.solver(name))
        return self._solved[name]

    def finish(self) -> None:
        """As in ``Checkpointer``."""
        self._checkpoint.finish()


class _Remembered(SolverCheckpoint):
    """A solver's checkpoint that knows the solution once it is there."""

    def __init__(self, checkpoint: SolverCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._solution: Solution | None = None

    def finished(self) -> Solution | None:
        """As in ``SolverCheckpoint``."""
        return self._solution or self._checkpoint.finished()

    def saved(self) -> dict[str, Any]:
        """As in ``SolverCheckpoint``."""
        return self._checkpoint.saved()

    def offer(self, state: Callable[[], dict[str, Any]]) -> None:
        """As in ``SolverCheckpoint``."""
        self._checkpoint.offer(state)

    def finish(self, solution: Solution) -> Solution:
        """As in ``SolverCheckpoint``."""
        self._solution = self._checkpoint.finish(solution)
        return self._solution
