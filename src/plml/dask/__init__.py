"""The same fit on a Dask cluster, for data that no longer fits one machine."""

from typing import Any

import plml.dask.sizes  # noqa: F401  (workers import it with any task of ours)

__all__ = ["collect", "fit"]


def fit(
    model: Any,
    X: Any,
    y: Any,
    *,
    n_shards: int | None = None,
    n_landmarks: int | None = None,
) -> Any:
    """Fit a ``PLML`` to Dask collections, on the cluster of the current client.

    Where there is no client, a ``LocalCluster`` with one worker per core is started and kept.

    Parameters
    ----------
    model : PLML
    X : Dask array (n_samples, n_features) or data frame
    y : labels, a Dask array or series with the same blocks, or one label per row on this machine
    n_shards : pieces that the rows are sorted into; by default one per thread of the cluster, or
        as many as its memory asks for
    n_landmarks : rows that stage 1 is learned on; the weights of the others are those that a new
        point gets. By default all rows up to 262,144, and as many beyond. What stage 1 holds of
        them, their weights foremost, has to fit the memory of the driver.

    Returns
    -------
    model : its training data stays on the cluster; ``collect`` brings it here
    """
    return model.fit_collection(X, y, n_shards=n_shards, n_landmarks=n_landmarks)


def collect(model: Any) -> Any:
    """Bring the training data of a model from the cluster to this machine, in its order.

    Afterwards the model is as if it had been fitted here: it explains, plots, saves and serves.
    """
    return model.collect()
