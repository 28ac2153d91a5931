"""BoostMetric: a metric learned by boosting rank-one matrices."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.utils._param_validation import StrOptions

from plml.backend.arrays import Array
from plml.baselines.boosting import learn_boosted_metric
from plml.estimators._fit_warnings import classes_of_one, zero_metric
from plml.estimators._linear_map import LinearMap
from plml.estimators._neighbor_classifier import NeighborClassifier
from plml.estimators._parameters import COUNT, POSITIVE, parameter
from plml.solvers.problem import Monitor, history_arrays
from plml.stages.neighbors import ExactNeighbors
from plml.stages.run import Run
from plml.stages.triplets import check_targets, neighbor_triplets


@dataclass(kw_only=True, eq=False, repr=False)
class BoostMetric(LinearMap, NeighborClassifier):
    """Nearest-neighbour classification under one metric, learned by boosting.

    The metric minimises an exponential loss,

        min_{M >= 0} log sum_ijk exp(-(d^2(x_i, x_k) - d^2(x_i, x_j))) + trace_weight tr(M),

    over same-class neighbours j and other-class neighbours k of every instance i. M is a
    non-negative combination of trace-one, rank-one matrices, one added per round: the leading
    eigenvector of the weighted sum of the triplets' matrices.

    Parameters
    ----------
    trace_weight : float
        v, the weight of the trace.
    update : {"stage-wise", "totally-corrective"}
        Whether a round fixes the weight of its weak learner, or optimises all weights again. Only
        the second reaches the optimum.
    n_targets, n_impostors : int
        Same-class and other-class neighbours that make the triplets of an instance. The
        exponential loss of few triplets is dominated by the hardest of them: ten of each do better
        than three in cross-validation (``benchmarks/boostmetric_triplets.py``).
    n_neighbors : int
        Neighbours that vote.
    vote : {"uniform", "distance"}
        As in ``PLML``.
    class_weight, weigh_votes
        As in ``PLML``; the term of a triplet is multiplied by the weight of i.
    tol : float
        Stop when the best weak learner beats ``trace_weight`` by no more than this share of it.
    max_iter : int
        Maximum number of rounds.
    device : {"cpu"}
        Where the work is done.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    verbose : int
        Above zero shows the progress.

    Attributes
    ----------
    components_ : (rank, d) array
        The linear map of the metric, ``M = components_^T components_``.
    basis_metrics_ : (1, d, d) array
        The metric M.
    objective_ : float
        The objective at M.
    excess_ : float
        By how much the best weak learner still beats ``trace_weight``, relative to it; zero at the
        optimum. It does not bound the distance to the optimum: there is no certificate here, and so
        no ``dual_gap_``.
    converged_ : bool
        Whether ``excess_ <= tol``. A small ``trace_weight`` is rarely reached within ``max_iter``
        rounds, and there is no warning: boosting is stopped early by design.
    n_iter_ : int
        Rounds.
    history_ : dict
        ``"metrics"``: arrays ``iteration``, ``value``, ``gap`` (the excess), ``seconds``.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    SML : One metric, with a certificate.
    LMNN : One metric by another loss.

    References
    ----------
    C. Shen, J. Kim, L. Wang, A. van den Hengel. Positive Semidefinite Metric Learning Using
    Boosting-like Algorithms. JMLR 13, 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import BoostMetric
    >>> X, y = load_iris(return_X_y=True)
    >>> BoostMetric(max_iter=20).fit(X, y).score(X, y)
    1.0
    """

    trace_weight: float = parameter(1e-7, POSITIVE)
    update: str = parameter("stage-wise", StrOptions({"totally-corrective", "stage-wise"}))
    n_targets: int = parameter(10, COUNT)
    n_impostors: int = parameter(10, COUNT)
    tol: float = parameter(1e-3, POSITIVE)
    max_iter: int = parameter(100, COUNT)
    device: str = parameter("cpu", StrOptions({"cpu"}))
    verbose: int = parameter(0, "verbose")

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        check_targets(y)
        run.plan({"triplets": 1, "BoostMetric": 9})
        with run.stage("triplets"):
            triplets = neighbor_triplets(ExactNeighbors(X, y), self.n_targets, self.n_impostors)
        centered = X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        unit = float(np.sqrt(np.mean(centered**2, dtype=np.float64))) or 1.0
        with run.solver("BoostMetric", self.tol, self.max_iter) as callback:
            # In units of the standard deviation M is unit^2 times as large.
            learned = learn_boosted_metric(
                centered / np.asarray(unit, dtype=X.dtype),
                triplets,
                trace_weight=max(self.trace_weight / unit**2, np.finfo(float).tiny),
                update=self.update,
                max_iter=self.max_iter,
                monitor=Monitor(self.tol, callback),
                sample_weight=self._fit_weights,
            )
        self._set_metric(learned.M[None] / unit**2)
        self.objective_ = learned.objective
        self.excess_ = learned.excess
        self.converged_ = bool(learned.excess <= self.tol)
        self.n_iter_ = max(learned.n_iter, 1)
        self.history_ = {"metrics": history_arrays(learned.history)}

    def fit_warnings(self) -> Iterator[Warning]:
        yield from classes_of_one(self._class_sizes, self.classes_)
        yield from zero_metric(self.basis_metrics_)
