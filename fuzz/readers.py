"""Random bytes into everything that reads someone else's file: no traceback, no hang.

    pip install atheris
    python fuzz/readers.py csv -atheris_runs=400000 -timeout=30 -rss_limit_mb=8000
    python fuzz/readers.py parquet -atheris_runs=200000 -timeout=30 -rss_limit_mb=8000
    python fuzz/readers.py skops | schema | checkpoint | idx ...

A reader may refuse a file with a ``ValueError`` of one line, and nothing else. What it
accepts as a table is taken through the checks of the columns as well, as ``plml fit`` does.
"""

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import atheris
import numpy as np

with atheris.instrument_imports(include=["plml", "plml_study"]):
    from plml import tables
    from plml.io import checkpoints, model_files
    from plml.io.files import bounded_memory
    from plml.io.model_schema import SCHEMA
    from plml.preprocessing.columns import Columns
    from plml_study import datasets

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
SEEDS = Path(__file__).parents[1] / "tests" / "data"


def table(path: Path) -> None:
    """As ``plml fit`` and ``plml predict`` read a table."""
    with bounded_memory(path):
        found = tables.read_table(path)
    for imputes in (False, True):
        columns = Columns.of(found, path.name, imputes)
        tidy = columns.tidy(found, path.name)
        assert list(tidy.columns) == list(columns.names)
        assert np.isfinite(tidy[list(columns.numbers)].to_numpy(dtype=float)).all() or imputes


def model(path: Path) -> None:
    """As ``plml predict`` and ``plml.load`` read a model."""
    for read in (model_files.load, tables.load):
        try:
            read(path)
        except ValueError as error:
            one_line(error)


def schema(path: Path) -> None:
    """A model with these bytes for its schema: those of an archive have checksums to pass."""
    packed = path.with_suffix(".skops")
    with ZipFile(SEEDS / "kernelsvm-format-1.skops") as good, ZipFile(packed, "w") as archive:
        for name in good.namelist():
            archive.writestr(name, path.read_bytes() if name == SCHEMA else good.read(name))
    model(packed)


def state(path: Path) -> None:
    """As ``fit(checkpoint=...)`` reads its state: what is damaged is said and left."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoints.Checkpoint(path).open({"regularization": 1.0}, np.zeros(3))


def idx(path: Path) -> None:
    """As ``plml reproduce`` reads the files of MNIST."""
    datasets.read_idx(path)


def one_line(error: ValueError) -> None:
    """A refusal that a person can read."""
    text = str(error)
    assert text, "an error without words"
    assert len(text.splitlines()) == 1, text


READERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "csv": (table, ".csv"),
    "parquet": (table, ".parquet"),
    "skops": (model, ".skops"),
    "schema": (schema, ".json"),
    "checkpoint": (state, ".npz"),
    "idx": (idx, ""),
}


def seeds(kind: str) -> list[bytes]:
    """Good files to start from."""
    csv = b"a,b,y\n1,x,u\n2,,v\n3.5,z,u\n"
    if kind == "csv":
        return [csv, csv.replace(b",", b";"), b'"a\n",b\n1e309,"q""\n"\n', b"\xef\xbb\xbfa\n\n"]
    path = FOLDER / f"seed{READERS[kind][1]}"
    if kind == "parquet":
        import pandas as pd

        pd.DataFrame({"a": [1.0, None], "b": ["x", None]}).to_parquet(path)
    elif kind == "skops":
        return [(SEEDS / "kernelsvm-format-1.skops").read_bytes()]
    elif kind == "schema":
        with ZipFile(SEEDS / "kernelsvm-format-1.skops") as good:
            return [good.read(SCHEMA)]
    elif kind == "checkpoint":
        checkpoints.Checkpoint(path).open({"regularization": 1.0}, np.zeros(3))
    else:
        return [bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3]), bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0])]
    return [path.read_bytes()]


def main() -> None:
    kind = sys.argv.pop(1)
    read, suffix = READERS[kind]
    path = FOLDER / f"input{suffix}"

    def once(data: bytes) -> None:
        path.write_bytes(data)
        try:
            read(path)
        except ValueError as error:
            one_line(error)

    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for number, content in enumerate(seeds(kind)):
        (corpus / str(number)).write_bytes(content)
    for pattern in (f"input{suffix}*",):
        for old in FOLDER.glob(pattern):
            old.unlink()
    warnings.simplefilter("ignore")
    atheris.Setup([*sys.argv, str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
