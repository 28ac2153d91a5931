"""Large Margin Nearest Neighbour classification with several metrics."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

from plml.backend.arrays import Array
from plml.estimators._fit_warnings import fewer_anchors
from plml.estimators._lmnn_shared import LargeMarginNeighbors
from plml.estimators._parameters import COUNT, parameter
from plml.metric.case_metric import CaseMetric, with_mean_metrics
from plml.stages.anchors import kmeans_anchors
from plml.stages.run import Run


@dataclass(kw_only=True, eq=False, repr=False)
class LMNNMM(LargeMarginNeighbors):
    """Nearest-neighbour classification under one large-margin metric per class (or cluster).

    The metrics solve

        min_M (1 - push) sum_{j ~> i} d^2_j(x_i, x_j)
              + push sum_{j ~> i} sum_{l: y_l != y_i} [1 + d^2_j(x_i, x_j) - d^2_l(x_i, x_l)]_+ ,

    where d_j is the distance under the metric of the class (or cluster) of x_j: a distance is
    measured with the metric of the *training* point, also in ``kneighbors`` and in prediction.
    ``get_mahalanobis_matrix`` and ``pair_distance`` use the metric at a point, which is that of its
    nearest training instance.

    Parameters
    ----------
    n_metrics : int or None
        None learns one metric per class; a number, one for each of that many k-means clusters.
    n_targets, push, n_neighbors, vote, class_weight, weigh_votes, n_components, decision
        As in ``LMNN``; ``decision="energy"`` needs one metric per class.
    solver : {"auto", "convex", "factored"}
        As in ``LMNN``. The default has a certificate if every class has enough targets, and none
        if the targets of some class leave out a direction: fewer rows than features, or a
        feature that is constant in the class. The optimum then depends on what a few rows happen
        to leave out, at the cost of accuracy (``benchmarks/lmnnmm_certificate.py``).
    validation_fraction : float or None
        Share of the training data held out for early stopping, 0.3 in the paper of Weinberger and
        Saul; None uses all of it.
    tol, max_iter, device, n_jobs, random_state, verbose
        As in ``LMNN``.

    Attributes
    ----------
    basis_metrics_ : (m, d, d) array
        One metric per class, in the order of ``classes_``, or per cluster.
    metric_of_ : (n_samples,) array
        The number of the metric of each training instance.
    objective_, dual_gap_, converged_, validation_error_, n_iter_, history_
        As in ``LMNN``; ``dual_gap_`` is NaN where ``"auto"`` took the factored solver, too.
    classes_ : (n_classes,) array
    n_features_in_, feature_names_in_ : as in scikit-learn

    See Also
    --------
    LMNN : One metric for all classes.
    PLML : With ``case_metrics="class"``, local metrics and one per class.

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

    _per_case = (*LargeMarginNeighbors._per_case, "metric_of_")

    def _group(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        if self.n_metrics is None:
            return y
        if self.decision == "energy":
            raise ValueError('decision="energy" needs one metric per class: leave n_metrics=None')
        random = check_random_state(self.random_state)
        return kmeans_anchors(X, self.n_metrics, random, self._fit_weights).labels

    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        self.basis_metrics_ = self._outward(self._fit_metrics(X, y, run))
        self.metric_of_ = self._groups
        self._one_per_class = self.n_metrics is None

    def _make_metric(self) -> CaseMetric:
        return CaseMetric(
            self._fit_X,
            self.metric_of_,
            self.basis_metrics_,
            self._span,
            self.n_learned,
            self._origin,
        )

    def _metrics_are_of_classes(self) -> bool:
        """Whether there is one per class; models of older files do not say so."""
        return vars(self).get("_one_per_class", len(self.basis_metrics_) == len(self.classes_))

    def _of_new_cases(self, rows: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
        groups = codes if self._metrics_are_of_classes() else self._metric.groups_at(rows)
        return {"_groups": groups, "metric_of_": groups}

    def _take_classes(self, classes: np.ndarray) -> None:
        if self._metrics_are_of_classes():
            places = np.searchsorted(classes, self.classes_)
            self.basis_metrics_ = with_mean_metrics(self.basis_metrics_, places, len(classes))
            self.metric_of_ = self._groups = places[self.metric_of_]
        super()._take_classes(classes)

    def fit_warnings(self) -> Iterator[Warning]:
        if self.n_metrics is not None:
            yield from fewer_anchors(
                self.n_metrics, len(self.basis_metrics_), len(self._fit_X), "n_metrics"
            )
        yield from super().fit_warnings()
