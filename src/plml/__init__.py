"""Smooth local metric learning for nearest-neighbour classification and search."""

from plml.estimators.plml import PLML

__version__ = "0.1.0"

__all__ = ["PLML", "__version__"]
