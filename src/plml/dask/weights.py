"""Stage 1 across shards: the accelerated iteration with an exchange of the weights at the borders.

The iterates are those of one machine. A shard moves its rows and reads what the others hand out;
the driver waits for certificates only.
"""

from math import fsum
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from scipy import sparse

from plml.backend.threads import SERIAL
from plml.dask.cluster import Cluster
from plml.dask.graph import Graph
from plml.dask.halo import Exchange, taken, with_halo
from plml.dask.shards import Shard, Shards
from plml.ops.projections import project_simplex
from plml.solvers.problem import Callback, Monitor, Solution
from plml.solvers.quadratic import CHECK_EVERY, extrapolated, next_momentum, take_step
from plml.stages.weights import RowWeightProblem, WeightProblem, in_two_precisions


class Rows(NamedTuple):
    """A shard's part of the iteration."""

    x: np.ndarray
    moved: np.ndarray
    product: np.ndarray  # H x of the point before
    hint: np.ndarray
    t: np.ndarray  # Nesterov's, before the step that led here
    uphill: float  # the shard's part of how far the momentum of that step pointed uphill


class LearnedWeights(NamedTuple):
    """Weights (n_s, m) of every shard's rows in the dtype of the data, and their certificate."""

    parts: list[Future]
    solution: Solution
    gap: float


def learn_weights(
    cluster: Cluster,
    shards: Shards,
    graph: Graph,
    anchors: np.ndarray,
    locality: float,
    smoothness: float,
    *,
    dtype: np.dtype,
    tol: float,
    max_iter: int,
    callback: Callback | None,
) -> LearnedWeights:
    """W with a relative Frank-Wolfe gap of at most ``tol``."""
    parameters = cluster.put((anchors, locality, smoothness))
    problems = [
        cluster.submit(_problem, part, parameters, laplacian)
        for part, laplacian in zip(shards.parts, graph.laplacians, strict=True)
    ]
    exchange = Exchange(cluster, graph.halo)
    floor, fits = (
        list(column)
        for column in zip(
            *cluster.gather([cluster.submit(_summary, p) for p in problems]), strict=True
        )
    )
    blocks = _Blocks(cluster, exchange, problems, sum(floor))
    start = [cluster.submit(_even_start, problem) for problem in problems]
    if all(fits):
        solution = in_two_precisions(
            blocks.minimize,
            start,
            lambda x: [cluster.submit(_refined, part) for part in x],
            (np.float32, np.float64),
            tol,
            max_iter,
            callback,
        )
    else:
        solution = blocks.minimize(np.float64, start, tol, max_iter, callback)
    parts = [cluster.submit(_cast, part, dtype) for part in solution.x]
    return LearnedWeights(parts, solution, blocks.gap_of(parts))


def _problem(shard: Shard, parameters: Any, laplacian: sparse.csr_array) -> WeightProblem:
    anchors, locality, smoothness = parameters
    return WeightProblem(shard.X, anchors, locality, smoothness, laplacian)


def _summary(problem: WeightProblem) -> tuple[float, bool]:
    return problem.floor, problem.fits_single_precision()


def _even_start(problem: WeightProblem) -> np.ndarray:
    return problem.even_start()


def _refined(x: np.ndarray) -> np.ndarray:
    return project_simplex(x.astype(np.float64))


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.astype(dtype)


