"""Random bytes into everything that reads someone else's file: no traceback, no hang.

    pip install atheris
    python fuzz/readers.py csv -atheris_runs=220000 -timeout=30 -rss_limit_mb=8000
    python fuzz/readers.py parquet | skops | schema | checkpoint | idx ...
    python fuzz/readers.py encoding | dialect | numbers | archive | workbook | columns ...

A reader may refuse a file with a ``ValueError`` of one line, and nothing else. What it accepts as
a table is taken through the checks of the columns as well, as ``plml fit`` does. The last six are
the parts of ``plml.read_table`` and ``plml.describe``, which random bytes reach faster alone.
"""

import bz2
import gzip
import json
import lzma
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import atheris
import duckdb
import numpy as np
import pandas as pd
import zstandard

with atheris.instrument_imports(include=["plml", "plml_study"]):
    import plml
    from plml import tables
    from plml.io import checkpoints, model_files
    from plml.io.files import bounded_memory
    from plml.io.model_schema import SCHEMA
    from plml.preprocessing import text_numbers
    from plml.tables import dialects, parsing, text_encoding, unpacking
    from plml_study import datasets

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
SEEDS = Path(__file__).parents[1] / "tests" / "data"
SHEET = "xl/worksheets/sheet1.xml"


#: One database for all runs: to open one takes longer than to read a small file.
DATABASE = duckdb.connect(config={"threads": 1})
parsing._duckdb = lambda: nullcontext(DATABASE)


def table(path: Path) -> None:
    """As ``plml fit`` and ``plml predict`` read a table."""
    with bounded_memory(path):
        found, understood = tables.read_table(path)
    described(found, understood.marks.doubts)


def described(found: pd.DataFrame, doubts: Mapping[str, str]) -> None:
    """The kinds of the columns, as ``plml fit`` finds them and ``plml predict`` needs them."""
    target = found.columns[-1] if found.shape[1] > 1 else None
    report = plml.describe(found, target, doubts=doubts)
    assert str(report)
    assert tables.ColumnReport.from_dict(json.loads(report.to_json())) == report
    plan = report.plan()
    tidy = plan.tidy(found, "the table")
    assert list(tidy.columns) == list(plan.names)
    assert not np.isinf(tidy[list(plan.numbers)].to_numpy(dtype=float)).any()


def encoding(path: Path) -> None:
    """The encoding of a file, and the file in UTF-8."""
    name, _ = text_encoding.encoding_of(path)
    text_encoding.as_utf8(path, path.with_suffix(".utf8"), name)


def dialect(path: Path) -> None:
    """How a text in UTF-8 is cut into fields; every row has as many, or it is said."""
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        text = stream.read()
    path.write_bytes(text.encode())
    found = dialects.dialect_of(path)
    if not dialects.misfit(path, found):
        copy = path.with_suffix(".copy")
        dialects.rewritten(path, copy, found)
        rows = dialects.Dialect(",", n_columns=found.n_columns)
        assert not dialects.misfit(copy, rows), "a copy that is none"


def numbers(path: Path) -> None:
    """Texts that may be numbers, one per line and column."""
    lines = path.read_bytes().decode(errors="replace").split("\n")
    cells = [(*line.split("\t"), "", "")[:2] for line in lines]
    given = text_numbers.Marks()
    text_numbers.with_numbers(pd.DataFrame(cells, columns=["a", "b"]), given, str)


def columns(path: Path) -> None:
    """Texts that may be dates, categories or names, one per line and column, of two classes."""
    lines = path.read_bytes().decode(errors="replace").split("\n")[:20] * 9
    cells = [(*line.split("\t"), None, None)[:2] for line in lines]
    frame = pd.DataFrame(cells, columns=["a", "b"]).assign(y=np.arange(len(cells)) % 2)
    described(frame, {})


def archive(path: Path) -> None:
    """Compressed bytes."""
    unpacking.unpacked(path, FOLDER)


def workbook(path: Path) -> None:
    """A workbook with these bytes for its first sheet: those of an archive have checksums."""
    packed = path.with_suffix(".xlsx")
    with ZipFile(BytesIO(good_workbook())) as good, ZipFile(packed, "w") as archive:
        for name in good.namelist():
            archive.writestr(name, path.read_bytes() if name == SHEET else good.read(name))
    with bounded_memory(packed):
        tables.read_table(packed)


@cache
def good_workbook() -> bytes:
    stream = BytesIO()
    frame = pd.DataFrame({"a": [1.5, None], "b": ["x", None], "y": ["u", "v"]})
    frame.to_excel(stream, index=False)
    return stream.getvalue()


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
    "encoding": (encoding, ".txt"),
    "dialect": (dialect, ".txt"),
    "numbers": (numbers, ".txt"),
    "columns": (columns, ".txt"),
    "archive": (archive, ".gz"),
    "workbook": (workbook, ".xml"),
    "skops": (model, ".skops"),
    "schema": (schema, ".json"),
    "checkpoint": (state, ".npz"),
    "idx": (idx, ""),
}


def seeds(kind: str) -> list[bytes]:
    """Good files to start from."""
    path = FOLDER / f"seed{READERS[kind][1]}"
    if kind in TEXTS:
        return TEXTS[kind]
    if kind == "archive":
        text = TEXTS["csv"][0]
        return [gzip.compress(text), bz2.compress(text), lzma.compress(text), *packed(text)]
    if kind == "workbook":
        with ZipFile(BytesIO(good_workbook())) as good:
            return [good.read(SHEET)]
    if kind == "parquet":
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


def packed(text: bytes) -> list[bytes]:
    """A text as zst and as zip."""
    stream = BytesIO()
    with ZipFile(stream, "w") as good:
        good.writestr("a.csv", text)
    return [zstandard.compress(text), stream.getvalue()]


CSV = b"a,b,y\n1,x,u\n2,,v\n3.5,z,u\n"
WORDS = "größe;y\n1,5 m;ja\n-999;nein\n".encode()
TEXTS = {
    "csv": [CSV, CSV.replace(b",", b";"), b'"a\n",b\n1e309,"q""\n"\n', b"\xef\xbb\xbfa\n\n", WORDS],
    "dialect": [CSV, WORDS, b"# of 2024\n\na\tb\n1\t'x'\n", b"a  b\n1  2\n", b"|a|b|\n|-|-|\n"],
    "encoding": [
        WORDS,
        WORDS.decode().encode("cp1252"),
        WORDS.decode().encode("utf-16"),
        WORDS.decode().encode("utf-16-be"),
        "да;нет\n".encode("koi8-r"),
    ],
    "numbers": [b"1.234,5\t$1\n9,5\t1'000\n", b"1 kg\t(3)\n2 kg\t-\n", b"0x1\t1e5\n01\t?\n"],
    "columns": [b"2024-01-02\tyes\n2024-02-03\tno\n", b"1.2.24\t12:30\n", b"1/13/24 5:00+02\tA\n"],
}


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
    warnings.simplefilter("ignore")
    atheris.Setup([*sys.argv, str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
