"""What LMNN with one metric and with several share: the fit, its checks, and the energy rule."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from plml.backend.arrays import Array, like, on_host
from plml.baselines.energy import energies
from plml.baselines.lmnn_problem import LmnnData, LmnnSolution, find_violations
from plml.baselines.lmnn_solvers import learn_lmnn
from plml.estimators._fit_warnings import classes_of_one, open_gap, zero_metric
from plml.estimators._neighbor_classifier import NeighborClassifier
from plml.estimators._parameters import COUNT, POSITIVE, parameter
from plml.ops.span import inside, inward, round_center
from plml.solvers.problem import Monitor, history_arrays
from plml.stages.neighbors import ExactNeighbors
from plml.stages.own_metric_search import TrainingMetricIndex
from plml.stages.run import Run
from plml.stages.triplets import check_targets


@dataclass(kw_only=True, eq=False, repr=False)
class LargeMarginNeighbors(NeighborClassifier):
    """LMNN for any grouping of the training points into metrics.

    A subclass says in ``_group`` which metric each training point carries.
    """

    n_targets: int = parameter(3, COUNT)
    push: float = parameter(0.5, Interval(Real, 0, 1, closed="neither"))
    solver: str = parameter("auto", StrOptions({"auto", "convex", "factored"}))
    n_components: int | None = parameter(None, COUNT, None)
    decision: str = parameter("neighbors", StrOptions({"neighbors", "energy"}))
    validation_fraction: float | None = parameter(
        None, Interval(Real, 0, 1, closed="neither"), None
    )
    tol: float = parameter(1e-2, POSITIVE)
    max_iter: int = parameter(2000, COUNT)
    device: str = parameter("cpu", str)
    random_state: int | np.random.RandomState | None = parameter(None, "random_state")
    verbose: int = parameter(0, "verbose")

    #: (n, k) the target neighbours of the cases; None where these have changed since the fit.
    _targets = None
    _per_case = (*NeighborClassifier._per_case, "_groups")

    @abstractmethod
    def _group(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(n,) the number of the metric that each training point carries."""

    def _fit_metrics(self, X: Array, y: np.ndarray, run: Run) -> np.ndarray:
        """Learn the metrics (m, d, d) and set what both estimators report."""
        check_targets(y)
        self._groups = self._group(X, y)
        host = on_host(X)
        self._center = host.mean(axis=0, dtype=np.float64).astype(host.dtype)
        self._unit = float(np.sqrt(np.mean((host - self._center) ** 2, dtype=np.float64))) or 1.0
        run.plan({"neighbours": 1, "LMNN": 19})
        with run.stage("neighbours"):
            self._targets = ExactNeighbors(X, y).targets(self.n_targets)
        data = self._lmnn_data(X, y, self._groups, self._targets, self._fit_weights)
        if self.validation_fraction is None:
            learned = self._solve(data, lambda M: False, run)
        else:
            learned = self._stop_early(X, y, run)
        self.objective_ = self.push * learned.objective
        self.dual_gap_ = learned.gap if np.isfinite(learned.gap) else np.nan
        self.converged_ = learned.converged
        self.n_iter_ = max(learned.n_iter, 1)
        self.history_ = {"metrics": history_arrays(learned.history)}
        return learned.M / self._unit**2

    def _lmnn_data(
        self,
        X: Array,
        y: np.ndarray,
        groups: np.ndarray,
        targets: Any,
        sample_weight: np.ndarray | None,
    ) -> LmnnData:
        pull = (1.0 - self.push) / self.push
        n_groups, rows = int(self._groups.max()) + 1, self._in_units(X)
        data = LmnnData(rows, y, groups, n_groups, targets, pull)
        return data._replace(sample_weight=sample_weight)

    def _in_units(self, X: Array) -> Array:
        """About the mean and in units of the standard deviation, whatever those of the data are."""
        return (X - like(self._center, X)) / like(np.asarray(self._unit), X, X.dtype)

    def _stop_early(self, X: Array, y: np.ndarray, run: Run) -> LmnnSolution:
        """Learn on a part and keep the metrics with the fewest errors on the rest."""
        train, held_out = self._hold_out(y)
        in_units, weights = self._in_units(on_host(X)), self._fit_weights
        of_train, of_held_out = (None if weights is None else weights[p] for p in (train, held_out))
        best: list[tuple[float, np.ndarray]] = []

        def observe(M: np.ndarray) -> bool:
            """Stop at the second round in a row without an improvement."""
            index = TrainingMetricIndex(in_units[train], self._groups[train], M)
            _, nearest = index.search(in_units[held_out], 1)
            wrong = y[train][nearest[:, 0]] != y[held_out]
            best.append((float(np.average(wrong, weights=of_held_out)), M))
            errors = [error for error, _ in best]
            return len(errors) > 2 and min(errors[-2:]) >= min(errors[:-2])

        X_train, y_train = X[like(train, X)], y[train]
        targets = ExactNeighbors(X_train, y_train).targets(self.n_targets)
        part = self._lmnn_data(X_train, y_train, self._groups[train], targets, of_train)
        learned = self._solve(part, observe, run)
        self.validation_error_, M = min(best, key=lambda pair: pair[0])
        everything = self._lmnn_data(X, y, self._groups, self._targets, weights)
        objective = find_violations(everything, M).objective
        return learned._replace(M=M, objective=objective, gap=np.nan)

    def _hold_out(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        try:
            train, held_out = train_test_split(
                np.arange(len(y)),
                test_size=self.validation_fraction,
                stratify=y if np.bincount(y).min() > 1 else None,
                random_state=check_random_state(self.random_state),
            )
            check_targets(y[train])
        except ValueError as error:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} leaves too few of the {len(y)} "
                "training rows to learn from, or too few to stop by; change it or set it to None"
            ) from error
        return train, held_out

    def _solve(self, data: LmnnData, observe: Any, run: Run) -> LmnnSolution:
        with run.solver("LMNN", self.tol, self.max_iter) as callback:
            return learn_lmnn(
                data,
                solver=self.solver if self.n_components is None else "factored",
                n_components=self.n_components,
                tol=self.tol,
                max_iter=self.max_iter,
                monitor=Monitor(self.tol, callback),
                observe=observe,
            )

    def fit_warnings(self) -> Iterator[Warning]:
        yield from classes_of_one(self._class_sizes, self.classes_)
        yield from zero_metric(self.basis_metrics_)
        name = type(self).__name__
        if not np.isnan(self.dual_gap_):
            yield from open_gap(self, name, self.dual_gap_)
        elif not self.converged_:
            yield ConvergenceWarning(
                f"{name} stopped at max_iter={self.max_iter} before its objective settled; raise "
                "max_iter or tol"
            )

    def _of_new_cases(self, rows: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
        return {"_groups": np.zeros(len(rows), dtype=self._groups.dtype)}

    def _cases_changed(self, left_out: np.ndarray) -> None:
        # Targets are found again among the cases of now, when the energy rule asks for them.
        rows = inside(self._fit_X, self._span)
        self._center = round_center(rows).astype(self._center.dtype)
        if self._targets is not None:
            self._n_targets = self._targets.shape[1]
            self._targets = None
        super()._cases_changed(left_out)

    def _votes_are_counted(self) -> bool:
        return self.decision == "neighbors"

    def _shares(self, X: Array) -> Array:
        """Votes, or with the energy rule the softmax of minus the energies."""
        if self.decision == "neighbors":
            return super()._shares(X)
        M = inward(self.basis_metrics_.astype(np.float64), self._span) * self._unit**2
        if len(M) not in (1, len(self.classes_)) or getattr(self, "n_metrics", None) is not None:
            raise ValueError('decision="energy" needs one metric per class: leave n_metrics=None')
        with self._run().limits():
            rows, queries = inside(self._fit_X, self._span), inside(on_host(X), self._span)
            if self._targets is None:
                self._targets = ExactNeighbors(rows, self._fit_codes).targets(self._n_targets)
            known = self._fit_codes, self._groups, self._targets, self._fit_weights
            data = self._lmnn_data(rows, *known)
            energy = energies(data, M, self._in_units(queries), len(self.classes_))
        return softmax(-energy, axis=1)
