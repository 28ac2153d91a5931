"""What is in a model file: all its bytes, unpacked, and whether given values are among them."""

import io
import json
import re
import zipfile

import numpy as np


def members(path):
    """All the bytes of a model file, unpacked."""
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]


def arrays(path):
    """All its arrays of numbers."""
    found = []
    for content in members(path):
        if content[:6] == b"\x93NUMPY":
            found.append(np.load(io.BytesIO(content), allow_pickle=False))
    return [array.astype(float) for array in found if array.dtype.kind in "fiu"]


def is_in(path, values):
    """Which of some values are anywhere in a file, as bytes, as numbers or as texts."""
    contents, numbers = members(path), arrays(path)
    schema = json.dumps(json.loads(next(c for c in contents if c[:1] == b"{")))
    found = []
    for value in values:
        if isinstance(value, str):
            hit = value in schema or any(
                value.encode(code) in c for c in contents for code in ("utf-8", "utf-32-le")
            )
        else:
            words = np.float64(value).tobytes(), np.float32(value).tobytes()
            hit = any(word in c for c in contents for word in words)
            # As a number of its own: the digits of a short one are in the addresses of objects.
            hit = hit or re.search(rf"(?<![\d.]){re.escape(repr(value))}(?![\d.])", schema)
            hit = hit or any((np.abs(a - value) < 1e-9 * abs(value)).any() for a in numbers)
        found += [value] if hit else []
    return found
