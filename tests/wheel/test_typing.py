"""Types reach whoever installs the wheel: a typed program is checked against it, and runs."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

PROGRAM = Path(__file__).parents[1] / "typing" / "program.py"


def mypy(installed, program, folder):
    """What mypy says of a program where the wheel is installed, and nothing else of ours."""
    options = ["--python-executable", installed / "python", "--config-file=", "--strict"]
    command = [sys.executable, "-m", "mypy", *options, "--ignore-missing-imports", program]
    environment = {"MYPY_CACHE_DIR": str(folder), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_typed_program(installed, run, tmp_path):
    done = mypy(installed, PROGRAM, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run("python", PROGRAM)


def test_a_wrong_type_is_found(installed, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from plml import PLML\n\nPLML().fit([], []).dual_gap_.upper()\n")
    assert (
        'wrong.py:3: error: "float" has no attribute "upper"'
        in mypy(installed, wrong, tmp_path).stdout
    )
