"""Archives of arrays in which everything is as large as it says, checked before it is unpacked.

A few kilobytes can ask their reader for all of the memory: by compression, by parts that share
their bytes, by an array that claims to be larger than it is. Files of this library do none of it,
and what does is refused, so reading takes no more than a small multiple of a file's size.
"""

import os
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

#: Ways to read the header of an array, by the version of NumPy's format; all that is ever written.
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class Header(NamedTuple):
    """What an array is."""

    shape: tuple[int, ...]
    dtype: np.dtype


def array_headers(
    archive: ZipFile, n_bytes: int, others: Collection[str] = ()
) -> dict[str, Header]:
    """The arrays of an archive by the names of their members, which hold nothing else.

    Parameters
    ----------
    archive : opened to be read
    n_bytes : size of its file
    others : members that are not arrays
    """
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two members have the same name")
    for member in members:
        if member.compress_type != ZIP_STORED or member.compress_size != member.file_size:
            raise ValueError(f"{member.filename!r} is compressed")
    if sum(member.file_size for member in members) > n_bytes:
        raise ValueError("its members overlap")
    return {
        member.filename: _header(archive, member)
        for member in members
        if member.filename not in others
    }


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All that ``numpy.savez`` wrote; checksums are verified, and nothing is unpickled."""
    with path.open("rb") as stream, ZipFile(stream) as archive:
        names = array_headers(archive, os.fstat(stream.fileno()).st_size)
        return {name.removesuffix(".npy"): _array(archive, name) for name in names}


def _array(archive: ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        return npy.read_array(stream, allow_pickle=False)


def _header(archive: ZipFile, member: ZipInfo) -> Header:
    """Read the header alone; refuses one that does not tell the size of the member."""
    with archive.open(member) as stream:
        try:
            shape, _, dtype = _READERS[npy.read_magic(stream)](stream)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{member.filename!r} is not an array") from error
        start = stream.tell()
    if dtype.hasobject:
        raise ValueError(f"{member.filename!r} is not an array")
    n_items = prod(shape)
    fits = start + n_items * dtype.itemsize == member.file_size
    if not fits or min(shape, default=0) < 0 or (n_items and not dtype.itemsize):
        raise ValueError(f"{member.filename!r} claims a shape that it does not have")
    return Header(shape, dtype)
