import json
import os
import subprocess

import numpy as np
import pytest

from plml.io.files import write_atomically
from plml_study import records
from plml_study.records import (
    Store,
    Task,
    pack_bits,
    provenance,
    unpack_bits,
)

TASK = Task("digits", 3, "PLML", 20)
RESULT = {
    "accuracy": 99.5,
    "n_test": 3,
    "seconds": 1.5,
    "correct": "e0",
    "device": "cpu",
    "selected": {},
    "certificate": {},
}


def test_a_result_comes_back_with_where_it_comes_from(tmp_path):
    store = Store(tmp_path, seed=5)
    assert store.read(TASK) is None
    store.write(TASK, RESULT)
    record = store.read(TASK)
    assert record["accuracy"] == 99.5
    assert (record["dataset"], record["fold"], record["method"], record["seed"]) == (
        "digits",
        3,
        "PLML",
        5,
    )
    assert {"versions", "commit", "finished", "machine"} <= record.keys()
    assert record["versions"]["numpy"] == np.__version__
    assert Store(tmp_path, seed=6).read(TASK) is None
    assert Store(tmp_path, seed=6).seed_in_the_way([TASK]) == 5
    assert store.seed_in_the_way([TASK]) is None


def test_nothing_about_the_machine_names_it():
    text = json.dumps(provenance())
    assert os.uname().nodename not in text
    assert os.path.expanduser("~") not in text


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"format": 99, "seed": 0}', "\x00\xff"])
def test_a_damaged_record_does_not_count(tmp_path, damage):
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    assert store.read(TASK) is not None
    (tmp_path / TASK.path).write_text(damage, encoding="latin-1")
    assert store.read(TASK) is None


def test_a_record_without_what_others_rely_on_does_not_count(tmp_path):
    store = Store(tmp_path)
    store.write(TASK, {name: value for name, value in RESULT.items() if name != "seconds"})
    assert store.read(TASK) is None


@pytest.mark.parametrize(
    ("name", "value"), [("seconds", "abc"), ("selected", "x"), ("certificate", [1]), ("device", {})]
)
def test_a_record_with_other_types_does_not_count(tmp_path, name, value):
    store = Store(tmp_path)
    store.write(TASK, {**RESULT, name: value})
    assert store.read(TASK) is None


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"
    write_atomically(path, "before")

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["kept.json"]


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000])
def test_bits_come_back(rng, n):
    values = rng.uniform(size=n) < 0.3
    np.testing.assert_array_equal(unpack_bits(pack_bits(values), n), values)


def test_tasks_have_files_of_their_own():
    tasks = [TASK, Task("digits", 3, "PLML", 40), Task("digits", 3, "SML"), Task("usps", 3, "SML")]
    assert len({task.path for task in tasks}) == 4


def test_a_record_made_outside_a_repository_counts(tmp_path, monkeypatch):
    """An installed package has no commit; its version says what made the record."""
    monkeypatch.setattr(records, "commit", lambda: None)
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    record = store.read(TASK)
    assert record["commit"] is None
    assert records.source(record) == f"plml {record['versions']['plml']}"
    del record["commit"]
    write_atomically(tmp_path / TASK.path, json.dumps(record))
    assert store.read(TASK) is None


def test_the_repository_around_an_environment_is_not_the_source(tmp_path, monkeypatch):
    """A package in an environment inside a repository does not carry that one's commit."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    commit = ["commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(["git", *identity, *commit], cwd=tmp_path, check=True)
    module = tmp_path / "site-packages" / "records.py"
    module.parent.mkdir()
    module.touch()
    monkeypatch.setattr(records, "__file__", str(module))
    assert records.commit.__wrapped__() is None
