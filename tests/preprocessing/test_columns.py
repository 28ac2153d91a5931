from decimal import Decimal

import numpy as np
import pandas as pd

from plml.preprocessing.columns import Columns
from plml.tables import read_table


def test_whole_numbers_as_categories_are_the_same_read_as_floats():
    columns = Columns(("ward",), ("ward",), imputes=True)
    ints, floats = pd.DataFrame({"ward": [1, 2]}), pd.DataFrame({"ward": [1.0, np.nan]})
    assert columns.tidy(ints, "a")["ward"].tolist() == ["1", "2"]
    assert columns.tidy(floats, "a")["ward"].tolist() == ["1", "(missing)"]


def test_decimals_are_numbers(tmp_path):
    table = pd.DataFrame({"price": [Decimal(i) / 8 for i in range(120)], "kind": ["a", "b"] * 60})
    table.to_parquet(tmp_path / "decimal.parquet")
    read = read_table(tmp_path / "decimal.parquet")[0].drop(columns="kind")
    columns = Columns.of(read, "decimal.parquet", imputes=False)
    assert "price" in columns.numbers
    assert columns.tidy(read, "decimal.parquet")["price"][8] == 1.0
