"""The wheel and the source distribution, each installed into a new environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
#: What of a developer's environment must not reach an installed copy.
OURS = ("PYTHONPATH", "PLML_DATA", "VIRTUAL_ENV")
OTHERS = {name: value for name, value in os.environ.items() if name not in OURS}


class Distributions(NamedTuple):
    """The files that are uploaded."""

    wheel: Path
    source: Path


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """Those in the folder PLML_DIST, or built now: the wheel from the source distribution."""
    given = os.environ.get("PLML_DIST")
    folder = Path(given) if given else tmp_path_factory.mktemp("dist")
    if not given:
        command = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (source,) = folder.glob("plml-*.whl"), folder.glob("plml-*.tar.gz")
    return Distributions(wheel, source)


def new_environment(folder, requirement):
    """The folder of the programs of a new environment in which a requirement is installed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "python", "-m", "pip", "--quiet", "install", requirement]
    subprocess.run(install, check=True, env=OTHERS)
    return folder / "bin"


@pytest.fixture(scope="session")
def installed(distributions, tmp_path_factory):
    """The programs of an environment with the wheel."""
    return new_environment(tmp_path_factory.mktemp("wheel"), f"{distributions.wheel}[cli]")


@pytest.fixture(scope="session")
def installed_source(distributions, tmp_path_factory):
    """The programs of an environment with the source distribution, and what its tests need."""
    return new_environment(tmp_path_factory.mktemp("sdist"), f"{distributions.source}[cli,test]")


def run_in(programs, folder, *command, exit_code=0):
    """Run a program of an environment in a folder, as nobody's developer."""
    program, *arguments = command
    done = subprocess.run(
        [programs / program, *map(str, arguments)],
        cwd=folder,
        env=OTHERS,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done


@pytest.fixture
def run(installed, tmp_path):
    """Run a program of the wheel's environment in an empty folder."""

    def run(*command, exit_code=0):
        return run_in(installed, tmp_path, *command, exit_code=exit_code)

    return run


@pytest.fixture
def run_from_source(installed_source, tmp_path):
    """Run a program of the source distribution's environment."""

    def run(*command, folder=tmp_path):
        return run_in(installed_source, folder, *command)

    return run
