"""Files that are whole or not there."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, previous: Path | None = None) -> None:
    """Replace a file in one step: a reader, or a killed run, sees all of it or what was before.

    With ``previous`` the file that was there is kept under that name.
    """
    content = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
