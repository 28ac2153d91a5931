"""The source distribution holds the tests, and they pass against what is installed from it."""

import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

#: A part of the suite that takes about a minute on two cores: the files of the project, the way of
#: a row, columns, fitted metrics, and scikit-learn's checks of the estimators.
PART = (
    "tests/test_packaging.py",
    "tests/test_release.py",
    "tests/test_follow_a_row.py",
    "tests/preprocessing",
    "tests/metric",
    "tests/estimators/test_sklearn_contract.py",
)


def test_its_tests_pass(distributions, installed_source, run_from_source, tmp_path):
    with tarfile.open(distributions.source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("plml-*")
    where = run_from_source("python", "-c", "import plml; print(plml.__file__)", folder=folder)
    assert Path(where.stdout.strip()).is_relative_to(installed_source.parent)
    options = ["-q", "-n", "2", "-m", "not slow", "-p", "no:cacheprovider"]
    done = run_from_source("python", "-m", "pytest", *options, *PART, folder=folder)
    assert " passed" in done.stdout.splitlines()[-1], done.stdout
