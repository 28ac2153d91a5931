"""Compressed files, unpacked to the disk: gz, zip, zst, bz2 and xz, told by their first bytes."""

import bz2
import gzip
import lzma
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

from plml.install import install

#: Bytes that one byte of an honest archive may become, and what any may.
_LARGEST_EXPANSION, _ALLOWANCE = 1100, 2**26
_PART = 2**20
#: What every workbook of Excel holds.
_WORKBOOK = "xl/workbook.xml"
#: What documents that are zip archives hold, and files that nobody put into one.
_DOCUMENT = {"[Content_Types].xml", "mimetype", "Index/Document.iwa"}
_HIDDEN = re.compile(r"(^|/)(\.[^/]*|Thumbs\.db|desktop\.ini)$", re.IGNORECASE)


def unpacked(path: Path, folder: Path) -> tuple[Path, str | None]:
    """A file without its compression, and the name of that; a workbook of Excel as it is.

    Parameters
    ----------
    path : file, compressed or not
    folder : for what is unpacked
    """
    with path.open("rb") as stream:
        start = stream.read(8)
    for magic, (name, opened) in _KINDS.items():
        if not start.startswith(magic) or (name == "zip" and is_workbook(path)):
            continue
        found = folder / "unpacked"
        try:
            with opened(path) as source, found.open("wb") as copy:
                _copy(source, copy, _ALLOWANCE + _LARGEST_EXPANSION * path.stat().st_size)
        except ValueError:
            raise
        except Exception as error:  # every library has its own
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"it is a {name} archive that is damaged ({reason}); get it once more, or unpack "
                "it yourself"
            ) from error
        return found, name
    return path, None


def is_workbook(path: Path) -> bool:
    """Whether a zip archive is a workbook of Excel."""
    try:
        with ZipFile(path) as archive:
            return _WORKBOOK in archive.namelist()
    except Exception:  # zipfile has many, of archives that are damaged or of the future
        return False


def _copy(source: Any, copy: IO[bytes], most: int) -> None:
    done = 0
    while part := source.read(_PART):
        done += len(part)
        if done > most:
            raise ValueError("it unpacks to a thousand times its size; unpack it yourself")
        copy.write(part)


def _only_member(path: Path) -> IO[bytes]:
    archive = ZipFile(path)
    members = [m for m in archive.infolist() if not (m.is_dir() or _HIDDEN.search(m.filename))]
    if _DOCUMENT & set(archive.namelist()):
        raise ValueError("it is a document of another program; save it as .xlsx or CSV")
    if len(members) != 1:
        names = ", ".join(repr(member.filename) for member in members[:4])
        raise ValueError(f"it holds {len(members)} files ({names}); unpack the one to read")
    if members[0].flag_bits & 1:
        raise ValueError(f"its file {members[0].filename!r} has a password; unpack it yourself")
    return archive.open(members[0])


class _Frames:
    """The frames of a zst file; zstandard's own reader ends early without a word."""

    def __init__(self, source: BufferedReader, new_frame: Callable[[], Any]) -> None:
        self._source, self._new_frame = source, new_frame
        self._frame: Any = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Some bytes of the content; none at its end."""
        found = b""
        while not found:
            part = self._rest or self._source.read(size // 16)
            if not part:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                return b""
            self._frame = self._frame or self._new_frame()
            found, self._rest = self._frame.decompress(part), b""
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        return found


@contextmanager
def _zstandard(path: Path) -> Iterator[_Frames]:
    try:
        import zstandard
    except ImportError:
        raise ValueError(f"zst files need zstandard: {install('cli')}") from None
    with path.open("rb") as stream:
        yield _Frames(stream, zstandard.ZstdDecompressor().decompressobj)


_KINDS: dict[bytes, tuple[str, Callable[[Path], AbstractContextManager[Any]]]] = {
    b"\x1f\x8b": ("gz", gzip.open),
    b"PK\x03\x04": ("zip", _only_member),
    b"PK\x05\x06": ("zip", _only_member),
    b"\x28\xb5\x2f\xfd": ("zst", _zstandard),
    b"BZh": ("bz2", bz2.open),
    b"\xfd7zXZ\x00": ("xz", lzma.open),
}
