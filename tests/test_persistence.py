"""Model files: every estimator, nothing executed, nothing damaged accepted, old files for ever."""

import json
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

import plml
from plml import tabular
from plml.cli import main

sio = pytest.importorskip("skops.io")

DATA = Path(__file__).parent / "data"
ESTIMATORS = sorted(name for name in plml.__all__ if hasattr(getattr(plml, name), "fit"))


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X)[::2], y[::2]


#: New points: a training point is its own nearest neighbour under any metric.
QUERIES = scale(load_iris(return_X_y=True)[0])[1::2]


def fitted(name, iris):
    model = getattr(plml, name)()
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*iris)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_comes_back_as_it_was(iris, tmp_path, name):
    model, X = fitted(name, iris), QUERIES
    model.predict(X)  # whatever this leaves behind is not saved
    path = tmp_path / "model.skops"
    plml.save(model, path)
    found = plml.load(path)
    assert type(found) is type(model)
    assert found.get_params() == model.get_params()
    np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))
    for attribute in (name for name in vars(model) if name.endswith("_")):
        assert hasattr(found, attribute), attribute
    types = sio.get_untrusted_types(file=path)
    assert [t for t in types if t.startswith("plml.")] == [type(model).__module__ + "." + name]
    assert all(t.startswith("plml.") or t == "numpy.dtype" for t in types)


def test_pipelines_and_searches(iris, tmp_path):
    X, y = iris
    search = GridSearchCV(plml.SML(), {"regularization": [0.1, 1.0]}, cv=2)
    pipeline = make_pipeline(StandardScaler(), plml.PLML(n_bases=3, random_state=0)).fit(X, y)
    plml.save(pipeline, tmp_path / "model.skops")
    found = plml.load(tmp_path / "model.skops").predict(X)
    np.testing.assert_array_equal(found, pipeline.predict(X))
    with pytest.raises(ValueError, match=r"_PassthroughScorer, .*; save .* its best_estimator_"):
        plml.save(search.fit(X, y), tmp_path / "search.skops")
    assert not (tmp_path / "search.skops").exists()


def test_callables_are_refused_when_they_are_read(iris, tmp_path):
    model = fitted("SML", iris)
    model.extra = os.system
    path = tmp_path / "model.skops"
    sio.dump({"format": 1, "model": model}, path)
    with pytest.raises(ValueError, match=r"not trusted: (posix|nt)\.system"):
        plml.load(path)


TRAP = "import os; os.mkdir({!r})"


class Trap:
    """Executes code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (TRAP.format(str(self.path)),)


def test_a_pickle_is_refused_and_not_executed(tmp_path):
    path, sprung = tmp_path / "model.skops", tmp_path / "sprung"
    path.write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(ValueError, match="is not a model, or it is damaged"):
        plml.load(path)
    assert not sprung.exists()


def schema_of(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("schema.json")), members


def rewrite(path, schema, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("schema.json", json.dumps(schema))


@pytest.mark.parametrize(
    "target", [("os", "system"), ("builtins", "eval"), ("subprocess", "Popen")]
)
def test_a_tampered_file_that_names_a_callable_is_refused(iris, tmp_path, target):
    path = tmp_path / "model.skops"
    plml.save(fitted("SML", iris), path)
    schema, members = schema_of(path)

    def tamper(node):
        if isinstance(node, dict):
            if node.get("__class__") == "SML":
                node["__module__"], node["__class__"] = target
                node["__loader__"] = "FunctionNode"
            for value in node.values():
                tamper(value)
        elif isinstance(node, list):
            for value in node:
                tamper(value)

    tamper(schema)
    rewrite(path, schema, members)
    with pytest.raises(ValueError, match=r"not trusted|damaged"):
        plml.load(path)


def test_every_cut_and_many_changed_bytes_are_refused_or_harmless(iris, tmp_path):
    """Archives have checksums: a changed array is never loaded as if it were the model."""
    X = QUERIES
    path = tmp_path / "model.skops"
    model = fitted("SML", iris)
    plml.save(model, path)
    content, expected = path.read_bytes(), model.predict(X)
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(150):
        if trial < 50:
            changed = content[: rng.integers(len(content))]
        else:
            changed = bytearray(content)
            changed[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            found = plml.load(path)
        except ValueError:
            refused += 1
        else:  # a byte that nothing reads, such as a date
            np.testing.assert_array_equal(found.predict(X), expected)
            np.testing.assert_array_equal(found.basis_metrics_, model.basis_metrics_)
    assert refused >= 120


def test_other_formats_are_named(tmp_path):
    path = tmp_path / "model.skops"
    for record, words in (({"format": 99}, "has the format 99"), ([1, 2], "has the format None")):
        sio.dump(record, path)
        with pytest.raises(ValueError, match=words):
            plml.load(path)
    with pytest.raises(ValueError, match="there is no model"):
        plml.load(tmp_path / "nothing.skops")
    sio.dump({"format": 1}, path)
    with pytest.raises(ValueError, match="holds no model"):
        plml.load(path)
    with pytest.raises(ValueError, match="plml predict"):
        plml.load(DATA / "table-format-1.skops")
    for record in ({"format": 1}, {"format": 1, "pipeline": 3, "target": "y"}):
        sio.dump(record, path)
        with pytest.raises(ValueError, match="not written by plml fit"):
            tabular.load(path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(iris, tmp_path, monkeypatch):
    path = tmp_path / "model.skops"
    model = fitted("SML", iris)
    plml.save(model, path)
    content = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("plml.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        plml.save(model, path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["model.skops"]


def test_permissions_and_links_stay(iris, tmp_path):
    model = fitted("SML", iris)
    mask = os.umask(0o077)
    try:
        plml.save(model, tmp_path / "new.skops")
    finally:
        os.umask(mask)
    assert (tmp_path / "new.skops").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link.skops").symlink_to(tmp_path / "new.skops")
    plml.save(model, tmp_path / "link.skops")
    assert (tmp_path / "link.skops").is_symlink()
    assert (tmp_path / "new.skops").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["plml", "kernelsvm"])
def test_files_of_version_1_load_for_ever(iris, name):
    """Written by ``tests/data/write.py`` with plml 0.1.0 and committed; never write them again."""
    model = plml.load(DATA / f"{name}-format-1.skops")
    expected = json.loads((DATA / f"{name}-format-1.json").read_text())
    np.testing.assert_array_equal(model.predict(iris[0]), expected)


def test_a_file_of_the_command_line_loads_for_ever(tmp_path, capsys):
    arguments = ["predict", str(DATA / "table-format-1.skops"), str(DATA / "table.csv")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == (DATA / "table-format-1.csv").read_text()


def test_without_skops_one_line_says_what_to_install(tmp_path):
    (tmp_path / "model.skops").write_bytes(b"")
    script = (
        "import sys; sys.modules['skops'] = None; sys.modules['skops.io'] = None\n"
        f"import plml\ntry: plml.load({str(tmp_path / 'model.skops')!r})\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert 'pip install ".[cli]"' in done.stdout
