"""Blocks of rows and labels, checked; without a cluster."""

import numpy as np
import pandas as pd
import pytest

from cluster_at_once import ClusterAtOnce
from plml.dask.reading import (
    Block,
    _classes,
    _numbered,
    _read,
    _recut,
    _survey,
    row_blocks,
)
from plml.validation import missing_labels


@pytest.mark.parametrize("sizes", [[4, 4, 2], [1, 0, 9], [10]])
def test_labels_in_blocks_of_other_sizes(sizes):
    labels = np.arange(10)
    blocks = _recut(ClusterAtOnce(), [labels[:7], labels[7:]], [7, 3], sizes)
    assert [len(block) for block in blocks] == sizes
    np.testing.assert_array_equal(np.concatenate(blocks), labels)


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        ([1.0, np.nan], True),
        ([1, 2], False),
        (np.array(["a", None], dtype=object), True),
        (np.array(["a", pd.NA], dtype=object), True),
        (np.array(["a", "b"], dtype=object), False),
    ],
)
def test_missing_labels(labels, missing):
    assert missing_labels(np.asarray(labels)).any() == missing


def test_a_block_says_what_it_holds():
    X = np.array([[1.0, 5.0], [3.0, -2.0]])
    survey = _survey(_read(X, ["b", "a"], np.dtype(np.float32), None), None)
    assert survey.n_rows == 2
    assert survey.total.tolist() == [4.0, 3.0]
    assert survey.low.tolist() == [1.0, -2.0]
    assert survey.high.tolist() == [3.0, 5.0]
    assert survey.labels.tolist() == ["a", "b"]


def test_a_block_says_what_is_wrong_with_it():
    X = np.array([[1.0, np.inf], [3.0, 2.0]])
    assert "feature 1" in _survey(Block(X, np.array([0, 1])), None)
    assert _survey("a complaint of before", None) == "a complaint of before"


def test_a_block_names_the_column_that_holds_text():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    complaint = _read(frame, [0, 1], np.dtype(np.float64), np.array(["a", "b"], dtype=object))
    assert isinstance(complaint, str)
    assert "'b'" in complaint


def test_a_block_without_rows_says_so():
    survey = _survey(Block(np.empty((0, 2)), np.empty(0, dtype=int)), None)
    assert survey.n_rows == 0
    assert survey.total.tolist() == [0.0, 0.0]
    assert (survey.low > survey.high).all()  # neither is a smallest or largest entry of others


def test_labels_become_class_numbers():
    X = np.zeros((3, 1))
    block = _numbered(Block(X, np.array(["b", "c", "a"])), np.array(["a", "b", "c"]))
    assert block.codes.tolist() == [1, 2, 0]
    assert block.X is X


def test_blocks_have_all_columns():
    import dask.array as da

    blocks = row_blocks(da.ones((6, 4), chunks=(4, 2)))
    assert [block.compute().shape for block in blocks] == [(4, 4), (2, 4)]
    for bad in (da.ones(6), da.ones((6, 0))):
        with pytest.raises(ValueError, match="two dimensions and at least one column"):
            row_blocks(bad)


def test_the_classes_of_all_blocks():
    X = np.zeros((3, 1))
    surveys = [
        _survey(Block(X, np.array(labels)), None) for labels in (["b", "b", "a"], ["c", "b", "b"])
    ]
    classes, sizes = _classes(surveys)
    assert classes.tolist() == ["a", "b", "c"]
    assert sizes.tolist() == [1, 4, 1]
    with pytest.raises(ValueError, match="one class only"):
        _classes([_survey(Block(X, np.zeros(3)), None)])
