import gzip
import os

import numpy as np
import pytest
from sklearn.utils import Bunch

from plml_study import datasets, protocols


def test_embedded_digits_need_nothing():
    data = datasets.load("digits")
    assert data.X.shape == (1797, 64)
    assert len(np.unique(data.y)) == 10


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown data set 'iris'; choose from digits, letter"):
        datasets.load("iris")


def test_missing_file_says_what_to_put_where(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"put pendigits.tra, pendigits.tes, plain"):
        datasets.load("pendigits", tmp_path)


@pytest.mark.filterwarnings("ignore:loadtxt")
@pytest.mark.parametrize("content", [b"1,2,3\n4,5\n", b"", b"a,b,c\n"])
def test_damaged_file_is_named(tmp_path, content):
    for file in ("pendigits.tra", "pendigits.tes"):
        (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match="data set 'pendigits'"):
        datasets.load("pendigits", tmp_path)


def test_wrong_counts_are_refused(tmp_path):
    for file in ("pendigits.tra", "pendigits.tes"):
        (tmp_path / file).write_text("1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match=r"4 rows, 2 features .* expected 10992 rows, 16"):
        datasets.load("pendigits", tmp_path)


def test_truncated_gzip_is_named(tmp_path):
    whole = gzip.compress(b"1,2,3\n" * 1000)
    for file in ("pendigits.tra.gz", "pendigits.tes.gz"):
        (tmp_path / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot read"):
        datasets.load("pendigits", tmp_path)


def test_idx_files(tmp_path):
    header = (0x00000803).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (2, 1, 3))
    (tmp_path / "images").write_bytes(header + bytes(range(6)))
    np.testing.assert_array_equal(
        datasets.read_idx(tmp_path / "images"), [[[0, 1, 2]], [[3, 4, 5]]]
    )
    (tmp_path / "images").write_bytes(b"not idx")
    with pytest.raises(ValueError, match="not an IDX file"):
        datasets.read_idx(tmp_path / "images")


@pytest.mark.data
@pytest.mark.parametrize("name", datasets.SOURCES)
def test_original_files(name):
    if not os.environ.get(datasets.DATA_VARIABLE):
        pytest.skip(f"{datasets.DATA_VARIABLE} does not name a folder with the original files")
    data = datasets.load(name)
    source = datasets.SOURCES[name]
    assert data.X.shape == source.shape
    assert data.n_train == source.n_train
    assert len(np.unique(data.y)) == source.n_classes


def test_protocol_uses_training_statistics_alone(rng):
    X = rng.normal(size=(100, 5)) * [1, 2, 3, 4, 5] + 7
    data = datasets.Dataset("pendigits", X, np.arange(100) % 2, 60)
    ((train, test),) = protocols.splits(data)
    assert len(train) == 60
    assert set(train).isdisjoint(test)
    X_train, _, X_test, _ = protocols.prepared_split(data, train, test)
    np.testing.assert_allclose(np.linalg.norm(X_train, axis=1), 1.0)
    standard = (X[test] - X[train].mean(axis=0)) / X[train].std(axis=0)
    expected = standard / np.linalg.norm(standard, axis=1, keepdims=True)
    np.testing.assert_allclose(X_test, expected)


def test_protocol_reduces_three_data_sets_before_the_unit_norm(rng):
    steps = {name: list(protocols.preprocessing(name).named_steps) for name in datasets.SOURCES}
    for name in ("usps", "isolet", "mnist"):
        assert steps[name] == ["standardize", "pca", "normalize"]
    for name in ("letter", "pendigits", "optdigits"):
        assert steps[name] == ["standardize", "normalize"]


def test_ten_folds_without_a_default_split(rng):
    data = datasets.Dataset("letter", rng.normal(size=(200, 2)), np.arange(200) % 4, None)
    folds = list(protocols.splits(data))
    assert len(folds) == 10
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(200))


def test_from_openml(monkeypatch, rng):
    def fetch(name, version, **options):
        assert (name, version) == ("USPS", 2)
        return Bunch(data=rng.normal(size=(9298, 256)), target=np.arange(9298) % n_classes)

    monkeypatch.delenv("PLML_DATA", raising=False)
    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    n_classes = 10
    data = datasets.load("usps")
    assert data.X.shape == (9298, 256)
    assert data.source == "OpenML"
    n_classes = 2
    with pytest.raises(ValueError, match="2 classes; expected 9298 rows"):
        datasets.load("usps")
