"""What ``import plml`` brings with it: a name is imported when it is first used."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import plml

#: What a program has that imports scikit-learn's neighbours, before it imports anything of ours.
BEFORE = "import sys, sklearn.neighbors; before = set(sys.modules)\n"
#: Packages that a classifier does without until it is asked for something.
NOT_NEEDED = ("baselines", "cli", "dask", "evaluation", "explorer", "tables")


def modules_after(statement: str) -> set[str]:
    """The modules that a statement imports beyond those of ``sklearn.neighbors``."""
    source = f"{BEFORE}{statement}\nprint(*sorted(set(sys.modules) - before))"
    run = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=120
    )
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_else():
    assert modules_after("import plml") == {"plml"}


def test_importing_a_classifier_imports_what_it_needs():
    found = modules_after("from plml import PLML")
    assert "plml.estimators.plml" in found
    assert {name.partition(".")[0] for name in found} <= {"plml", "array_api_compat"}
    unwanted = {f"plml.{package}" for package in NOT_NEEDED}
    unwanted |= {"plml.estimators.auto_plml", "plml.preprocessing.table_encoder"}
    assert not found & unwanted


def test_a_small_fit_and_prediction_load_no_library_for_large_ones():
    found = modules_after(
        "from plml import PLML; from sklearn.datasets import load_wine\n"
        "X, y = load_wine(return_X_y=True)\n"
        "PLML(n_bases=3, random_state=0).fit(X, y).predict(X)"
    )
    libraries = {name.partition(".")[0] for name in found}
    assert "sklearn" in libraries  # k-means
    assert not libraries & {"faiss", "torch", "matplotlib", "dask", "rich", "skops"}


def test_type_checkers_read_the_same_homes():
    tree = ast.parse(Path(plml.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == plml._HOMES
    assert {*homes, "__version__"} == set(plml.__all__)


def test_all_names_are_there_before_they_are_used():
    source = "import plml; print(*dir(plml))"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert set(plml.__all__) <= set(run.stdout.split())


@pytest.mark.parametrize("name", plml.__all__)
def test_every_name_is_that_of_its_home(name):
    value = getattr(plml, name)
    if name != "__version__":
        assert value is getattr(sys.modules[plml._HOMES[name]], name)
        assert pickle.loads(pickle.dumps(value)) is value


def test_packages_are_attributes_without_an_import_of_their_own():
    source = "import plml; print(plml.inspection.__name__, plml.tables.read_table.__name__)"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["plml.inspection", "read_table"]


@pytest.mark.parametrize("name", ["PLMl", "_nothing", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'plml' has no attribute '{name}'"):
        getattr(plml, name)
