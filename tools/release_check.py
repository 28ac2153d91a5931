"""Everything that comes before the upload of a release, in one command: ``make release-check``.

Every step is run, so that one call shows all that is missing. At the end stand the commands that
are left: the tag and the upload.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from zipfile import ZipFile

from plml import __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
#: The headings of Keep a Changelog.
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


class NotReadyError(Exception):
    """What is missing before a release, in one line."""


def check_tree(status: str) -> None:
    """Nothing that is not committed; ``status`` is what ``git status --porcelain`` prints."""
    if changed := status.splitlines():
        raise NotReadyError(f"{len(changed)} files are not committed, such as {changed[0][3:]}")


def check_tag(tag: str, version: str) -> None:
    """A tag that is there already is that of the version."""
    if tag not in ("", f"v{version}"):
        raise NotReadyError(f"the tag is {tag}, the version {version}; a tag is called v{version}")


def check_changelog(text: str, version: str) -> None:
    """The newest heading is ``## [version] - date``, and those below are of the known kinds."""
    headings = re.findall(r"^## (.+)$", text, re.M)
    if not headings or not re.fullmatch(
        rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", headings[0]
    ):
        found = headings[0] if headings else "missing"
        raise NotReadyError(f"the first heading of CHANGELOG.md is {found}, not [{version}] - date")
    if unknown := set(re.findall(r"^### (.+)$", text, re.M)) - set(KINDS):
        raise NotReadyError(f"CHANGELOG.md has the heading {unknown.pop()}; use {', '.join(KINDS)}")


def check_same(what: str, found: Iterable[str], expected: Iterable[str]) -> None:
    """An archive holds exactly what it should."""
    found, expected = set(found), set(expected)
    if missing := sorted(expected - found):
        raise NotReadyError(f"{what} lacks {', '.join(missing)}")
    if more := sorted(found - expected):
        raise NotReadyError(f"{what} holds {', '.join(more)}, which is not a part of it")


def wheel_files(tracked: Iterable[str], version: str) -> list[str]:
    """What the wheel should hold: the packages, and what describes them."""
    of_packages = [name.removeprefix("src/") for name in tracked if name.startswith("src/")]
    about = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    return [*of_packages, *(f"plml-{version}.dist-info/{name}" for name in about)]


def source_files(tracked: Iterable[str], version: str) -> list[str]:
    """What the source distribution should hold: everything that is committed."""
    return [f"plml-{version}/{name}" for name in (*tracked, "PKG-INFO")]


def broken_links(root: Path) -> list[str]:
    """Links of the Markdown pages to files or headings that are not there."""
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("results/*.md")]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue  # elsewhere: see make links
            there = page.parent / path if path else page
            known = there.exists() and (not heading or heading in anchors(there))
            if not known and not path.startswith(("gallery/", "generated/")):
                broken.append(f"{page.relative_to(root)}: {target}")
    return broken


def anchors(page: Path) -> set[str]:
    """The names under which the headings of a page can be linked."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {re.sub(r"\s", "-", heading.strip()) for heading in plain}


def output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        said = [line for line in lines if not re.match(r"make(\[\d+\])?: ", line)]
        raise NotReadyError(f"{' '.join(command[:4])} fails: {said[-1] if said else 'silently'}")
    return done.stdout


def tracked() -> list[str]:
    return output("git", "ls-files").splitlines()


def build() -> None:
    """The source distribution, and the wheel from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    output(sys.executable, "-m", "build", "--outdir", str(DIST))
    output(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))


def check_wheel() -> None:
    with ZipFile(next(DIST.glob("*.whl"))) as archive:
        names = archive.namelist()
    print(*sorted(names), sep="\n")
    check_same("the wheel", names, wheel_files(tracked(), __version__))


def check_source() -> None:
    with tarfile.open(next(DIST.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    print(*sorted(names), sep="\n")
    check_same("the source distribution", names, source_files(tracked(), __version__))


def check_links() -> None:
    if broken := broken_links(ROOT):
        raise NotReadyError(f"links lead nowhere: {'; '.join(broken)}")
    output("make", "links")


def not_ready(steps: dict[str, Callable[[], object]]) -> list[str]:
    """Run every step; what is missing."""
    missing = []
    for name, step in steps.items():
        print(f"--- {name}", flush=True)
        try:
            step()
        except NotReadyError as error:
            missing.append(f"{name}: {error}")
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="", help="the tag of this commit, where there is one")
    tag = parser.parse_args().tag
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    missing = not_ready(
        {
            "everything is committed": lambda: check_tree(output("git", "status", "--porcelain")),
            "tag and version": lambda: check_tag(tag, __version__),
            "changelog and version": lambda: check_changelog(changelog, __version__),
            "build": build,
            "contents of the wheel": check_wheel,
            "contents of the source distribution": check_source,
            "both pass the tests where they are installed": lambda: output(
                "make", "test-wheel", f"PLML_DIST={DIST}"
            ),
            "documentation": lambda: output("make", "docs"),
            "links": check_links,
        }
    )
    if missing:
        raise SystemExit("\n".join([f"{__version__} is not ready:", *missing]))
    print(f"{__version__} is ready. What is left:")
    print(f"  git tag v{__version__} && git push origin v{__version__}")
    print(
        "  the upload: the tag starts .github/workflows/release.yml; by hand: twine upload dist/*"
    )


if __name__ == "__main__":
    main()
