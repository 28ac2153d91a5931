"""Smooth local metric learning for nearest-neighbour classification and search."""

from plml.estimators.cblml import CBLML
from plml.estimators.lmnn import LMNN
from plml.estimators.lmnnmm import LMNNMM
from plml.estimators.plml import PLML
from plml.estimators.plml_cv import PLMLCV
from plml.estimators.sml import SML

__version__ = "0.1.0"

__all__ = ["CBLML", "LMNN", "LMNNMM", "PLML", "PLMLCV", "SML", "__version__"]
