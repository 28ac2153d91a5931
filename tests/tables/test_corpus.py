"""Every awkward file is read right, with what there is to say, or refused with the cure."""

import pandas as pd
import pytest

import corpus
import exported_files
import foreign_files
import office_files
from plml import read_table

FILES = (corpus, office_files, foreign_files, exported_files)
CASES = [case for module in FILES for case in module.cases()]
COUNT = 447


def test_how_many_there_are():
    assert len(CASES) == COUNT
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.content for case in CASES}) >= 120


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, tmp_path):
    path = case.write(tmp_path)
    if case.table is None:
        with pytest.raises(ValueError, match="cannot be read as a table: ") as error:
            read_table(path, **case.options)
        said = str(error.value).split("cannot be read as a table: ")[1]
        assert "\n" not in said
    else:
        table, understood = read_table(path, **case.options)
        same = {"check_dtype": False, "check_column_type": False}
        pd.testing.assert_frame_equal(
            table, case.table.reset_index(drop=True), check_exact=True, **same
        )
        said = str(understood)
    for words in case.words:
        assert words in said
