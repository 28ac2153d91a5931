"""The questions that a fitted metric of any kind answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from plml.backend.arrays import (
    Array,
    is_chunked,
    is_collection,
    is_on_gpu,
    is_tensor,
    like,
    on_host,
)
from plml.estimators._callbacks import stage_callback
from plml.estimators._fitted_state import MADE_METRIC, of_one_fit
from plml.estimators._neighborhoods import (
    check_mode,
    check_radius,
    neighbor_graph,
    ragged,
    within_radius,
)
from plml.inspection.explaining import CaseBase
from plml.inspection.explanation import Explanation
from plml.metric.remembered_weights import with_memory
from plml.metric.votes import Voting
from plml.ops.span import Span, inside, outward
from plml.preprocessing.servable import check_kinds, refuse_unservable
from plml.stages.run import Run
from plml.validation import (
    case_numbers,
    check_rows,
    largest_safe,
    pair_points,
    positive_integer,
    query_data,
)

if TYPE_CHECKING:
    from plml.evaluation.staleness import Staleness

#: Cases that an explanation lists at most, where nobody says how many.
MOST_LISTED = 15


class MetricQueries(ABC):
    """Mixin for estimators that have a metric; a subclass makes it in ``_make_metric``."""

    n_neighbors: int
    vote: str
    n_jobs: int | None
    # Parameters that not every estimator has.
    device: str = "cpu"
    search_backend: str = "exact"
    working_memory: float | None = None
    verbose: int = 0

    classes_: np.ndarray
    n_features_in_: int
    _fit_X: np.ndarray
    _fit_codes: np.ndarray
    #: How often each training row counts; None where all count once.
    _fit_weights: np.ndarray | None = None
    weigh_votes: bool = False
    _made_metric: tuple[tuple[Any, ...], Any] | None = None
    #: What vectors are about; models of older files have none, and take the mean of their rows.
    _origin: np.ndarray | None = None
    #: Where the rows do not differ in all directions, those in which they do (see ``ops.span``).
    _span_center: np.ndarray | None = None
    _span_basis: np.ndarray | None = None

    @abstractmethod
    def _make_metric(self) -> Any:
        """The metric that the fitted attributes describe (see ``plml.metric``)."""

    @abstractmethod
    def _shares(self, X: Array) -> Array:
        """(q, n_classes) shares of the classes in the votes for checked queries."""

    def _voting(self) -> tuple[int, str]:
        """How many neighbours vote, and how."""
        return int(self.n_neighbors), self.vote

    @property
    def _vote_weights(self) -> np.ndarray | None:
        """(n,) by which the votes of the training rows are multiplied, or None."""
        return self._fit_weights if self.weigh_votes else None

    def _metric_parameters(self) -> tuple[Any, ...]:
        """Parameters that the metric depends on; a change after the fit takes effect at once."""
        return (self.device,)

    @property
    def _metric(self) -> Any:
        """The metric, made once per fit."""
        parameters = self._metric_parameters()
        made = self._made_metric
        if made is None or made[0] != parameters:
            made = self._made_metric = parameters, self._make_metric()
        return made[1]

    @property
    def _span(self) -> Span | None:
        if self._span_center is None or self._span_basis is None:
            return None
        return Span(self._span_center, self._span_basis)

    def _placed_origin(self) -> np.ndarray | None:
        """The point that vectors are about, in the coordinates of the search."""
        return None if self._origin is None else inside(self._origin[None], self._span)[0]

    def _outward(self, M: np.ndarray) -> np.ndarray:
        """Learned metrics in the coordinates of the data, in its dtype."""
        return outward(M, self._span).astype(self._fit_X.dtype, copy=False)

    def _run(self) -> Run:
        """What goes on around a fit, or around a question."""
        return Run(
            observe=partial(stage_callback, self),
            n_jobs=self.n_jobs,
            memory=self.working_memory,
            verbose=self.verbose,
        )

    def _ask(self, question: str, X: Any, *arguments: Any) -> Any:
        """The answer of the metric for the points that a user gives, None for the training rows."""
        queries = None if X is None else self._validate_queries(X)
        with self._run().limits():
            return getattr(self._metric, question)(queries, *arguments)

    @of_one_fit
    def training_cases(self) -> tuple[np.ndarray, np.ndarray]:
        """The cases, and the position of the class of each one in ``classes_``.

        The first ``n_learned`` are the rows that were learned from, then those that were added.
        """
        return self._fit_X, self._fit_codes

    def training_names(self) -> np.ndarray | None:
        """The labels of the training rows in the index of their data frame, if it had its own."""
        return vars(self).get("_row_names")

    def training_weights(self) -> np.ndarray | None:
        """How often each case counts, with the weight of its class; None where all count once."""
        return self._fit_weights

    @of_one_fit
    def training_metrics(self, rows: Any) -> np.ndarray:
        """The metric matrices at some training rows, (n_rows, n_features, n_features).

        Parameters
        ----------
        rows : (n_rows,) numbers of training rows
        """
        with self._run().limits():
            rows = case_numbers(rows, len(self._fit_X))
            return on_host(self._metric.matrix(self._fit_X[rows]))

    def _remote_queries(self, X: Any) -> Any:
        """What answers for queries that are not on this machine, or None."""
        if not is_collection(X):
            return None
        from plml.dask.block_queries import BlockQueries

        return BlockQueries(self, self._voting()[0])

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
        return_distance : whether distances are returned as well

        Returns
        -------
        distances : (n_queries, n_neighbors) array, only with ``return_distance``
        indices : (n_queries, n_neighbors) array of training rows
        """
        if (remote := self._remote_queries(X)) is not None:
            return remote.kneighbors(X, n_neighbors, return_distance)
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
        return_distance : whether distances are returned as well
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

    @of_one_fit
    def get_mahalanobis_matrix(self, X: Any = None) -> np.ndarray:
        """The metric matrix at each point, (n_queries, n_features, n_features).

        If the cases have metrics as well (``case_metrics`` of ``PLML``), it is the metric between
        the point and a case at the same location, with the metric of the nearest training instance.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        return follow(self._ask("matrix", X), X)

    @of_one_fit
    def pair_distance(self, pairs: Any, squared: bool = False) -> np.ndarray:
        """Distance within each pair, under the metric at its *first* point.

        A local metric is not symmetric: swapping the two points changes the distance. If the
        cases have metrics as well (``case_metrics`` of ``PLML``), the second point is a case, with
        the metric of its nearest training instance.

        Parameters
        ----------
        pairs : (n_pairs, 2, n_features) array
        squared : return squared distances
        """
        first, second = pair_points(self, pairs)
        with self._run().limits():
            result = self._metric.pair_distances(first, second)
        return follow(result if squared else np.sqrt(result), pairs)

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

        The metric is that at ``u``. The function does not change when the estimator is fitted
        again.
        """

        def metric(u: Any, v: Any, squared: bool = False) -> float:
            for point in (u, v):
                refuse_unservable(point, "a point", ndim=None)
                check_kinds(point, None)
            u, v = np.asarray(u), np.asarray(v)
            if u.ndim != 1 or u.shape != v.shape:
                raise ValueError(f"give two points of one dimension, got {u.shape} and {v.shape}")
            return float(self.pair_distance(np.stack([u, v])[None], squared)[0])

        return metric

    @of_one_fit
    def explain(self, X: Any = None, n_neighbors: int | None = None) -> Explanation:
        """The vote behind each prediction, why this class and not another, and the nearest cases.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances,
            each of which is then left out of its own neighbours
        n_neighbors : cases listed per query; by default those that vote, 15 at most
        """
        if X is not None:
            check_rows(X)
        queries = None if X is None else self._validate_on_host(X)
        base = self.case_base()
        k = self.n_listed(X, n_neighbors, base.voting.n_neighbors)
        with base.limits():
            near = base.near(queries, max(k, base.voting.n_neighbors))
            found = base.election(queries, [(1.0, base.voting)], near)
            explained = base.explanation(queries, k, found, found.shares, near=near)
        return explained.of_table(X).named(X, self.training_names())

    @of_one_fit
    def local_importance(self, X: Any = None) -> np.ndarray:
        """How much each feature sets the classes apart near each point, (n_queries, n_features).

        Rows are shares that sum to one. They are averages over the 15 nearest training instances
        of what a feature alone adds to the squared distances to the nearest cases of other classes,
        minus what it adds to those of the same class, where *nearest* means nearest without the
        feature. Negative averages count as zero.

        Parameters
        ----------
        X : (n_queries, n_features) array or data frame, or None for the training instances
        """
        queries = None if X is None else self._validate_on_host(X)
        with self._run().limits():
            return self.case_base().local_importance(queries)

    @of_one_fit
    def average_importance(self) -> np.ndarray:
        """The average of ``local_importance`` over the training instances (1,000 at most).

        Returns (n_features,) shares. A feature whose average is within two standard errors of
        zero counts as zero.
        """
        with self._run().limits():
            return self.case_base().average_importance()

    @of_one_fit
    def staleness(self, X: Any, y: Any, *, n_parts: int = 2, random_state: int = 0) -> "Staleness":
        """What the learned metric loses on new labelled rows, and whether a refit is due.

        Parameters
        ----------
        X, y : rows that were not learned from, and their classes
        n_parts, random_state : as in ``plml.staleness``
        """
        from plml.evaluation.staleness import staleness

        return staleness(self, X, y, n_parts=n_parts, random_state=random_state)

    def case_base(self, columns: np.ndarray | None = None) -> CaseBase:
        """The labelled training rows under the metric, to be asked for explanations.

        Parameters
        ----------
        columns : (n_features,) what the features were made from; by default each its own
        """
        unnamed = [f"x{i}" for i in range(self.n_features_in_)]
        names = np.asarray(getattr(self, "feature_names_in_", unnamed), dtype=object)
        return CaseBase(
            with_memory(self._metric),
            self._fit_X,
            self._fit_codes,
            self.classes_,
            names,
            columns=columns,
            voting=Voting(*self._voting()),
            sample_weight=self._vote_weights,
            rule=None if self._votes_are_counted() else lambda X: on_host(self._shares(X)),
            limits=self._run().limits,
        )

    def _votes_are_counted(self) -> bool:
        """Whether the prediction is a vote of neighbours."""
        return True

    def n_listed(self, X: Any, n_neighbors: int | None, voters: int) -> int:
        """How many cases an explanation lists."""
        available = len(self._fit_X) - (X is None)
        if n_neighbors is None:
            return min(voters, MOST_LISTED, available)
        k = positive_integer("n_neighbors", n_neighbors)
        if k > available:
            raise ValueError(
                f"n_neighbors={k} is more than the {available} instances to choose from"
            )
        return k

    def _found(self, X: Any, n_neighbors: int | None) -> tuple[Array, Array]:
        """Squared distances and indices of the neighbours, for arguments as a user gives them."""
        asked = self._voting()[0] if n_neighbors is None else n_neighbors
        return self._ask("search", X, self.n_listed(X, asked, asked))

    def _within(
        self, X: Any, radius: float, nearest_first: bool
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Distances and indices of ``radius_neighbors``."""
        radius = check_radius(radius)
        queries = None if X is None else self._validate_queries(X)
        n_queries = len(self._fit_X if queries is None else queries)

        def search(rows: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
            metric = self._metric
            if queries is None:  # a training row is left out of its own neighbours
                found = metric.search_rows(rows, k)
            else:
                found = metric.search(queries[like(rows, queries)], k)
            return tuple(on_host(part) for part in found)

        with self._run().limits():
            n_rows = len(self._fit_X) - (X is None)
            return within_radius(search, n_queries, n_rows, radius, nearest_first)

    def _validate_queries(self, X: Any) -> Array:
        """Checked queries: a NumPy array, or the tensor itself where it can stay on its GPU."""
        if is_on_gpu(X) and self._metric.searches_on_gpu and self._is_fine(X):
            return X.detach()
        return self._validate_on_host(X)

    def _validate_on_host(self, X: Any) -> np.ndarray:
        return query_data(self, X)

    def _is_fine(self, X: Array) -> bool:
        """Whether a tensor needs no conversion and no complaint."""
        if X.ndim != 2 or X.shape[1] != self.n_features_in_ or not len(X):
            return False
        dtype = str(X.dtype).rpartition(".")[2]
        # NaN is not below any limit.
        return dtype in ("float32", "float64") and bool(X.abs().max() <= largest_safe(dtype))

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != MADE_METRIC}


def follow(result: Array, X: Any) -> Array:
    """A result where the query came from: tensors for tensors, Dask arrays as they are, else NumPy
    arrays.
    """
    if is_chunked(result):
        return result
    return like(result, X) if is_tensor(X) else on_host(result)
