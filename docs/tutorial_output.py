"""Runs the commands of docs/tutorial.md, and writes what they print below each of them.

    python docs/tutorial_output.py

A block that begins with ``$ plml ...`` is a command; what follows in the block is replaced.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent / "tutorial.md"
COMMAND = "import sys; from plml.cli import main; sys.exit(main())"
#: Lines of the progress.
_PROGRESS = re.compile(r"\[ *\d+%\] .*\n")


def printed(line: str, folder: Path) -> str:
    """What a command prints, without its progress."""
    arguments = shlex.split(line.removeprefix("$ plml "))
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    return _PROGRESS.sub("", done.stdout).rstrip()


def rewritten(text: str, folder: Path) -> str:
    """The page with what its commands print now."""
    names: dict[str, object] = {"__name__": "__main__"}
    before = Path.cwd()

    def run(match: re.Match[str]) -> str:
        language, block = match[1], match[2]
        if language == "python":
            os.chdir(folder)
            try:
                exec(compile(block, "tutorial", "exec"), names)
            finally:
                os.chdir(before)
        first = block.splitlines()[0]
        if not first.startswith("$ plml "):
            return match[0]
        return f"```{language}\n{first}\n{printed(first, folder)}\n```"

    return re.sub(r"^```(\S*)\n(.*?)^```", run, text, flags=re.M | re.S)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")
