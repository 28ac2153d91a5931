"""The same fit on a Dask cluster, for data that no longer fits one machine."""

import plml.dask.sizes  # noqa: F401  (workers import it with any task of ours)
from plml.dask.fitting import collect, fit

__all__ = ["collect", "fit"]
