"""The templates for contributors: what comes out of them passes the checks at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import new

ROOT = Path(__file__).parents[1]
#: A new baseline, as users meet it: it is public, and its models can be saved.
USED = """
from sklearn.datasets import load_iris
from plml import NearestMean, load, save
X, y = load_iris(return_X_y=True)
model = NearestMean(n_neighbors=3).fit(X, y)
save(model, "model.skops")
print((load("model.skops").predict(X) == model.predict(X)).all())
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the repository, and a way to run a Python module in it."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests", "tools", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    (tmp_path / "docs").mkdir()
    for name in ("pyproject.toml", "docs/api.rst"):
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.root = tmp_path
    return run


@pytest.mark.slow
def test_what_comes_out_passes_the_checks(copy):
    pytest.importorskip("mypy")
    *baseline, first = copy("tools/new.py", "baseline", "NearestMean").splitlines()
    *metric, second = copy("tools/new.py", "metric", "Scaled").splitlines()
    assert len([path for path in baseline if "nearestmean" in path]) == len(new.FILES["baseline"])
    assert metric == ["src/plml/metric/scaled_metric.py", "tests/metric/test_scaled_metric.py"]
    written = [path for path in (*baseline, *metric) if path.endswith(".py")]
    copy("-m", "ruff", "check", *written)
    copy("-m", "ruff", "format", "--check", *written)
    copy("-m", "mypy", *(path for path in written if path.startswith("src/")))
    tests = [command.removeprefix("python -m pytest ") for command in (first, second)]
    listed = ("tests/estimators/test_parameters.py", "tests/test_imports.py")
    assert " passed" in copy("-m", "pytest", "-q", "-n", "0", *tests, *listed)
    assert copy("-c", USED) == "True\n"


def test_one_baseline_after_another(copy):
    copy("tools/new.py", "baseline", "NearestMean")
    copy("tools/new.py", "baseline", "NearestMedian")
    names = "from every_estimator import ESTIMATORS; print(*ESTIMATORS)"
    listed = copy("-c", f"import sys; sys.path.insert(0, 'tests/support'); {names}")
    assert {"NearestMean", "NearestMedian"} <= set(listed.split())


@pytest.mark.parametrize("name", ["", "foo", "1Foo", "Foo-Bar", "Foo.Bar", "Class"])
def test_a_name_that_is_none_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="does not name a class"):
        new.create("metric", name, tmp_path)


@pytest.mark.parametrize(("kind", "name"), [("baseline", "DANN"), ("metric", "Basis")])
def test_what_is_there_is_not_replaced(kind, name):
    with pytest.raises(ValueError, match=r"there is a .* already"):
        new.create(kind, name)


def test_every_template_has_its_place():
    named = {file for files in new.FILES.values() for file in files}
    assert {path.name for path in new.TEMPLATE.glob("*.py")} == named
