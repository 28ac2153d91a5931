import json
import os
import subprocess
import sys
import time
from pathlib import Path

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


@pytest.mark.filterwarnings("ignore:.*line 1 is not a record")
@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"format": 99, "seed": 0}', "\x00\xff"])
def test_a_damaged_record_does_not_count(tmp_path, damage):
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    assert store.read(TASK) is not None
    store.path("digits").write_text(damage, encoding="latin-1")
    assert store.read(TASK) is None


@pytest.mark.filterwarnings("ignore:.*line 1 is not a record")
def test_a_record_without_what_others_rely_on_does_not_count(tmp_path):
    store = Store(tmp_path)
    store.write(TASK, {name: value for name, value in RESULT.items() if name != "seconds"})
    assert store.read(TASK) is None


@pytest.mark.filterwarnings("ignore:.*line 1 is not a record")
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


def test_tasks_have_records_of_their_own(tmp_path):
    tasks = [TASK, Task("digits", 3, "PLML", 40), Task("digits", 3, "SML"), Task("usps", 3, "SML")]
    store = Store(tmp_path)
    for number, task in enumerate(tasks):
        store.write(task, {**RESULT, "accuracy": float(number)})
    assert [store.read(task)["accuracy"] for task in tasks] == [0.0, 1.0, 2.0, 3.0]
    assert sorted(os.listdir(tmp_path)) == ["digits.jsonl", "usps.jsonl"]


def test_a_record_made_outside_a_repository_counts(tmp_path, monkeypatch):
    """An installed package has no commit; its version says what made the record."""
    monkeypatch.setattr(records, "commit", lambda: None)
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    record = store.read(TASK)
    assert record["commit"] is None
    assert records.source(record) == f"plml {record['versions']['plml']}"
    del record["commit"]
    write_atomically(store.path("digits"), json.dumps(record))
    with pytest.warns(UserWarning, match="line 1 is not a record"):
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


def lines_of(store, dataset="digits"):
    return store.path(dataset).read_bytes().splitlines()


def test_lines_are_sorted_and_those_of_other_tasks_stay_as_they_are(tmp_path):
    store = Store(tmp_path)
    tasks = [
        Task("digits", fold, method, n_bases)
        for fold in (10, 2, 0)
        for method, n_bases in (("SML", None), ("PLML", 40), ("PLML", 5))
    ]
    for task in tasks:
        before = lines_of(store) if store.path("digits").exists() else []
        store.write(task, RESULT)
        assert set(before) <= set(lines_of(store))
    found = [json.loads(line) for line in lines_of(store)]
    assert [(r["fold"], r["method"], r["n_bases"]) for r in found] == [
        (fold, method, n_bases)
        for fold in (0, 2, 10)
        for method, n_bases in (("PLML", 5), ("PLML", 40), ("SML", None))
    ]
    before = lines_of(store)
    store.write(tasks[4], {**RESULT, "accuracy": 1.0})
    changed = [number for number, line in enumerate(lines_of(store)) if line != before[number]]
    assert changed == [4]


STRANGE = [
    b"<<<<<<< ours",
    b'{"format": 1, "dataset": "dig',  # cut
    b"\x00\xff",
    b"[" * 100_000,
    b'{"format": 99, "seed": 0}',
]


@pytest.mark.parametrize("line", STRANGE)
def test_a_line_that_is_no_record_is_told_of_and_stays(tmp_path, recwarn, line):
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    good = store.path("digits").read_bytes()
    store.path("digits").write_bytes(line + b"\n" + good)
    again = Store(tmp_path)
    with pytest.warns(UserWarning, match=r"digits.jsonl, line 1 is not a record that counts"):
        assert again.read(TASK)["accuracy"] == 99.5
    again.read(TASK)
    again.write(Task("digits", 0, "SML"), RESULT)
    assert [str(warning.message) for warning in recwarn] == []  # once is enough
    assert line in lines_of(store)
    assert good.rstrip() in lines_of(store)
    assert len(lines_of(store)) == 3


def test_a_record_of_another_data_set_is_no_record_of_this_one(tmp_path):
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    store.path("digits").rename(store.path("usps"))
    with pytest.warns(UserWarning, match=r"usps.jsonl, line 1"):
        assert store.read(Task("usps", 3, "PLML", 20)) is None


