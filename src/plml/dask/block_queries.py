"""Questions in blocks: Dask collections of queries, answered by Dask arrays with their blocks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed

from plml.backend.arrays import is_chunked
from plml.dask.reading import row_blocks
from plml.dask.sharded_metric import Nearest, ShardedMetric
from plml.stages.search import vote
from plml.validation import positive_integer, query_data

#: (method, delayed block of queries, arguments of the method) -> its answer, delayed; distances
#: and indices side by side.
Answer = Callable[..., Delayed]


class BlockQueries:
    """The query methods of a fitted estimator, for Dask collections.

    Parameters
    ----------
    model : fitted estimator
    n_neighbors : that ``kneighbors`` returns by default
    answer : who answers; by default the model, which is sent to the blocks
    """

    def __init__(self, model: Any, n_neighbors: int, answer: Answer | None = None) -> None:
        self.model = model
        self.n_neighbors = n_neighbors
        self._answer = answer or partial(_asked, delayed(model, pure=False))

    def predict(self, X: Any) -> da.Array:
        """As ``PLML.predict``."""
        return self._ask(X, self.model.classes_.dtype, None, "predict")

    def predict_proba(self, X: Any) -> da.Array:
        """As ``PLML.predict_proba``."""
        return self._ask(X, np.float64, len(self.model.classes_), "predict_proba")

    def kneighbors(self, X: Any, n_neighbors: int | None, return_distance: bool) -> Any:
        """As ``PLML.kneighbors``."""
        asked = self.n_neighbors if n_neighbors is None else n_neighbors
        k = positive_integer("n_neighbors", asked)
        found = self._ask(X, np.float64, 2 * k, "kneighbors", k)
        distances, indices = found[:, :k], found[:, k:].astype(np.int64)
        return (distances, indices) if return_distance else indices

    def local_weights(self, X: Any) -> da.Array:
        """As ``PLML.local_weights``."""
        width = len(self.model.basis_metrics_)
        return self._ask(X, self.model.weights_.dtype, width, "local_weights")

    def _ask(self, X: Any, dtype: Any, width: int | None, method: str, *arguments: Any) -> da.Array:
        blocks, expected = row_blocks(X), self.model.n_features_in_
        if X.shape[1] != expected:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self.model).__name__} is expecting "
                f"{expected} features as input"
            )
        sizes = X.chunks[0] if is_chunked(X) else (np.nan,) * len(blocks)
        columns = delayed(_unfitted(self.model), pure=False)
        trailing = () if width is None else (width,)
        answers = [self._answer(method, _checked(block, columns), *arguments) for block in blocks]
        return da.concatenate(
            [
                da.from_delayed(_as_long(answer, block), (size, *trailing), dtype=dtype)
                for answer, block, size in zip(answers, blocks, sizes, strict=True)
            ]
        )


def answered_by_shards(metric: ShardedMetric, classes: np.ndarray, n_neighbors: int) -> Answer:
    """By training data on the cluster, which the blocks go to; ``n_neighbors`` vote."""
    metric.training.check_current()

    def answer(method: str, Q: Delayed, k: int = n_neighbors) -> Delayed:
        if method == "local_weights":
            return metric.delayed_weights(Q)
        return delayed(told_by, pure=False)(metric.delayed_nearest(Q, k), method, classes)

    return answer


@delayed(pure=False)
def _asked(model: Any, method: str, Q: np.ndarray, *arguments: Any) -> np.ndarray:
    rows: Any = Q
    if hasattr(model, "feature_names_in_"):  # checked before, not to be complained of twice
        import pandas as pd

        rows = pd.DataFrame(Q, columns=model.feature_names_in_)
    answer = getattr(model, method)(rows, *arguments)
    return np.concatenate(answer, axis=1) if isinstance(answer, tuple) else answer


def told_by(voters: Nearest, method: str, classes: np.ndarray) -> np.ndarray:
    """The answer of ``predict``, ``predict_proba`` or ``kneighbors``."""
    distances, rows, (codes,) = voters
    if method == "kneighbors":
        return np.concatenate([np.sqrt(distances.squared), rows.astype(float)], axis=1)
    shares = vote(codes, len(classes))
    return shares if method == "predict_proba" else classes[shares.argmax(axis=1)]


def _unfitted(model: Any) -> Any:
    """An estimator that knows the columns of a model and nothing else of its fit.

    It is small, and what the checks of queries say is said of the estimator that the user knows.
    """
    estimator = type(model)(**model.get_params(deep=False))
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(estimator, name, getattr(model, name))
    return estimator


@delayed(pure=False)
def _checked(block: Any, columns: Any) -> np.ndarray:
    """A block without rows asks for one, and gets none of the answer."""
    if not len(block):
        return np.zeros((1, columns.n_features_in_))
    return query_data(columns, block)


@delayed(pure=False)
def _as_long(answer: np.ndarray, block: Any) -> np.ndarray:
    return answer[: len(block)]
