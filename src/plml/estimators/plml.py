"""Parametric Local Metric Learning (Wang, Woznica, Kalousis, NIPS 2012)."""

from dataclasses import dataclass

from plml.estimators._large_margin import LargeMarginClassifier
from plml.estimators._parameters import POSITIVE, parameter
from plml.estimators._sharded_training import ShardedTraining
from plml.estimators._smooth_weights import SmoothWeights


@dataclass(kw_only=True, eq=False, repr=False)
class PLML(ShardedTraining, SmoothWeights, LargeMarginClassifier):
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
    vote : {"uniform", "distance", "linear"}
        Every neighbour has one vote, or the inverse of its distance; neighbours at distance zero
        outvote all others. ``"linear"``: the shares are the values at the query of affine functions
        that ridge regression fits to the classes of the neighbours.
    class_weight : {"balanced"}, dict or None
        Weights of the classes, which multiply the weights of their rows. In both stages, the terms
        of an instance are multiplied by its weight. "balanced" gives all classes
        the same total weight; a class that a dict does not name has weight one.
    weigh_votes : bool
        Multiply the votes of neighbours by their weights, too; ``"linear"`` becomes weighted
        ridge regression.
    rescale : bool
        Learn in units in which the mean squared distance of the rows to their mean is one, so that
        the parameters mean the same in any units; metrics are returned in the units of X. ``False``
        takes the rows as they are, as the paper does with rows of unit length.
    prior : {None, "identity", "within"}
        None is the paper's penalty ``||M_b||_F^2``. Otherwise it is ``||M_b - P||_F^2``, with P a
        multiple of the identity, or of the inverse of the within-class scatter, under which an
        average impostor pair has distance one.
    n_directions : int, "auto" or None
        The largest number of directions to learn in, those in which the rows vary most (the first
        principal components); in the others the metric is zero. None is all directions; "auto" is
        all up to 1,000, and otherwise the first 512, with a warning. ``variance_kept_`` is the
        share of the variance that is left. Both certificates are those of the problems in these
        directions. (A Dask cluster learns in all of them.)
    case_metrics : {None, "class", "local"}
        Metrics at the stored cases besides those at the queries: ``M(x) + N_j`` with one N per
        class of the case, or ``N_j = sum_b W_jb N_b`` by the case's own weights. None is the
        paper's.
    query_weights : {"nearest", "optimize"}
        Weights of a new point: those of its nearest training instance, or the solution of the
        stage-1 problem for that point given the training weights.
    tol : float
        Relative gap at which each stage stops.
    max_iter : int
        Maximum number of iterations of each stage.
    solver : {"auto", "fista"}
        ``"fista"`` is the paper's algorithm to the letter; ``"auto"`` is faster and carries the
        same certificate.
    neighbor_search : {"auto", "exact", "approximate"}
        How the neighbours of the graph and of the triplets are found. ``"approximate"`` looks into
        the nearest cells of an inverted file (faiss) only; ``"auto"`` does so from 200,000 rows on
        a processor. ``neighbor_recall_`` is the share of a sample's true neighbours that it found.
    search_backend : {"exact", "approximate"}
        How ``predict`` and ``kneighbors`` search. ``"approximate"`` walks along a navigable graph
        (faiss's HNSW); ``search_recall_`` is the share that it finds.
    device : str
        Where the work is done: ``"cpu"``, or ``"cuda"`` for a GPU through PyTorch. Training tensors
        on a GPU stay there; predictions are returned where their queries came from. Fitted
        attributes are NumPy arrays in any case, and a model predicts on any machine.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    working_memory : float or None
        Upper limit in MiB for temporary arrays, in addition to the data, the solution and their
        copies. None takes blocks of a few MiB on a processor, and a part of the free memory on a
        GPU.
    warm_start : bool
        Start the next fit from the weights and the duals of the last one. Rows are known by their
        values and class; the anchors stay as long as half of the rows are known. Keeps 20 bytes per
        triplet.
    random_state : int, RandomState or None
        Seeds the k-means of the anchor points.
    verbose : int
        A value above zero shows the progress of the whole fit.

    Attributes
    ----------
    anchors_ : (m, d) array
    weights_ : (n_samples, m) array
        Rows on the simplex, of the training rows; ``local_weights()`` has those of all cases.
    basis_metrics_ : (m, d, d) array
        Positive semidefinite.
    case_metrics_ : (n_classes, d, d) or (m, d, d) array
        The metrics N of the cases, with ``case_metrics``.
    scale_ : float
        The length that is one while learning; 1.0 without ``rescale``.
    variance_kept_ : float
        The share of the variance in the directions that were learned in.
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
    kept_rows_ : (n_samples,) array
        Where the training rows were in X, if some were left out for their weight of zero; they are
        numbered without these.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    AutoPLML : Selects the metrics and everything else; for any table.
    PLMLCV : Selects ``regularization`` by cross-validation.
    SML : One metric for all points.

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

    regularization: float = parameter(1.0, POSITIVE)
