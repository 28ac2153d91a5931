"""The same fit on a Dask cluster, for data that no longer fits one machine."""

from plml.distributed.fitting import collect, fit

__all__ = ["collect", "fit"]
