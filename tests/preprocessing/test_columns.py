from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

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


def test_a_key_may_become_the_index():
    table = pd.DataFrame({"key": [f"INS-{i}" for i in range(60)], "size": np.arange(60.0)})
    with pytest.raises(ValueError, match="leave it out, or make it the index, which names the"):
        Columns.of(table, "table", imputes=True)


@pytest.mark.parametrize(("day_first", "form"), [(True, "the day before"), (False, "the month b")])
def test_dates_that_do_not_fit_are_told_the_form_that_is_expected(day_first, form):
    columns = Columns(("when",), (), True, ("when",), ("when",) * day_first)
    table = pd.DataFrame({"when": ["13.14.2021", "26.26.2021"]})
    with pytest.raises(ValueError, match=rf"not a date in the form of this column \({form}"):
        columns.tidy(table, "table")
