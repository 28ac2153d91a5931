"""From a table on disk to a model on disk and back, in the columns and units of the table."""

from plml.tables.column_report import ColumnReport, describe
from plml.tables.nearest_cases import nearest_cases
from plml.tables.table_models import (
    MISSING_VALUES,
    Model,
    fit,
    load,
    write_table,
)
from plml.tables.table_reader import ReadOptions, Understood, read_table
from plml.tables.training_rows import MOST_ROWS, row_weights

__all__ = [
    "MISSING_VALUES",
    "MOST_ROWS",
    "ColumnReport",
    "Model",
    "ReadOptions",
    "Understood",
    "describe",
    "fit",
    "load",
    "nearest_cases",
    "read_table",
    "row_weights",
    "write_table",
]
