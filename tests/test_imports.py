"""Who may import whom: every package lies in one layer and imports from lower ones alone.

Read from the sources, so that imports inside functions and those for type checkers count as well.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
#: From the top down. Packages of one layer do not import each other.
LAYERS = (
    ("plml_study", "plml.__main__"),
    ("plml.cli",),
    ("plml",),  # the names for users
    ("plml.tables",),
    ("plml.explorer",),
    ("plml.estimators",),
    ("plml.evaluation",),
    ("plml.dask", "plml.inspection"),
    ("plml.metric", "plml.baselines"),
    ("plml.stages",),
    ("plml.io",),
    ("plml.solvers", "plml.serving"),
    ("plml.ops", "plml.validation"),
    ("plml.backend", "plml.preprocessing"),
    ("plml.install", "plml.wording"),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
#: Folders of tests that are not of one package.
OF_THE_WHOLE = {"benchmarks", "data", "support", "wheel"}


class Import(NamedTuple):
    """One module imports another."""

    importer: str
    imported: str

    def __str__(self):
        return f"{self.importer} imports {self.imported}"


def modules(src: Path) -> dict[str, Path]:
    """The modules of a source tree by their names."""
    found = {}
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """The package that a module lies in, or the module itself where it lies in none."""
    return "plml_study" if module.startswith("plml_study") else ".".join(module.split(".")[:2])


def imports(src: Path) -> Iterator[Import]:
    """Every import of one of our modules by another, wherever it stands."""
    known = modules(src)
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in imported_names(node):
                while name and name not in known:  # of something inside a module
                    name = name.rpartition(".")[0]
                if name:
                    yield Import(module, name)


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports name the whole module, so that they can be found"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
        "import_module",
        "__import__",
    ):
        return [part.value for part in node.args if isinstance(part, ast.Constant)]
    return []


@cache
def between_rooms(src: Path) -> list[Import]:
    return [found for found in imports(src) if room(found.importer) != room(found.imported)]


def test_every_package_has_its_layer():
    assert {room(module) for module in modules(SRC)} == set(LEVEL)
    assert len(LEVEL) == sum(map(len, LAYERS))


@pytest.mark.parametrize("name", LEVEL)
def test_imports_go_down(name):
    ours = [found for found in between_rooms(SRC) if room(found.importer) == name]
    wrong = [str(found) for found in ours if LEVEL[room(found.imported)] <= LEVEL[name]]
    assert not wrong, "\n".join(wrong)


def test_no_package_imports_one_that_imports_it():
    graph: dict[str, set[str]] = {}
    for found in between_rooms(SRC):
        graph.setdefault(room(found.importer), set()).add(room(found.imported))
    order = list(TopologicalSorter(graph).static_order())  # raises where there is a circle
    assert set(order) == set(LEVEL)


def test_the_library_knows_nothing_of_the_study():
    assert [str(i) for i in between_rooms(SRC) if room(i.imported) == "plml_study"] == []
    assert any(room(i.importer) == "plml_study" for i in between_rooms(SRC))


@pytest.mark.parametrize(
    "source",
    [
        "from plml.cli import main",
        "import plml.cli as c",
        "from plml import cli",
        "import plml.cli.command_line",
        "def f():\n    from plml.cli.command_line import main\n",
        "if TYPE_CHECKING:\n    from plml.cli import main\n",
        "try:\n    import plml.cli\nexcept ImportError:\n    pass\n",
        "importlib.import_module('plml.cli')",
    ],
)
def test_an_import_is_found_wherever_it_stands(tmp_path, source):
    for name in ("plml/__init__", "plml/cli/__init__", "plml/cli/command_line", "plml/ops/sums"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").write_text("import numpy\n")
    (tmp_path / "plml" / "ops" / "sums.py").write_text(source)
    (found,) = between_rooms(tmp_path)
    assert (room(found.importer), room(found.imported)) == ("plml.ops", "plml.cli")
    between_rooms.cache_clear()
    (tmp_path / "plml" / "cli" / "command_line.py").write_text("from plml.ops import sums")
    graph = {room(i.importer): {room(i.imported)} for i in between_rooms(tmp_path)}
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def test_a_file_is_known_by_its_name():
    names = Counter(path.name for path in SRC.rglob("*.py"))
    assert [name for name, count in names.items() if count > 1] == ["__init__.py"]


def test_a_class_is_known_by_its_name():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SRC.rglob("*.py")]
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    names = Counter(node.name for node in classes)
    assert [name for name, count in names.items() if count > 1] == []


def test_tests_lie_where_their_packages_do():
    packages = {path.name for path in (SRC / "plml").iterdir() if path.is_dir()} | {"plml_study"}
    folders = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/*/test_*.py")}
    assert {str(folder) for folder in folders} - OF_THE_WHOLE <= packages
    assert packages - {str(folder) for folder in folders} <= {"__pycache__"}
