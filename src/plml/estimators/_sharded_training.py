"""Training data in the shards of a Dask cluster: a fit there, and questions that go there."""

import warnings
from typing import TYPE_CHECKING, Any, Self

from plml.backend.arrays import is_collection
from plml.estimators._callbacks import FRAMES, begin_fit, end_fit, with_callbacks
from plml.estimators._fitted_state import refitted

if TYPE_CHECKING:
    from plml.dask.fitting import ShardedFit
    from plml.dask.training_shards import TrainingShards
    from plml.estimators._smooth_weights import SmoothWeights as Host
else:
    Host = object

#: What one machine can do and a cluster cannot, with the only choice that is left there.
_ON_CLUSTER = {
    "solver": "auto",
    "device": "cpu",
    "search_backend": "exact",
    "prior": None,
    "n_directions": "auto",
    "case_metrics": None,
    "vote": "uniform",
    "class_weight": None,
    "weigh_votes": False,
    "warm_start": False,
}


class ShardedTraining(Host):
    """Mixin for a classifier with smooth weights: what ``plml.dask`` asks of it.

    While ``_training`` is there, the training data is on a cluster.
    """

    _training: "TrainingShards"

    @with_callbacks
    def fit_collection(
        self, X: Any, y: Any, *, n_shards: int | None = None, n_landmarks: int | None = None
    ) -> Self:
        """As ``fit``, of Dask collections; the arguments are those of ``plml.dask.fit``."""
        return self._fit_on_cluster(X, y, n_shards=n_shards, n_landmarks=n_landmarks)

    def collect(self) -> Self:
        """Bring training data from a Dask cluster to this machine (see ``plml.dask``)."""
        if "_training" not in vars(self):
            return self
        X, codes, weights, scales = self._training.collected()
        here = {"_fit_X": X, "_fit_codes": codes, "weights_": weights, "_scales": scales}
        remote = ("_training", "_made_metric")
        # In one step: whoever predicts meanwhile asks the cluster or this machine.
        self.__dict__ = {k: v for k, v in vars(self).items() if k not in remote} | here
        return self

    def _fit_collection(self, X: Any, y: Any, checkpoint: Any) -> Self:
        if checkpoint is not None:
            raise ValueError(
                "a checkpoint is for a fit on one machine; on a Dask cluster what a lost worker "
                "held is computed again"
            )
        return self._fit_on_cluster(X, y)

    def _fit_on_cluster(self, X: Any, y: Any, **numbers: int | None) -> Self:
        from plml.dask.fitting import fit_on_cluster

        self._validate_params()
        for name, only in _ON_CLUSTER.items():
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is for one machine; on a Dask cluster use "
                    f"{name}={only!r}"
                )
        weighting = self._weighting()
        with refitted(self) as model:
            begin_fit(model, 1 + weighting.n_solvers)
            fitted = fit_on_cluster(
                X,
                y,
                weighting,
                self.recipe().settings,
                model._run(),
                rescale=self.rescale,
                neighbor_search=self.neighbor_search,
                n_neighbors=self.n_neighbors,
                **numbers,
            )
            model._set_sharded(fitted)
            end_fit(model)
        for warning in self.fit_warnings():
            warnings.warn(warning, stacklevel=4 + FRAMES)
        return self

    def _set_sharded(self, fitted: "ShardedFit") -> None:
        """Set the fitted attributes; the training data stays where it is."""
        learned, table, self.scale_ = fitted.learned, fitted.table, fitted.unit
        self.classes_, self._class_sizes = table.classes, table.class_sizes
        self.n_features_in_ = table.n_features
        if table.names is not None:
            self.feature_names_in_ = table.names
        self._training = fitted.training
        self._fit_X = self._fit_codes = fitted.training.rows
        self.weights_, self.anchors_ = learned.weights.weights, learned.weights.anchors
        self.basis_metrics_ = learned.metrics.M
        self.neighbor_recall_, self.search_recall_ = learned.recall, 1.0
        self._set_certificates(learned)

    def _make_metric(self) -> Any:
        if "_training" not in vars(self):
            return super()._make_metric()
        from plml.dask.sharded_metric import ShardedMetric

        rule = self.recipe(self.scale_).make_rule(self.anchors_, self._scales, self._fit_X, None)
        return ShardedMetric(self._training, self.weights_, self.basis_metrics_, rule)

    def _remote_queries(self, X: Any) -> Any:
        if "_training" not in vars(self) or not is_collection(X):
            return super()._remote_queries(X)
        from plml.dask.block_queries import BlockQueries, answered_by_shards

        k, _ = self._voting()
        return BlockQueries(self, k, answered_by_shards(self._metric, self.classes_, k))

    def __getstate__(self) -> dict[str, Any]:
        if "_training" in vars(self):
            raise ValueError(
                "the training data of this model is on a Dask cluster; before it is saved or "
                "copied, bring it here with plml.dask.collect(model)"
            )
        return super().__getstate__()
