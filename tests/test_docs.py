"""Every snippet of the documentation runs, and the documentation builds without a warning."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    pytest.param(
        path, marks=[pytest.mark.slow] if path.stem in ("README", "dask", "tutorial") else []
    )
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
]


COMMAND = "import sys; from plml.cli import main; sys.exit(main())"
#: Commands of the documentation that are run; the others take hours or other files.
RUN = re.compile(r"plml (fit|evaluate|explain|predict) |python -c ")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_snippets_run(page, monkeypatch, tmp_path):
    """In their order: Python, and commands for the terminal."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\S*)[^\n]*\n(.*?)^```", text, re.M | re.S)
    assert len(re.findall("^```", text, re.M)) == 2 * len(blocks)  # none is skipped
    names: dict = {"__name__": "__main__"}
    for number, (language, block) in enumerate(blocks):
        if language == "python":
            exec(compile(block, f"{page.name}, block {number}", "exec"), names)
        elif language == "":
            for line in filter(RUN.match, block.splitlines()):
                run(line)


def run(line):
    program, *arguments = shlex.split(line, comments=True)
    command = ["-c", COMMAND] if program == "plml" else []
    done = subprocess.run([sys.executable, *command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_gallery", reason="sphinx is not installed: make docs installs it")
    source = tmp_path / "source"
    for name in ("docs", "examples", "results", "CONTRIBUTING.md"):
        origin = ROOT / name
        if origin.is_dir():
            ignored = shutil.ignore_patterns("_build", "gallery", "generated", "records")
            shutil.copytree(origin, source / name, ignore=ignored)
        else:
            shutil.copy(origin, source / name)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, str(source / "docs"), str(tmp_path / "html")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "gallery" / "plot_explanation.html").exists()
