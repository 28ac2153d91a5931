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
    n_shards : pieces into which the rows are sorted; by default one per thread of the cluster, or
        more if its memory requires it
    n_landmarks : rows on which stage 1 is learned; the others get their weights as new points do.
        By default all rows up to 262,144, and that many beyond. What stage 1 holds of them, mainly
        their weights, has to fit into the memory of the driver.

    Returns
    -------
    model : its training data stays on the cluster; ``collect`` brings it here

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import load_iris
    >>> import plml.dask
    >>> from plml import PLML
    >>> X, y = load_iris(return_X_y=True)
    >>> with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0"):
    ...     rows, labels = da.from_array(X, chunks=(75, -1)), da.from_array(y, chunks=75)
    ...     model = plml.dask.fit(PLML(n_bases=4, random_state=0), rows, labels)
    ...     model = plml.dask.collect(model)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """
    return model.fit_collection(X, y, n_shards=n_shards, n_landmarks=n_landmarks)


def collect(model: Any) -> Any:
    """Bring the training data of a model from the cluster to this machine, in the original order.

    Afterwards the model is as if it had been fitted here: it explains, plots, saves and serves.

    Parameters
    ----------
    model : PLML
        Fitted to Dask collections.

    Returns
    -------
    model

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import load_iris
    >>> import plml.dask
    >>> from plml import PLML
    >>> X, y = load_iris(return_X_y=True)
    >>> with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0"):
    ...     rows, labels = da.from_array(X, chunks=(75, -1)), da.from_array(y, chunks=75)
    ...     model = plml.dask.fit(PLML(n_bases=4, random_state=0), rows, labels)
    ...     model = plml.dask.collect(model)
    >>> model.predict(X[:3])
    array([0, 0, 0])
    """
    return model.collect()
