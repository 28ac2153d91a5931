import gzip

import numpy as np
import pytest

from plml_study import tables


@pytest.fixture
def folder(tmp_path):
    with gzip.open(tmp_path / "fruit.csv.gz", "wt") as stream:
        stream.write("1,2.5,apple;1\n-3,4e2,pear;2\n\n0,0,apple;10\n")
    return tmp_path


def test_a_table_with_its_folds(folder):
    assert tables.names(folder) == ["fruit"]
    X, y, folds = tables.read(folder, "fruit")
    np.testing.assert_array_equal(X, [[1.0, 2.5], [-3.0, 400.0], [0.0, 0.0]])
    np.testing.assert_array_equal(y, ["apple", "pear", "apple"])
    np.testing.assert_array_equal(folds, [1, 2, 10])


def test_a_folder_without_tables_is_named(tmp_path):
    with pytest.raises(ValueError, match="holds no tables"):
        tables.names(tmp_path)
