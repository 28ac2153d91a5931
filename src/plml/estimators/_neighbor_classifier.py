"""What every nearest-neighbour classifier of this library shares."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import (
    Array,
    check_device,
    is_chunked,
    is_collection,
    is_on_gpu,
    is_tensor,
    like,
    namespace,
    on_host,
    to_available_device,
)
from plml.estimators._callbacks import FRAMES, stage_callback, with_callbacks
from plml.estimators._fitted_state import of_one_fit, refitted
from plml.estimators._neighborhoods import (
    check_mode,
    check_radius,
    neighbor_graph,
    ragged,
    within_radius,
)
from plml.io.checkpoints import Checkpoint
from plml.ops.span import Span, inside, outward, span_of
from plml.solvers.problem import NO_CHECKPOINT
from plml.stages.run import Run
from plml.stages.search import vote
from plml.validation import (
    check_kinds,
    largest_safe,
    points,
    positive_integer,
    query_data,
    refuse_keywords,
    training_data,
)


class NeighborClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """k-nearest-neighbour classification under a learned metric.

    A subclass learns in ``_learn`` and makes the metric that answers questions in
    ``_make_metric``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }

    n_neighbors: int
    # Parameters that not every estimator has.
    device: str = "cpu"
    n_jobs: int | None = None
    working_memory: float | None = None
    verbose: int = 0

    #: Attributes that no file holds: they are made again where the model goes.
    _not_pickled: ClassVar[tuple[str, ...]] = ("_made_metric",)
    _made_metric: tuple[tuple[Any, ...], Any] | None = None
    #: Names of the attributes that the last fit has set.
    _fitted_names: tuple[str, ...] = ()
    #: Where the rows do not differ in all directions, those in which they do (see ``ops.span``).
    _span_center: np.ndarray | None = None
    _span_basis: np.ndarray | None = None

    @with_callbacks
    def fit(self, X: Any, y: Any = None, **unknown: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : (n_samples, n_features) array or data frame
        y : (n_samples,) class labels
        """
        refuse_keywords(self, unknown)
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any, checkpoint: Checkpoint | None = None) -> Self:
        self._validate_params()
        with refitted(self) as model:
            X, codes = model._validated(X, y)
            run = model._run(checkpoint)
            with run.shown():
                X = to_available_device(X, model.device)
                model._set_span(span_of(X))
                model._learn(inside(X, model._span), codes, run)
        for warning in model._fit_warnings():
            warnings.warn(warning, stacklevel=3 + FRAMES)
        return self

    @abstractmethod
    def _learn(self, X: Array, y: np.ndarray, run: Run) -> None:
        """Set the fitted attributes from rows in their span and class codes y."""

    @abstractmethod
    def _make_metric(self) -> Any:
        """The metric that the fitted attributes describe (see ``plml.metric``)."""

    def _metric_parameters(self) -> tuple[Any, ...]:
        """Parameters that a metric depends on; one that is changed after a fit counts at once."""
        return (self.device,)

    def _fit_warnings(self) -> Iterator[Warning]:
        """What a user should know of the fit."""
        yield from ()

    @property
    def _metric(self) -> Any:
        """The metric, made once per fit."""
        parameters = self._metric_parameters()
        made = self._made_metric
        if made is None or made[0] != parameters:
            made = self._made_metric = parameters, self._make_metric()
        return made[1]

    def _run(self, checkpoint: Checkpoint | None = None) -> Run:
        """What goes on around a fit, or around a question."""
        return Run(
            NO_CHECKPOINT
            if checkpoint is None
            else checkpoint.open(
                {"estimator": type(self).__name__, **self.get_params()},
                self._fit_X,
                self._fit_codes,
            ),
            partial(stage_callback, self),
            self.n_jobs,
            self.working_memory,
            self.verbose,
        )

    def _validated(self, X: Any, y: Any) -> tuple[Array, np.ndarray]:
        """Checked data and class codes, remembered; a tensor on a GPU where it can stay there."""
        check_device(self.device)
        tensor = X
        X, self.classes_, codes = training_data(self, X, y)
        if self.n_neighbors > len(X):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the {len(X)} training rows"
            )
        # A copy: whoever changes the array later does not change the model.
        self._fit_X, self._fit_codes = X.copy(), codes
        self._class_sizes = np.bincount(codes, minlength=len(self.classes_))
        stays = is_on_gpu(tensor) and str(tensor.dtype).endswith(X.dtype.name)
        return (tensor if stays else self._fit_X), codes

    def _set_span(self, span: Span | None) -> None:
        if span is not None:
            self._span_center, self._span_basis = span

    @property
    def _span(self) -> Span | None:
        if self._span_center is None or self._span_basis is None:
            return None
        return Span(self._span_center, self._span_basis)

    def _outward(self, M: np.ndarray) -> np.ndarray:
        """Learned metrics in the coordinates of the data, in its dtype."""
        return outward(M, self._span).astype(self._fit_X.dtype, copy=False)

    def _elsewhere(self, X: Any) -> Any:
        """What answers questions that do not meet their training data on this machine, or None."""
        check_is_fitted(self)
        if not is_collection(X):
            return None
        from plml.dask.block_queries import BlockQueries

        return BlockQueries(self)

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest share in ``predict_proba``; ties to the first class.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        elsewhere = self._elsewhere(X)
        if elsewhere is not None:
            return elsewhere.predict(X)
        shares = self._shares(self._validate_queries(X))
        codes = namespace(shares).argmax(shares, axis=1)
        if self.classes_.dtype.kind in "biuf":
            return follow(like(self.classes_, codes)[codes], X)
        return self.classes_[on_host(codes)]

    @of_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Share of the nearest training instances in each class, columns as in ``classes_``.

        (With the energy rule of ``LMNN`` and ``LMNNMM``: the softmax of minus the energies.)

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        elsewhere = self._elsewhere(X)
        if elsewhere is not None:
            return elsewhere.predict_proba(X)
        return follow(self._shares(self._validate_queries(X)), X)

    @of_one_fit
    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """The nearest training instances under the learned metric, nearest first.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances,
            each of which is then left out of its own neighbours
        n_neighbors : how many; by default the ``n_neighbors`` of the estimator
        return_distance : whether distances are returned, too

        Returns
        -------
        distances : (n_queries, n_neighbors) array, only with ``return_distance``
        indices : (n_queries, n_neighbors) array of training rows
        """
        elsewhere = None if X is None else self._elsewhere(X)
        if elsewhere is not None:
            return elsewhere.kneighbors(X, n_neighbors, return_distance)
        squared, neighbors = self._found(X, n_neighbors)
        neighbors = follow(neighbors, X)
        return (follow(squared**0.5, X), neighbors) if return_distance else neighbors

    @of_one_fit
    def kneighbors_graph(
        self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> sparse.csr_matrix:
        """The neighbours of ``kneighbors`` as a sparse matrix (n_queries, n_samples).

        Parameters
        ----------
        X, n_neighbors : as in ``kneighbors``
        mode : {"connectivity", "distance"}
            Entries are ones, or the distances.
        """
        check_mode(mode)
        squared, neighbors = (on_host(part) for part in self._found(X, n_neighbors))
        values = list(np.sqrt(squared)) if mode == "distance" else None
        return neighbor_graph(values, list(neighbors), len(self._fit_X))

    @of_one_fit
    def radius_neighbors(
        self,
        X: Any = None,
        radius: float = 1.0,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """All training instances within a distance under the learned metric.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances,
            each of which is then left out of its own neighbours
        radius : the largest distance
        return_distance : whether distances are returned, too
        sort_results : nearest first; otherwise in the order of the training instances

        Returns
        -------
        distances : (n_queries,) array of arrays, only with ``return_distance``
        indices : (n_queries,) array of arrays of training rows
        """
        distances, indices = self._within(X, radius, sort_results)
        return (ragged(distances), ragged(indices)) if return_distance else ragged(indices)

    @of_one_fit
    def radius_neighbors_graph(
        self,
        X: Any = None,
        radius: float = 1.0,
        mode: str = "connectivity",
        sort_results: bool = False,
    ) -> sparse.csr_matrix:
        """The neighbours of ``radius_neighbors`` as a sparse matrix (n_queries, n_samples).

        Parameters
        ----------
        X, radius, sort_results : as in ``radius_neighbors``
        mode : {"connectivity", "distance"}
            Entries are ones, or the distances.
        """
        check_mode(mode)
        distances, indices = self._within(X, radius, sort_results)
        values = distances if mode == "distance" else None
        return neighbor_graph(values, indices, len(self._fit_X))

    def _within(
        self, X: Any, radius: float, nearest_first: bool
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Distances and indices of ``radius_neighbors``."""
        check_is_fitted(self)
        radius = check_radius(radius)
        queries = None if X is None else self._validate_queries(X)
        n_rows = len(self._fit_X) - (X is None)
        n_queries = len(self._fit_X) if queries is None else len(queries)

        def search(rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
            if queries is None:  # a training row is left out of its own neighbours
                found = self._metric.search(None, k)
                return tuple(on_host(part)[rows] for part in found)
            found = self._metric.search(queries[like(rows, queries)], k)
            return on_host(found[0]), on_host(found[1])

        with self._run().limits():
            return within_radius(search, n_queries, n_rows, radius, nearest_first)

    def _found(self, X: Any, n_neighbors: int | None) -> tuple[Array, Array]:
        """Squared distances and indices of the neighbours, for arguments as a user gives them."""
        check_is_fitted(self)
        k = positive_integer(
            "n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors
        )
        available = len(self._fit_X) - (X is None)
        if k > available:
            raise ValueError(
                f"n_neighbors={k} is more than the {available} instances to choose from"
            )
        queries = None if X is None else self._validate_queries(X)
        with self._run().limits():
            return self._metric.search(queries, k)

    @of_one_fit
    def get_mahalanobis_matrix(self, X: Any = None) -> np.ndarray:
        """The metric matrix at each point, (n_queries, n_features, n_features).

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        check_is_fitted(self)
        with self._run().limits():
            return follow(self._metric.matrix(None if X is None else self._validate_queries(X)), X)

    @of_one_fit
    def pair_distance(self, pairs: Any, squared: bool = False) -> np.ndarray:
        """Distance within each pair, under the metric at its *first* point.

        A local metric is not symmetric: swapping the two points changes the distance.

        Parameters
        ----------
        pairs : (n_pairs, 2, n_features) array
        squared : return squared distances
        """
        check_is_fitted(self)
        check_kinds(pairs, None)
        given, pairs = pairs, on_host(pairs)
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(
                f"pairs must have shape (n_pairs, 2, {self.n_features_in_}), got {pairs.shape}"
            )
        first, second = self._validate_pair_points(pairs)
        with self._run().limits():
            result = self._metric.pair_distances(first, second)
        return follow(result if squared else np.sqrt(result), given)

    def pair_score(self, pairs: Any) -> np.ndarray:
        """Minus ``pair_distance``: the larger, the more alike the two points of a pair.

        Parameters
        ----------
        pairs : (n_pairs, 2, n_features) array
        """
        return -self.pair_distance(pairs)

    @of_one_fit
    def get_metric(self) -> Callable[..., float]:
        """The learned metric as a function of two points, ``metric(u, v, squared=False)``.

        The metric is that at ``u``. The function stays as it is when the estimator is fitted again.
        """
        check_is_fitted(self)

        def metric(u: Any, v: Any, squared: bool = False) -> float:
            for point in (u, v):
                check_kinds(point, None)
            u, v = np.asarray(u), np.asarray(v)
            if u.ndim != 1 or u.shape != v.shape:
                raise ValueError(f"give two points of one dimension, got {u.shape} and {v.shape}")
            return float(self.pair_distance(np.stack([u, v])[None], squared)[0])

        return metric

    def _shares(self, X: Array) -> Array:
        if self.n_neighbors > len(self._fit_X):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the {len(self._fit_X)} training rows"
            )
        with self._run().limits():
            return vote(self._nearest_codes(X, int(self.n_neighbors)), len(self.classes_))

    def _nearest_codes(self, X: Array, k: int) -> Array:
        """(q, k) class codes of the nearest training instances, in any order."""
        neighbors = self._metric.nearest(X, k)
        return like(self._fit_codes, neighbors)[neighbors]

    def _validate_queries(self, X: Any) -> Array:
        """Checked queries: a NumPy array, or the tensor itself where it can stay on its GPU."""
        if is_on_gpu(X) and self._metric.searches_on_gpu and self._is_fine(X):
            return X.detach()
        return self._validate_on_host(X)

    def _is_fine(self, X: Array) -> bool:
        """Whether a tensor needs no conversion and no complaint."""
        if X.ndim != 2 or X.shape[1] != self.n_features_in_ or not len(X):
            return False
        dtype = str(X.dtype).rpartition(".")[2]
        # NaN is not below any limit.
        return dtype in ("float32", "float64") and bool(X.abs().max() <= largest_safe(dtype))

    def _validate_on_host(self, X: Any) -> np.ndarray:
        return query_data(self, X)

    def _validate_pair_points(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if pairs.shape[2] != self.n_features_in_:
            raise ValueError(
                f"pairs have {pairs.shape[2]} features, but {type(self).__name__} was fitted "
                f"with {self.n_features_in_}"
            )
        return points(pairs[:, 0]), points(pairs[:, 1])

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in self._not_pickled}


def follow(result: Array, X: Any) -> Array:
    """A result where the query came from: tensors for tensors, Dask arrays as they are, else NumPy
    arrays.
    """
    if is_chunked(result):
        return result
    return like(result, X) if is_tensor(X) else on_host(result)
