"""The schema of a model file, checked before anything is built from it.

skops builds an object once and refers to it by its number ever after, so a schema of a few lines
can stand for more than any memory holds: ten lists of ten lists of ten lists. It also knows types
that grow when they are read. A schema that passes here is as large as what it stands for.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import numpy as np

from plml.io.archives import Header, array_headers

#: The member of a model file that is not an array.
SCHEMA = "schema.json"
#: Enough for the names of some 300,000 columns and categories.
_MOST_BYTES = 128 * 2**20
#: How the containers of a model may be read, and what they may be.
_CONTAINERS = {
    "DictNode": ("builtins.dict", "collections.OrderedDict"),
    "ListNode": ("builtins.list",),
    "SetNode": ("builtins.set",),
    "TupleNode": ("builtins.tuple",),
}
#: How its other parts may be read; skops says of which types.
_OTHERS = (
    "DTypeNode",
    "FunctionNode",
    "JsonNode",
    "NdArrayNode",
    "ObjectNode",
    "RandomStateNode",
    "SliceNode",
    "TypeNode",
)


def check_model(content: bytes) -> None:
    """Refuse a model file that would take more to read than a small multiple of its size."""
    with ZipFile(BytesIO(content)) as archive:
        headers = array_headers(archive, len(content), others=[SCHEMA])
        if archive.getinfo(SCHEMA).file_size > _MOST_BYTES:
            raise ValueError(f"its schema has more than {_MOST_BYTES >> 20} MiB")
        _Nodes(headers).digest(json.loads(archive.read(SCHEMA)))


class _Nodes:
    """The nodes of a schema, each for one object of the model.

    Parameters
    ----------
    headers : of the arrays in the same file
    """

    def __init__(self, headers: Mapping[str, Header]) -> None:
        self._headers = headers
        self._known: dict[Any, bytes] = {}  # by the number of the object
        self._owners: dict[str, Any] = {}  # of the arrays: the number of an object

    def digest(self, value: Any) -> bytes:
        """What a part of the schema stands for, whatever its objects and files are called.

        Parts that are the same object must stand for the same, so that a reference is never
        shorter than what it refers to.
        """
        found = blake2b(type(value).__name__.encode(), digest_size=16)
        if isinstance(value, list):
            for part in value:
                found.update(self.digest(part))
        elif not isinstance(value, dict):
            found.update(repr(value).encode())
        else:
            header = self._checked(value) if "__loader__" in value else None
            found.update(self.digest(repr(header)))
            for name, part in value.items():
                if name != "__id__" and (header is None or name != "file"):
                    found.update(self.digest(name) + self.digest(part))
            number = value.get("__id__")
            if number and self._known.setdefault(number, found.digest()) != found.digest():
                raise ValueError(f"the number {number!r} stands for two objects")
        return found.digest()

    def _checked(self, node: dict[str, Any]) -> Header | None:
        """The header of the array that a node stands for, where it is in a member of its own."""
        loader, name = node["__loader__"], f"{node['__module__']}.{node['__class__']}"
        if loader not in _OTHERS and name not in _CONTAINERS.get(loader, ()):
            raise ValueError(f"it holds a {name!r} as a {loader!r}")
        if loader != "NdArrayNode":
            return None
        if node["type"] == "json":
            shape = node["shape"]
            if shape["__loader__"] != "TupleNode" or len(shape["content"]) != 1:
                # Its parts would become one large array.
                raise ValueError("it holds an array of objects with several dimensions")
            return None
        header, number = self._headers[node["file"]], node["__id__"]
        if not number or self._owners.setdefault(node["file"], number) != number:
            raise ValueError(f"two objects read {node['file']!r}")
        if name != "numpy.ndarray" and not _is_scalar(header, node["__class__"]):
            raise ValueError(f"{node['file']!r} is not a {name!r}")  # a number would be a length
        return header


def _is_scalar(header: Header, name: str) -> bool:
    kind = getattr(np, name, None)
    is_type = isinstance(kind, type) and issubclass(kind, np.generic)
    return is_type and header.shape == () and np.dtype(kind).kind == header.dtype.kind
