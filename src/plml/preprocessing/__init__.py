"""What distances want of the columns of a table before they are learned from."""

from plml.preprocessing.mean_norm import MeanNormScaler
from plml.preprocessing.table_encoder import TableEncoder

__all__ = ["MeanNormScaler", "TableEncoder"]
