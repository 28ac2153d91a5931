"""Files that are whole or not there, pipes that are written through, and readers held in check."""

import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO

try:
    import fcntl

    _AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]

#: What is neither a file nor written through.
_REFUSED = {stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device"}
_STANDARD_OUTPUT = 1
#: Bytes that reading a file may take beyond a multiple of its size.
_ALLOWANCE = 4 * 2**30
_LARGEST_EXPANSION = 64
_one_at_a_time = Lock()


def check_destination(path: Path, option: str, *, kept: bool = False) -> None:
    """Refuse, before the work, a path of an option that could not be written after it.

    With ``kept`` it has to be a file, because it is read again or written more than once.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")
    try:
        (check_file if kept else is_stream)(path)
    except ValueError as error:
        raise ValueError(f"{option} {error}") from None


def check_file(path: Path) -> None:
    """Refuse a path that is neither a file nor free for one."""
    if is_stream(path):
        raise ValueError(f"{path} is a pipe or a device; give the path of a file")


def is_stream(path: Path) -> bool:
    """Whether a path takes bytes and keeps none: a pipe, a terminal, our own standard output.

    A link is what it leads to. What can be neither written through nor replaced is refused.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    kind = stat.S_IFMT(found.st_mode)
    if _is_standard_output(found) or kind in (stat.S_IFIFO, stat.S_IFCHR):
        return True
    if kind in _REFUSED:
        raise ValueError(f"{path} is {_REFUSED[kind]}; give the path of a file")
    return False


def write(path: Path, content: str | bytes) -> None:
    """Write a file in one step; a pipe or a device is written through and stays what it is."""
    if is_stream(path):
        _write_through(path, content)
    else:
        remove_leftovers(path)
        write_atomically(path, content)


def write_atomically(path: Path, content: str | bytes, previous: Path | None = None) -> None:
    """Replace a file in one step: a reader, or a killed run, sees all of it or what was before.

    With ``previous`` the file that was there is kept under that name.
    """
    check_file(path)
    path = path.resolve()  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    stream, temporary = _new_next_to(path)
    try:
        with stream:
            stream.write(_encoded(content))
            stream.flush()
            os.fsync(stream.fileno())
            if fcntl is None:  # such systems do not rename what is open
                stream.close()
            os.chmod(temporary, _mode(path))
            if previous is not None and path.exists():
                os.replace(path, previous)
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Whoever reads a file, changes it and replaces it: one at a time, in all processes.

    The lock is on a file next to it, which is there for as long. Where the system has no such locks
    nobody waits.
    """
    if fcntl is None:
        yield
        return
    path = path.resolve()  # by whatever link it is called
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    while True:
        with lock.open("ab") as stream:
            with suppress(OSError):  # no locks in this folder
                fcntl.flock(stream, fcntl.LOCK_EX)
            if os.fstat(stream.fileno()).st_nlink == 0:  # of one who is done: another may have come
                continue
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of a file left next to it; whoever still writes holds a lock."""
    if fcntl is None:
        return
    path = path.resolve()
    ours = re.compile(re.escape(f".{path.name}.") + r"[a-z0-9_]{8}\.tmp")
    for name in filter(ours.fullmatch, _listed(path.parent)):
        leftover = path.parent / name
        with suppress(OSError):
            if not stat.S_ISREG(leftover.lstat().st_mode):
                continue
            with leftover.open("r+b") as stream:
                fcntl.flock(stream, _AT_ONCE)
                leftover.unlink()


@contextmanager
def bounded_memory(path: Path) -> Iterator[None]:
    """While a file is read, refuse it more memory than files of its size can need.

    A few bytes of a damaged or malicious file can ask its parser for all there is. The limit is
    that of the whole process, so this is for a process that does nothing else: the command line.
    Where the system has no such limits, nothing is limited.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    with _one_at_a_time:  # the limit is one for the whole process
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        n_bytes = path.stat().st_size if path.is_file() else 0
        extra = _ALLOWANCE + _LARGEST_EXPANSION * n_bytes
        limit = pages * resource.getpagesize() + extra
        if soft != resource.RLIM_INFINITY:
            limit = min(limit, soft)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _is_standard_output(found: os.stat_result) -> bool:
    """Also where that was led into a file, which others go on writing to."""
    with suppress(OSError):
        return os.path.samestat(found, os.fstat(_STANDARD_OUTPUT))
    return False


def _write_through(path: Path, content: str | bytes) -> None:
    if _is_standard_output(path.stat()):
        if sys.stdout is not None:
            sys.stdout.flush()
        handle = os.dup(_STANDARD_OUTPUT)
    else:
        handle = _opened(path)
    with os.fdopen(handle, "wb") as stream:
        stream.write(_encoded(content))


def _opened(path: Path) -> int:
    """A pipe or a device; a pipe that nobody reads is refused, and not waited for."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            raise ValueError(f"nobody reads the pipe {path}; start the reader first") from None
        raise
    os.set_blocking(handle, True)
    return handle


def _new_next_to(path: Path) -> tuple[IO[bytes], str]:
    """A new file in the same folder, locked as long as it is open."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        stream = os.fdopen(handle, "wb")
        if _is_locked(stream):
            return stream, name
        stream.close()


def _is_locked(stream: IO[bytes]) -> bool:
    """Lock a file; False where it was taken for a leftover before it could be."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream, _AT_ONCE)
    except BlockingIOError:
        return False
    except OSError:  # no locks in this folder, where nobody removes leftovers then
        return True
    return os.fstat(stream.fileno()).st_nlink > 0


def _listed(folder: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _encoded(content: str | bytes) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def _mode(path: Path) -> int:
    """The permissions that the file has, or that a new one gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
