"""What the project says of its dependencies, in the places where it says it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_oldest_dependencies_are_those_that_are_allowed():
    """``make test-oldest`` tests the minimum of every runtime dependency in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *extras["plots"], *extras["cli"]]
    minimum = dict(part.split(">=") for part in stated if ">=" in part)
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert set(pinned) == set(minimum)
    for name, version in minimum.items():
        padded = f"{version}.0" if pinned[name].count(".") > version.count(".") else version
        assert pinned[name] == padded, name


def test_continuous_integration_runs_what_the_readme_shows():
    """The same commands first, with nothing but the place of the environment set."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^## Work on it$.*?^```\n(.*?)^```", readme, re.M | re.S)
    shown = [line.split("#")[0].strip() for line in block[1].splitlines()]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    lines = [line for line in script if line and not line.startswith("#")]
    assert shown == ["make demo", "make test"]
    assert lines[: 4 + len(shown)] == [
        "set -euo pipefail",  # whichever fails, all of it fails
        'cd "$(dirname "$0")/.."',
        'venv="$(mktemp -d)/venv"',
        """trap 'rm -rf "$(dirname "$venv")"' EXIT""",
        *(f'{command} VENV="$venv"' for command in shown),
    ]


def test_no_word_of_a_release_before_there_is_one():
    """How to install an extra is said by ``plml.install``; the documents say what works today."""
    sources = [path for path in (ROOT / "src").rglob("*.py") if path.name != "install.py"]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for path in (*sources, *pages):
        assert "plml[" not in path.read_text(encoding="utf-8"), path
        if path.suffix == ".py":
            assert 'pip install ".[' not in path.read_text(encoding="utf-8"), path


def test_no_word_that_executes_what_it_reads():
    """Neither eval, exec, pickle nor a shell anywhere in the library."""
    forbidden = re.compile(r"\b(eval|exec)\(|\bpickle\b|shell=True|os\.system|allow_pickle=True")
    for path in (ROOT / "src").rglob("*.py"):
        code = re.sub(r'""".*?"""|#.*', "", path.read_text(encoding="utf-8"), flags=re.S)
        code = re.sub(r"#.*", "", code)
        assert not forbidden.search(code), path