def test_of_two_records_the_last_one_counts_and_both_stay(tmp_path):
    store = Store(tmp_path)
    store.write(TASK, RESULT)
    (first,) = lines_of(store)
    store.write(TASK, {**RESULT, "accuracy": 50.0})
    (second,) = lines_of(store)
    store.path("digits").write_bytes(first + b"\n" + second)  # without an end of line, too
    with pytest.warns(UserWarning, match="line 1"):
        assert store.read(TASK)["accuracy"] == 50.0
    store.write(Task("digits", 0, "SML"), RESULT)
    assert set(lines_of(store)) >= {first, second}
    assert store.read(TASK)["accuracy"] == 50.0


WRITER = """
import sys
from plml_study.records import Store, Task

result = {"accuracy": 99.5, "n_test": 3, "seconds": 1.5, "correct": "e0" * 1000, "device": "cpu",
          "selected": {}, "certificate": {}}
store = Store(sys.argv[1])
for number in range(int(sys.argv[3])):
    store.write(Task("digits", number, sys.argv[2]), result)
    print(number, flush=True)
"""


def writer(folder, method, n):
    command = [sys.executable, "-c", WRITER, str(folder), method, str(n)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_several_processes_lose_nothing(tmp_path):
    processes = [writer(tmp_path, method, 40) for method in ("A", "B", "C")]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    found = {Task.of(json.loads(line)) for line in lines_of(Store(tmp_path))}
    assert found == {Task("digits", n, method) for n in range(40) for method in "ABC"}
    assert os.listdir(tmp_path) == ["digits.jsonl"]  # and leave nothing else


def test_a_process_that_is_killed_loses_nothing_that_it_wrote(tmp_path, rng):
    store = Store(tmp_path)
    for attempt in range(4):
        process = writer(tmp_path, f"M{attempt}", 10_000)
        for _ in range(int(rng.integers(1, 20))):
            said = int(process.stdout.readline())
        time.sleep(rng.uniform(0.0, 0.01))
        process.kill()
        process.communicate()
        assert store.read(Task("digits", said, f"M{attempt}")) is not None
    records = [json.loads(line) for line in lines_of(store)]  # every line is whole
    for attempt in range(4):
        folds = [r["fold"] for r in records if r["method"] == f"M{attempt}"]
        assert folds == list(range(len(folds)))
    store.write(TASK, RESULT)  # nobody waits for the dead
    assert os.listdir(tmp_path) == ["digits.jsonl"]


class TestOldFolders:
    """Earlier versions had one file for every record."""

    @pytest.fixture
    def old(self, tmp_path):
        store, records = Store(tmp_path / "new"), {}
        for task in (TASK, Task("digits", 0, "SML"), Task("usps", 1, "CBLML", 5)):
            store.write(task, RESULT)
            bases = "" if task.n_bases is None else f"-m{task.n_bases}"
            path = (
                tmp_path / "old" / task.dataset / f"fold{task.fold}" / f"{task.method}{bases}.json"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(store.read(task), indent=1) + "\n")
            records[task] = store.read(task)
        return tmp_path / "old", records

    def test_they_become_files_of_many_records(self, old):
        folder, records = old
        store = Store(folder)
        assert store.adopt() == 3
        assert {task: store.read(task) for task in records} == records
        assert sorted(os.listdir(folder)) == ["digits.jsonl", "usps.jsonl"]
        assert store.adopt() == 0

    def test_what_was_not_understood_stays_there_and_is_told(self, old):
        folder, records = old
        damaged = folder / "digits" / "fold0" / "SML.json"
        damaged.write_text("{")
        store = Store(folder)
        with pytest.warns(UserWarning, match=r"SML.json is not a record that is needed"):
            assert store.adopt() == 2
        assert store.read(TASK) == records[TASK]
        assert store.read(Task("digits", 0, "SML")) is None
        assert damaged.read_text() == "{"

    def test_a_record_that_is_there_already_is_not_replaced(self, old):
        folder, _ = old
        store = Store(folder)
        store.write(TASK, {**RESULT, "accuracy": 1.0})
        with pytest.warns(UserWarning, match=r"PLML-m20.json is not a record that is needed"):
            assert store.adopt() == 2
        assert store.read(TASK)["accuracy"] == 1.0
        assert (folder / "digits" / "fold3" / "PLML-m20.json").exists()

    def test_one_that_was_cut_short_goes_on(self, old, monkeypatch):
        folder, records = old

        def killed(self, missing_ok=False):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            with pytest.raises(KeyboardInterrupt):
                Store(folder).adopt()
        assert Store(folder).adopt() == 3
        assert {task: Store(folder).read(task) for task in records} == records
        assert sorted(os.listdir(folder)) == ["digits.jsonl", "usps.jsonl"]
