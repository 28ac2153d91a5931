"""What prepares rows: scaling, and the encoding of tables; imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plml.preprocessing.mean_norm import MeanNormScaler
    from plml.preprocessing.table_encoder import TableEncoder

__all__ = ["MeanNormScaler", "TableEncoder"]

_HOMES = {"MeanNormScaler": "mean_norm", "TableEncoder": "table_encoder"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"plml.preprocessing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'plml.preprocessing' has no attribute {name!r}")
