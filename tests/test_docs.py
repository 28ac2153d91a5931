"""Every snippet of the documentation runs, and the documentation builds without a warning."""

import doctest
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import plml

#: Pages whose snippets take more than a few seconds.
SLOW = ("README", "dask", "living", "refit", "tutorial", "weights")

ROOT = Path(__file__).parents[1]
PAGES = [
    pytest.param(path, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
]


#: What the reference lists.
ENTRIES = re.findall(r"^   (plml[\w.]+)$", (ROOT / "docs" / "api.rst").read_text(), re.M)
#: Packages whose names are public.
PUBLIC = (
    "plml",
    "plml.dask",
    "plml.evaluation",
    "plml.explorer",
    "plml.inspection",
    "plml.preprocessing",
    "plml.serving",
    "plml.tables",
)
#: What an example needs besides the library.
NEEDS = {"plml.dask": "distributed", "plml.explore": "bokeh", "plml.inspection": "matplotlib"}
COMMAND = "import sys; from plml.cli import main; sys.exit(main())"
#: Commands of the documentation that are run; the others take hours or other files.
RUN = re.compile(r"plml (fit|evaluate|explain|predict|add|forget) |python -c ")


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
        elif language == "console":
            # What is shown with its output; an error is shown in a line of its own.
            line, shown = block.removeprefix("$ ").split("\n", 1)
            said = run(line, refused=bool(re.search(r"^plml \w+: ", block, re.M)))
            assert sentences(shown) <= sentences(said), "run docs/tutorial_output.py"


def entry(name):
    module, _, leaf = name.rpartition(".")
    return getattr(import_module(module), leaf)


def test_the_reference_lists_every_public_name():
    listed = {id(entry(name)) for name in ENTRIES}
    assert len(listed) == len(ENTRIES)
    public = {
        f"{package}.{name}": getattr(import_module(package), name)
        for package in PUBLIC
        for name in import_module(package).__all__
    }
    missing = [
        name for name, value in public.items() if callable(value) and id(value) not in listed
    ]
    assert missing == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if ".dask." in name else []) for name in ENTRIES],
)
def test_every_entry_of_the_reference_has_an_example_that_runs(name, monkeypatch, tmp_path):
    for start, library in NEEDS.items():
        if name.startswith(start):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    (found,) = doctest.DocTestFinder(recurse=False).find(entry(name), name, module=False, globs={})
    assert "Examples\n" in found.docstring
    assert found.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.startswith("plml.")])
def test_a_function_says_what_it_returns_and_a_learner_what_is_like_it(name):
    found, text = entry(name), entry(name).__doc__
    if not isinstance(found, type):
        assert ("Returns\n" in text) == (found.__annotations__["return"] is not None)
    elif hasattr(found, "predict"):
        assert "See Also\n" in text


def test_a_type_of_the_reference_is_not_taken_for_words(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    rewrite = runpy.run_path(str(ROOT / "docs" / "conf.py"))["words_are_no_types"]
    words = "given to the search that is behind the estimator, and to every search that"
    lines = ["Parameters", "----------", "pull : float", "    alpha_2, a weight."]
    lines += [f"X : {words}", "    comes after it", "y : their labels"]
    rewrite(None, "class", "plml.PLML", plml.PLML, None, lines)
    assert lines[2:4] == ["pull : float", "    alpha_2, a weight."]
    assert lines[4:] == ["X", f"    {words}", "    comes after it", "y", "    their labels"]


def sentences(text):
    """The lines without their numbers; what a fit selects may depend on the versions."""
    lines = (re.sub(r"[\d.,%+-]+", "#", " ".join(line.split())) for line in text.splitlines())
    return {line for line in lines if "metrics (" not in line}


def run(line, refused=False):
    """Run a command, as a page shows it; what it says."""
    program, *arguments = shlex.split(line, comments=True)
    command = ["-c", COMMAND] if program == "plml" else []
    done = subprocess.run([sys.executable, *command, *arguments], capture_output=True, text=True)
    assert done.returncode == (2 if refused else 0), f"{line}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_it_builds_without_a_warning(tmp_path):
    for library in ("sphinx_gallery", "sphinx_design", "numpydoc"):
        pytest.importorskip(library, reason=f"no {library}: make docs installs it")
    source = tmp_path / "source"
    for name in ("docs", "examples", "results", "CONTRIBUTING.md", "CHANGELOG.md"):
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
    check_offline(tmp_path / "html")


#: What a page loads by itself, unlike a link.
LOADED = re.compile(
    r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']*"""
)


def check_offline(html):
    """No page loads anything from a network, and formulas are there without a script."""
    for page in html.rglob("*.html"):
        loaded = LOADED.findall(page.read_text(encoding="utf-8"))
        assert [tag for tag in loaded if 'rel="canonical"' not in tag] == [], page
    assert "<math " in (html / "mathematics.html").read_text(encoding="utf-8")


def cells(line):
    return [
        re.sub(r"[*]|<sup>.*?</sup>|\(.*?\)", "", cell).strip() for cell in line.split("|")[1:-1]
    ]


def test_the_accuracies_of_the_readme_are_those_of_the_results():
    """Its table is drawn from three files, each of which a command prints."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| \| neighbours .*?\n\n", readme, re.M | re.S)[0].splitlines()
    names = cells(table[0])[1:]
    shown = {line[0]: dict(zip(names, line[1:], strict=True)) for line in map(cells, table[2:-1])}

    lines = (ROOT / "results" / "tables.md").read_text(encoding="utf-8").splitlines()
    means = next(line for line in lines if line.startswith("| *mean accuracy"))
    found = dict(zip(cells(lines[0]), cells(means), strict=True))
    here = {"neighbours": "kNN", "PLML": "PLMLCV"}
    assert shown.pop("eighteen tables") == {name: found[here.get(name, name)] for name in names}

    lines = (ROOT / "results" / "table1.md").read_text(encoding="utf-8").splitlines()
    study = {row[0]: dict(zip(cells(lines[0]), row, strict=True)) for row in map(cells, lines)}
    text = " ".join((ROOT / "results" / "README.md").read_text(encoding="utf-8").split())
    euclidean = re.search(r"Euclidean` has ([\d., and]+?) in the order of the table", text)[1]
    for (name, row), one in zip(shown.items(), re.findall(r"\d+\.\d+", euclidean), strict=True):
        for method in ("SVM", "LMNN", "PLML", "AutoPLML"):
            assert row[method] == study[name][method], (name, method)
        assert row["neighbours"] == one


def test_every_example_has_a_place_in_the_gallery():
    order = re.findall(r'"(plot_\w+\.py)"', (ROOT / "docs" / "gallery_order.py").read_text())
    assert sorted(order) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
