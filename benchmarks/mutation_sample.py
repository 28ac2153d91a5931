"""How many mutants of a package do the tests notice? A random sample, where all would take days.

python benchmarks/mutation_sample.py dask metric --tests tests/dask tests/metric

Needs mutmut, and pytest before version 9 (see ``make mutation``). It runs in the root of the
repository, generates all mutants there, in the folder ``mutants``, and tests those of the sample
one after another, with the tests that ``pyproject.toml`` selects or with some of them.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import defaultdict
from itertools import chain
from pathlib import Path

#: What mutmut's exit code of a mutant means; any other one is a failed test or a crash.
NOT_KILLED = {0: "survived", 5: "no test", 33: "no test", 24: "timeout", -24: "timeout"}
NOT_KILLED |= {36: "timeout", 152: "timeout", 255: "timeout", None: "not run"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="+", help="of plml, such as dask")
    parser.add_argument("--size", type=int, default=120, help="mutants per package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", help="by default those of pyproject.toml")
    parser.add_argument("--again", action="store_true", help="only those that were not killed yet")
    parser.add_argument("--report-only", action="store_true", help="of the last run")
    options = parser.parse_args()
    if not options.report_only:
        generate()
    sample = {p: draw(p, options.size, options.seed) for p in options.packages}
    if not options.report_only:
        chosen = [not_killed(p, sample[p]) if options.again else sample[p] for p in sample]
        test(list(chain(*chosen)), options.tests)
    for package, names in sample.items():
        report(package, names)


def generate() -> None:
    """Write all mutants, as ``mutmut run`` does before it tests them."""
    from mutmut.__main__ import create_mutants
    from mutmut.utils import file_utils

    Path("mutants").mkdir(exist_ok=True)
    file_utils.copy_src_dir()
    file_utils.copy_also_copy_files()
    create_mutants(max_children=1)


def test(names: list[str], tests: list[str] | None) -> None:
    """``mutmut run`` of some mutants, with the tests in some files or folders."""
    from mutmut.__main__ import cli
    from mutmut.configuration import config

    if tests is not None:
        config().pytest_add_cli_args_test_selection = tests
    cli(["run", "--max-children", "1", *names], standalone_mode=False)


def exit_codes(package: str) -> dict[str, int | None]:
    """The mutants of a package by name, with what came of the tests."""
    folder = Path("mutants/src/plml") / package
    files = [json.loads(path.read_text()) for path in sorted(folder.rglob("*.meta"))]
    return {name: code for file in files for name, code in file["exit_code_by_key"].items()}


def draw(package: str, size: int, seed: int) -> list[str]:
    """A random sample of the mutants of a package."""
    names = sorted(exit_codes(package))
    return random.Random(seed).sample(names, min(size, len(names)))


def not_killed(package: str, names: list[str]) -> list[str]:
    """Those of some mutants that no test has failed for."""
    codes = exit_codes(package)
    return [name for name in names if codes[name] in NOT_KILLED]


def report(package: str, names: list[str]) -> None:
    """Print how many were killed, and what the others change, function by function."""
    codes = exit_codes(package)
    others = not_killed(package, names)
    n_killed = len(names) - len(others)
    share = f"{n_killed / len(names):.1%}"
    print(f"\n## {package}\n")
    print(f"{n_killed} of {len(names)} killed ({share}), a sample of {len(codes)}.\n")
    lines = defaultdict(list)
    for name in sorted(others):
        outcome = NOT_KILLED[codes[name]]
        said = "" if outcome == "survived" else f" ({outcome})"
        lines[readable(name)].append(f"`{changed_line(name)}`{said}")
    for function, changes in lines.items():
        print(f"- `{function}`: {'; '.join(changes)}")


def readable(name: str) -> str:
    """plml.dask.sums.xǁRunningSumǁadd__mutmut_1 -> dask.sums.RunningSum.add"""
    module, _, mangled = name.partition("__mutmut_")[0].removeprefix("plml.").rpartition(".")
    return f"{module}.{mangled.removeprefix('x_').removeprefix('xǁ').replace('ǁ', '.')}"


def changed_line(name: str) -> str:
    """The line that a mutant writes, or the one that it takes away."""
    command = [sys.executable, "-m", "mutmut", "show", name]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for sign in "+-":
        for line in shown:
            if line.startswith(sign) and not line.startswith(sign * 3):
                return line[1:].strip()
    return "(nothing)"


if __name__ == "__main__":
    main()
