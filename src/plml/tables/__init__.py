"""From a table on disk to a model on disk and back, in the columns and units of the table."""

from plml.tables.table_models import Model, fit, load, read_table, write_table

__all__ = ["Model", "fit", "load", "read_table", "write_table"]
