"""Smooth local metric learning for nearest-neighbour classification and search."""

from plml.estimators.auto_plml import AutoPLML
from plml.estimators.boostmetric import BoostMetric
from plml.estimators.cblml import CBLML
from plml.estimators.dann import DANN
from plml.estimators.glml import GLML
from plml.estimators.kernelsvm import KernelSVM
from plml.estimators.lmnn import LMNN
from plml.estimators.lmnnmm import LMNNMM
from plml.estimators.plml import PLML
from plml.estimators.plml_cv import PLMLCV
from plml.estimators.sml import SML
from plml.explorer.server import explore
from plml.inspection.counterfactuals import Counterfactual, counterfactual
from plml.inspection.explain_any import explain
from plml.io.checkpoints import Checkpoint
from plml.io.model_files import load, save

__version__ = "0.1.0"

__all__ = [
    "CBLML",
    "DANN",
    "GLML",
    "LMNN",
    "LMNNMM",
    "PLML",
    "PLMLCV",
    "SML",
    "AutoPLML",
    "BoostMetric",
    "Checkpoint",
    "Counterfactual",
    "KernelSVM",
    "__version__",
    "counterfactual",
    "explain",
    "explore",
    "load",
    "save",
]
