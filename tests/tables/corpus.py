"""Awkward files made from real tables, each with what must come of it.

    python tests/tables/corpus.py FOLDER    # write them all

A case is read right, to the last digit, with some words said; or it is refused with the cure.
"""

import bz2
import codecs
import csv
import gzip
import json
import lzma
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zstandard
from sklearn.datasets import load_breast_cancer, load_iris, load_wine


@dataclass(frozen=True)
class Case:
    """A file, and what must come of it.

    Attributes
    ----------
    name : of the case
    file : name of the file
    content : of the file
    table : that it holds; None where it has to be refused
    words : that are said with the table, or in the refusal
    options : of ``read_table``
    """

    name: str
    file: str
    content: bytes
    table: pd.DataFrame | None = None
    words: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether other libraries might take it for CSV."""
        return not self.file.endswith((".xlsx", ".parquet"))

    def write(self, folder: Path) -> Path:
        """Write the file."""
        path = folder / self.file
        path.write_bytes(self.content)
        return path


def cases() -> list[Case]:
    """All of them; every name comes once."""
    found = [case for group in GROUPS for case in group()]
    assert len({case.name for case in found}) == len(found)
    return found


@cache
def iris() -> pd.DataFrame:
    data = load_iris(as_frame=True)
    table = data.data.set_axis(
        ["sepal_length", "sepal_width", "petal_length", "petal_width"], axis=1
    )
    return table.assign(species=data.target_names[data.target])


@cache
def wine() -> pd.DataFrame:
    data = load_wine(as_frame=True)
    grapes = np.array(["barolo", "grignolino", "barbera"])
    return data.data.round(3).assign(grape=grapes[data.target])


@cache
def cancer() -> pd.DataFrame:
    data = load_breast_cancer(as_frame=True)
    return data.data.assign(diagnosis=data.target_names[data.target])


def text(table: pd.DataFrame, **how: Any) -> str:
    """As ``to_csv`` writes it."""
    return table.to_csv(index=False, **how)


def read(name: str, content: str | bytes, table: pd.DataFrame, *words: str, **more: Any) -> Case:
    """A case that has to be read."""
    return refused(name, content, *words, table=table, **more)


def refused(
    name: str,
    content: str | bytes,
    *words: str,
    table: pd.DataFrame | None = None,
    ending: str = ".csv",
    **options: Any,
) -> Case:
    """A case that has to be refused."""
    content = content.encode() if isinstance(content, str) else content
    return Case(
        name, name.replace(" ", "-").replace("/", "-") + ending, content, table, words, options
    )


def changed(content: str, number: int, change: Callable[[str], str]) -> str:
    """With another line in the place of one."""
    lines = content.split("\n")
    lines[number - 1] = change(lines[number - 1])
    return "\n".join(lines)


def separators() -> Iterator[Case]:
    names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
    ends = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}
    for sep, name in names.items():
        said = f"separator {name}" if sep in "\t " else f"separator '{sep}'"
        for end, end_name in ends.items():
            content = text(iris(), sep=sep).replace("\n", end)
            yield read(f"{name} {end_name}", content, iris(), said)
        content = text(wine(), sep=sep, decimal=",")
        yield read(f"{name} decimal comma", content, wine(), said, "decimal mark ,")
    mixed = text(iris()).split("\n")
    mixed = "\n".join(line + "\r" * (number % 2) for number, line in enumerate(mixed))
    yield read("mixed line ends", mixed, iris())
    yield read("tsv", text(iris(), sep="\t"), iris(), "separator tab", ending=".tsv")
    yield read("txt", text(iris(), sep=";"), iris(), "separator ';'", ending=".txt")
    yield read("unusual separator told", text(iris(), sep="~"), iris(), sep="~")
    yield refused("unusual separator", text(iris(), sep="~"), "--sep")
    yield refused("two characters between columns", text(iris()).replace(",", "::"), "--sep")
    yield refused("two separators would do", "a;b,c;d\n" + "1;2,3;4\n" * 9, "line 1", "--sep")
    yield read("spaces after separators", text(iris()).replace(",", ", "), iris())
    yield read("separator told in the first line", "sep=;\n" + text(iris(), sep=";"), iris())
    yield read("separator at every end", text(iris()).replace("\n", ",\n"), iris())
    head, rows = text(iris()).split("\n", 1)
    yield read("separator at the ends of rows", head + "\n" + rows.replace("\n", ",\n"), iris())


def aligned() -> Iterator[Case]:
    yield read("aligned", iris().to_string(index=False), iris(), "separator space", ending=".txt")
    spaced = load_iris(as_frame=True).frame
    yield refused("aligned with spaces in names", spaced.to_string(index=False), "--sep")
    yield refused("aligned with row names", iris().to_string(), "column of row names")
    gaps = iris().astype(str)
    gaps.loc[::9, "sepal_width"] = ""
    yield refused("aligned with gaps", gaps.to_string(index=False), "line 2", "--sep")
    gaps.loc[::2, "petal_width"] = ""
    yield refused("aligned with many gaps", gaps.to_string(index=False), "separator")


def accented(names: dict[str, str]) -> pd.DataFrame:
    return iris().assign(species=iris()["species"].replace(names))


WESTERN = {"setosa": "Borsten-Schwertlilie für Gärten", "virginica": "iris de Virginie, bleuté"}
RUSSIAN = {"setosa": "ирис щетинистый", "versicolor": "ирис разноцветный", "virginica": "ирис"}
JAPANESE = {"setosa": "ヒオウギアヤメ", "versicolor": "アイリス", "virginica": "バージニカ"}


def encodings() -> Iterator[Case]:
    western, russian, japanese = map(accented, (WESTERN, RUSSIAN, JAPANESE))
    for code in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        for language, table in (("western", western), ("russian", russian), ("japanese", japanese)):
            yield read(f"{code} {language}", text(table).encode(code), table)
    for code in ("latin-1", "cp1252", "iso8859-15"):
        yield read(f"{code}", text(western).encode(code), western, "cp1252", "--encoding")
    big_endian = b"\xfe\xff" + text(western).encode("utf-16-be")
    yield read("utf-16-be with its mark", big_endian, western, "utf-16")
    for code, table in (("koi8-r", russian), ("cp1251", russian), ("shift-jis", japanese)):
        content = text(table).encode(code)
        if code == "koi8-r":
            yield refused(f"{code}", content, "it may be", "koi8_r", "cp1251", "--encoding")
        else:
            yield read(f"{code}", content, table, "it is not UTF-8", "--encoding")
        yield read(f"{code} told", content, table, codecs.lookup(code).name, encoding=code)
    semicolons = text(western, sep=";", decimal=",").encode("cp1252")
    yield read("cp1252 semicolon decimal comma", semicolons, western, "decimal mark ,")
    yield read("ascii", text(iris()).encode("ascii"), iris(), "utf-8")
    said = ("it may be UTF-8", "'GÃ¤rten'"[1:5])
    yield read("utf-8 told as latin-1", text(western), garbled(western), *said, encoding="latin-1")
    wrong = (("utf-16", "no mark", text(western).encode()), ("utf-8", "bytes", semicolons))
    for code, name, content in wrong:
        yield refused(f"told as {code} {name}", content, "--encoding", encoding=code)
    marked = text(western).encode("utf-16")
    yield refused("utf-16 told as cp1252", marked, "begins with the mark", encoding="cp1252")
    yield refused(
        "koi8-r told as utf-8", text(russian).encode("koi8-r"), "--encoding", encoding="utf-8"
    )


def garbled(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(species=[t.encode().decode("latin-1") for t in table["species"]])


def zipped(files: dict[str, bytes]) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def compressed() -> Iterator[Case]:
    content = text(wine()).encode()
    packed = {
        "gz": gzip.compress(content, mtime=0),
        "bz2": bz2.compress(content),
        "xz": lzma.compress(content),
        "zst": zstandard.compress(content),
        "zip": zipped({"wine.csv": content}),
    }
    for kind, data in packed.items():
        yield read(kind, data, wine(), kind, ending=f".csv.{kind}")
        yield read(f"{kind} without its ending", data, wine(), kind)
        yield refused(f"{kind} truncated", data[: len(data) // 2], "damaged", ending=f".csv.{kind}")
        hurt = bytearray(data)
        hurt[len(data) // 2] ^= 0xFF
        yield refused(f"{kind} with a wrong byte", bytes(hurt), kind, ending=f".csv.{kind}")
    frames = zstandard.compress(content[:900]) + zstandard.compress(content[900:])
    yield read("zst of two frames", frames, wine(), "zst", ending=".zst")
    yield read("csv named gz", content, wine(), ending=".csv.gz")
    latin = gzip.compress(text(accented(WESTERN), sep=";", decimal=",").encode("cp1252"), mtime=0)
    yield read("cp1252 in gz", latin, accented(WESTERN), "gz", "cp1252", ending=".csv.gz")
    wide = zipped({"wine.csv": text(wine(), sep="\t").encode("utf-16")})
    yield read("utf-16 in zip", wide, wine(), "zip", "utf-16", "separator tab", ending=".zip")
    two = zipped({"a.csv": content, "b.csv": content})
    yield refused("zip of two files", two, "2 files", "'b.csv'", "unpack", ending=".zip")
    yield refused("zip of none", zipped({}), "0 files", ending=".zip")
    mac = zipped({"wine.csv": content, "__MACOSX/._wine.csv": b"\0"})
    yield read("zip of a Mac", mac, wine(), "zip", ending=".zip")
    yield refused("bomb", zstandard.compress(bytes(2**27)), "unpack", ending=".zst")


NOTES = ['one, "two"', "three\nfour", "", "five;six", "it's"]


def quotes() -> Iterator[Case]:
    noted = iris().assign(note=[NOTES[i % len(NOTES)] or f"note {i}" for i in range(150)])
    for sep, name in ((",", "comma"), (";", "semicolon"), ("\t", "tab")):
        yield read(f"quotes breaks and separators {name}", text(noted, sep=sep), noted)
    yield read("all quoted", text(iris(), quoting=csv.QUOTE_ALL), iris())
    yield read(
        "single quotes", text(iris(), quoting=csv.QUOTE_ALL, quotechar="'"), iris(), "quotes '"
    )
    escaped = text(noted, escapechar="\\", doublequote=False)
    yield read("backslashes before quotes", escaped, noted)
    crlf = text(noted, lineterminator="\r\n")
    yield read("breaks in quotes CRLF", crlf, noted)
    broken = text(noted).rstrip("\n") + "\n" + "1,2,3\n"
    line = broken.count("\n")
    yield refused("short line after breaks in quotes", broken, f"line {line} has 3, fewer")
    doubt = noted.assign(id="1,234", petal_width=noted["petal_width"].astype(int))
    doubt = text(doubt[["note", "species", "id"]], sep=";")
    yield refused("doubt after breaks in quotes", doubt, "line 2", "'1,234'", "--decimal")
    opened = changed(text(iris()), 60, lambda line: '"' + line)
    yield refused("quote never closed", opened, "line 60", "quote", "--quote")
    after = changed(text(iris()), 60, lambda line: '"5.0"x' + line[3:])
    yield refused("letters after a quote", after, "line 60", "--quote")
    inches = iris().assign(species=[f'{i % 9}" pot' for i in range(150)])
    content = text(inches, quoting=csv.QUOTE_NONE, quotechar="'")
    yield read("inches", content, inches)
    name = iris().rename(columns={"sepal_width": "sepal\nwidth"})
    spaced = iris().rename(columns={"sepal_width": "sepal width"})
    yield read("break in a name", text(name), spaced)
    breaks = "note,y\n" + '"a\r\nb",1\n' * 20
    yield read("other breaks in quotes", breaks, pd.DataFrame({"note": ["a\r\nb"] * 20, "y": 1}))


def above_and_below() -> Iterator[Case]:
    content = text(iris())
    yield read("title", "Irises of Gaspé\n" + content, iris(), "1 lines before the header")
    yield read("titles and a gap", "Irises\nmeasured 1935\n\n" + content, iris(), "3 lines before")
    yield read("comments", "# made by a machine\n# on Monday\n" + content, iris(), "2 lines before")
    quoted = '"Irises\nof Gaspé"\n' + content
    yield read("title with a break", quoted, iris(), "2 lines before")
    titled = "Report;Irises\n\n" + text(iris(), sep=";")
    yield read("title of two fields", titled, iris(), "2 lines before")
    yield read("lines empty", content.replace("\n", "\n\n"), iris())
    yield read("lines of spaces", content.replace("\nsetosa", "\n"), iris())
    yield read("lines empty at both ends", "\n\n" + content + "\n\n\n", iris())
    blank = changed(content, 40, lambda line: "   \n" + line)
    yield read("line of spaces", blank, iris())
    gone = changed(content, 40, lambda line: ",,,,\n" + line)
    yield read("row of nothing", gone, iris(), "1 rows without any value")
    yield refused("footer", content + "150 rows\n", "line 152", "take it away")
    yield refused("footer of totals", content + "Total,876.5,458.6\n", "line 152", "take it away")
    yield refused("comment within", changed(content, 50, lambda line: "# here\n" + line), "line 50")
    twice = content + content
    texts = pd.read_csv(StringIO(twice), dtype=str)
    yield read("header again", twice, texts, "line 152 has 'sepal_length' among numbers", "--na")
    yield refused("end of a DOS file", content + "\x1a", "line 152")


def ragged() -> Iterator[Case]:
    content = text(iris())
    yield refused("short line", changed(content, 51, lambda line: line[:7]), "line 51", "fewer")
    yield refused("long line", changed(content, 51, lambda line: "9," + line), "line 51", "more")
    yield refused("truncated", content[:-12], "line 151", "fewer")
    yield refused(
        "header too short", content.replace("species", "", 1).replace(",\n", "\n", 1), "name"
    )
    yield refused(
        "header too long", content.replace("species", "species,more", 1), "line 1", "6 names"
    )
    index = iris().rename_axis("id").to_csv().replace("id,", "", 1)
    yield refused("row names without a name", index, "column of row names")
    big = text(pd.concat([cancer()] * 5))
    late = changed(big, 2000, lambda line: line[:40])
    yield refused("short line far below", late, "line 2000", "fewer")
    yield refused(
        "quote far below", changed(big, 2000, lambda line: '"' + line), "line 2000", "--quote"
    )


def names() -> Iterator[Case]:
    content = text(iris())
    twice = content.replace("sepal_width", "sepal_length", 1)
    yield refused("two columns of one name", twice, "'sepal_length'", "rename")
    unnamed = iris().rename(columns={"sepal_width": "Unnamed: 1"})
    yield read("a column without a name", content.replace("sepal_width", "", 1), unnamed, "no name")
    numbered = iris().rename_axis("Unnamed: 0").reset_index()
    yield read("row numbers", iris().to_csv(), numbered, "no name")
    padded = content.replace("sepal_width", "  sepal_width ", 1)
    yield read("spaces around a name", padded, iris())
    plain = iris().set_axis([f"column{i}" for i in range(5)], axis=1)
    headless = text(iris(), header=False)
    yield read("no header", headless, plain, "line 1", "--header")
    yield read("no header told", headless, plain, header=False)
    only = cancer().iloc[:, :30].set_axis([f"column{i}" for i in range(30)], axis=1)
    yield read("no header of numbers", text(only, header=False), only, "--header")
    years = iris().set_axis(["1990", "1991", "1992", "1993", "species"], axis=1)
    yield refused("years for names", text(years), "line 1", "--header", "--no-header")
    yield read("years for names told", text(years), years, header=True)
    long = load_wine(as_frame=True).frame.rename(columns={"ash": "Ash, in % (of dry weight)"})
    yield read("names with marks", text(long), long)
    foreign = iris().rename(columns={"species": "Größe 種"})
    yield read("names in other letters", text(foreign), foreign)
    yield refused(
        "names that cannot be printed", content.replace("species", "sp\x07cies", 1), "name"
    )


def swapped(number: str) -> str:
    return number.translate(str.maketrans(",.", ".,"))


DRESSES: dict[str, tuple[Callable[[float], str], str]] = {
    "unit": (lambda v: f"{v} kg", "numbers in 'kg'"),
    "unit without a space": (lambda v: f"{v}mg", "numbers in 'mg'"),
    "squared unit": (lambda v: f"{v} m²", "numbers in 'm²'"),
    "unit with a stroke": (lambda v: f"{v} km/h", "numbers in 'km/h'"),
    "degrees": (lambda v: f"{v}°C", "numbers in '°C'"),
    "dollars": (lambda v: f"${v:,.2f}", "numbers in '$'"),
    "euros behind": (lambda v: f"{v:.2f} €", "numbers in '€'"),
    "currency before": (lambda v: f"USD {v:.2f}", "numbers in 'USD'"),
    "percent": (lambda v: f"{v}%", "numbers in '%'"),
    "thousands commas": (lambda v: f"{v:,.1f}", "thousands mark ','"),
    "thousands spaces": (lambda v: f"{v:,.1f}".replace(",", " "), "thousands mark ' '"),
    "thousands narrow spaces": (lambda v: f"{v:,.1f}".replace(",", "\u202f"), "thousands mark ' '"),
    "thousands apostrophes": (lambda v: f"{v:,.1f}".replace(",", "'"), "thousands mark '''"),
    "thousands points": (lambda v: swapped(f"{v:,.1f}"), "decimal mark ,"),
    "plus signs": (lambda v: f"{v:+}", ""),
    "exponents": (lambda v: f"{v:.6e}", ""),
    "spaces around": (lambda v: f"  {v}  ", ""),
    "quoted numbers": (lambda v: f"{v} ", ""),
}


def numbers() -> Iterator[Case]:
    for name, (dress, words) in DRESSES.items():
        worn = wine().assign(proline=[dress(value) for value in wine()["proline"]])
        if name == "thousands points":
            worn = wine()[["grape"]].assign(proline=worn["proline"])
            yield read(name, text(worn, sep=";"), wine()[["grape", "proline"]], words)
        else:
            yield read(name, text(worn), wine(), words)
    signed = wine().assign(proline=wine()["proline"] - 700)
    books = [f"({-v:,.1f})" if v < 0 else f"{v:,.1f}" for v in signed["proline"]]
    yield read("brackets for minus", text(signed.assign(proline=books)), signed)
    minus = [str(value).replace("-", "\u2212") for value in signed["proline"]]
    yield read("minus signs of print", text(signed.assign(proline=minus)), signed)
    both = wine().assign(proline=[f"{v:,.0f}".replace(",", ".") for v in wine()["proline"]])
    yield read("thousands points decimal commas", text(both, sep=";", decimal=","), wine())
    whole = wine().assign(proline=[f"{v:,.0f}".replace(",", " ") for v in wine()["proline"]])
    yield read("thousands spaces decimal commas", text(whole, sep=";", decimal=","), wine())
    doubt = "a;y\n" + "".join(f"{i},234;{i % 3}\n" for i in range(1, 60))
    yield refused("decimal or thousands", doubt, "line 2, column 'a'", "--decimal", "--thousands")
    decimal = pd.DataFrame({"a": [i + 0.234 for i in range(1, 60)], "y": np.arange(1, 60) % 3})
    yield read("decimal told", doubt, decimal, decimal=",")
    thousands = decimal.assign(a=[1000 * i + 234 for i in range(1, 60)])
    yield read("thousands told", doubt, thousands, thousands=",")
    clash = wine().assign(ash=[f"{v:,.2f}".replace(".", ",") for v in wine()["ash"]])
    clash = clash.assign(hue=[f"{1000 * v:,.2f}" for v in wine()["hue"]])
    both = wine().assign(hue=(1000 * wine()["hue"]).round(2))
    yield read(
        "columns of two styles",
        text(clash[["ash", "hue"]]),
        both[["ash", "hue"]],
        "decimal mark ,",
        "column 'hue' has decimal mark '.' and thousands mark ','",
    )
    arabic = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    scripts = wine().assign(proline=[str(v).translate(arabic) for v in wine()["proline"]])
    yield read("digits of other scripts", text(scripts), wine())
    full = iris().assign(sepal_width=np.linspace(0, 1, 150))
    yield read("all digits", text(full), full)
    huge = iris().assign(sepal_width=iris()["sepal_width"] * 1e300)
    yield read("large exponents", text(huge), huge)


def kept_as_text() -> Iterator[Case]:
    def with_codes(codes: list[str]) -> pd.DataFrame:
        return iris().assign(code=[codes[i % len(codes)] for i in range(150)])

    def case(name: str, codes: list[str], *words: str) -> Case:
        return read(name, text(with_codes(codes)), with_codes(codes), *words)

    zeros = [f"{i * 37 % 9000:05d}" for i in range(150)]
    yield case("leading zeros", zeros, "leading zeros", "kept as text")
    yield case("leading zeros in some", ["01234", "20095", "00815"], "leading zeros")
    yield case("long numbers", [str(10**17 + i) for i in range(150)], "more than 15 digits")
    yield case("house numbers", [f"{i}{'abc'[i % 3]}" for i in range(1, 60)])
    yield case("house numbers of one letter", [f"{i}a" for i in range(1, 60)])
    yield case("house numbers and plain ones", ["12", "12a", *map(str, range(13, 60))], "'12a'")
    weights = [f"{i} kg" for i in range(1, 60)]
    yield case("two units", [*weights, "70 lb"], "'70 lb'", "one unit")
    yield case("a unit and none", [*weights, "70"], "'70'", "one unit")
    yield case("multiples of one unit", ["3 g", "2 kg", "9 g", "7 g"], "one unit")
    yield case("codes with letters first", [f"SKU{i}" for i in range(100, 160)])
    yield case("ranges", [f"{i}-{i + 9}" for i in range(0, 90, 10)])
    yield case("below a limit", [f"<{i}" for i in range(5)])
    yield case("versions", ["1.2.3", "1.10.0", "2.0.1"])
    yield case("fractions", ["1/2", "3/4", "1/3"])
    yield case("hexadecimal", ["0x1F", "0x2A", "0xFF"])
    yield case("underscores in numbers", ["1_000", "2_000", "3_500"])
    days = pd.date_range("2020-01-28", periods=150)
    formats = {
        "ISO": "%Y-%m-%d",
        "with time": "%Y-%m-%d %H:%M:%S",
        "with T": "%Y-%m-%dT%H:%M:%SZ",
        "day first": "%d/%m/%Y",
        "month first": "%m/%d/%Y",
        "with points": "%d.%m.%Y",
        "short": "%d.%m.%y",
        "in words": "%d %b %Y",
    }
    for name, form in formats.items():
        yield case(f"dates {name}", list(days.strftime(form)))
    yield case("times", [f"{i % 24:02d}:{i % 60:02d}" for i in range(150)])
    for yes, no in (("True", "False"), ("yes", "no"), ("T", "F"), ("ja", "nein")):
        yield case(f"booleans {yes}", [yes, no])
    yield case(
        "one odd value", [*map(str, range(100, 149)), "n. a. (lost)"], "'n. a. (lost)'", "--na"
    )


def missing() -> Iterator[Case]:
    gaps = wine().copy()
    gaps.loc[[3, 8], "ash"] = np.nan
    for mark in ("", "NA", "N/A", "NaN", "NULL", "?", ".", "-", "*", "unknown", "-999", "-9999"):
        marked = wine().astype({"ash": object})
        marked.loc[[3, 8], "ash"] = mark
        said = (f"'{mark}' (2 times)", "--na") if mark else ()
        yield read(
            f"missing {mark or 'empty'}".replace("*", "star").replace("?", "query"),
            text(marked),
            gaps,
            *said,
        )
    high = wine().copy()
    high.loc[[3, 8], "ash"] = 9999
    yield read("perhaps missing 9999", text(high), high, "9999 (2 times)", "--na 9999")
    yield read("missing 9999 told", text(high), gaps, na=("9999",))
    odd = wine().astype({"ash": object})
    odd.loc[[3, 8], "ash"] = "lost"
    yield read("missing told", text(odd), gaps, "'lost' (2 times)", na=("lost",))
    comma = wine().astype({"ash": object})
    comma.loc[[3, 8], "ash"] = "?"
    yield read(
        "missing in decimal commas",
        text(comma, sep=";", decimal=","),  # which leaves the points of texts as they are
        gaps,
        "'?'",
        "column 'ash' has decimal mark '.'",
    )
    names = iris().copy()
    names.loc[[3, 8], "species"] = np.nan
    marked = names.fillna("?")
    yield read("missing category", text(marked), names, "'?' (2 times)")
    none = iris().assign(nothing=np.nan)
    yield read("column of nothing", text(none), none)


def shapes() -> Iterator[Case]:
    one = iris()[["sepal_length"]]
    yield read("one column", text(one), one)
    yield read("one column of texts", text(iris()[["species"]]), iris()[["species"]])
    yield read("one row", text(iris()[:1]), iris()[:1])
    wide = pd.concat([cancer().iloc[:, :30].add_suffix(f" {i}") for i in range(30)], axis=1)[:40]
    yield read("900 columns", text(wide), wide)
    yield refused("empty", "", "empty")
    yield refused("white", " \n\n  \n", "empty")
    yield refused("header only", text(iris()[:0]), "no rows")
    yield refused("separators only", ",,,\n,,,\n", "no rows")
    large = text(iris().assign(note=["x" * 100_000, *["y"] * 149]))
    yield read("large field", large, iris().assign(note=["x" * 100_000, *["y"] * 149]))
    yield refused(
        "huge field", text(iris()[:9].assign(note="x" * 9_000_000)), "line 2", "characters"
    )
    content = text(iris()).encode()
    yield refused("null byte", content.replace(b"5.0", b"5.\x00", 1), "line 6", "null")
    late = text(pd.concat([cancer()] * 5)).encode()
    yield refused("null byte far below", late[:-9] + b"\0" + late[-9:], "line 2846", "null")
    yield refused("null bytes at the end", content + bytes(512), "null")
    strange = iris().assign(species=iris()["species"] + "\u2028x\x0cy")
    yield read("breaks that are none", text(strange), strange)
    emoji = accented({"setosa": "🌸", "virginica": "❄️"})
    yield read("emoji", text(emoji), emoji)


def workbook(*sheets: tuple[str, pd.DataFrame], header: bool = True, **where: Any) -> bytes:
    stream = BytesIO()
    with pd.ExcelWriter(stream, engine="openpyxl") as book:
        for name, table in sheets:
            table.to_excel(book, sheet_name=name, index=False, header=header, **where)
        if where:
            book.sheets[sheets[0][0]]["A1"] = "Irises of Gaspé"
    return stream.getvalue()


def workbooks() -> Iterator[Case]:
    book = workbook(("irises", iris()))
    yield read("workbook", book, iris(), "Excel", ending=".xlsx")
    yield read("workbook named csv", book, iris(), "Excel")
    titled = workbook(("irises", iris()), startrow=3)
    yield read("workbook with a title", titled, iris(), "3 lines before", ending=".xlsx")
    several = workbook(("irises", iris()), ("wines", wine()))
    yield read("workbook of two sheets", several, iris(), "'wines'", "--sheet", ending=".xlsx")
    yield read("second sheet told", several, wine(), "Excel", ending=".xlsx", sheet="wines")
    yield refused("no such sheet", several, "'wines'", ending=".xlsx", sheet="beers")
    bare = workbook(("irises", iris()), header=False)
    yield refused("workbook without names", bare, "row 1", "--header", ending=".xlsx")
    plain = iris().set_axis([f"column{i}" for i in range(5)], axis=1)
    yield read("workbook without names told", bare, plain, ending=".xlsx", header=False)
    twice = iris().set_axis(["a", "b", "a", "c", "species"], axis=1)
    yield refused(
        "workbook of one name twice", workbook(("a", twice)), "'a'", "rename", ending=".xlsx"
    )
    weighed = wine().assign(proline=[f"{v} kg" for v in wine()["proline"]])
    yield read("workbook with units", workbook(("a", weighed)), wine(), "'kg'", ending=".xlsx")
    marked = wine().astype({"ash": object})
    marked.loc[[3, 8], "ash"] = "?"
    gaps = wine().copy()
    gaps.loc[[3, 8], "ash"] = np.nan
    yield read("workbook with marks", workbook(("a", marked)), gaps, "'?'", "--na", ending=".xlsx")
    yield refused("workbook truncated", book[: len(book) // 2], "damaged", ending=".xlsx")
    yield refused("workbook of nothing", workbook(("a", pd.DataFrame())), "no rows", ending=".xlsx")


def parquet(table: pd.DataFrame, **how: Any) -> bytes:
    stream = BytesIO()
    table.to_parquet(stream, **how)
    return stream.getvalue()


def parquets() -> Iterator[Case]:
    content = parquet(iris())
    yield read("parquet", content, iris(), "Parquet", ending=".parquet")
    yield read("parquet named csv", content, iris(), "Parquet")
    kinds = iris().astype({"species": "category"})
    yield read("parquet of categories", parquet(kinds), kinds, ending=".parquet")
    nullable = iris().assign(count=pd.array([*range(149), None], dtype="Int64"))
    yield read("parquet of nullable integers", parquet(nullable), nullable, ending=".parquet")
    dated = iris().assign(day=pd.date_range("2020-01-01", periods=150))
    yield read("parquet of dates", parquet(dated), dated, ending=".parquet")
    indexed = parquet(iris().rename_axis("plant").set_index(iris().index + 7).rename_axis("plant"))
    yield read("parquet with an index", indexed, iris(), "index 'plant'", ending=".parquet")
    weighed = wine().assign(proline=[f"{v} kg" for v in wine()["proline"]])
    yield read("parquet with units", parquet(weighed), wine(), "'kg'", ending=".parquet")
    yield refused("parquet truncated", content[: len(content) // 2], "damaged", ending=".parquet")
    yield refused("parquet of no rows", parquet(iris()[:0]), "no rows", ending=".parquet")
    yield read("csv named parquet", text(iris()), iris(), "it is text", ending=".parquet")
    yield read("csv named xlsx", text(iris()), iris(), "it is text", ending=".xlsx")
    packed = gzip.compress(content, mtime=0)
    yield read("parquet in gz", packed, iris(), "Parquet", "gz", ending=".parquet")


def other_kinds() -> Iterator[Case]:
    rows = iris().to_dict(orient="records")
    yield refused("json", json.dumps(rows), "JSON", "save it as CSV")
    yield refused("json with breaks", json.dumps(rows, indent=2), "JSON", "save it as CSV")
    yield refused("json of columns", iris().to_json(), "JSON", "save it as CSV")
    yield refused("json lines", "\n".join(map(json.dumps, rows)), "JSON", "save it as CSV")
    yield refused("web page", f"<!DOCTYPE html><body>{iris().to_html()}", "web page", "CSV")
    yield refused("web table named xls", iris().to_html(), "web page", "CSV", ending=".xls")
    yield refused("PDF", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "PDF", "CSV")
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
    yield refused("old workbook", old, "old Excel", ".xlsx", ending=".xls")
    stream = BytesIO()
    iris().to_feather(stream)
    yield refused("feather", stream.getvalue(), "Arrow", "Parquet")
    yield refused("pickle", pickle.dumps(iris().to_dict()), "save it as CSV")
    numpy_file = BytesIO()
    np.save(numpy_file, iris().iloc[:, :4].to_numpy())
    yield refused("numpy", numpy_file.getvalue(), "save it as CSV")
    yield refused("database", b"SQLite format 3\0" + bytes(84), "database", "CSV")
    noise = np.random.default_rng(0).bytes(4096)
    yield refused("noise", noise, "--encoding")
    sentences = "It was a dark night; and the rain, alas, fell.\nNobody came.\nThe end!\n"
    yield refused("prose", sentences, "--sep")
    markdown = StringIO()
    markdown.write("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 9)
    yield refused("markdown", markdown.getvalue(), "line")


GROUPS = (
    separators,
    aligned,
    encodings,
    compressed,
    quotes,
    above_and_below,
    ragged,
    names,
    numbers,
    kept_as_text,
    missing,
    shapes,
    workbooks,
    parquets,
    other_kinds,
)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        print(case.write(folder).name)
