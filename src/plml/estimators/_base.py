"""What every nearest-neighbour classifier of this library shares."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from plml.backend.arrays import (
    Array,
    as_written,
    check_device,
    is_chunked,
    is_on_gpu,
    is_tensor,
    like,
    namespace,
    on_host,
    to_device,
    working_memory,
)
from plml.backend.threads import limit_threads
from plml.estimators._callbacks import FRAMES, with_callbacks
from plml.estimators._graphs import (
    check_mode,
    check_radius,
    neighbor_graph,
    ragged,
    within_radius,
)
from plml.estimators._state import of_one_fit, refitted
from plml.estimators._validation import (
    check_kinds,
    largest_safe,
    points,
    positive_integer,
    query_data,
    refuse_keywords,
    training_data,
)
from plml.ops.span import Span, span_of
from plml.progress import work
from plml.stages.search import vote


class NeighborClassifier(ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """k-nearest-neighbour classification under a learned metric.

    A subclass learns in ``_learn`` and answers ``_search``, ``_squared_distances`` and
    ``_metrics_at``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }

    n_neighbors: int
    #: Whether queries can stay on a GPU.
    _searches_on_gpu: ClassVar[bool] = False
    #: Attributes that are made again where the model goes.
    _made_again: ClassVar[tuple[str, ...]] = ()
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

    def _fit(self, X: Any, y: Any) -> Self:
        self._validate_params()
        with refitted(self) as model:
            X, codes = model._validated(X, y)
            with model._threads(), work(getattr(self, "verbose", 0)):
                X = model._moved(X)
                model._find_span(X)
                model._learn(model._inside(X), codes)
        for trouble in model._troubles():
            warnings.warn(trouble, stacklevel=3 + FRAMES)
        return self

    def _validated(self, X: Any, y: Any) -> tuple[Array, np.ndarray]:
        """Checked data and class codes, remembered; a tensor on a GPU where it can stay there."""
        check_device(self._device)
        tensor = X
        X, classes, codes = training_data(self, X, y)
        X = X.copy()  # whoever changes the array later does not change the model
        if self.n_neighbors > len(X):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the {len(X)} training rows"
            )
        self._remember(X, codes, classes)
        stays = is_on_gpu(tensor) and str(tensor.dtype).endswith(X.dtype.name)
        return (tensor if stays else X), codes

    def _find_span(self, X: Array) -> None:
        span = span_of(X)
        if span is not None:
            self._span_center, self._span_basis = span

    @property
    def _span(self) -> Span | None:
        if self._span_center is None or self._span_basis is None:
            return None
        return Span(self._span_center, self._span_basis)

    def _inside(self, X: Array) -> Array:
        """Points in the coordinates of the learning and of the search."""
        return X if self._span is None else self._span.coordinates(X)

    def _outward(self, M: np.ndarray) -> np.ndarray:
        """Metrics of these coordinates in those of the data, in its dtype."""
        M = M if self._span is None else self._span.outward(M)
        return M.astype(self._fit_X.dtype, copy=False)

    def _inward(self, M: np.ndarray) -> np.ndarray:
        """Metrics in the coordinates of the learning and of the search."""
        return M if self._span is None else self._span.inward(M)

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest share in ``predict_proba``; ties to the first class.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame
        """
        check_is_fitted(self)
        codes = self._predict_codes(self._validate_queries(X))
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
        check_is_fitted(self)
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
                found = self._search(None, k)
                return tuple(on_host(part)[rows] for part in found)
            found = self._search(queries[like(rows, queries)], k)
            return on_host(found[0]), on_host(found[1])

        with self._threads():
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
        with self._threads():
            return self._search(queries, k)

    @of_one_fit
    def get_mahalanobis_matrix(self, X: Any = None) -> np.ndarray:
        """The metric matrix at each point, (n_queries, n_features, n_features).

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        check_is_fitted(self)
        with self._threads():
            return follow(self._metrics_at(None if X is None else self._validate_queries(X)), X)

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
        with self._threads():
            result = self._squared_distances(first, second)
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

    @abstractmethod
    def _learn(self, X: np.ndarray, y: np.ndarray) -> None:
        """Set the fitted attributes from validated X and class codes y."""

    def _troubles(self) -> Iterable[Warning]:
        """What a user should know of the fit."""
        return ()

    @abstractmethod
    def _search(self, X: Array | None, k: int) -> tuple[Array, Array]:
        """Squared distances and indices of the k nearest; None: of the training instances."""

    def _nearest(self, X: Array, k: int) -> Array:
        """Indices of the k nearest in any order, for a vote."""
        return self._search(X, k)[1]

    @abstractmethod
    def _squared_distances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Squared distances between rows."""

    @abstractmethod
    def _metrics_at(self, X: Array | None) -> Array:
        """(n, d, d) metric matrices; None: at the training instances."""

    def _remember(self, X: np.ndarray, codes: np.ndarray, classes: np.ndarray) -> None:
        """Keep what a neighbour search needs of the training data."""
        self.classes_ = classes
        self._fit_X = X
        self._fit_codes = codes
        self._class_sizes = np.bincount(codes, minlength=len(classes))

    def _shares(self, X: Array) -> Array:
        if self.n_neighbors > len(self._fit_X):
            raise ValueError(
                f"n_neighbors={self.n_neighbors} is more than the {len(self._fit_X)} training rows"
            )
        with self._threads():
            neighbors = self._nearest(X, int(self.n_neighbors))
            codes = like(self._fit_codes, neighbors)
            return vote(codes[neighbors], len(self.classes_))

    def _predict_codes(self, X: Array) -> Array:
        shares = self._shares(X)
        return namespace(shares).argmax(shares, axis=1)

    def _validate_queries(self, X: Any) -> Array:
        """Checked queries: a NumPy array, or the tensor itself where it can stay on its GPU."""
        if is_on_gpu(X) and self._searches_on_gpu and self._is_fine(X):
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

    @property
    def _device(self) -> str:
        """The parameter, where the estimator has one."""
        return getattr(self, "device", "cpu")

    def _place(self, X: Array) -> Array:
        """X where and in the coordinates in which the work is done."""
        return self._inside(self._moved(X))

    def _moved(self, X: Array) -> Array:
        """X on the device of the work, or where it already is on a GPU.

        A model that was fitted on a GPU works on the processor where there is none.
        """
        try:
            check_device(self._device)
        except ValueError:
            return on_host(X)
        return to_device(X, self._device)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in self._made_again}

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """The threads and the memory that the parameters allow."""
        memory = getattr(self, "working_memory", None)
        n_jobs = getattr(self, "n_jobs", None)
        with limit_threads(n_jobs), working_memory(memory), as_written():
            yield


def follow(result: Array, X: Any) -> Array:
    """A result where the query came from: tensors for tensors, Dask arrays as they are, else NumPy
    arrays.
    """
    if is_chunked(result):
        return result
    return like(result, X) if is_tensor(X) else on_host(result)
