"""What a release is checked for: versions, contents, links, and what describes the project."""

import re
import tomllib
from pathlib import Path

import pytest

import release_check
from plml import __version__
from release_check import NotReadyError

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def commands(job):
    """The make commands of a job."""
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    return [line for line in lines if line.startswith("make ")]


def test_the_version_is_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    stated = [
        path.relative_to(ROOT)
        for path in (*ROOT.glob("*.toml"), *ROOT.glob("*.cff"), *(ROOT / "src").rglob("*.py"))
        if re.search(rf"version\w*:? *=? *[\"']?{re.escape(__version__)}", path.read_text())
    ]
    assert stated == [Path("src/plml/__init__.py")]


def test_workflows_run_what_continuous_integration_runs():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    ours = [line.replace(' VENV="$venv"', "") for line in script if line.startswith("make ")]
    assert commands(WORKFLOWS["test"]["jobs"]["test"]) == ours
    assert commands(WORKFLOWS["docs"]["jobs"]["build"]) == ["make docs"]
    (check,) = commands(WORKFLOWS["release"]["jobs"]["check"])
    assert check.startswith("make release-check ")


def test_every_make_command_has_its_target():
    """Of a workflow or a page."""
    targets = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.M)
    known = {name for line in targets for name in line.split()}
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    used = {line.split()[1] for job in jobs for line in commands(job)}
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.*")):
        used.update(
            re.findall(r"(?:^|`)make ([a-z][\w-]*)", page.read_text(encoding="utf-8"), re.M)
        )
    assert len(used) > 10
    assert used <= known


def test_only_the_upload_may_do_more_than_read():
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
    upload = WORKFLOWS["release"]["jobs"]["upload"]
    assert upload["permissions"] == {"id-token": "write"}
    assert upload["needs"] == "check"


def test_the_classifiers_name_the_versions_that_are_tested():
    tested = WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (\d\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_the_citation_is_that_of_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Wang",
        "Woznica",
        "Kalousis",
    ]
    assert paper["year"] == 2012
    assert citation["license"] == PROJECT["license"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path):
    form = yaml.safe_load(path.read_text())
    assert set(form) == {"name", "description", "labels", "body"}
    names = [part["id"] for part in form["body"]]
    assert len(set(names)) == len(names)
    for part in form["body"]:
        assert part["type"] in {"textarea", "input", "checkboxes"}
        assert part["attributes"]["label"]


def test_links_lead_somewhere(tmp_path):
    assert release_check.broken_links(ROOT) == []
    (tmp_path / "b.md").write_text("# A heading: `this` one\n")
    (tmp_path / "a.md").write_text(
        "[1](b.md) [2](b.md#a-heading-this-one) [3](c.md) [4](b.md#another) [5](#none)\n"
    )
    assert release_check.broken_links(tmp_path) == [
        "a.md: c.md",
        "a.md: b.md#another",
        "a.md: #none",
    ]


def test_what_is_not_committed():
    release_check.check_tree("")
    with pytest.raises(NotReadyError, match=r"2 files are not committed, such as src/a\.py"):
        release_check.check_tree(" M src/a.py\n?? b\n")


def test_a_tag_is_that_of_the_version():
    release_check.check_tag("", "1.2.0")
    release_check.check_tag("v1.2.0", "1.2.0")
    with pytest.raises(NotReadyError, match=r"the tag is 1\.2\.0"):
        release_check.check_tag("1.2.0", "1.2.0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## [1.2.0] - 2026-11-18\n\n### Added\n- x\n\n## [1.1.0] - 2026-01-01\n", None),
        ("## Unreleased\n\n### Added\n- x\n", "is Unreleased, not"),
        ("## [1.1.0] - 2026-11-18\n", r"is \[1\.1\.0\]"),
        ("## [1.2.0]\n", r"not \[1\.2\.0\] - date"),
        ("# Changelog\n", "is missing"),
        ("## [1.2.0] - 2026-11-18\n\n### Improved\n- x\n", "the heading Improved"),
    ],
)
def test_the_changelog_has_the_version(text, message):
    if message is None:
        release_check.check_changelog(text, "1.2.0")
    else:
        with pytest.raises(NotReadyError, match=message):
            release_check.check_changelog(text, "1.2.0")


def test_the_headings_of_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text[text.index("\n## ") :].split("\n## ")[1]
    kinds = re.findall(r"^### (.+)$", newest, re.M)
    assert set(kinds) <= set(release_check.KINDS)
    assert len(set(kinds)) == len(kinds)


def test_what_a_wheel_and_a_source_distribution_hold():
    tracked = ["LICENSE", "src/plml/__init__.py", "src/plml/py.typed", "tests/test_a.py"]
    wheel = release_check.wheel_files(tracked, "1.2.0")
    assert "plml/py.typed" in wheel
    assert "plml-1.2.0.dist-info/licenses/LICENSE" in wheel
    assert "plml-1.2.0/tests/test_a.py" in release_check.source_files(tracked, "1.2.0")
    release_check.check_same("the wheel", reversed(wheel), wheel)
    with pytest.raises(NotReadyError, match=r"the wheel lacks plml/py\.typed$"):
        release_check.check_same("the wheel", set(wheel) - {"plml/py.typed"}, wheel)
    with pytest.raises(NotReadyError, match=r"the wheel holds secret\.txt"):
        release_check.check_same("the wheel", [*wheel, "secret.txt"], wheel)


def test_what_fails_is_told_in_its_own_words(tmp_path, monkeypatch):
    """Not in those of make, which only says that it failed."""
    (tmp_path / "Makefile").write_text("links:\n\t@echo 'a link is broken'; exit 2\n")
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    with pytest.raises(NotReadyError, match="make links fails: a link is broken"):
        release_check.output("make", "links")


def test_every_step_is_run_and_what_is_missing_is_listed(capsys):
    def fails():
        raise NotReadyError("no")

    done = []
    steps = {"first": fails, "second": lambda: done.append(2), "third": fails}
    assert release_check.not_ready(steps) == ["first: no", "third: no"]
    assert done == [2]


def test_the_oldest_build_backend_allowed_can_read_the_licence():
    """As an expression with a list of files, which hatchling knows since 1.27."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    (oldest,) = re.findall(r"hatchling>=(\d+)\.(\d+)", build["requires"][0])
    assert isinstance(PROJECT["license"], str)
    assert isinstance(PROJECT["license-files"], list)
    assert tuple(map(int, oldest)) >= (1, 27)
