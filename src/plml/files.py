"""Files that are whole or not there, and files of strangers that ask for all of the memory."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock


def _mode(path: Path) -> int:
    """The permissions that the file has, or that a new one gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


#: Bytes that reading a file may take beyond a multiple of its size.
_ALLOWANCE = 4 * 2**30
_LARGEST_EXPANSION = 64
_one_at_a_time = Lock()


@contextmanager
def bounded_memory(path: Path) -> Iterator[None]:
    """While a file is read, refuse it more memory than files of its size can need.

    A few bytes of a damaged or malicious archive can ask its parser for all there is. Where the
    system has no such limits (they are those of the whole process), nothing is limited.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    with _one_at_a_time:  # the limit is one for the whole process
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        extra = _ALLOWANCE + _LARGEST_EXPANSION * path.stat().st_size
        limit = pages * resource.getpagesize() + extra
        if soft != resource.RLIM_INFINITY:
            limit = min(limit, soft)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def write_atomically(path: Path, content: str | bytes, previous: Path | None = None) -> None:
    """Replace a file in one step: a reader, or a killed run, sees all of it or what was before.

    With ``previous`` the file that was there is kept under that name.
    """
    content = content.encode("utf-8") if isinstance(content, str) else content
    path = path.resolve()  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _mode(path))
        if previous is not None and path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
