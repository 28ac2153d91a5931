"""Start a baseline or a kind of metric: ``make new-baseline NAME=Foo``, ``new-metric``.

The files of ``tools/template`` are copied under the name, and a baseline is entered where the
estimators are listed. What comes out is a small method that works and passes its tests: put yours
in its place, and let the tests say what is not done yet.
"""

import argparse
import keyword
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEMPLATE = Path(__file__).parent / "template"
#: Where the files go.
FILES = {
    "baseline": {
        "learning.py": "src/plml/baselines/{name}_learning.py",
        "estimator.py": "src/plml/estimators/{name}.py",
        "baseline_tests.py": "tests/estimators/test_{name}.py",
    },
    "metric": {
        "metric.py": "src/plml/metric/{name}_metric.py",
        "metric_tests.py": "tests/metric/test_{name}_metric.py",
    },
}
#: Where the estimators are listed: a file, a text in it, and what is put behind it.
LISTS = (
    (
        "src/plml/__init__.py",
        "    from plml.estimators.boostmetric import BoostMetric\n",
        "    from plml.estimators.{name} import {Name}\n",
    ),
    (
        "src/plml/__init__.py",
        '    "BoostMetric": "plml.estimators.boostmetric",\n',
        '    "{Name}": "plml.estimators.{name}",\n',
    ),
    ("src/plml/__init__.py", '    "BoostMetric",\n', '    "{Name}",\n'),
    (
        "src/plml/io/model_files.py",
        '    "plml.estimators.boostmetric.BoostMetric",\n',
        '    "plml.estimators.{name}.{Name}",\n',
    ),
    ("tests/support/every_estimator.py", "    BoostMetric,\n", "    {Name},\n"),
    (
        "tests/support/every_estimator.py",
        '    "BoostMetric": BoostMetric,\n',
        '    "{Name}": {Name},\n',
    ),
    ("docs/api.rst", "   plml.BoostMetric\n", "   plml.{Name}\n"),
)


def create(kind: str, name: str, root: Path = ROOT) -> list[Path]:
    """Write the files of a kind under a name in CamelCase; all that were written or changed."""
    low = name.lower()
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(low):
        raise ValueError(f"NAME={name} does not name a class; take one such as NAME=NearestMean")
    new = {TEMPLATE / file: root / path.format(name=low) for file, path in FILES[kind].items()}
    taken = {path.name for path in (root / "src").rglob("*.py")}
    if there := [path for path in new.values() if path.exists() or path.name in taken]:
        raise ValueError(f"there is a {there[0].name} already; take another NAME")
    changed = {root / file: (root / file).read_text() for file, *_ in LISTS if kind == "baseline"}
    for file, behind, line in LISTS if kind == "baseline" else ():
        text = changed[root / file]
        if behind not in text:
            raise ValueError(f"{file} has no {behind.strip()!r} to put the new one behind")
        changed[root / file] = text.replace(behind, behind + line.format(name=low, Name=name), 1)
    for template, path in new.items():
        changed[path] = template.read_text().replace("Template", name).replace("template", low)
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    return list(changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=FILES, help="what to start")
    parser.add_argument("name", help="name of the class, such as NearestMean")
    options = parser.parse_args()
    try:
        paths = create(options.kind, options.name)
    except ValueError as error:
        raise SystemExit(f"new-{options.kind}: {error}") from None
    python = [path for path in paths if path.suffix == ".py"]
    for command in (["check", "--quiet", "--fix"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *python], check=True, cwd=ROOT)
    print(*(path.relative_to(ROOT) for path in paths), sep="\n")
    print(f"python -m pytest {paths[-1].relative_to(ROOT)}")


if __name__ == "__main__":
    main()
