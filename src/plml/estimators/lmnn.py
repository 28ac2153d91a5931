"""Large Margin Nearest Neighbour classification with one metric."""

from dataclasses import dataclass

import numpy as np
from sklearn.utils._param_validation import StrOptions

from plml.backend.arrays import Array
from plml.estimators._linear_map import LinearMap
from plml.estimators._lmnn_shared import LargeMarginNeighbors
from plml.estimators._parameters import parameter
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class LMNN(LinearMap, LargeMarginNeighbors):
    """Nearest-neighbour classification under one metric, which separates targets from impostors.

    The metric M >= 0 solves

        min_M (1 - push) sum_{j ~> i} d^2(x_i, x_j)
              + push sum_{j ~> i} sum_{l: y_l != y_i} [1 + d^2(x_i, x_j) - d^2(x_i, x_l)]_+ ,

    where j are the target neighbours of i, its nearest same-class instances, and every other-class
    instance is a possible impostor l. Impostors within the margin are found by exact search and
    kept in an active set, so memory grows with their number, not with n^2.

    Parameters
    ----------
    n_targets : int
        Target neighbours of an instance.
    push : float
        mu, the weight of the hinge losses against the distances to the targets.
    n_neighbors : int
        Neighbours that vote.
    vote : {"uniform", "distance"}
        As in ``PLML``.
    class_weight, weigh_votes
        As in ``PLML``; the pull and the hinge losses of an instance are weighted.
    solver : {"convex", "factored", "auto"}
        ``"convex"`` solves the convex problem in M, with a certificate; ``"factored"`` runs L-BFGS
        on L with M = L^T L until the objective settles, without one. ``"auto"`` takes the first
        if the targets differ in all directions in which the data do, and otherwise the second: the
        optimum could then push impostors away at no cost.
    n_components : int or None
        Rows of L, a limit on the rank of M, which makes the problem the factored one whatever the
        ``solver``; None sets no limit.
    decision : {"neighbors", "energy"}
        Majority vote, or the class for which adding the point increases the objective least.
    validation_fraction : float or None
        Share of the training data held out for early stopping by 1-NN error; None uses all of it.
    tol : float
        Relative duality gap at which ``"convex"`` stops; ``"factored"`` stops when a round lowers
        the objective by less than a hundredth of it.
    max_iter : int
        Maximum number of iterations.
    device : str
        ``"cpu"`` or ``"cuda"``, as in ``PLML``.
    n_jobs : int or None
        Threads of the numerical libraries; None leaves them as they are.
    random_state : int, RandomState or None
        Seeds the split of ``validation_fraction``.
    verbose : int
        Above zero shows the progress.

    Attributes
    ----------
    components_ : (rank, d) array
        The linear map of the metric, ``M = components_^T components_``.
    basis_metrics_ : (1, d, d) array
        The metric M.
    objective_ : float
        The objective at M, over all training instances and all their impostors.
    dual_gap_ : float
        Relative duality gap at M, the certificate. NaN where there is none: with
        ``solver="factored"``, ``n_components`` or ``validation_fraction``.
    converged_ : bool
        With a certificate, whether ``dual_gap_ <= tol``; without one, whether the solver stopped by
        its own rule, a settled objective or the held-out error, before ``max_iter``. Otherwise
        there is a ``ConvergenceWarning``.
    validation_error_ : float
        Error on the held-out part, with ``validation_fraction``.
    n_iter_, history_
        As in ``PLML``; a ``gap`` in the history is infinite until a certificate is known.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    LMNNMM : One metric per class.
    SML : One metric from the problem of ``PLML``.

    References
    ----------
    K. Q. Weinberger, L. K. Saul. Distance Metric Learning for Large Margin Nearest Neighbor
    Classification. JMLR 10, 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import LMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> LMNN().fit(X, y).score(X, y)
    1.0
    """

    solver: str = parameter("convex", StrOptions({"auto", "convex", "factored"}))

    def _group(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.zeros(len(X), dtype=np.int64)

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        self._set_metric(self._fit_metrics(X, y, run))
