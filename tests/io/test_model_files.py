"""Model files: every estimator, nothing executed, nothing damaged accepted, old files readable."""

import io
import json
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, save_npz
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler, scale

import plml
from plml.cli import main
from plml.tables import table_models, table_reader

sio = pytest.importorskip("skops.io")

DATA = Path(__file__).parents[1] / "data"
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
    ours = {t for t in types if t.startswith("plml.")}
    if name == "AutoPLML":  # the models that vote, and what encodes the table
        ours -= {f"plml.estimators.{m}" for m in ("plml.PLML", "sml.SML")}
        ours -= {"plml.preprocessing.table_encoder.TableEncoder"}
    assert ours == {type(model).__module__ + "." + name}
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


def rewrite(path, schema, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content() if callable(content) else content)
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


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claims(shape, dtype="<f8"):
    """An array that has a header and nothing else."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def node(loader, name="builtins.str", **parts):
    module, _, kind = name.rpartition(".")
    return {"__loader__": loader, "__module__": module, "__class__": kind, **parts}


def number(value):
    return node("JsonNode", content=json.dumps(value))


def array_node(file="1.npy", name="numpy.ndarray", identity=1):
    return node("NdArrayNode", name, type="numpy", file=file, __id__=identity)


def listed(parts, **more):
    return node("ListNode", "builtins.list", content=parts, **more)


def shared_lists(depth):
    """Ten lists of ten lists of ten lists ..., each written once and referred to ever after."""
    found = listed([number(0)] * 10, __id__=100)
    for level in range(1, depth):
        found = listed([found, *[{"__id__": 99 + level}] * 9], __id__=100 + level)
    return found


def disguised_lists(depth):
    """The same, where the references look like small lists."""
    found = listed([number(0)] * 10, __id__=100)
    for level in range(1, depth):
        found = listed([found, *[listed([], __id__=99 + level)] * 9], __id__=100 + level)
    return found


def object_array(items, shape):
    """An array of objects, as skops writes it: its items, and a tuple for the shape."""
    lengths = node("TupleNode", "builtins.tuple", content=[number(n) for n in shape])
    return node("NdArrayNode", "numpy.ndarray", type="json", content=items, shape=lengths)


def of_many_arrays(shape):
    return object_array([array_node()] * 400, shape)


def generator():
    """NumPy fills a pool of any size when it makes one."""

    def dictionary(**parts):
        types = listed([node("TypeNode", "builtins.str")] * len(parts))
        return node("DictNode", "builtins.dict", content=parts, key_types=types)

    content = {
        "bit_generator": dictionary(bit_generator=number("PCG64")),
        "seed_seq": dictionary(entropy=number(1), pool_size=number(10**8)),
    }
    return node("RandomGeneratorNode", "numpy.random._generator.Generator", content=content)


def sparse():
    stream = io.BytesIO()
    save_npz(stream, csr_array(([1.0], ([0], [0])), shape=(10**8, 1)))
    return stream.getvalue()


def large():
    """480 MB of it would do the same."""
    return npy(np.zeros(10**7))


#: name: (an object of the schema, other members, the compression, what the message says)
CRAFTED = {
    "a compressed array": (array_node(), {"1.npy": large}, zipfile.ZIP_DEFLATED, "compressed"),
    "a compressed schema": (
        number("x" * 10**7),
        {},
        zipfile.ZIP_DEFLATED,
        r"'schema\.json' is compressed",
    ),
    "a shape that is not there": (
        array_node(),
        {"1.npy": claims((10**12,))},
        0,
        r"'1\.npy' claims a shape that it does not have",
    ),
    "a shape below nothing": (array_node(), {"1.npy": claims((-1, 0))}, 0, "claims a shape"),
    "items without a size": (
        array_node(),
        {"1.npy": claims((10**12,), "|S0")},
        0,
        "claims a shape",
    ),
    "pickled objects": (array_node(), {"1.npy": claims((1,), "|O")}, 0, "is not an array"),
    "an archive in the archive": (
        node("SparseMatrixNode", "scipy.sparse._csr.csr_array", type="scipy", file="1.npz"),
        {"1.npz": sparse()},
        0,
        r"'1\.npz' is not an array",
    ),
    "a length as bytes": (
        array_node(name="numpy.bytes_"),
        {"1.npy": npy(np.array(480_000_000))},
        0,
        r"'1\.npy' is not a 'numpy\.bytes_'",
    ),
    "a length as a void": (
        array_node(name="numpy.void"),
        {"1.npy": npy(np.array(480_000_000))},
        0,
        r"'1\.npy' is not a 'numpy\.void'",
    ),
    "numbers as objects": (
        array_node(name="numpy.object_"),
        {"1.npy": npy(np.zeros(10**6, dtype=np.int8))},
        0,
        r"'1\.npy' is not a 'numpy\.object_'",
    ),
    "one array read by many": (
        listed([array_node(identity=i) for i in range(1, 500)]),
        {"1.npy": npy(np.zeros(10**5))},
        0,
        r"two objects read '1\.npy'",
    ),
    "one array without a number": (
        listed([array_node(identity=None)] * 500),
        {"1.npy": npy(np.zeros(10**5))},
        0,
        r"two objects read '1\.npy'",
    ),
    "lists of the same lists": (shared_lists(6), {}, 0, "stands for two objects"),
    "lists of the same lists in disguise": (disguised_lists(6), {}, 0, "stands for two objects"),
    "the same lists in an array": (
        object_array([shared_lists(6)], (10, 10)),
        {},
        0,
        "an array of objects with several dimensions",
    ),
    "an array of arrays": (
        of_many_arrays((400, 10**5)),
        {"1.npy": npy(np.zeros(10**5))},
        0,
        "an array of objects with several dimensions",
    ),
    "an array of arrays in disguise": (
        listed(
            [
                node("TupleNode", "builtins.tuple", content=[number(4), number(4)], __id__=7),
                {
                    **of_many_arrays((400,)),
                    "shape": node("TupleNode", "builtins.tuple", content=[number(4)], __id__=7),
                },
            ]
        ),
        {"1.npy": npy(np.zeros(10**5))},
        0,
        "the number 7 stands for two objects",
    ),
    "an array of arrays with a shape of its own": (
        {**of_many_arrays((400,)), "shape": {**array_node(), "content": [0]}},
        {"1.npy": npy(np.zeros(10**5))},
        0,
        "an array of objects with several dimensions",
    ),
    "a list that is a type": (
        node("ListNode", "numpy.dtype", content=[number("f8")]),
        {},
        0,
        r"it holds a 'numpy\.dtype'",
    ),
    "a generator with a pool": (generator(), {}, 0, r"it holds a 'numpy\.random"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_what_grows_when_it_is_read_is_refused(tmp_path, case):
    """From a few hundred kilobytes to hundreds of megabytes, each in a way that skops would go."""
    held, members, compression, cause = CRAFTED[case]
    path = tmp_path / "model.skops"
    sio.dump({"format": 1, "model": "here"}, path)
    schema, _ = schema_of(path)
    schema["content"]["model"] = held
    rewrite(path, schema, members, compression)
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"^.* is not a model, or it is damaged: .*{cause}"):
            plml.load(path)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """A local header in the data of another member: both are as large as the file."""
    path, inner = tmp_path / "model.skops", io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("inner.npy", npy(np.zeros(10**4)))
        member = archive.getinfo("inner.npy")
        inside = inner.getvalue()
    sio.dump({"format": 1, "model": "here"}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("outer", inside)
        outer = archive.getinfo("outer")
        member.header_offset = outer.header_offset + 30 + len("outer")
        archive.filelist.append(member)
        archive.NameToInfo[member.filename] = member
    with zipfile.ZipFile(path) as archive:
        assert sum(part.file_size for part in archive.infolist()) > path.stat().st_size
    with pytest.raises(ValueError, match="its members overlap"):
        plml.load(path)


def test_two_members_of_one_name_are_refused(tmp_path):
    path = tmp_path / "model.skops"
    sio.dump({"format": 1, "model": "here"}, path)
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr("schema.json", "{}")
    with pytest.raises(ValueError, match="two members have the same name"):
        plml.load(path)


def test_a_schema_has_a_largest_size(iris, tmp_path, monkeypatch):
    path = tmp_path / "model.skops"
    model = fitted("SML", iris)
    plml.save(model, path)
    monkeypatch.setattr("plml.io.model_schema._MOST_BYTES", 2**12)
    with pytest.raises(ValueError, match="damaged: its schema has more than"):
        plml.load(path)
    with pytest.raises(ValueError, match="no file may hold: its schema has more than"):
        plml.save(model, path)


def test_what_cannot_be_loaded_is_not_saved(iris, tmp_path):
    model = fitted("SML", iris)
    model.extra = np.array([["a", None], ["b", None]], dtype=object)
    with pytest.raises(ValueError, match=r"no file may hold: .* objects with several dimensions"):
        plml.save(model, tmp_path / "model.skops")
    assert os.listdir(tmp_path) == []


def test_an_object_that_is_held_twice_is_one_object(iris, tmp_path):
    random = np.random.RandomState(0)
    model = make_pipeline(
        QuantileTransformer(n_quantiles=9, random_state=random),
        plml.PLML(n_bases=3, random_state=random),
    ).fit(*iris)
    plml.save(model, tmp_path / "model.skops")
    found = plml.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(found.predict(QUERIES), model.predict(QUERIES))
    assert found[0].random_state is found[1].random_state


def test_reading_leaves_the_memory_of_other_threads_alone(tmp_path):
    """The limit of a process is that of all of its threads."""
    resource = pytest.importorskip("resource")
    checkpoint, data = plml.Checkpoint(tmp_path / "fit"), np.zeros(3)
    kept = checkpoint.open({}, data)
    kept.put("part", {"x": np.zeros(10**5)})
    kept.save()
    pd.DataFrame({"a": range(1000)}).to_csv(tmp_path / "table.csv", index=False)
    readers = (
        lambda: plml.load(DATA / "plml-format-1.skops"),
        lambda: checkpoint.open({}, data),
        lambda: table_reader.read_table(tmp_path / "table.csv"),
    )
    before, seen, done = resource.getrlimit(resource.RLIMIT_AS), [], threading.Event()

    def allocate():
        while not done.is_set():
            seen.append(resource.getrlimit(resource.RLIMIT_AS))
            np.empty(6 * 2**30, dtype=np.uint8)  # its pages are never touched

    try:
        np.empty(6 * 2**30, dtype=np.uint8)
    except MemoryError:
        pytest.skip("the system does not promise so much memory")
    errors = []
    threading_hook, threading.excepthook = threading.excepthook, errors.append
    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        for _ in range(20):
            for read in readers:
                read()
    finally:
        done.set()
        thread.join()
        threading.excepthook = threading_hook
    assert errors == []
    assert set(seen) == {before}
    assert len(seen) > 100


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
            table_models.load(path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(iris, tmp_path, monkeypatch):
    path = tmp_path / "model.skops"
    model = fitted("SML", iris)
    plml.save(model, path)
    content = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("plml.io.files.os.fsync", full)
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
