"""Parametric Local Metric Learning (Wang, Woznica, Kalousis, NIPS 2012)."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from plml.estimators._basis import BasisMetricClassifier
from plml.progress import gap_progress
from plml.solvers.problem import Solution, history_arrays
from plml.stages.anchors import Anchors, kmeans_anchors
from plml.stages.graph import SCALE_NEIGHBOR, graph_laplacian, local_scales, similarity_graph
from plml.stages.metrics import Metrics, learn_metrics
from plml.stages.neighbors import euclidean_neighbors
from plml.stages.triplets import (
    Triplets,
    check_targets,
    cross_triplets,
    impostor_neighbors,
    target_neighbors,
)
from plml.stages.weights import WeightProblem, learn_weights, query_weight_problem


class Preparation(NamedTuple):
    """What stage 2 needs and no choice of ``regularization`` changes."""

    anchors: Anchors
    scales: np.ndarray
    weights: Solution
    triplets: Triplets


class PLML(BasisMetricClassifier):
    """Nearest-neighbour classification under a metric that varies smoothly over the data.

    Stage 1 learns, for every instance, convex weights W_i over m anchor points,

        min_W ||X - W U||_F^2 + locality tr(W G) + smoothness tr(W^T L W),

    and stage 2 the basis metrics M_b of the local metrics M_i = sum_b W_ib M_b,

        min_{M_b >= 0} regularization sum_b ||M_b||_F^2 + pull sum_ij d^2_i(x_i, x_j)
                       + sum_ijk [1 + d^2_i(x_i, x_j) - d^2_i(x_i, x_k)]_+ ,

    over same-class neighbours j and other-class neighbours k of every instance i. Both problems
    are convex, and both solutions come with a certificate: a relative gap to the optimum.

    Parameters
    ----------
    n_bases : int
        m, the number of anchor points and basis metrics.
    regularization : float
        alpha_1. Larger gives smaller, smoother metrics; ``PLMLCV`` selects it.
    pull : float
        alpha_2, the weight of the distances to same-class neighbours.
    locality, smoothness : float
        lambda_1, lambda_2 of stage 1.
    n_targets, n_impostors : int
        Same-class and other-class neighbours that make the triplets of an instance.
    n_graph_neighbors : int
        Neighbours in the similarity graph of stage 1.
    n_neighbors : int
        Neighbours that vote.
    query_weights : {"nearest", "optimize"}
        Weights of a new point: those of its nearest training instance, or the solution of the
        stage-1 problem for that point given the training weights.
    tol : float
        Relative gap at which each stage stops.
    max_iter : int
        Iterations of each stage at the most.
    solver : {"auto", "fista"}
        ``"fista"`` is the paper's algorithm to the letter; ``"auto"`` is faster and carries the
        same certificate.
    device : {"cpu"}
        Where the work is done.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    random_state : int, RandomState or None
        Seeds the k-means of the anchor points.
    verbose : int
        Above zero shows the progress of both stages.

    Attributes
    ----------
    anchors_ : (m, d) array
    weights_ : (n_samples, m) array
        Rows on the simplex.
    basis_metrics_ : (m, d, d) array
        Positive semidefinite.
    objective_ : float
        Stage-2 primal value of ``basis_metrics_``, in float64.
    dual_gap_ : float
        Relative duality gap of stage 2 at ``basis_metrics_``, in float64.
    weights_gap_ : float
        Relative Frank-Wolfe gap of stage 1 at ``weights_``.
    n_iter_, weights_n_iter_ : int
        Iterations of stage 2 and of stage 1.
    history_ : dict
        ``"weights"`` and ``"metrics"``: arrays ``iteration``, ``value``, ``gap``, ``seconds``.
        The value of ``"metrics"`` is the negative dual of stage 2.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    References
    ----------
    J. Wang, A. Woznica, A. Kalousis. Parametric Local Metric Learning for Nearest Neighbor
    Classification. NIPS 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import PLML
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PLML(n_bases=5, random_state=0).fit(X, y)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    >>> bool(model.dual_gap_ <= model.tol)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasisMetricClassifier._parameter_constraints,
        "n_bases": [Interval(Integral, 1, None, closed="left")],
        "regularization": [Interval(Real, 0, None, closed="neither")],
        "pull": [Interval(Real, 0, None, closed="left")],
        "locality": [Interval(Real, 0, None, closed="left")],
        "smoothness": [Interval(Real, 0, None, closed="left")],
        "n_targets": [Interval(Integral, 1, None, closed="left")],
        "n_impostors": [Interval(Integral, 1, None, closed="left")],
        "n_graph_neighbors": [Interval(Integral, 1, None, closed="left")],
        "query_weights": [StrOptions({"nearest", "optimize"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions({"auto", "fista"})],
        "device": [StrOptions({"cpu"})],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        n_bases: int = 20,
        regularization: float = 1.0,
        pull: float = 1.0,
        locality: float = 1.0,
        smoothness: float = 100.0,
        n_targets: int = 3,
        n_impostors: int = 3,
        n_graph_neighbors: int = 6,
        n_neighbors: int = 1,
        query_weights: str = "nearest",
        tol: float = 1e-3,
        max_iter: int = 1000,
        solver: str = "auto",
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_bases = n_bases
        self.regularization = regularization
        self.pull = pull
        self.locality = locality
        self.smoothness = smoothness
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.n_graph_neighbors = n_graph_neighbors
        self.n_neighbors = n_neighbors
        self.query_weights = query_weights
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, X: np.ndarray, y: np.ndarray) -> None:
        check_targets(y, self.classes_)
        preparation = self._prepare(X, y)
        metrics = self._learn_metrics(X, preparation, self.regularization, self.tol)
        self._assemble(X, preparation, metrics)
        self._warn_of_trouble()

    def _prepare(self, X: np.ndarray, y: np.ndarray) -> Preparation:
        """Graph, anchors, weights and triplets."""
        squared, neighbors = euclidean_neighbors(X, max(self.n_graph_neighbors, SCALE_NEIGHBOR))
        laplacian = graph_laplacian(similarity_graph(squared, neighbors, self.n_graph_neighbors))
        anchors = kmeans_anchors(X, self.n_bases, check_random_state(self.random_state))
        problem = WeightProblem(X, anchors.centers, self.locality, self.smoothness, laplacian)
        with gap_progress("stage 1, weights", self.tol, self.verbose) as callback:
            weights = learn_weights(
                problem,
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                callback=callback,
            )
        triplets = cross_triplets(
            target_neighbors(X, y, self.n_targets), impostor_neighbors(X, y, self.n_impostors)
        )
        return Preparation(anchors, local_scales(squared), weights, triplets)

    def _learn_metrics(
        self,
        X: np.ndarray,
        preparation: Preparation,
        regularization: float,
        tol: float,
        gamma: np.ndarray | None = None,
    ) -> Metrics:
        with gap_progress("stage 2, metrics", tol, self.verbose) as callback:
            return learn_metrics(
                X,
                preparation.weights.x.astype(X.dtype),
                preparation.triplets,
                regularization,
                self.pull,
                solver=self.solver,
                tol=tol,
                max_iter=self.max_iter,
                gamma=gamma,
                callback=callback,
            )

    def _assemble(self, X: np.ndarray, preparation: Preparation, metrics: Metrics) -> None:
        """Set the fitted attributes."""
        weights = preparation.weights
        self.anchors_ = preparation.anchors.centers.astype(X.dtype, copy=False)
        self.weights_ = weights.x.astype(X.dtype, copy=False)
        self.weights_gap_ = weights.gap
        self.weights_n_iter_ = weights.n_iter
        self.basis_metrics_ = metrics.M
        self.objective_ = metrics.objective
        self.dual_gap_ = metrics.gap
        self.n_iter_ = metrics.n_iter
        self.history_ = {
            "weights": history_arrays(weights.history),
            "metrics": history_arrays(metrics.history),
        }
        self._scales = preparation.scales
        self._build_index(X)

    def _warn_of_trouble(self) -> None:
        for stage, gap in (("1 (weights)", self.weights_gap_), ("2 (metrics)", self.dual_gap_)):
            if gap > self.tol:
                warnings.warn(
                    f"stage {stage} stopped at a relative gap of {gap:.2e}, above tol={self.tol:g}; "
                    f"raise max_iter={self.max_iter} or tol",
                    ConvergenceWarning,
                    stacklevel=4,
                )
        if not self.basis_metrics_.any():
            warnings.warn(
                "the learned metric is zero, so every distance is: same-class neighbours are no "
                "nearer than other-class ones; lower pull or check the labels and features",
                UserWarning,
                stacklevel=4,
            )

    def _weights_at(self, X: np.ndarray) -> np.ndarray:
        if self.query_weights == "nearest":
            _, nearest = euclidean_neighbors(self._fit_X, 1, X)
            return self.weights_[nearest[:, 0]]
        squared, neighbors = euclidean_neighbors(
            self._fit_X, max(self.n_graph_neighbors, SCALE_NEIGHBOR), X
        )
        problem = query_weight_problem(
            X,
            self.anchors_,
            self.locality,
            self.smoothness,
            self.weights_,
            self._scales,
            squared,
            neighbors,
            self.n_graph_neighbors,
        )
        solution = learn_weights(problem, solver="auto", tol=self.tol, max_iter=self.max_iter)
        return solution.x.astype(X.dtype, copy=False)
