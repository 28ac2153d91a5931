import subprocess
import sys

import pytest

from plml import __version__
from plml.cli import main


def test_demo_prints_a_table_and_writes_a_picture(tmp_path, capsys):
    picture = tmp_path / "demo.png"
    assert main(["demo", "--out", str(picture)]) == 0
    out = capsys.readouterr().out
    for word in ("accuracy", "certified gap", "Euclidean 1-NN", "SML", "PLML"):
        assert word in out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--out", "no/such/folder/demo.png"], "there is no folder"),
        (["demo", "--out", "demo.xyz"], "xyz"),
        (["demo", "--seed", "-1"], "--seed must be between"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert error[-1].startswith("plml demo: ")
    assert message in error[-1]


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["demo", "--seed", "x"]])
def test_bad_usage_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: plml" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_importing_plml_imports_no_optional_library():
    code = (
        "import sys, plml; "
        "print([m for m in ('faiss', 'torch', 'matplotlib', 'polars', 'dask') "
        "if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
