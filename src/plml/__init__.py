"""Smooth local metric learning for nearest-neighbour classification and search.

Names are imported when they are first used, so that a program waits only for what it needs.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from plml.evaluation.staleness import staleness
    from plml.explorer.server import explore
    from plml.inspection.counterfactuals import Counterfactual, counterfactual
    from plml.inspection.explain_any import explain
    from plml.io.checkpoints import Checkpoint
    from plml.io.model_files import load, save
    from plml.tables.column_report import ColumnReport, describe
    from plml.tables.table_reader import read_table

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
    "ColumnReport",
    "Counterfactual",
    "KernelSVM",
    "__version__",
    "counterfactual",
    "describe",
    "explain",
    "explore",
    "load",
    "read_table",
    "save",
    "staleness",
]

#: The module of every name; type checkers read the same above.
_HOMES = {
    "AutoPLML": "plml.estimators.auto_plml",
    "BoostMetric": "plml.estimators.boostmetric",
    "CBLML": "plml.estimators.cblml",
    "DANN": "plml.estimators.dann",
    "GLML": "plml.estimators.glml",
    "KernelSVM": "plml.estimators.kernelsvm",
    "LMNN": "plml.estimators.lmnn",
    "LMNNMM": "plml.estimators.lmnnmm",
    "PLML": "plml.estimators.plml",
    "PLMLCV": "plml.estimators.plml_cv",
    "SML": "plml.estimators.sml",
    "staleness": "plml.evaluation.staleness",
    "explore": "plml.explorer.server",
    "Counterfactual": "plml.inspection.counterfactuals",
    "counterfactual": "plml.inspection.counterfactuals",
    "explain": "plml.inspection.explain_any",
    "Checkpoint": "plml.io.checkpoints",
    "load": "plml.io.model_files",
    "save": "plml.io.model_files",
    "ColumnReport": "plml.tables.column_report",
    "describe": "plml.tables.column_report",
    "read_table": "plml.tables.table_reader",
}


def __getattr__(name: str) -> Any:
    """Import a name or a package on its first use (PEP 562)."""
    if name in _HOMES:
        globals()[name] = value = getattr(import_module(_HOMES[name]), name)
        return value
    if not name.startswith("_") and find_spec(f"plml.{name}"):
        return import_module(f"plml.{name}")
    raise AttributeError(f"module 'plml' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, whether they were used or not."""
    return sorted(__all__)
