"""Parametric Local Metric Learning (Wang, Woznica, Kalousis, NIPS 2012)."""

from typing import Any, ClassVar

import numpy as np

from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._recipe import RuleMaker
from plml.estimators._sharded_training import ShardedTraining
from plml.estimators._smooth_weights import CONSTRAINTS, smooth_rule_maker, smooth_weighting
from plml.stages.pipeline import SmoothWeighting


class PLML(ShardedTraining, LargeMarginClassifier):
    """Nearest-neighbour classification under a metric that varies smoothly over the data.

    Stage 1 learns, for every instance, convex weights W_i over m anchor points,

        min_W ||X - W U||_F^2 + locality tr(W G) + smoothness tr(W^T L W),

    and stage 2 the basis metrics M_b of the local metrics M_i = sum_b W_ib M_b,

        min_{M_b >= 0} regularization sum_b ||M_b||_F^2 + pull sum_ij d^2_i(x_i, x_j)
                       + sum_ijk [1 + d^2_i(x_i, x_j) - d^2_i(x_i, x_k)]_+ ,

    over same-class neighbours j and other-class neighbours k of every instance i. Both problems
    are convex, and both solutions come with a certificate: a relative gap to the optimum.

    Dask arrays and data frames are learned from on the cluster of the current Dask client (see
    ``plml.dask``), and Dask collections of queries are answered block by block.

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
    neighbor_search : {"auto", "exact", "approximate"}
        How the neighbours of the graph and of the triplets are found. ``"approximate"`` looks into
        the nearest cells of an inverted file (faiss) only; ``"auto"`` does so from 200,000 rows on
        a processor. What it found of a sample's true neighbours is ``neighbor_recall_``.
    search_backend : {"exact", "approximate"}
        How ``predict`` and ``kneighbors`` search. ``"approximate"`` walks along a navigable graph
        (faiss's HNSW); ``search_recall_`` says what it finds.
    device : str
        Where the work is done: ``"cpu"``, or ``"cuda"`` for a GPU through PyTorch. Training tensors
        on a GPU are worked on where they are; predictions go where their queries came from. Fitted
        attributes are NumPy arrays in any case, and a model predicts on any machine.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    working_memory : float or None
        MiB of temporary arrays at the most, besides the data, the solution and their copies. None
        takes blocks of a few MiB on a processor, and a part of what is free on a GPU.
    random_state : int, RandomState or None
        Seeds the k-means of the anchor points.
    verbose : int
        Above zero shows the progress of the whole fit.

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
    converged_ : bool
        Whether both gaps are at most ``tol``; a callback may have stopped the fit before.
    n_iter_, weights_n_iter_ : int
        Iterations of stage 2 and of stage 1.
    history_ : dict
        ``"weights"`` and ``"metrics"``: arrays ``iteration``, ``value``, ``gap``, ``seconds``.
        The value of ``"metrics"`` is the negative dual of stage 2.
    search_recall_ : float
        Share of the true neighbours that ``search_backend`` finds for a sample of training rows.
    neighbor_recall_ : dict
        Share of the true neighbours found for ``"graph"``, ``"targets"`` and ``"impostors"``.
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
        **LargeMarginClassifier._parameter_constraints,
        **CONSTRAINTS,
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
        neighbor_search: str = "auto",
        search_backend: str = "exact",
        device: str = "cpu",
        n_jobs: int | None = None,
        working_memory: float | None = None,
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
        self.neighbor_search = neighbor_search
        self.search_backend = search_backend
        self.device = device
        self.n_jobs = n_jobs
        self.working_memory = working_memory
        self.random_state = random_state
        self.verbose = verbose

    def _weighting(self) -> SmoothWeighting:
        return smooth_weighting(self)

    def _rule_maker(self) -> RuleMaker:
        return smooth_rule_maker(self)

    def _metric_parameters(self) -> tuple[Any, ...]:
        rule = self._weighting(), self.query_weights, self.tol, self.max_iter
        return *super()._metric_parameters(), *rule
