"""Large Margin Nearest Neighbour classification with several metrics."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

from plml.backend.arrays import Array
from plml.estimators._fit_warnings import fewer_anchors
from plml.estimators._lmnn_shared import LargeMarginNeighbors
from plml.estimators._parameters import COUNT, parameter
from plml.metric.case_metric import CaseMetric
from plml.stages.anchors import kmeans_anchors
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class LMNNMM(LargeMarginNeighbors):
    """Nearest-neighbour classification under one large-margin metric per class (or cluster),

        min_M (1 - push) sum_{j ~> i} d^2_j(x_i, x_j)
              + push sum_{j ~> i} sum_{l: y_l != y_i} [1 + d^2_j(x_i, x_j) - d^2_l(x_i, x_l)]_+ ,

    with d_j the distance under the metric of the class (or cluster) of x_j: a distance is measured
    with the metric of the *training* point, also in ``kneighbors`` and in prediction.
    ``get_mahalanobis_matrix`` and ``pair_distance`` speak of the metric at a point: that of its
    nearest training instance.

    Parameters
    ----------
    n_metrics : int or None
        None learns one metric per class; a number, one for each of that many k-means clusters.
    n_targets, push, n_neighbors, vote, n_components, decision
        As in ``LMNN``; ``decision="energy"`` needs one metric per class.
    solver : {"auto", "convex", "factored"}
        As in ``LMNN``. The default has a certificate where every class has targets enough, and none
        where the targets of some class leave out a direction: fewer rows than features, or a
        feature that is constant in the class. The optimum then follows what a few rows happen to
        leave out, at the cost of accuracy (``benchmarks/lmnnmm_certificate.py``).
    validation_fraction : float or None
        Share of the training data held out to stop early, 0.3 in the paper of Weinberger and Saul;
        None learns on all of it.
    tol, max_iter, device, n_jobs, random_state, verbose
        As in ``LMNN``.

    Attributes
    ----------
    basis_metrics_ : (m, d, d) array
        One metric per class, in the order of ``classes_``, or per cluster.
    metric_of_ : (n_samples,) array
        Which of them each training instance carries.
    objective_, dual_gap_, converged_, validation_error_, n_iter_, history_
        As in ``LMNN``; ``dual_gap_`` is NaN where ``"auto"`` took the factored solver, too.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    References
    ----------
    K. Q. Weinberger, L. K. Saul. Distance Metric Learning for Large Margin Nearest Neighbor
    Classification. JMLR 10, 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import LMNNMM
    >>> X, y = load_iris(return_X_y=True)
    >>> LMNNMM().fit(X, y).basis_metrics_.shape
    (3, 4, 4)
    """

    n_metrics: int | None = parameter(None, COUNT, None)

    def _group(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        if self.n_metrics is None:
            return y
        if self.decision == "energy":
            raise ValueError('decision="energy" needs one metric per class: leave n_metrics=None')
        return kmeans_anchors(X, self.n_metrics, check_random_state(self.random_state)).labels

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        self.basis_metrics_ = self._outward(self._fit_metrics(X, y, run))
        self.metric_of_ = self._groups

    def _make_metric(self) -> CaseMetric:
        return CaseMetric(self._fit_X, self.metric_of_, self.basis_metrics_, self._span)

    def fit_warnings(self) -> Iterator[Warning]:
        if self.n_metrics is not None:
            yield from fewer_anchors(
                self.n_metrics, len(self.basis_metrics_), len(self._fit_X), "n_metrics"
            )
        yield from super().fit_warnings()
