"""Every snippet of the documentation runs, and the documentation builds without a warning."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_snippets_run(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    if not snippets:
        pytest.skip(f"{page.name} has no Python in it")
    names: dict = {}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), names)


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