class _Blocks:
    """The problem of all shards."""

    def __init__(
        self, cluster: Cluster, exchange: Exchange, problems: list[Future], floor: float
    ) -> None:
        self.cluster = cluster
        self.exchange = exchange
        self.problems = problems
        self.floor = floor

    def minimize(
        self, dtype: Any, start: list[Future], tol: float, max_iter: int, callback: Callback | None
    ) -> Solution:
        """As ``solvers.quadratic.accelerated``; the point is a list of blocks."""
        submit = self.cluster.submit
        monitor = Monitor(tol, callback)
        rows = [submit(_row_problem, problem, dtype) for problem in self.problems]
        state = [submit(_first, block, dtype) for block in start]
        handed = self._handed_out(state)
        looks = self._looks(rows, state, handed)
        value, gap = self._value_and_gap(looks)
        if monitor.done(0, value, gap):
            return monitor.solution(self._points(state), value, gap, 0)
        iteration = 0
        known: list[Future | None] = list(looks)
        for iteration in range(1, max_iter + 1):
            elsewhere = self._uphill_elsewhere(state)
            state = [
                submit(_advance, rows[s], state[s], known[s], *self._halo(s, handed), elsewhere[s])
                for s in range(len(rows))
            ]
            known = [None] * len(rows)
            handed = self._handed_out(state)
            if iteration % CHECK_EVERY == 0 or iteration == max_iter:
                looks = self._looks(rows, state, handed)
                known = list(looks)
                value, gap = self._value_and_gap(looks)
                if monitor.done(iteration, value, gap):
                    break
        return monitor.solution(self._points(state), value, gap, iteration)

    def gap_of(self, parts: list[Future]) -> float:
        """The relative gap of weights, in float64."""
        submit = self.cluster.submit
        rows = [submit(_row_problem, problem, np.float64) for problem in self.problems]
        state = [submit(_first, block, np.float64) for block in parts]
        return self._value_and_gap(self._looks(rows, state, self._handed_out(state)))[1]

    def _handed_out(self, state: list[Future]) -> list[Future]:
        exports = self.exchange.exports
        return [
            self.cluster.submit(_border, block, export)
            for block, export in zip(state, exports, strict=True)
        ]

    def _uphill_elsewhere(self, state: list[Future]) -> list[list[Future]]:
        """For every shard those that hand it nothing, and so do not tell how far uphill it goes."""
        around = [{s, *its} for s, its in enumerate(self.exchange.neighbors)]
        told = {
            r: self.cluster.submit(_uphill, block)
            for r, block in enumerate(state)
            if not all(r in its for its in around)
        }
        return [[part for r, part in told.items() if r not in its] for its in around]

    def _halo(self, s: int, handed: list[Future]) -> tuple[Future, list[Future]]:
        return self.exchange.positions[s], self.exchange.read_by(s, handed)

    def _looks(self, rows: list[Future], state: list[Future], handed: list[Future]) -> list[Future]:
        return [
            self.cluster.submit(_look, rows[s], state[s], *self._halo(s, handed))
            for s in range(len(rows))
        ]

    def _value_and_gap(self, looks: list[Future]) -> tuple[float, float]:
        sums = self.cluster.gather([self.cluster.submit(_sums, look) for look in looks])
        value, gap = (float(sum(column)) for column in zip(*sums, strict=True))
        return value, max(gap, 0.0) / max(value, self.floor)

    def _points(self, state: list[Future]) -> Any:
        return [self.cluster.submit(_point, block) for block in state]


class _Look(NamedTuple):
    """H x, and the block's part of the value and of the gap."""

    product: np.ndarray
    sums: tuple[float, float]


def _row_problem(problem: WeightProblem, dtype: Any) -> RowWeightProblem:
    return RowWeightProblem(problem, dtype, SERIAL)


def _first(x: np.ndarray, dtype: Any) -> Rows:
    x = x.astype(dtype)
    nothing = np.zeros_like(x)
    hint = np.full(len(x), np.nan, dtype=dtype)
    # As after a step uphill: without momentum.
    return Rows(x, nothing, nothing, hint, np.ones((), dtype=dtype), 1.0)


class _Handed(NamedTuple):
    """What a shard hands to those around it."""

    border: np.ndarray
    uphill: float


def _product(
    rows: RowWeightProblem, x: np.ndarray, positions: Any, handed: list[_Handed]
) -> np.ndarray:
    everything = with_halo(x, positions, [part.border for part in handed])
    return np.concatenate([rows.product(everything, block) for block in rows.blocks])


def _advance(
    rows: RowWeightProblem,
    before: Rows,
    look: _Look | None,
    positions: list[np.ndarray],
    handed: list[_Handed],
    elsewhere: list[float],
) -> Rows:
    """Beyond x by the momentum, which all shards agree on, and from there down the gradient."""
    x, moved, hint = before.x.copy(), before.moved.copy(), before.hint.copy()
    product = _product(rows, x, positions, handed) if look is None else look.product
    # Summed exactly, so that all shards find the same, whatever order they add in.
    uphill = fsum([before.uphill, *(part.uphill for part in handed), *elsewhere])
    t, momentum = next_momentum(before.t, np.float64(uphill))
    y, Hy = extrapolated(x, moved, product, before.product, momentum)
    moved = np.empty_like(x)
    part = sum(
        take_step(rows, block, x, moved, y[block], Hy[block], hint[block]) for block in rows.blocks
    )
    return Rows(x, moved, product, hint, t, float(part))


def _uphill(rows: Rows) -> float:
    return rows.uphill


def _border(rows: Rows, export: np.ndarray) -> _Handed:
    return _Handed(taken(rows.x, export), rows.uphill)


def _point(rows: Rows) -> np.ndarray:
    return rows.x


def _look(
    rows: RowWeightProblem, at: Rows, positions: list[np.ndarray], handed: list[_Handed]
) -> _Look:
    product = _product(rows, at.x, positions, handed)
    value, gap = rows.sums(at.x, product)
    return _Look(product, (float(value), float(gap)))


def _sums(look: _Look) -> tuple[float, float]:
    return look.sums
